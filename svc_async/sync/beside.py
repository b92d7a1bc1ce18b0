"""Uploads and removals beside a sync: what they send is noted in its state, lest it be wrong without a word.

A removal removes everybody who has one of its identifiers, and an upload may change whoever has one. So every
identifier that is about to be sent is noted first. The next sync takes rows with these keys for rows in doubt, and
sends again whoever else of its source has one of these identifiers, as after a removal of its own.
"""

from collections.abc import AsyncGenerator, Collection, Iterable
from contextlib import asynccontextmanager
from warnings import warn

import attrs

from svc_async.batch.job import Job
from svc_async.batch.lane import Lane
from svc_async.batch.ledger import Ledger
from svc_async.batch.packing.batch import Batch
from svc_async.batch.report import Report
from svc_async.cancellation import in_thread
from svc_async.clock import Clock
from svc_async.engine.pipeline import Pipeline
from svc_async.sync.entries import WrittenIdentifiers
from svc_async.sync.ledger import read_clocks
from svc_async.sync.state import SyncState, check_location, open_sync_state
from svc_async.sync.user_slices import list_identifiers
from svc_async.wire.dialect import Dialect

__all__ = ["WriteNotes", "open_notes", "remember_sync", "warn_of_syncs"]

_synced: set[tuple[str, str]] = set()
"""The governors and names of the lists that this process has synced."""


@attrs.define(eq=False, slots=False)
class WriteNotes(Ledger):
    """Notes in the state of a list which users a job beside its syncs sends.

    Attributes:
        state: the state.
        clock: the time.
        adds: whether the job may add users, or only removes some.
        dialect: the words in which the job is sent, if they are not those of the contract.
    """

    state: SyncState
    clock: Clock
    adds: bool
    dialect: Dialect | None
    _noted: dict[int, Batch] = attrs.field(factory=dict[int, Batch], init=False)
    _was_in_doubt: bool = attrs.field(default=False, init=False)

    async def intend(self, lane: Lane, _packed: Iterable[Collection[int]], /) -> None:
        """Store the identifiers of the first batch of a lane, unless they are, and that a request is about to be sent.

        Raises:
            SvcError: the identifiers could not be stored.
        """
        batch = lane.queue[0]
        self._was_in_doubt |= lane.in_doubt
        identifiers = WrittenIdentifiers()
        if self._noted.get(lane.number) is not batch:
            # It takes a tenth of a second for five megabytes.
            identifiers = await in_thread(lambda: list_identifiers(batch, self.dialect))
        await self.state.note_writes(identifiers, read_clocks(self.clock), adds=self.adds)
        self._noted[lane.number] = batch

    def check_sendable(self) -> None:
        """Make sure that the request goes out soon after the note."""
        self.state.check_writable(read_clocks(self.clock))

    async def finish(self, report: Report, /) -> None:
        """Note that no request of the job can take effect any more, if each had an answer that says what it did."""
        if not (self._was_in_doubt or report.in_doubt or report.failed):
            await self.state.end_writes()


def remember_sync(name: str, sender: Pipeline) -> None:
    """Remember that a session syncs a list, for `warn_of_syncs`."""
    _synced.add((sender.governor_id, name))


def warn_of_syncs(name: str, sender: Pipeline) -> None:
    """Warn, once for each list, that the state of a list which this session syncs will know nothing of what is sent."""
    if (sender.governor_id, name) in _synced:
        warn(f"the next sync of {name} will know nothing of this job: pass state=", stacklevel=2)


@asynccontextmanager
async def open_notes(job: Job, name: str, sender: Pipeline, *, adds: bool) -> AsyncGenerator[WriteNotes | None]:
    """Open the state of a list for a job beside its syncs; None if the job names no state.

    Args:
        job: an upload or a removal.
        name: the list and its host.
        sender: what sends the requests of the job.
        adds: whether the job may add users.

    Raises:
        UnusableFile: the file belongs to another list, is locked, or cannot be used.
        SvcError: the shared state cannot be used.
    """
    if job.state is None:
        warn_of_syncs(name, sender)
        yield None
        return
    async with open_sync_state(check_location(job.state), name) as state:
        await state.begin_writes()
        yield WriteNotes(state, sender.clock, adds, sender.dialect)
