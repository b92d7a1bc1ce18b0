from pathlib import Path

import pytest

from svc_async.sandbox import Sandbox
from tests.support.command import Call, Command

USERS = "*/do_not_reach_lists/*/users"


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_users_are_added_to_a_list_and_removed(command: Command, sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("email,phone\na@example.org,\n,+4930123456\nnobody,\n")
    target = ("--account", sandbox.account_id, "--list", "dnr7k1")
    ended = await command(
        "do-not-reach", "upload", "people.csv", *target, "--expires-at", "2027-06-01T00:00:00Z", "--json"
    )
    assert ended.code == 5
    assert (ended.result["accepted"], ended.result["failed"]) == (2, 1)
    gone = await command("do-not-reach", "remove", "people.csv", *target, "--json")
    assert gone.result["accepted"] == 2
    assert sandbox.requests.count(USERS) == 2


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_a_list_keeps_a_journal_of_its_own_work(command: Command, sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("email\na@example.org\n")
    job = ("people.csv", "--account", sandbox.account_id, "--list", "dnr7k1", "--journal", "job.journal")
    assert (await command("do-not-reach", "upload", *job)).code == 0
    assert (await command("job", "resume", "job.journal")).code == 0
    refused = await command("do-not-reach", "remove", *job, "--json")
    assert (refused.code, refused.error["type"]) == (2, "UnusableFile")
    assert sandbox.requests.count(USERS) == 1


def test_the_embedded_sandbox_has_a_list(call: Call, here: Path) -> None:
    (here / "people.csv").write_text("email\na@example.org\n")
    assert call("do-not-reach", "upload", "people.csv", "--sandbox", "--json").result["accepted"] == 1
    assert call("do-not-reach", "remove", "people.csv", "--sandbox", "--json").result["accepted"] == 1


@pytest.mark.rule("DNR-03")
def test_a_list_takes_addresses_and_numbers_only(call: Call, here: Path) -> None:
    (here / "people.csv").write_text("email,handle\na@example.org,a\n")
    ended = call("do-not-reach", "upload", "people.csv", "--sandbox", "--list", "dnr7k1", "--json")
    assert (ended.code, ended.error["hint"]) == (2, "MAP_OR_IGNORE")


@pytest.mark.parametrize("options", [(), ("--list", "x")])
def test_list_and_account_must_be_given(call: Call, here: Path, options: tuple[str, ...]) -> None:
    (here / "people.csv").write_text("email\na@example.org\n")
    ended = call("do-not-reach", "remove", "people.csv", *options, "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "--account")
