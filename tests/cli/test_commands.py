"""The other commands, and what all of them have in common."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from svc_async import Session, __version__
from svc_async.__main__ import main
from svc_async.auth.credentials import UserCredentials
from svc_async.sandbox import Fault, Sandbox
from svc_async.users.identifiers import HASH_LIBRARY
from svc_async.wire.base_urls import Endpoints
from tests.support.command import PROGRAM, ROOT, Call, Command, Ended, environment_of
from tests.support.tiers import keep_short

# --- accounts list


async def test_accounts_are_listed_for_people(command: Command, sandbox: Sandbox) -> None:
    ended = await command("accounts", "list")
    assert ended.code == 0
    assert ended.out.splitlines()[0].split() == ["ID", "Name", "Status", "Time", "zone"]
    assert sandbox.account_id in ended.out
    assert "Harbour Books" in ended.out
    assert ended.err == ""


async def test_accounts_are_listed_as_one_object(command: Command, sandbox: Sandbox) -> None:
    ended = await command("accounts", "list", "--json")
    assert [account["id"] for account in ended.result["accounts"]] == [sandbox.account_id]


async def test_accounts_that_cannot_be_read_are_counted(command: Command, sandbox: Sandbox) -> None:
    sandbox.faults.on("GET", "*/accounts").do(Fault.http(200, body=b'{"data": [{"id": "1"}, null]}'))
    ended = await command("accounts", "list", "--quiet")
    assert (ended.code, ended.out, ended.err) == (0, "", "2 accounts could not be read.\n")
    ended = await command("accounts", "list", "--json")
    assert ended.result == {"accounts": [], "unreadable": 2}


async def test_credentials_are_taken_from_a_profile(sandbox: Sandbox, tmp_path: Path) -> None:
    settings = {name.removeprefix("SVC_").lower(): value for name, value in environment_of(sandbox).items()}
    folder = tmp_path / "svc_async"
    folder.mkdir()
    lines = [f'{name} = "{value}"' for name, value in settings.items()]
    (folder / "profiles.toml").write_text("\n".join(["[mine]", *lines]))
    command = Command(tmp_path, {"SVC_CONSUMER_KEY": "of-another"})
    assert (await command("accounts", "list", "--profile", "mine")).code == 0
    ended = await command("accounts", "list", "--profile", "yours", "--json")
    assert (ended.code, ended.error["parameter"], ended.error["hint"]) == (2, "--profile", "STORE_A_PROFILE")


async def test_a_profile_that_others_can_read_is_reported_once(sandbox: Sandbox, tmp_path: Path) -> None:
    settings = {name.removeprefix("SVC_").lower(): value for name, value in environment_of(sandbox).items()}
    (tmp_path / "svc_async").mkdir()
    path = tmp_path / "svc_async" / "profiles.toml"
    path.write_text("\n".join(["[shop]", *(f'{name} = "{value}"' for name, value in settings.items())]))
    path.chmod(0o644)
    ended = await Command(tmp_path, {})("accounts", "list", "--profile", "shop")
    assert (ended.code, ended.err.count("chmod 600")) == (0, 1)


def test_without_a_default_profile_the_error_says_how_to_make_one(call: Call, here: Path) -> None:
    (here / "svc_async").mkdir()
    (here / "svc_async" / "profiles.toml").write_text('[shop]\nconsumer_key = "a"\n')
    ended = call("accounts", "list", "--json")
    assert (ended.code, ended.error["parameter"], ended.error["hint"]) == (2, "--profile", "STORE_A_PROFILE")


async def test_a_service_in_trouble_is_an_error_of_one_line(command: Command, sandbox: Sandbox) -> None:
    sandbox.faults.on("GET", "*/accounts").do(Fault.http(400, message="bad\nluck \x1b[31m"))
    ended = await command("accounts", "list")
    assert ended.code == 1
    assert ended.err.splitlines() == ["svc-async: HTTP 400: BAD_REQUEST bad\\nluck \\x1b[31m"]


# --- sandbox


@pytest.mark.parametrize("program", [main, pytest.param(PROGRAM, marks=pytest.mark.long)], ids=["forked", "alone"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_sandbox_serves_until_it_is_stopped(
    tmp_path: Path, program: Callable[[], int] | tuple[str, ...], number: signal.Signals
) -> None:
    running = await Command(tmp_path, {}).start("sandbox", "--port", "0", "--json", program=program)
    described = await running.item()
    endpoints = Endpoints(base_url=described["base_url"], ads_url=described["ads_url"])
    async with Session(UserCredentials(**described["credentials"]), endpoints=endpoints) as session:
        assert (await session.accounts.get(described["account_id"])).id == described["account_id"]
        catalog = described["product_catalog_id"]
        assert not (await session.product_catalog(catalog).products.list()).items
        assert (await session.product_catalogs.create(name="Shop")).id != catalog
    running.send(number)
    ended = await running.wait()
    assert (ended.code, ended.result, ended.err) == (0, None, "")


async def test_the_login_of_a_service_can_be_tried_with_what_a_sandbox_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await Command(tmp_path, {}).start("sandbox", "--port", "0", "--json")
    described = await running.item()
    variables = described["environment"]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert variables["CALLBACK_URL"] == described["callback_url"]
    async with Session.from_env() as session, aiohttp.ClientSession(described["base_url"]) as browser:
        pending = session.oauth2.authorization_url(scopes=["follow.read"], redirect_uri=variables["CALLBACK_URL"])
        async with browser.post("/_sandbox/oauth/approve", json={"authorization_url": pending.url}) as answer:
            redirect = (await answer.json())["redirect_url"]
        assert (await session.oauth2.exchange(pending, redirect=redirect)).scopes == ("follow.read",)
    running.send(signal.SIGINT)
    await running.wait()


async def test_a_sandbox_answers_to_its_names_only(tmp_path: Path) -> None:
    running = await Command(tmp_path, {}).start("sandbox", "--port", "0", "--json", "--server-name", "Sandbox.test")
    opened = await running.item()
    statuses = [await get_status(opened["ads_url"], host) for host in ("sandbox.test", "other.test")]
    running.send(signal.SIGINT)
    await running.wait()
    assert statuses == [401, 421]


async def test_the_inspector_is_opened_in_a_browser(tmp_path: Path) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}\n', encoding="utf-8")
    browser.chmod(0o700)
    os.mkfifo(opened)
    command = Command(tmp_path, {"BROWSER": str(browser)})
    running = await command.start("sandbox", "--port", "0", "--open", "--json")
    url = (await running.item())["inspector_url"]
    async with aiohttp.request("GET", url) as page:
        assert (page.status, "<title>Sandbox inspector</title>" in await page.text()) == (200, True)
    assert await asyncio.to_thread(opened.read_text, encoding="utf-8") == url
    running.send(signal.SIGINT)
    await running.wait()


async def get_status(url: str, host: str) -> int:
    async with aiohttp.request("GET", f"{url}/12/accounts", headers={"Host": host}) as response:
        return response.status


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_a_sandbox_prints_what_a_shell_needs(tmp_path: Path) -> None:
    running = await Command(tmp_path, {}).start("sandbox", "--port", "0")
    lines = [await running.line() for _ in range(12)]
    variables = dict(line.strip().removeprefix("export ").split("=", 1) for line in lines)
    assert all(line.startswith("export ") for line in lines)
    assert (await Command(tmp_path, variables)("accounts", "list")).code == 0
    ids = ("--account", variables["ACCOUNT_ID"], "--audience", variables["AUDIENCE_ID"])
    (tmp_path / "rows.csv").write_text("email\nada@example.org\n")
    assert (await Command(tmp_path, variables)("audience", "upload", "rows.csv", *ids)).code == 0
    running.send(signal.SIGINT)
    ended = await running.wait()
    assert ended.code == 0
    assert variables["SVC_ADS_URL"] in ended.err
    assert variables["CALLBACK_URL"] in ended.err
    assert "Ctrl-C stops it" in ended.err
    assert ended.err.endswith("The sandbox is closed.\n")


def test_a_port_that_is_taken_is_an_error_of_one_line(call: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = call("sandbox", "--port", str(taken.getsockname()[1]))
    assert ended.code == 2
    assert "--port" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_port_out_of_range(call: Call) -> None:
    ended = call("sandbox", "--port", "70000")
    assert ended.code == 2
    assert "--port" in ended.err


# --- all of them


@pytest.mark.parametrize("arguments", [(), ("--help",), ("audience",), ("audience", "upload", "--help")])
def test_help_is_a_result(call: Call, arguments: tuple[str, ...]) -> None:
    ended = call(*arguments)
    assert ended.code == 0
    assert "Usage: svc-async" in ended.out
    assert ended.err == ""


def test_the_exit_codes_are_in_the_help(call: Call) -> None:
    text = " ".join(call("--help").out.split())
    assert "0 done, 1 failure, 2 wrong usage or input, 5 some rows failed, 130 interrupted" in text


def test_the_version_says_what_takes_the_hashes(call: Call) -> None:
    assert call("--version").out.strip() == f"{__version__} (SHA-256 by {HASH_LIBRARY})"


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (("audeince",), ""),
        (("audience", "uplaod"), "audience "),
        (("accounts", "list", "x"), "accounts list "),
        (("audience", "upload", "f.csv", "--nope"), "audience upload "),
        (("audience", "sync"), "audience sync "),
        (("completion", "csh"), "completion "),
        (("--nope",), ""),
    ],
)
def test_what_is_mistyped_is_one_line_and_exit_2(call: Call, arguments: tuple[str, ...], place: str) -> None:
    ended = call(*arguments)
    assert ended.code == 2
    assert ended.out == ""
    assert len(ended.err.splitlines()) == 1
    assert ended.err.endswith(f" See `svc-async {place}--help`.\n")


def modules_after(*arguments: str) -> set[str]:
    """Run the command in a fresh interpreter and return the modules that it has imported."""
    code = f"import sys; from svc_async.cli.app import run; run({list(arguments)}); print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.splitlines()[-1].split())


ENGINE = {"aiohttp", "tenacity", "cattrs", "svc_async.session", "svc_async.sandbox"}


@pytest.mark.long("each command is imported by an interpreter of its own")
@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("audience", "--help"),
        ("audience", "upload", "--help"),
        ("audience", "sync", "--help"),
        ("do-not-reach", "remove", "--help"),
        ("catalog", "sync", "--help"),
        ("audience", "uplaod"),
    ],
    ids=" ".join,
)
def test_help_loads_no_engine(arguments: tuple[str, ...]) -> None:
    assert modules_after(*arguments) & ENGINE == set()


def commands_in(modules: set[str]) -> set[str]:
    prefix = "svc_async.cli.commands."
    return {module.removeprefix(prefix) for module in modules if module.startswith(prefix)}


@pytest.mark.long("each command is imported by an interpreter of its own")
def test_help_loads_no_other_command() -> None:
    assert commands_in(modules_after("--help")) == set()
    assert commands_in(modules_after("job", "resume", "--help")) == {"job"}
    assert commands_in(modules_after("webhook", "--help")) == {"webhook"}


@pytest.mark.parametrize("missing", keep_short(1, [("cyclopts",), ("rich",), ("tomlkit",)]))
async def test_a_missing_extra_is_explained(tmp_path: Path, missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from svc_async.__main__ import main; sys.exit(main())"
    ended = await Command(tmp_path, {})("--help", program=("-c", code))
    assert ended.code == 2
    assert ended.err == 'svc-async: the command needs the extra "cli": pip install "svc-async[cli]"\n'


@pytest.mark.parametrize(
    ("options", "level", "logged"),
    keep_short(
        2,
        [
            ((), "", 0),
            (("--verbose",), "", 1),
            (("-q",), "info", 0),
            ((), "info", 1),
            ((), "DEBUG", 2),
            (("-v", "-q"), "", None),
        ],
    ),
)
async def test_each_request_is_printed_if_wanted(
    sandbox: Sandbox, tmp_path: Path, options: tuple[str, ...], level: str, logged: int | None
) -> None:
    ended = await Command(tmp_path, {**environment_of(sandbox), "SVC_LOG": level})("accounts", "list", *options)
    if logged is None:
        assert (ended.code, ended.err) == (2, "svc-async: --verbose must not be given with --quiet\n")
    else:
        assert [line.split(": ")[1] for line in ended.err.splitlines()] == ["GET /12/accounts"] * logged


def test_an_unknown_level_is_refused(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SVC_LOG", "loud")
    ended = call("job", "list")
    assert (ended.code, ended.err) == (2, "svc-async: SVC_LOG must be one of debug, info, warning, error\n")


async def test_a_reader_that_has_had_enough_is_no_error(command: Command) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    running = await command.start("accounts", "list", "--json", stdout=writer)
    os.close(writer)
    assert await running.wait() == Ended(1, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a file that is always full")
@pytest.mark.parametrize("arguments", ["--version", pytest.param("accounts list --json", marks=pytest.mark.long)])
async def test_output_that_cannot_be_written_is_one_sentence(command: Command, arguments: str) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    running = await command.start(*arguments.split(), stdout=full)
    os.close(full)
    assert await running.wait() == Ended(1, "", "svc-async: I/O error: No space left on device\n")


@pytest.mark.parametrize("closed", keep_short(1, [("stdout stderr",), ("stdout",), ("stderr",)]))
async def test_a_job_is_done_without_anybody_to_read_its_report(command: Command, tmp_path: Path, closed: str) -> None:
    (tmp_path / "a.csv").write_text("email\na@example.org\n")
    ended = await command("audience", "upload", "a.csv", "--sandbox", program=partial(run_without, closed))
    assert (ended.code, ended.err) == (0, "")


def run_without(streams: str) -> int:
    """Run the command as a shell starts it without some of its streams."""
    for name in streams.split():
        os.close(getattr(sys, name).fileno())
        setattr(sys, name, None)
    return main()


@pytest.mark.long("a shell starts an interpreter for each command")
@pytest.mark.parametrize(
    ("line", "ended"),
    [
        ("accounts list --json | true; exit 0", Ended(0, "", "")),
        ("completion bash > /dev/full", Ended(1, "", "svc-async: I/O error: No space left on device\n")),
        ("completion bash --json > /dev/full", Ended(1, "", "svc-async: I/O error: No space left on device\n")),
        ("audience upload a.csv --sandbox >&-", Ended(0, "", "")),
        ("audience upload a.csv --sandbox >/dev/null 2>&-", Ended(0, "", "")),
    ],
)
async def test_a_shell_that_sends_output_elsewhere_gets_the_same(
    command: Command, tmp_path: Path, line: str, ended: Ended
) -> None:
    (tmp_path / "a.csv").write_text("email\na@example.org\n")
    script = f'"{sys.executable}" -m svc_async {line}'
    assert await command("-c", script, program=("-c", _BASH)) == ended


_BASH = "import subprocess, sys; sys.exit(subprocess.run(['bash', *sys.argv[1:]], check=False).returncode)"


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    keep_short(
        4,
        [
            (("audience", "upload"), 2, "UsageError"),
            (("audience", "upload", "nowhere.csv", "--sandbox"), 2, "UnusableFile"),
            (("audience", "upload", "f.csv", "--account", "a"), 2, "InvalidArgument"),
            (("audience", "upload", "f.csv", "--sandbox", "--account", "18ce55gze09"), 1, "Forbidden"),
            (("accounts", "list"), 2, "InvalidArgument"),
            (("job", "status", "nowhere"), 2, "UnusableFile"),
            (("job", "report", "nowhere"), 2, "UnusableFile"),
            (("webhook", "check", "x"), 2, "InvalidArgument"),
            (("trigger", "x", "--url", "http://127.0.0.1:9"), 2, "InvalidArgument"),
        ],
    ),
)
def test_an_error_is_an_object_too(call: Call, here: Path, arguments: tuple[str, ...], code: int, kind: str) -> None:
    (here / "f.csv").write_text("email\na@example.org\n")
    ended = call(*arguments, "--json")
    assert ended.code == code
    assert ended.out.count("\n") == 1
    error = ended.error
    assert error["type"] == kind
    assert ended.err == f"svc-async: {error['message']}\n"


def run_encoded(encoding: str) -> int:
    """Run the command as PYTHONIOENCODING has an interpreter open its output."""
    sys.stdout = os.fdopen(1, "w", encoding=encoding, closefd=False)
    return main()


@pytest.mark.parametrize("program", [partial(run_encoded, "cp1252"), pytest.param(PROGRAM, marks=pytest.mark.long)])
async def test_a_name_that_the_output_cannot_encode_is_escaped(
    tmp_path: Path, program: Callable[[], int] | tuple[str, ...]
) -> None:
    (tmp_path / "Łodz.csv").write_text("email\na@example.org\n")
    command = Command(tmp_path, {"PYTHONIOENCODING": "cp1252", "LC_ALL": "C.UTF-8"})
    ended = await command("audience", "upload", "Łodz.csv", "--sandbox", program=program)
    assert ended.code == 0
    assert "1 accepted" in ended.out
    assert ended.out.startswith("\\u0141odz.csv: 1 row read")


def test_a_command_takes_one_file(call: Call, here: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (here / name).write_text("email\na@example.org\n")
    ended = call("audience", "upload", "a.csv", "b.csv", "--sandbox")
    assert ended.code == 2
    assert "b.csv" in ended.err


@pytest.mark.parametrize(
    ("file", "hint"), [("https://example.org/people.csv", "DOWNLOAD_IT"), ("people-*.csv", "GIVE_ONE_FILE")]
)
def test_what_is_no_file_is_named_with_what_to_do(call: Call, file: str, hint: str) -> None:
    ended = call("audience", "upload", file, "--sandbox", "--json")
    assert (ended.code, ended.error["parameter"], ended.error["hint"]) == (2, "file", hint)


@pytest.mark.long("runs five commands in processes of their own")
async def test_a_profile_that_is_not_there_is_named_by_what_chose_it(command: Command, tmp_path: Path) -> None:
    (tmp_path / "svc_async").mkdir()
    (tmp_path / "svc_async" / "profiles.toml").write_text("")
    by_variable = Command(tmp_path, {**command.environ, "SVC_PROFILE": "nope"})
    for arguments in (("accounts", "list"), ("auth", "whoami"), ("auth", "logout"), ("webhook", "check", "http://h/")):
        ended = await by_variable(*arguments)
        assert ended.code == 2
        assert ended.err.startswith("svc-async: SVC_PROFILE 'nope' is not in ")
    assert (await command("accounts", "list", "--profile", "nope")).err.startswith("svc-async: --profile 'nope'")


@pytest.mark.long("runs three commands in processes of their own")
async def test_without_a_file_of_profiles_the_variable_that_names_one_is_named(
    command: Command, tmp_path: Path
) -> None:
    by_variable = Command(tmp_path, {**command.environ, "SVC_PROFILE": "nope"})
    for arguments in (("accounts", "list"), ("state", "check")):
        ended = await by_variable(*arguments, "--json")
        assert (ended.code, ended.error["hint"]) == (2, "STORE_A_PROFILE")
        assert ("SVC_PROFILE" in ended.err, "Session" in ended.err) == (True, False)
    assert "SVC_PROFILE" not in (await command("accounts", "list", "--profile", "nope")).err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["whoami"], 'Unknown command "whoami". Did you mean `svc-async auth whoami`?'),
        (
            ["list"],
            (
                'Unknown command "list". Did you mean `svc-async accounts list` or `svc-async audience list` or '
                "`svc-async catalog list` or `svc-async job list`?"
            ),
        ),
        (["--profile", "x", "accounts", "list"], "--profile must follow the name of a command."),
        (["auth", "--json=true"], "--json must follow the name of a command."),
    ],
)
def test_a_misplaced_word_is_put_where_it_belongs(call: Call, arguments: list[str], problem: str) -> None:
    ended = call(*arguments)
    assert ended.code == 2
    assert f"svc-async: {problem} See" in ended.err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    keep_short(
        4,
        [
            (
                ["do-not-reach", "upload", "f.csv", "--do-not-reach", "x"],
                "Unknown option: --do-not-reach. Did you mean --list?",
            ),
            (["do-not-reach", "remove", "f.csv", "--audience=x"], "Unknown option: --audience. Did you mean --list?"),
            (["audience", "sync", "f.csv", "--list", "x"], "Unknown option: --list. Did you mean --audience?"),
            (["catalog", "sync", "f.csv", "--list", "x"], "Unknown option: --list. Did you mean --catalog?"),
            (["accounts", "list", "--audience", "x"], "Unknown option: --audience."),
            (["audience", "sync", "f.csv", "--journal", "x"], "Unknown option: --journal. A sync needs no journal:"),
            (["catalog", "sync", "f.csv", "--job=x"], "Unknown option: --job. A sync needs no journal:"),
            (
                ["do-not-reach", "sync", "f.csv"],
                "A do-not-reach list cannot be synced: `svc-async do-not-reach upload` adds",
            ),
            (["do-not-reach", "create"], "An account has at most one do-not-reach list: account.do_not_reach_lists"),
        ],
    ),
)
def test_what_was_looked_for_is_named(call: Call, arguments: list[str], problem: str) -> None:
    ended = call(*arguments)
    assert ended.code == 2
    assert ended.err.startswith(f"svc-async: {problem} ")


@pytest.mark.parametrize(
    ("options", "wrong"),
    keep_short(
        2,
        [
            (("--map", "Mail=email", "--map", "Tel"), "number 2"),
            (("--map", "Tel"), ""),
            (("--map", "a=email", "--map", "b=mial"), "'b'"),
            (("--map", "*=email", "--map", "a=email"), "'*'"),
        ],
    ),
)
def test_of_several_assignments_the_wrong_one_is_named(
    call: Call, here: Path, options: tuple[str, ...], wrong: str
) -> None:
    (here / "f.csv").write_text("a,b\na@example.org,x\n")
    ended = call("audience", "upload", "f.csv", "--sandbox", *options, "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "--map")
    assert wrong in ended.error["message"]


@pytest.mark.parametrize(
    "options",
    keep_short(
        1,
        [
            (("audience", "--expires-at", "2020-01-01T00:00:00Z"),),
            (("do-not-reach", "--expires-at", "2020-01-01T00:00:00Z"),),
            (("audience", "--effective-at", "2999-01-02T00:00:00Z", "--expires-at", "2999-01-01T00:00:00Z"),),
        ],
    ),
)
def test_an_end_that_is_too_early_is_named_as_it_is_spelled(call: Call, here: Path, options: tuple[str, ...]) -> None:
    (here / "f.csv").write_text("email\na@example.org\n")
    ended = call(options[0], "upload", "f.csv", "--sandbox", *options[1:], "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "--expires-at")


@pytest.mark.parametrize("variables", [("SVC_CONSUMER_KEY",), ("SVC_CONSUMER_KEY", "SVC_ADS_URL")])
def test_a_stray_variable_is_named_with_the_profile_that_it_hides(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch, variables: tuple[str, ...]
) -> None:
    for name in variables:
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    alone = call("accounts", "list")
    (here / "svc_async").mkdir()
    path = here / "svc_async" / "profiles.toml"
    path.write_text("[default]\n")
    path.chmod(0o600)
    ended = call("accounts", "list")
    assert (alone.code, ended.code) == (2, 2)
    assert "'default'" not in alone.err
    assert "'default'" in ended.err
    assert all(name in ended.err for name in variables)
    path.write_text("no TOML")
    assert call("accounts", "list").err == alone.err


@pytest.mark.parametrize("arguments", [("people.csv", "--dry-run"), ("--dry-run", "people.csv")])
def test_a_dry_run_of_an_upload_points_to_what_there_is(call: Call, arguments: tuple[str, ...]) -> None:
    ended, other = (call(group, "upload", *arguments) for group in ("audience", "do-not-reach"))
    assert (ended.code, other.code) == (2, 2)
    assert ("audience sync" in ended.err, " sync" in other.err) == (True, False)
