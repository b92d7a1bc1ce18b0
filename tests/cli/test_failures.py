"""The list of failures: whose it is, when it is replaced, and what happens if it cannot be written."""

import shutil
import signal
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from svc_async import UnusableFile
from svc_async.cluster.planning import plan_source
from svc_async.sandbox import Fault, Sandbox
from svc_async.sources.detect import open_feed, open_source
from svc_async.webhooks import SqliteInbox
from tests.support.command import Call, Command, limit_files
from tests.support.errors import has
from tests.support.plans import describe
from tests.support.tiers import keep_short

USERS = "*/custom_audiences/*/users"
LAST_NIGHT = "position,line,field,reason,code,file\n1,3,,of last night,X,\n"


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text("email\nnobody\n" + "".join(f"user{n}@example.org\n" for n in range(3_000)))
    return path


def upload(sandbox: Sandbox, *options: str) -> tuple[str, ...]:
    target = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    return "audience", "upload", "people.csv", *target, *options


def listed(people: Path, audience_id: str = "1nmth", operation: str = "upload") -> Path:
    return Path(f"{people}.audience-{audience_id}.{operation}.failures.csv")


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_what_a_run_leaves_beside_its_file_is_no_source(
    command: Command, sandbox: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "people.csv").write_text("email\nuser@example.org\nnobody\n")
    sync = ("audience", "sync", "people.csv", *upload(sandbox)[3:], "--state", "people.state")
    assert (await command(*upload(sandbox, "--journal", "people.journal", "--report", "report.html"))).code == 5
    assert (await command(*sync, "--report", "report.json")).code == 5
    (tmp_path / "cut.failures.csv.new").write_text(LAST_NIGHT)
    async with SqliteInbox(tmp_path / "events.inbox"):
        left = {path.name for path in tmp_path.iterdir() if path.is_file() and path.stat().st_size} - {"people.csv"}
        lists = {listed(Path("people.csv"), sandbox.audience_id, operation).name for operation in ("upload", "sync")}
        files = {"people.journal", "people.state", "report.html", "report.json", "events.inbox", "cut.failures.csv.new"}
        assert left >= lists | files
        for source in (describe(tmp_path), describe(tmp_path / "*", format="csv")):
            (file,) = plan_source(source).files
            assert Path(file.source.path).name == "people.csv"
    for name in lists | files:
        for open_ in (open_source, open_feed):
            with pytest.raises(UnusableFile, check=has(path=str(tmp_path / name))):
                open_(tmp_path / name, mapping={"*": "-"})


@pytest.mark.long("runs three jobs in processes of their own")
async def test_jobs_with_the_same_file_have_lists_of_their_own(
    command: Command, sandbox: Sandbox, people: Path
) -> None:
    other = sandbox.add_audience()
    for audience_id, operation in ((sandbox.audience_id, "upload"), (other, "upload"), (other, "remove")):
        target = ("--account", sandbox.account_id, "--audience", audience_id)
        assert (await command("audience", operation, "people.csv", *target)).code == 5
        assert "0,2,email," in listed(people, audience_id, operation).read_text()


@pytest.mark.parametrize(
    "options",
    [pytest.param((), id="plain"), pytest.param(("--journal", "job.journal"), id="journaled", marks=pytest.mark.long)],
)
async def test_a_second_run_at_the_same_time_leaves_the_list_of_the_first_alone(
    command: Command, sandbox: Sandbox, people: Path, options: tuple[str, ...]
) -> None:
    sandbox.faults.on("POST", USERS).nth(1).do(Fault.hang())
    running = await command.start(*upload(sandbox, *options))
    await sandbox.requests.wait(count=1, route=USERS)
    refused = await command(*upload(sandbox, *options, "--json"))
    assert (refused.code, refused.error["type"], refused.error["repeatable"]) == (1, "UnusableFile", True)
    running.send(signal.SIGINT)
    ended = await running.wait()
    assert f"listed in people.csv{listed(people).name.removeprefix('people.csv')}" in ended.out
    assert "0,2,email," in listed(people).read_text()


