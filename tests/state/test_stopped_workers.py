"""A worker that was stopped and replaced sends nothing when it goes on, in real processes."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import attrs
import pytest

from svc_async.sandbox import Sandbox
from svc_async.state import SharedState
from svc_async.store.records import Changes, Records

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "waitid"), reason="needs signals that stop a process"),
    pytest.mark.long("stops processes, which import for half a second"),
]

ROOT = Path(__file__).parents[2]
USERS = "*/users"


async def take_up(state: SharedState) -> None:
    """Take up the journal, as the next worker does, which then waits for a quarantine."""

    def begin(_: Records) -> tuple[None, Changes]:
        return None, {}

    _, store = await state.journal("job").open(begin)
    await store.close()


@attrs.define
class Worker:
    """A worker that has stopped itself."""

    process: asyncio.subprocess.Process
    seconds: Path

    async def go_on(self, *, stopped: float) -> str:
        """Let it go on after some seconds, and return what it says at its end."""
        self.seconds.write_text(str(stopped))
        self.process.send_signal(signal.SIGCONT)
        said, _ = await self.process.communicate()
        return said.decode().strip()


Start = Callable[[str], AbstractAsyncContextManager[Worker]]


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as running:
        yield running


@pytest.fixture
async def state(postgres_url: str, schema: str) -> AsyncIterator[SharedState]:
    async with SharedState.open(postgres_url, schema=schema) as opened:
        yield opened


@pytest.fixture
def start(postgres_url: str, schema: str, sandbox: Sandbox, tmp_path: Path) -> Start:
    """Start workers that stop themselves at a moment."""
    about = {
        "credentials": dict(sandbox.credentials),
        "base_url": sandbox.base_url,
        "ads_url": sandbox.ads_url,
        "account_id": sandbox.account_id,
        "audience_id": sandbox.audience_id,
    }
    seconds = tmp_path / "seconds"
    seconds.write_text("0")

    @asynccontextmanager
    async def run(moment: str) -> AsyncIterator[Worker]:
        arguments = [moment, str(seconds), postgres_url, schema, json.dumps(about)]
        command = [sys.executable, "-m", "tests.support.stopping_worker", *arguments]
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
        try:
            await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            yield Worker(process, seconds)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    return run


@pytest.mark.parametrize(("moment", "stopped"), [("before the intent", 0), ("before the check", 60)])
async def test_a_worker_that_was_replaced_while_it_was_stopped_sends_nothing(
    state: SharedState, start: Start, sandbox: Sandbox, moment: str, stopped: float
) -> None:
    async with start(moment) as worker:
        await take_up(state)
        assert await worker.go_on(stopped=stopped) == "TakenUpElsewhere 0"

    assert sandbox.requests.count(USERS) == 0


async def test_a_worker_that_was_only_stopped_goes_on(state: SharedState, start: Start, sandbox: Sandbox) -> None:
    del state
    async with start("before the check") as worker:
        assert await worker.go_on(stopped=60) == "accepted 1"

    assert sandbox.requests.count(USERS) == 1


async def test_a_request_goes_out_within_the_time_that_the_next_worker_waits(
    state: SharedState, start: Start, sandbox: Sandbox
) -> None:
    """Whoever takes up the job waits ten seconds longer than a quarantine because of this."""
    async with start("before the check") as worker:
        await take_up(state)
        assert await worker.go_on(stopped=0) == "TakenUpElsewhere 0"

    assert sandbox.requests.count(USERS) == 1
