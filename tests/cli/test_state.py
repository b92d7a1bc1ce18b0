"""The commands that check and maintain a shared state."""

import asyncio
from urllib.parse import urlsplit

import asyncpg
import pytest

from svc_async.printable import clean_lines
from tests.support.command import Call


async def write_hostile_names(url: str) -> None:
    """Write names that a terminal would obey, as another program may."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "svc_async"})
    receiver = "INSERT INTO event_receivers VALUES (gen_random_uuid(), $1, $1, now() + interval '1 hour')"
    for statement in (
        receiver,
        "INSERT INTO stores (what, name, epoch, owner) VALUES ('sync', $1, 1, $1)",
        "INSERT INTO stores (what, name, epoch, owner) VALUES ('journal', $1, 1, $1)",
    ):
        await connection.execute(statement, "\x1b[31m\u202e\nred")
    await connection.close()


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
def test_a_state_is_made_checked_and_pruned(call: Call, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SVC_STATE_URL", database)
    missing = call("state", "check", "--json")
    assert (missing.code, missing.error["hint"]) == (1, "MIGRATE")

    assert call("state", "migrate").code == 0
    assert call("state", "migrate", "--json").result == {"version": 1, "applied": []}

    ended = call("state", "check")
    assert ended.code == 0
    assert "event_inbox" in ended.out
    report = call("state", "check", "--json").result
    assert (report["version"], report["latest"], report["schema"]) == (1, 1, "svc_async")
    assert {each["rows"] for each in report["tables"] if each["name"] == "event_inbox"} == {0}

    asyncio.run(write_hostile_names(database))
    for arguments in (("state", "check"), ("state", "check", "--json"), ("job", "list")):
        ended = call(*arguments)
        assert ended.code == 0
        assert clean_lines(ended.out + ended.err) == ended.out + ended.err
    assert "\\x1b[31m" in call("state", "check").out

    pruned = call("state", "prune", "--older-than", "30d")
    assert (pruned.code, pruned.err.count("Deleted: ")) == (0, 1)
    assert call("state", "prune", "--older-than", "12h", "--json").result["events"] == 0
    assert report["name"].endswith(urlsplit(database).path)


@pytest.mark.parametrize(
    ("arguments", "parameter"),
    [
        (["check"], "--state-url"),
        (["check", "--embedded", "--state-url", "postgresql://a/b"], "--embedded"),
        (["check", "--state-url", "mysql://a:hush@b/c"], "--state-url"),
        (["prune"], None),
        (["prune", "--older-than=-1d"], "--older-than"),
        (["prune", "--older-than", "soon"], None),
    ],
)
def test_wrong_usage_is_explained(call: Call, arguments: list[str], parameter: str | None) -> None:
    ended = call("state", *arguments, "--json")
    assert (ended.code, ended.error.get("parameter")) == (2, parameter)
    assert "hush" not in ended.err


def test_a_database_that_cannot_be_reached_is_one_sentence(call: Call) -> None:
    ended = call("state", "check", "--state-url", "postgresql://user:hush@127.0.0.1:1/customers", "--json")
    assert ended.code == 1
    error = ended.error
    assert error["type"] == "StateUnavailable"
    assert "127.0.0.1:1/customers" in error["message"]
    assert "hush" not in ended.out + ended.err
