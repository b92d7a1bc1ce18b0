"""Follows a job in its journal, and shows it on a page until it ends."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from svc_async.batch.journal.record import JournalRecord
from svc_async.cancellation import in_thread
from svc_async.cli.job_journal import UNKNOWN_JOB, find_job
from svc_async.cli.job_page import describe_journal_page
from svc_async.cli.watch.server import WatchServer
from svc_async.clock import Clock, SystemClock
from svc_async.errors import InvalidArgument
from svc_async.state import SharedState

__all__ = ["ReadJournal", "follow", "open_file", "open_state"]

_PAUSE = 1.0
"""Seconds between two looks into a journal."""

ReadJournal = Callable[[], Awaitable[JournalRecord]]


@asynccontextmanager
async def open_file(path: Path) -> AsyncGenerator[ReadJournal]:
    """Yield what reads a journal in a file."""

    async def read() -> JournalRecord:
        return await in_thread(lambda: JournalRecord.read(path))

    yield read


@asynccontextmanager
async def open_state(state: SharedState, job: str) -> AsyncGenerator[ReadJournal]:
    """Yield what reads the journal of a job in a shared state."""
    async with state:

        async def read() -> JournalRecord:
            record = await find_job(state, job)
            if record is None:
                raise InvalidArgument("--job", UNKNOWN_JOB)
            return record

        yield read


async def follow(
    read: ReadJournal, *, port: int, on_open: Callable[[str], Awaitable[None]], clock: Clock | None = None
) -> JournalRecord:
    """Show a job on a page until it is finished, or stops after it ran; return what the journal says then.

    Args:
        read: reads the journal.
        port: the port of this machine; 0 takes a free one.
        on_open: called with the URL of the page.
        clock: the time between two looks.
    """
    clock = clock or SystemClock()
    record = await read()
    server = WatchServer(describe_journal_page(record, clock))
    async with server.serve(port):
        await on_open(server.url)
        has_run = record.running
        while record.running or not (has_run or record.finished):
            await clock.sleep(_PAUSE)
            record = await read()
            has_run |= record.running
            await server.update(describe_journal_page(record, clock))
        await server.end()
    return record
