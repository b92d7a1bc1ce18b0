"""Files that fail while a job sends their rows: what the command says was sent, and how the job is resumed."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from svc_async.sandbox import Fault, Sandbox
from tests.support.command import Command, Ended

USERS = "*/custom_audiences/*/users"
ROWS = 12_000
ADVICE = "For a file with other rows, run the command with a new journal, or without one."


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text("email\n" + "".join(f"user{number}@example.org\n" for number in range(ROWS)), encoding="utf-8")
    return path


async def upload_while_it_changes(
    command: Command, sandbox: Sandbox, people: Path, options: Sequence[str] = ()
) -> Ended:
    """Append to the file while the first request waits for its answer."""
    sandbox.faults.on("POST", USERS).nth(1).do(Fault.latency(0.5))
    target = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    few = ("--users-per-operation", "1", "--concurrency", "1")
    running = await command.start("audience", "upload", people.name, *target, *few, *options)
    await sandbox.requests.wait(count=1, route=USERS)
    with people.open("a", encoding="utf-8") as file:
        file.write("late@example.org\n")
    return await running.wait()


@pytest.mark.long("the file changes while a request waits, before 12,000 rows are read")
async def test_a_file_that_changes_ends_a_job_that_has_sent_requests(
    command: Command, sandbox: Sandbox, people: Path
) -> None:
    ended = await upload_while_it_changes(command, sandbox, people, ("--json", "--report", "report.json"))
    assert ended.result["accepted"] > 0
    assert ended.code == 1
    assert ended.error["type"] == "UnusableFile"
    assert "was changed while it was in use" in ended.error["message"]
    assert (ended.error["sent"], ended.error["repeatable"]) == ("yes", False)
    assert '"exit_code": 1' in await asyncio.to_thread((people.parent / "report.json").read_text)


@pytest.mark.long("the file changes while a request waits, before 12,000 rows are read")
async def test_a_journal_is_resumed_with_the_file_as_it_was(command: Command, sandbox: Sandbox, people: Path) -> None:
    original = people.read_bytes()
    ended = await upload_while_it_changes(command, sandbox, people, ("--journal", "job.journal"))
    assert ended.code == 1
    assert f"to resume the job. {ADVICE}" in ended.err
    status = (await command("job", "status", "job.journal")).out
    assert f"{people} has changed since: restore it as it was, then resume the job with: svc-async job resume" in status
    people.unlink()
    assert f"{people} does not exist any more: restore it" in (await command("job", "status", "job.journal")).out
    people.write_bytes(original)
    assert "Resume it with: svc-async job resume job.journal" in (await command("job", "status", "job.journal")).out
    resumed = await command("job", "resume", "job.journal", "--json")
    assert resumed.error is None
    assert (resumed.code, resumed.result["accepted"]) == (0, ROWS)


async def test_a_file_with_a_cell_that_is_too_long_is_refused_before_anything_is_sent(
    command: Command, sandbox: Sandbox, people: Path
) -> None:
    people.write_bytes(people.read_bytes() + b"x" * 2**21)
    target = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    ended = await command("audience", "upload", people.name, *target, "--json")
    assert (ended.code, ended.error["sent"]) == (2, "no")
    assert sandbox.requests.count(USERS) == 0