@pytest.mark.long("runs three jobs in processes of their own")
async def test_a_run_that_does_nothing_leaves_the_last_list(command: Command, sandbox: Sandbox, people: Path) -> None:
    lists = [listed(people), listed(people, operation="sync")]
    for path in lists:
        path.write_text(LAST_NIGHT)
    sync = ("audience", "sync", "people.csv", *upload(sandbox)[3:])
    assert (await command(*sync, "--dry-run")).code == 5
    sandbox.invalidate(sandbox.credentials["token"])
    assert (await command(*upload(sandbox))).code == 1
    assert (await command(*sync)).code == 1
    assert [path.read_text() for path in lists] == [LAST_NIGHT, LAST_NIGHT]
    assert not [*people.parent.glob("*.new")]


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_a_list_that_cannot_be_written_keeps_no_summary_from_being_printed(
    command: Command, sandbox: Sandbox, people: Path
) -> None:
    folder = people.parent / "lists"
    folder.mkdir()
    sandbox.faults.on("POST", USERS).nth(2).do(Fault.hang())
    options = ("--failures-file", "lists/failed.csv", "--concurrency", "1", "--users-per-operation", "1")
    running = await command.start(*upload(sandbox, *options))
    await sandbox.requests.wait(count=2, route=USERS)
    shutil.rmtree(folder)
    running.send(signal.SIGINT)
    ended = await running.wait()
    assert ended.code == 130
    assert "listed in" not in ended.out
    assert "lists/failed.csv" in ended.err


@pytest.mark.parametrize("name", ["failed.csv", pytest.param("other.csv", marks=pytest.mark.long)])
async def test_failures_that_no_file_lists_are_an_error(
    command: Command, sandbox: Sandbox, tmp_path: Path, name: str
) -> None:
    (tmp_path / "people.csv").write_text("email\na@example.org\n" + "nobody\n" * 400)
    (tmp_path / "failed.csv").write_text(LAST_NIGHT)
    options = ("--failures-file", name)
    as_json = await command(*upload(sandbox, *options, "--json"), program=limit_files(8_192))
    as_text = await command(*upload(sandbox, *options), program=limit_files(8_192))
    assert as_json.code == as_text.code == 1
    error = as_json.error
    problem = error.pop("message")
    assert (name in problem, "earlier run" in problem) == (True, name == "failed.csv")
    assert error == {"type": "UnusableFile", "sent": "yes", "repeatable": False}
    names = ("accepted", "failed", "failures_file", "failures_unlisted")
    assert [as_json.result[name] for name in names] == [1, 400, None, 400]
    assert f"svc-async: {problem}\n" in as_text.err
    assert "listed in" not in as_text.out
    assert (tmp_path / "failed.csv").read_text() == LAST_NIGHT
    assert not [*tmp_path.glob("*.new")]


@pytest.mark.parametrize("name", ["people.csv.audience-sandbox.upload.failures.csv{}", "failed.csv{}"])
@pytest.mark.parametrize("suffix", ["", pytest.param(".new", marks=pytest.mark.long)])
def test_links_are_not_followed(call: Call, here: Path, people: Path, name: str, suffix: str) -> None:
    del people
    (here / "mine.txt").write_text("")
    (here / name.format(suffix)).symlink_to(here / "mine.txt")
    options = ("--failures-file", "failed.csv") if name.startswith("failed") else ()
    ended = call("audience", "upload", "people.csv", "--sandbox", *options, "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "--failures-file")
    assert (here / "mine.txt").read_text() == ""


def test_only_its_owner_can_read_it(call: Call, here: Path, people: Path) -> None:
    del people
    call("audience", "upload", "people.csv", "--sandbox")
    (path,) = here.glob("*.failures.csv")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("share", "code"), keep_short(2, [("0.0001", 5), ("0.001", 0), ("0", 5), ("1", 0)]))
def test_a_share_of_failures_can_be_tolerated(call: Call, people: Path, share: str, code: int) -> None:
    del people
    ended = call("audience", "upload", "people.csv", "--sandbox", "--max-failure-share", share, "--json")
    assert (ended.code, ended.result["failed"]) == (code, 1)


def test_a_share_is_from_0_to_1(call: Call, people: Path) -> None:
    del people
    ended = call("audience", "upload", "people.csv", "--sandbox", "--max-failure-share", "5", "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "--max-failure-share")


def test_failures_in_json_have_line_and_field_and_can_be_left_out(call: Call, people: Path) -> None:
    del people
    report: Mapping[str, object] = call("audience", "upload", "people.csv", "--sandbox", "--json").result
    assert report["failures"] == [
        {
            "position": 0,
            "line": 2,
            "field": "email",
            "reason": "must be an e-mail address",
            "code": "INVALID_ROW",
        }
    ]
    short = call("audience", "upload", "people.csv", "--sandbox", "--json", "--omit-failures").result
    assert short["failed"] == 1
    assert "failures" not in short
