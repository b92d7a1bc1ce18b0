"""Jobs whose journal is in a shared state: stopped, listed, looked at and resumed by their name."""

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest

from svc_async.sandbox import Fault, Sandbox
from svc_async.state import SharedState
from svc_async.state.jobs import JobStore
from tests.support.command import Call, Command, limit_requests

USERS = "*/custom_audiences/*/users"


def upload(sandbox: Sandbox, url: str, *more: str) -> tuple[str, ...]:
    target = ("--account", sandbox.account_id, "--audience", sandbox.audience_id)
    few = ("--users-per-operation", "1", "--concurrency", "1", "--quarantine", "0")
    return ("audience", "upload", "people.csv", *target, "--job", "night run", "--state-url", url, *few, *more)


@pytest.mark.long("runs seven commands in processes of their own, on a database")
async def test_a_job_is_stopped_listed_looked_at_and_resumed(
    command: Command, sandbox: Sandbox, database: str, tmp_path: Path
) -> None:
    command = attrs.evolve(command, program=limit_requests(100))
    rows = [f"user{number}@example.org" for number in range(240)]
    (tmp_path / "people.csv").write_text("\n".join(["email", *rows]))
    sandbox.faults.on("POST", USERS).nth(2).do(Fault.hang())
    running = await command.start(*upload(sandbox, database))
    await sandbox.requests.wait(count=2, route=USERS)
    (listed,) = (await command("job", "list", "--state-url", database, "--json")).result
    assert (listed["job"], listed["state"]) == ("night run", "running")
    running.send(signal.SIGTERM)
    ended = await running.wait()
    assert ended.code == 130
    assert "svc-async job resume --job 'night run'" in ended.err

    job = ("--job", "night run", "--state-url", database)
    status = (await command("job", "status", *job, "--json")).result
    assert (status["journal"], status["state"], status["accepted"]) == ("night run", "stopped", 100)
    assert status["next"] == "Resume it with: svc-async job resume --job 'night run'"

    resumed = (await command("job", "resume", *job, "--json")).result
    assert (resumed["journal"], resumed["accepted"], resumed["pending"]) == ("night run", 240, 0)
    assert len(sandbox.audience(sandbox.audience_id).users) == 240
    again = (await command(*upload(sandbox, database), "--json")).result
    assert again["finished_before"]
    assert (await command("job", "report", *job)).result["state"] == "finished"
    _, line = (await command("job", "list", "--state-url", database)).out.splitlines()
    assert line.split()[:4] == ["night", "run", "finished", "240"]


@pytest.mark.parametrize(
    ("arguments", "parameter"),
    [
        (("job", "status"), "--job"),
        (("job", "status", "a.journal", "--job", "a"), "--job"),
        (("job", "status", "--job", "a"), "--job"),
        (("job", "watch", "--job", "a"), "--job"),
        (("job", "list"), "--state-url"),
    ],
)
def test_a_job_that_is_not_named_clearly_is_refused(call: Call, arguments: tuple[str, ...], parameter: str) -> None:
    ended = call(*arguments, "--json")

    assert (ended.code, ended.error["parameter"]) == (2, parameter)


@pytest.mark.parametrize("operation", ["upload", "remove"])
def test_only_options_that_the_command_takes_are_advised(call: Call, here: Path, operation: str) -> None:
    (here / "people.csv").write_text("email\nada@example.org\n")

    target = ("--account", "a", "--audience", "b", "--job", "nightly")
    ended = call("audience", operation, "people.csv", *target, "--json")

    assert (ended.code, ended.error["parameter"]) == (2, "--job")
    assert ("--state-url" in ended.err, "--embedded" in ended.err) == (True, False)


def test_the_jobs_of_the_embedded_state_are_shown(call: Call, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job with `--cluster local` is there, while it runs and after a kill."""

    @asynccontextmanager
    async def run_postgres() -> AsyncGenerator[str]:
        yield database

    monkeypatch.setattr("svc_async.state.embedded.run_postgres", run_postgres)
    name = "night run"
    call("job", "list", "--embedded")  # makes the tables
    asyncio.run(begin_cluster_job(database, name))

    for command in ("status", "report"):
        ended = call("job", command, "--job", name, "--embedded", "--json")
        assert (ended.code, ended.result["state"]) == (0, "not begun")
    assert call("job", "list", "--embedded", "--json").result == []
    refused = call("job", "status", "--job", name, "--embedded", "--state-url", "postgresql://a/b", "--json")
    assert (refused.code, refused.error["parameter"]) == (2, "--embedded")


async def begin_cluster_job(database: str, name: str) -> None:
    async with SharedState.open(database) as state:
        await JobStore(state.database).take_up(name, about={}, plan={}, shards=[1])


def test_a_job_that_does_not_exist_is_refused(call: Call, database: str) -> None:
    ended = call("job", "resume", "--job", "none", "--state-url", database, "--json")

    assert (ended.code, ended.error["parameter"]) == (2, "--job")


def test_a_journal_is_kept_in_one_place(call: Call, sandbox: Sandbox, database: str, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("email\na@example.org\n")

    ended = call(*upload(sandbox, database, "--journal", "a.journal"), "--json")

    assert (ended.code, ended.error["parameter"]) == (2, "--job")
