"""Whatever a command is asked, what it prints with `--json` has one shape."""

import signal
from pathlib import Path

import pytest

from svc_async.cli.app import app
from tests.support.command import Call, Command, list_commands, read_shape

COMMANDS = list_commands(app)


def test_the_walk_finds_all_commands() -> None:
    assert len(COMMANDS) >= 29
    assert {"audience sync", "completion", "job watch", "sandbox"} <= {*COMMANDS}


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_usage_has_the_shape_of_a_result(call: Call, command: str) -> None:
    ended = call(*command.split(), "--json", "--no-such-option")
    assert (ended.code, ended.end["command"], ended.end["result"]) == (2, command, None)
    assert ended.error["type"] == "UsageError"
    assert ended.err == f"svc-async: {ended.error['message']}\n"


@pytest.mark.parametrize("arguments", [("acounts", "--json"), ("accounts", "lst", "--json")])
def test_an_unknown_command_has_it_too(call: Call, arguments: tuple[str, ...]) -> None:
    ended = call(*arguments)
    assert ended.code == 2
    assert "Did you mean" in ended.error["message"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--json", "accounts", "list"),
        ("accounts", "--json", "list"),
        ("-q", "--json=true", "accounts", "list"),
        ("accounts", "-v", "--json", "list"),
    ],
    ids=" ".join,
)
def test_json_may_be_asked_for_before_the_name_of_the_command(call: Call, arguments: tuple[str, ...]) -> None:
    assert call(*arguments).end == call("accounts", "list", "--json").end


@pytest.mark.parametrize(("option", "count"), [("--json=true", 1), ("--json=Yes", 1), ("--json=false", 0)])
def test_json_may_be_asked_for_by_a_value(call: Call, option: str, count: int) -> None:
    ended = call("job", "status", "nowhere", option)
    assert ended.code == 2
    assert ended.out.count("\n") == count


def test_what_is_no_option_asks_for_no_json(call: Call) -> None:
    assert call("job", "status", "--", "--json").out == ""


@pytest.mark.parametrize("arguments", [("--version",), ("accounts", "list", "--help")])
def test_help_and_version_are_text(call: Call, arguments: tuple[str, ...]) -> None:
    assert call(*arguments, "--json").out == call(*arguments).out


def test_an_early_end_has_a_result_and_an_error(call: Call, here: Path) -> None:
    (here / "people.csv").write_text("email\na@example.org\n")
    sync = ("audience", "sync", "people.csv", "--sandbox", "--json")
    ended = call(*sync, "--dry-run")
    assert ended.result["additions"] == 1
    ended = call("audience", "upload", "people.csv", "--sandbox", "--audience", "nowhere", "--json")
    assert ended.result["pending"] == 1
    assert ended.error["status"] == 404


async def test_what_follows_something_prints_items_and_then_its_end(tmp_path: Path) -> None:
    running = await Command(tmp_path, {}).start("sandbox", "--port", "0", "--json")
    assert "inspector_url" in await running.item()
    running.send(signal.SIGINT)
    ended = await running.wait()
    end = read_shape(ended.out)
    assert (end["command"], end["result"], end["error"], end["exit_code"]) == ("sandbox", None, None, 0)
