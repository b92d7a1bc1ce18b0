from pathlib import Path

import pytest

from svc_async.sandbox import Sandbox
from tests.support.command import Call, Command

USERS = "*/do_not_reach_lists/*/users"


async def test_users_are_added_to_a_list_and_removed(command: Command, sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("email,phone\na@example.org,\n,+4930123456\nnobody,\n")
    target = ("--account", sandbox.account_id, "--list", "dnr7k1")
    ended = await command("do-not-reach", "upload", "people.csv", *target, "--expires-at", "2027-06-01T00:00:00Z")
    assert ended.code == 5
    assert "2 accepted" in ended.out
    assert "1 email must be an e-mail address" in ended.out
    gone = await command("do-not-reach", "remove", "people.csv", *target, "--json")
    assert gone.result["accepted"] == 2
    assert sandbox.requests.count(USERS) == 2


async def test_a_list_keeps_a_journal_of_its_own_work(command: Command, sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("email\na@example.org\n")
    job = ("people.csv", "--account", sandbox.account_id, "--list", "dnr7k1", "--journal", "job.journal")
    assert (await command("do-not-reach", "upload", *job)).code == 0
    assert "nothing was sent" in (await command("job", "resume", "job.journal")).err
    assert (
        "belongs to another job: Upload to a do-not-reach list" in (await command("do-not-reach", "remove", *job)).err
    )
    assert sandbox.requests.count(USERS) == 1


def test_the_embedded_sandbox_has_a_list(call: Call, here: Path) -> None:
    (here / "people.csv").write_text("email\na@example.org\n")
    assert call("do-not-reach", "upload", "people.csv", "--sandbox", "--json").result["accepted"] == 1
    assert call("do-not-reach", "remove", "people.csv", "--sandbox", "--json").result["accepted"] == 1


@pytest.mark.rule("DNR-03")
def test_a_list_takes_addresses_and_numbers_only(call: Call, here: Path) -> None:
    (here / "people.csv").write_text("email,handle\na@example.org,a\n")
    ended = call("do-not-reach", "upload", "people.csv", "--sandbox", "--list", "dnr7k1")
    assert ended.code == 2
    assert "has unknown columns: 'handle'" in ended.err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "--account must be given; `svc-async accounts list` shows yours, and --sandbox tries"),
        (("--list", "x"), "--account must be given"),
    ],
)
def test_list_and_account_must_be_given(call: Call, here: Path, options: tuple[str, ...], expected: str) -> None:
    (here / "people.csv").write_text("email\na@example.org\n")
    ended = call("do-not-reach", "remove", "people.csv", *options)
    assert ended.code == 2
    assert expected in ended.err
