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
    keep_short(
        7,
        [
            (UPLOAD, "--account must be given; `svc-async accounts list` shows yours, and --sandbox"),
            (("do-not-reach", "remove", "people.csv"), "--account must be given; "),
            ((*UPLOAD, "--account", "a"), "--audience must be given; --sandbox tries the command without any"),
            (
                ("job", "resume", "a.journal", "--report", "a.html"),
                "--report. `svc-async job report --out FILE` writes",
            ),
            (("--vresion",), "Unknown option: --vresion. Did you mean --version? See "),
            (("--hepl", "audience"), "Unknown option: --hepl. Did you mean --help? See "),
            (("--profile", "x", "audience"), "--profile must follow the name of a command. See "),
            ((*UPLOAD, "--dryrun", *TARGET), "Only a sync has a plan: `svc-async audience sync --dry-run`"),
            ((*UPLOAD, "--dry_run", *TARGET), "Only a sync has a plan: `svc-async audience sync --dry-run`"),
            (("job", "list", "--state-url", "mysql://a/b"), "--state-url must begin with postgresql://"),
            ((*UPLOAD, *TARGET, "--concurrency", "abc"), "--concurrency must be a whole number. See `svc-"),
            ((*UPLOAD, *TARGET, "--quarantine=x"), "--quarantine must be a number. See "),
            (("state", "prune", "--older-than", "30"), "--older-than must be a duration, such as 30d or 12h. See "),
            ((*UPLOAD, *TARGET, "--max-failure-share", "1%"), "--max-failure-share must be a number. See "),
            ((*SYNC, "--max-removal-share", "20%"), "--max-removal-share must be a number. See "),
            (
                (*SYNC, "--refresh-days", "x"),
                "--refresh-days must be a whole number. See `svc-async audience sync --help`",
            ),
            (
                (*SYNC, "--sandbox", "--state", "people.csv"),
                "is not a sync state; give the file of an earlier sync, or a new ",
            ),
            (
                (*UPLOAD, "--sandbox", "--failures-file", "no/x"),
                "does not exist; give another path with --failures-file",
            ),
            (("job", "list"), "`svc-async job status FILE` shows a journal in a file): give --state-url, "),
        ],
    ),
)
def test_a_wrong_command_line_is_answered_with_the_right_one(
    call: Call, arguments: tuple[str, ...], message: str
) -> None:
    ended = call(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err


def test_a_feed_in_xml_is_no_file_of_people(call: Call, here: Path) -> None:
    (here / "feed.xml").write_text("<rss><channel/></rss>")
    ended = call("audience", "upload", "feed.xml", "--sandbox")
    assert ended.code == 2
    assert ended.err.endswith(" csv, tsv, jsonl, parquet; XML is for products: `svc-async catalog`\n")


@pytest.mark.usefixtures("people")
def test_a_region_that_is_none_is_refused_without_the_extra(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "phonenumbers", None)
    refused = [call(*UPLOAD, "--sandbox", "--phone-region", region).err for region in ("Germany", "de", "DE")]
    assert ["two capital letters, such as DE" in each for each in refused] == [True, True, False]
    assert 'needs the extra "phone"' in refused[2]


def test_a_sync_that_is_tried_with_a_misspelt_option_is_not_told_that_it_has_none(call: Call, people: Path) -> None:
    ended = call("audience", "sync", people, *TARGET, "--dryrun")
    assert ended.code == 2
    assert "Only a sync has a plan" not in ended.err


@pytest.mark.parametrize(
    ("options", "message"),
    keep_short(
        1,
        [
            (
                ("--journal", "none/x.journal"),
                "journal none/x.journal cannot be used: its folder does not exist; create that",
            ),
            (("--journals", "people.csv"), "journal people.csv cannot be used: it is a file; give a folder\n"),
            (
                ("--failures-file", "none/x.csv"),
                "--failures-file cannot be written to none/x.csv: its folder does not exist",
            ),
        ],
    ),
)
async def test_a_path_that_cannot_be_written_is_refused_with_what_to_change(
    command: Command, people: Path, target: tuple[str, ...], options: tuple[str, ...], message: str
) -> None:
    ended = await command("audience", "upload", people.name, *target, *options)
    assert ended.code == 2
    assert message in ended.err


async def test_the_failures_of_a_deletion_of_products_are_named_like_the_command(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "gone.csv").write_text("product_key\nnone\n")
    ended = await command("catalog", "delete", "gone.csv", "--sandbox", "--json")
    assert (ended.code, ended.result["failures_file"]) == (5, "gone.csv.catalog-sandbox.delete.failures.csv")


@pytest.mark.parametrize(
    ("content", "message"),
    keep_short(
        1,
        [
            (
                f"email\n{'0a' * 16}\n",
                "must be an e-mail address or its SHA-256 of 64 hexadecimal digits; MD5 and SHA-1",
            ),
            (f"email\n{'0a' * 20}\n", "MD5 and SHA-1 are not accepted"),
            ("email\na@example.org\u200b\n", "without blanks and invisible characters, such as a zero-width space"),
            ("email^phone\na@example.org^+4930123456\n", "separated by comma, semicolon, tab or bar, not by '^'"),
            ("\n\nemail\na@example.org\n", "has no header: line 1 is blank; delete the blank lines before the header"),
        ],
    ),
)
async def test_a_wrong_file_is_answered_with_the_rule(
    command: Command, people: Path, target: tuple[str, ...], content: str, message: str
) -> None:
    people.write_text(content)
    ended = await command("audience", "upload", people.name, *target)
    assert message in ended.out + ended.err
    assert "0a0a" not in ended.out + ended.err


async def test_a_key_that_another_column_has_is_not_proposed(
    command: Command, people: Path, target: tuple[str, ...]
) -> None:
    people.write_text("email,work email\na@example.org,b@example.org\n")
    refused = await command("audience", "upload", people.name, *target)
    assert "unknown columns: 'work email'; name what each contains with --map COLUMN=KEY, ignore it" in refused.err
    twice = await command("audience", "upload", people.name, *target, "--map", "work email=email")
    assert "more than one column of 'email'; use JSON lines, where a key may have a list of values" in twice.err


async def test_a_call_that_the_host_does_not_have_is_answered_with_the_hosts(command: Command) -> None:
    environ = {**command.environ, "SVC_ADS_URL": command.environ["SVC_BASE_URL"]}
    ended = await Command(command.folder, environ)("accounts", "list")
    assert ended.code == 1
    assert "check the ids, and the hosts (base_url and ads_url of the profile, or SVC_BASE_URL and" in ended.err


async def test_the_journals_of_a_folder_are_listed(command: Command, people: Path, target: tuple[str, ...]) -> None:
    await command("audience", "upload", people.name, *target, "--journals", "nights")
    (people.parent / "nights" / "other.journal").write_text("no journal")
    as_json = await command("job", "status", "nights", "--json")
    assert [(each["state"], each["accepted"]) for each in as_json.result] == [("finished", 1), (None, None)]
    _, first, second = (await command("job", "status", "nights")).out.splitlines()
    assert first.split() == [Path(as_json.result[0]["journal"]).name, "finished", "1"]
    assert as_json.result[1]["problem"] in second


def test_a_login_without_an_app_is_told_what_to_set(call: Call, here: Path) -> None:
    del here
    ended = call("auth", "login")
    assert ended.code == 2
    assert ended.err == (
        "svc-async: app and its hosts must be given to log a user in: set SVC_CONSUMER_KEY, SVC_CONSUMER_SECRET, "
        "SVC_BASE_URL and SVC_ADS_URL\n"
    )


async def test_a_callback_that_the_app_lacks_is_explained(command: Command) -> None:
    ended = await command("auth", "login", "--no-browser", "--callback", "http://127.0.0.1:8766/other")
    assert ended.code == 1
    assert (
        "the callback URL is not among those in the app's settings (in the sandbox, that of the first app is"
        in ended.err
    )
    assert "add this callback URL to the settings of the app, or leave --callback out" in ended.err
