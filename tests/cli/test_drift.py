"""`svc-async drift`: the exit code says whether answers have something new, and what is known stays in a file."""

import json
import tomllib
from pathlib import Path

import pytest

from svc_async.sandbox import Fault, Sandbox
from tests.support.command import Command
from tests.support.contract import build_record

CARDS = "*/cards"
NEW = {
    "operation": "GET /12/accounts/{account_id}/cards",
    "kind": "unknown_field",
    "place": "data[].secret_plan",
    "found": "",
}


@pytest.fixture
def drifted(sandbox: Sandbox) -> Sandbox:
    """A sandbox whose cards have a field more."""
    card = {**build_record("Card"), "secret_plan": "ada@example.org"}
    body = json.dumps({"data": [card], "next_cursor": None, "request": {"params": {}}}).encode()
    sandbox.faults.on("GET", CARDS).do(Fault.http(200, body=body))
    return sandbox


async def test_a_sandbox_has_no_drift(command: Command, sandbox: Sandbox) -> None:
    ended = await command("drift", "--json")
    assert (ended.code, ended.result["findings"], ended.result["failed"]) == (0, [], [])
    assert {entry.method for entry in sandbox.requests} == {"GET"}


@pytest.mark.long("runs the command three times")
async def test_new_drift_is_shown_and_then_known(command: Command, drifted: Sandbox) -> None:
    del drifted
    ended = await command("drift", "--out", "drift.json", "--accepted", "known.toml", "--accept")
    assert ended.code == 0
    known = command.folder / "known.toml"
    assert tomllib.loads(known.read_text()) == {"finding": [NEW]}
    ended = await command("drift", "--out", "drift.json", "--accepted", "known.toml")
    assert ended.code == 0
    ended = await command("drift", "--out", "drift.json")
    assert (ended.code, "data[].secret_plan" in ended.out) == (1, True)
    written = (command.folder / "drift.json").read_text()
    (finding,) = json.loads(written)["result"]["findings"]
    assert finding == {**NEW, "expected": "", "count": 1, "is_new": True}
    assert "ada" not in written + ended.out + ended.err


async def test_a_page_says_the_same(command: Command, drifted: Sandbox) -> None:
    del drifted
    ended = await command("drift", "--out", "drift.html", "--quiet")
    page = (command.folder / "drift.html").read_text()
    assert (ended.code, NEW["place"] in page, "ada" in page) == (1, True, False)


async def test_a_call_that_fails_is_another_exit_code(command: Command, sandbox: Sandbox) -> None:
    sandbox.faults.on("GET", "*/features").do(Fault.http(403))
    ended = await command("drift", "--json")
    assert (ended.code, [each["call"] for each in ended.result["failed"]]) == (2, ["features.list"])
    assert ended.error["type"] == "Forbidden"


async def test_an_app_has_its_webhooks_compared(tmp_path: Path, sandbox: Sandbox) -> None:
    app = {f"SVC_{name.upper()}": value for name, value in sandbox.app.items() if name.startswith("consumer")}
    hosts = {"SVC_BASE_URL": sandbox.base_url, "SVC_ADS_URL": sandbox.ads_url}
    ended = await Command(tmp_path, {**app, **hosts})("drift", "--json")
    assert (ended.code, ended.result["findings"]) == (0, [])
    assert [each["operation"] for each in ended.result["operations"]] == ["POST /oauth2/token", "GET /2/webhooks"]


@pytest.mark.parametrize(
    ("content", "where"),
    [
        ('[[finding]]\noperation = "GET /"\nkind = "new"\nplace = "x"', "finding 1"),
        ('[[finding]]\nkind = "other_type"', "operation"),
        ("finding = 1", "[[finding]]"),
        ("[[finding]\n", "line 1"),
        ("a" + ".a" * 2_000 + " = 1", "line 1"),
    ],
)
async def test_a_file_of_known_drift_that_is_something_else_is_refused(
    command: Command, sandbox: Sandbox, content: str, where: str
) -> None:
    (command.folder / "known.toml").write_text(content)
    ended = await command("drift", "--accepted", "known.toml", "--accept", "--json")
    assert (ended.code, ended.error["type"], ended.error["parameter"]) == (2, "UnusableFile", "--accepted")
    assert where in ended.error["message"]
    assert (command.folder / "known.toml").read_text() == content
    assert not sandbox.requests


@pytest.mark.parametrize("options", [("--accept",), ("--out", "drift.txt"), ("--accepted", "nothing.toml")])
async def test_options_that_cannot_be_used_are_refused(
    command: Command, sandbox: Sandbox, options: tuple[str, ...]
) -> None:
    ended = await command("drift", *options)
    assert (ended.code, [*sandbox.requests]) == (2, [])
