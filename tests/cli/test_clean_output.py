"""Nothing that comes from outside is obeyed by a terminal: names, reasons and paths are escaped when printed."""

import csv
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from svc_async.cli.app import app
from svc_async.printable import clean_lines
from tests.support.command import Call, Ended, list_commands
from tests.support.hostile_service import HOSTILE, run_hostile_service
from tests.support.tiers import keep_short

NAME = HOSTILE.replace("\t", "") + os.fsdecode(b"\xe9")
"""Part of a file name; one byte of it is no text."""
USERS = ("--account", "a", "--audience", "b", "--quarantine", "0")
LIST = ("--account", "a", "--list", "b", "--quarantine", "0")
CATALOG = ("--catalog", "c", "--quarantine", "0")
STATE = ("--state", f"{NAME}.sqlite")

COMMANDS = {
    "accounts list": (),
    "audience list": ("--account", "a"),
    "audience create": (NAME, "--account", "a", "--description", HOSTILE),
    "audience delete": ("--account", "a", "--audience", "b"),
    "audience upload": (f"{NAME}.csv", *USERS, "--report", f"{NAME}.html"),
    "audience remove": (f"{NAME}.csv", *USERS, "--report", f"{NAME}.json"),
    "audience sync": (f"{NAME}.csv", *USERS, *STATE),
    "auth login": ("--profile", "hostile", "--no-browser"),
    "auth logout": ("--profile", "hostile"),
    "auth whoami": ("--check",),
    "catalog upload": (f"{NAME}.feed.csv", *CATALOG),
    "catalog delete": (f"{NAME}.keys.csv", *CATALOG),
    "catalog list": ("--catalog", "c"),
    "catalog sync": (f"{NAME}.feed.csv", *CATALOG, *STATE),
    "do-not-reach upload": (f"{NAME}.csv", *LIST),
    "do-not-reach remove": (f"{NAME}.csv", *LIST),
    "drift": ("--out", f"{NAME}.html"),
    "job status": (f"{NAME}.journal",),
    "job resume": (f"{NAME}.journal",),
    "job report": (f"{NAME}.journal",),
    "dialect check": (f"{NAME}.toml",),
    "trigger": (HOSTILE, "--url", "URL"),
    "webhook check": ("URL/hook",),
    "webhook register": ("https://hooks.example.test/svc", "--event", HOSTILE, "--user", "7"),
    "webhook sign": (f"{NAME}.csv",),
    "webhook verify": (f"{NAME}.csv", "--signature", HOSTILE),
}
ELSEWHERE = {
    "completion",
    "demo",
    "job list",
    "job watch",
    "sandbox",
    "state check",
    "state migrate",
    "state prune",
    "stream tail",
    "webhook listen",
}
"""They have no service, need a database, or run until they are stopped: tests of their own check what they print."""
SHORT = {"accounts list", "audience upload", "job status", "webhook verify"}
CASES = [pytest.param(each, marks=() if each in SHORT else pytest.mark.long) for each in COMMANDS]
FEED = """id,title,description,link,image_link,price,availability,condition
1,T,D,https://example.org/1,https://example.org/1.png,9.90 EUR,in stock,new
"""


@pytest.fixture(scope="module", params=[False, True], ids=["answering", "refusing"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with run_hostile_service(refusing=request.param) as url:
        yield url


@pytest.fixture
def run(url: str, call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    (here / f"{NAME}.csv").write_text("email\na@example.org\nnobody\n")
    (here / f"{NAME}.feed.csv").write_text(FEED)
    (here / f"{NAME}.toml").write_text(f'name = "a"\n[names]\n"{HOSTILE}" = "b"\n')
    (here / f"{NAME}.keys.csv").write_text("product_key\n1\n")
    settings = {"BASE_URL": url, "ADS_URL": f"{url}/ads", "CONSUMER_KEY": "k", "CONSUMER_SECRET": "s"}
    settings |= {"ACCESS_TOKEN": "t", "ACCESS_TOKEN_SECRET": "s"}
    for name, value in settings.items():
        monkeypatch.setenv(f"SVC_{name}", value)
    lines = [f'{name.lower()} = "{value}"' for name, value in settings.items()]
    (here / "svc_async").mkdir(mode=0o700)
    (here / "svc_async" / "profiles.toml").write_text("\n".join(["[hostile]", *lines]))

    def run(*arguments: str | Path) -> Ended:
        monkeypatch.setattr("sys.stdin", io.StringIO("1234\n"))  # the PIN of a login
        return call(*(str(argument).replace("URL", url) for argument in arguments))

    return run


def assert_clean(ended: Ended) -> None:
    for output in (ended.out, ended.err):
        assert clean_lines(output) == output
    assert ended.out or ended.err


@pytest.mark.parametrize("command", CASES)
def test_what_a_command_prints_is_clean_and_its_json_has_one_shape_and_is_ascii(run: Call, command: str) -> None:
    if command.startswith("job"):
        run("audience", "upload", f"{NAME}.csv", *USERS, "--journal", f"{NAME}.journal")
    ended = run(*command.split(), *COMMANDS[command])
    assert_clean(ended)
    if not ended.err.startswith("svc-async: "):
        assert ended.code in (0, 1, 5)
    ended = run(*command.split(), *COMMANDS[command], "--json")
    assert_clean(ended)
    assert ended.out.count("\n") == 1
    assert ended.end["command"] == command
    assert (ended.end["error"] is None) == ("svc-async: " not in ended.err)


def test_files_for_people_are_clean(run: Call, here: Path) -> None:
    run("audience", "upload", f"{NAME}.csv", *USERS, "--report", "report.html")
    for path in (*here.glob("*.html"), *here.glob("*.failures.csv")):
        content = path.read_text(encoding="utf-8")
        assert clean_lines(content) == content


def test_reasons_are_no_formulas_in_a_spreadsheet(run: Call, here: Path) -> None:
    run("audience", "upload", f"{NAME}.csv", *USERS)
    for path in here.glob("*.failures.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]


@pytest.mark.parametrize("command", keep_short(1, [("accounts list",), ("audience upload",), ("audience sync",)]))
def test_colours_are_the_only_sequences_on_a_terminal(run: Call, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    ended = run(*command.split(), *COMMANDS[command])
    for output in (ended.out, ended.err):
        shown = re.sub(r"\x1b\[[\d;]*m|\x1b\[\?25[lh]|\x1b\[[12]?[KA]|\r", "", output)
        assert clean_lines(shown) == shown


def test_every_command_is_listed_here() -> None:
    assert {*list_commands(app)} == {*COMMANDS} | ELSEWHERE
