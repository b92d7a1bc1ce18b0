"""What the command says about wrong input: which option is meant, and what to do next."""

import sys
from pathlib import Path

import pytest

from svc_async.sandbox import Sandbox
from tests.support.command import Call, Command
from tests.support.tiers import keep_short

TARGET = ("--account", "a", "--audience", "b")
UPLOAD = ("audience", "upload", "people.csv")
SYNC = ("audience", "sync", "people.csv")


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text("email\nada@example.org\n")
    return path


@pytest.fixture
def target(sandbox: Sandbox) -> tuple[str, ...]:
    return ("--account", sandbox.account_id, "--audience", sandbox.audience_id)


@pytest.mark.usefixtures("people")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("job", "resume", "a.journal", "--report", "a.html"),
            "--report. `svc-async job report --out FILE` writes",
        ),
        (("--vresion",), "Unknown option: --vresion. Did you mean --version? See "),
        (("--hepl", "audience"), "Unknown option: --hepl. Did you mean --help? See "),
        (("--profile", "x", "audience"), "--profile must follow the name of a command. See "),
        ((*UPLOAD, "--dryrun", *TARGET), "Only a sync has a plan: `svc-async audience sync --dry-run`"),
        ((*UPLOAD, *TARGET, "--concurrency", "abc"), "--concurrency must be a whole number. See `svc-"),
        (("state", "prune", "--older-than", "30"), "--older-than must be a duration, such as 30d or 12h. See "),
        ((*UPLOAD, *TARGET, "--max-failure-share", "1%"), "--max-failure-share must be a number. See "),
        ((*SYNC, "--refresh-days", "x"), "--refresh-days must be a whole number. See "),
    ],
)
def test_a_wrong_command_line_is_answered_with_the_right_one(
    call: Call, arguments: tuple[str, ...], message: str
) -> None:
    ended = call(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err


def test_a_feed_in_xml_is_no_file_of_people(call: Call, here: Path) -> None:
    (here / "feed.xml").write_text("<rss><channel/></rss>")
    ended = call("audience", "upload", "feed.xml", "--sandbox", "--json")
    assert (ended.code, ended.error["hint"]) == (2, "USE_A_FEED")


@pytest.mark.usefixtures("people")
def test_a_region_that_is_none_is_refused_without_the_extra(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "phonenumbers", None)
    refused = [call(*UPLOAD, "--sandbox", "--phone-region", region, "--json") for region in ("Germany", "de", "DE")]
    assert [(each.code, each.error["parameter"]) for each in refused] == [(2, "--phone-region")] * 3
    assert ["svc-async[phone]" in each.err for each in refused] == [False, False, True]


def test_a_sync_that_is_tried_with_a_misspelt_option_is_not_told_that_it_has_none(call: Call, people: Path) -> None:
    ended = call("audience", "sync", people, *TARGET, "--dryrun")
    assert ended.code == 2
    assert "Only a sync has a plan" not in ended.err


@pytest.mark.parametrize(
    ("options", "parameter"),
    keep_short(
        1,
        [
            (("--journal", "none/x.journal"), "journal"),
            (("--journals", "people.csv"), "journal"),
            (("--failures-file", "none/x.csv"), "--failures-file"),
        ],
    ),
)
@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_a_path_that_cannot_be_written_is_refused_with_what_to_change(
    command: Command, people: Path, target: tuple[str, ...], options: tuple[str, ...], parameter: str
) -> None:
    ended = await command("audience", "upload", people.name, *target, *options, "--json")
    assert (ended.code, ended.error["parameter"]) == (2, parameter)


async def test_the_failures_of_a_deletion_of_products_are_named_like_the_command(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "gone.csv").write_text("product_key\nnone\n")
    ended = await command("catalog", "delete", "gone.csv", "--sandbox", "--json")
    assert (ended.code, ended.result["failures_file"]) == (5, "gone.csv.catalog-sandbox.delete.failures.csv")


@pytest.mark.parametrize(
    ("content", "code"),
    keep_short(
        1,
        [
            (f"email\n{'0a' * 16}\n", 5),  # MD5
            (f"email\n{'0a' * 20}\n", 5),  # SHA-1
            ("email\na@example.org\u200b\n", 5),
            ("email^phone\na@example.org^+4930123456\n", 2),
            ("\n\nemail\na@example.org\n", 2),
        ],
    ),
)
async def test_a_value_of_a_wrong_file_is_not_printed(
    command: Command, people: Path, target: tuple[str, ...], content: str, code: int
) -> None:
    people.write_text(content)
    ended = await command("audience", "upload", people.name, *target)
    assert ended.code == code
    assert not [part for part in ("0a0a", "example.org") if part in ended.out + ended.err]


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_a_key_that_another_column_has_is_not_proposed(
    command: Command, people: Path, target: tuple[str, ...]
) -> None:
    people.write_text("email,work email\na@example.org,b@example.org\n")
    refused = await command("audience", "upload", people.name, *target, "--json")
    assert refused.error["hint"] == "MAP_OR_IGNORE"
    assert "may be email" not in refused.err
    both = await command("audience", "upload", people.name, *target, "--map", "work email=email", "--json")
    assert (both.code, both.result["accepted"]) == (0, 1)


async def test_a_call_that_the_host_does_not_have_is_answered_with_the_hosts(command: Command) -> None:
    environ = {**command.environ, "SVC_ADS_URL": command.environ["SVC_BASE_URL"]}
    ended = await Command(command.folder, environ)("accounts", "list", "--json")
    assert (ended.code, ended.error["type"]) == (1, "NotFound")
    assert "SVC_BASE_URL" in ended.err


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_the_journals_of_a_folder_are_listed(command: Command, people: Path, target: tuple[str, ...]) -> None:
    await command("audience", "upload", people.name, *target, "--journals", "nights")
    (people.parent / "nights" / "other.journal").write_text("no journal")
    as_json = await command("job", "status", "nights", "--json")
    assert [(each["state"], each["accepted"]) for each in as_json.result] == [("finished", 1), (None, None)]
    _, first, second = (await command("job", "status", "nights")).out.splitlines()
    assert first.split() == [Path(as_json.result[0]["journal"]).name, "finished", "1"]
    assert as_json.result[1]["problem"] in second


async def test_a_callback_that_the_app_lacks_is_explained(command: Command) -> None:
    ended = await command("auth", "login", "--no-browser", "--callback", "http://127.0.0.1:8766/other")
    assert ended.code == 1
    assert "leave --callback out" in ended.err
