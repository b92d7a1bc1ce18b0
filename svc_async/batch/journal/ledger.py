"""The ledger that is kept in a journal, so that a job can be resumed after any end."""

import itertools
import sqlite3
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import attrs

from svc_async.batch.destination import Destination
from svc_async.batch.journal.file import FORMAT, JournalFile
from svc_async.batch.journal.journal import Job, Journal
from svc_async.batch.journal.journals import Journals
from svc_async.batch.journal.resume import RemainingRows, SourceReplay, digest_source, make_source_error
from svc_async.batch.journal.spool import read_spool, write_spool
from svc_async.batch.journal.store import JournalLocation
from svc_async.batch.lane import Lane
from svc_async.batch.lane_events import Settle
from svc_async.batch.ledger import (
    Intent,
    JournalCheckpoint,
    LaneState,
    Ledger,
    Resumption,
    Settlement,
    Unsettled,
    describe_lanes,
)
from svc_async.batch.packing.batch import Batch
from svc_async.batch.packing.positions import Positions
from svc_async.batch.report import Accounting, Report
from svc_async.batch.sender import GRACE, check_sendable
from svc_async.batch.settings import BatchSettings
from svc_async.batch.source import RowSource, Slice
from svc_async.cancellation import in_thread
from svc_async.clock import Clock, read_boottime
from svc_async.value_rules import ValueRule, has_members

__all__ = ["JournalLedger", "JournalPath", "LedgerFactory", "create_ledger"]

JournalPath = str | Path | Journals | JournalLocation
"""The path of a journal, what names one for each run, or another place than a file."""
_IS_LOCATION = has_members("a place of a journal", "open", "make_error")
_JOURNAL = ValueRule(
    lambda value: isinstance(value, str | Path | Journals) or _IS_LOCATION.accepts(value),
    "a path, Journals(folder) or state.journal(name)",
)
_IDENTITY = ("host", "destination")
"""What tells the jobs of a folder apart; their settings may differ from run to run."""


_NOT_ALL_SPOOLED = (
    "belongs to a job that ended before all of its rows were spooled, and the iterator yields none now: pass all rows "
    "again, or delete the journal if there are none any more; nothing was sent"
)


class LedgerFactory(Protocol):
    """A function that creates ledgers, such as `create_ledger`."""

    def __call__(
        self,
        journal: JournalPath | None,
        /,
        *,
        destination: Destination[Any],
        settings: BatchSettings,
        lanes: int,
        clock: Clock,
    ) -> Ledger:
        """Return the ledger of a job."""
        ...


def create_ledger(
    journal: JournalPath | None,
    *,
    destination: Destination[Any],
    settings: BatchSettings,
    lanes: int,
    clock: Clock,
    note: Mapping[str, Any] | None = None,
    factory: type[sqlite3.Connection] = sqlite3.Connection,
) -> Ledger:
    """Return a ledger in a journal, or in memory if there is none.

    Args:
        journal: where the journal is kept, or what names one for each run.
        destination: where the job sends its rows.
        settings: how it sends them.
        lanes: how many lanes a new job has.
        clock: the time.
        note: what describes the job in a new journal, as values for JSON.
        factory: the class of the connection to a journal.

    Raises:
        InvalidArgument: the journal is none of these, or no file can have its path.
    """
    if journal is None:
        return Ledger(lanes)
    _JOURNAL.check("journal", journal)
    if isinstance(journal, str | Path):
        FORMAT.check_path(journal)
        journal = JournalFile(journal, factory)
    return JournalLedger(
        journal,
        destination=destination,
        settings=settings,
        lanes=lanes,
        clock=clock,
        note=note,
        factory=factory,
    )


@attrs.define
class _Entry:
    """What the journal knows of the lanes that one lane sends for.

    Attributes:
        settled_up_to: the highest position among their rows that were intended.
        unsettled: what an earlier run left unsettled.
        intent: the intent that the journal has.
        before: the one that it had before that.
    """

    settled_up_to: int = -1
    unsettled: Positions = attrs.field(factory=Positions)
    intent: Intent | None = None
    before: Intent | None = None


class JournalLedger(Ledger):
    """A ledger in a journal: rows belong to the lane of their key, so that later runs find them there."""

    keyed = True

    def __init__(
        self,
        location: JournalLocation | Journals,
        *,
        destination: Destination[Any],
        settings: BatchSettings,
        lanes: int,
        clock: Clock,
        note: Mapping[str, Any] | None = None,
        factory: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> None:
        super().__init__(lanes)
        self._location = location
        self._destination = destination
        self._settings = settings
        self._clock = clock
        self._note = note
        self._factory = factory
        self._entries: dict[int, _Entry] = {}

    async def __aenter__(self) -> Self:
        about = {**self._destination.about, "ordered": self._settings.ordered}
        job = Job(about=about, lanes=self.lanes, note=self._note)
        self._journal = journal = await Journal.open(await self._find_location(), job, clock=self._clock)
        self._rows = RemainingRows(self._destination.limits, journal)
        self.accounting = Accounting(journal.counts, failures=[*journal.failures])
        self.lanes, self.finished = journal.lanes, journal.report
        sent = journal.sent.items()
        self.sent_at = [datetime.fromtimestamp(second + 1, UTC) for second, count in sent for _ in range(count)]
        return self

    async def _find_location(self) -> JournalLocation:
        if not isinstance(self._location, Journals):
            return self._location
        find, identity = self._location.find, {name: self._destination.about[name] for name in _IDENTITY}
        return JournalFile(await in_thread(lambda: find(identity, self._clock.now())), self._factory)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._journal.close(self._rows.checkpoint if self._rows.is_sound else None)

    async def resume(self, source: RowSource) -> Resumption:
        """Find out what earlier runs left, and verify that the source is the same."""
        journal = self._journal
        if journal.report is not None:
            await self._check_source(source, journal.checkpoint)
            return Resumption(RowSource(_read_nothing, replayable=True))
        source = await self._ensure_replayable(source)
        replay = SourceReplay(journal, self._destination.limits)
        if journal.checkpoint.rows:
            await replay.read(source)
        unsettled = [Unsettled(intent, replay.rebuild(intent), journal.idle) for intent in journal.intents]
        for each in unsettled:
            self._check_digest(each)
            after = each.intent.after
            self._entries[each.intent.sender] = _Entry(after.settled_up_to, after.unsettled, each.intent)
        lane_of = replay.lane_of  # the rest of the replay is not kept
        rest = RowSource(lambda: self._read_rest(source, lane_of), replayable=False)
        may_be_running = journal.killed and not journal.store.is_locked
        # Without order, what the other run still sends is the same as what is sent again.
        grace = GRACE if may_be_running and self._settings.ordered else 0.0
        return Resumption(rest, iter(unsettled), journal.killed, grace, journal.idle)

    async def _ensure_replayable(self, source: RowSource) -> RowSource:
        known = JournalCheckpoint(digest=self._journal.spool_digest)
        if source.replayable:
            return source
        spooled = read_spool(self._journal.store.spool, self._destination.parse_group)
        if known.digest:
            await self._check_source(source, known)
            await self._check_source(spooled, known)  # all of it, before anything is sent
        else:
            await self._journal.mark_spooled(await self._write_spool(source))
        return spooled

    async def _write_spool(self, source: RowSource) -> str:
        """Spool the rows of a source, and return their digest.

        Raises:
            SvcError: there are none, although an earlier run was given some and did not read them all.
        """
        journal = self._journal
        written = await write_spool(source, journal.store.spool, on_first_rows=journal.begin_spool)
        if not written.rows and journal.spool_begun:
            raise journal.location.make_error(_NOT_ALL_SPOOLED)
        return written.digest

    async def _check_source(self, source: RowSource, known: JournalCheckpoint) -> None:
        """Read a source and compare it with what an earlier run has read to the end.

        A source that can be read only once may be empty: its rows were read before, and may not be there any more.

        Raises:
            SvcError: it is another one.
        """
        given = await digest_source(source)
        is_gone = not given.rows and not source.replayable and self._journal.spool_digest
        if not is_gone and given.digest != known.digest:
            raise make_source_error(self._journal)

    def _check_digest(self, unsettled: Unsettled) -> None:
        if unsettled.batch.digest() != unsettled.intent.digest:
            problem = "was written by a version that encodes requests differently; finish it with that version"
            raise self._journal.location.make_error(problem)

    async def _read_rest(self, source: RowSource, lane_of: Mapping[int, int]) -> AsyncGenerator[Slice, None]:
        settled = self._rows.settled
        if self._journal.checkpoint.rows:
            await settled.load(self._journal, lane_of)
            self._entries = {lane: _Entry(settled.settled_up_to.get(lane, -1)) for lane in range(self.lanes)}
        async with aclosing(self._rows.read(source)) as slices:
            async for part in slices:
                yield part

    @property
    def in_transit(self) -> bool:
        """Whether rows that an earlier run left were read, and may not be in a packer yet."""
        return self._rows.settled.in_transit

    def arrive(self) -> None:
        """Note that the packers hold all rows that were read."""
        self._rows.settled.arrive()

    async def intend(self, lane: Lane, packed: Iterable[Collection[int]], /) -> None:
        """Commit that the first batch of a lane is about to be sent."""
        entry, batch = self._entry_of(lane), lane.queue[0]
        positions = batch.positions
        highest = positions.highest
        entry.settled_up_to = max(entry.settled_up_to, highest)
        entry.before = entry.intent
        entry.intent = Intent(
            sender=lane.number,
            after=self._describe_after_first(lane, packed),
            layout=batch.layout,
            positions=positions,
            superseded=lane.superseded_unsettled + batch.superseded,
            pinned=batch.built,
            sent_at=self._clock.now().timestamp(),
            digest=batch.digest(),
        )
        await self._journal.intend(entry.intent, self._rows.checkpoint)

    async def retract(self, lane: Lane, /) -> None:
        """Note that the last intent of a lane was not sent; the next commit includes it."""
        entry = self._entry_of(lane)
        if entry.intent is not None and entry.intent is not entry.before:
            before = entry.before or attrs.evolve(entry.intent, sent_at=None)
            self._journal.retract(entry.intent, before)
            entry.intent = before

    def check_sendable(self) -> None:
        """Make sure that nobody else can have taken up the journal so long ago that it would not wait for a request."""
        if not self._journal.store.is_locked:
            check_sendable(self._journal.confirmed_at, read_boottime(self._clock))

    async def release(self, lane: Lane, /) -> None:
        """Note that the request certainly had no effect; the next commit includes it."""
        entry = self._entry_of(lane)
        if entry.intent is not None:
            entry.intent = attrs.evolve(entry.intent, sent_at=None)
            self._journal.release(entry.intent)

    async def settle(self, lane: Lane, settle: Settle, packed: Iterable[Collection[int]], /) -> None:
        """Note the result of rows; the next commit includes it."""
        entry, receipt, packed = self._entry_of(lane), settle.receipt, list(packed)
        entry.intent = self._intend_rest(lane, entry.intent, settle.in_doubt, packed)
        self._journal.settle(
            Settlement(
                sender=lane.number,
                after=self._describe(lane, lane.queue, packed),
                accepted=receipt.accepted,
                coalesced=len(settle.superseded),
                failures=receipt.failures,
                in_doubt=entry.intent,
            )
        )

    def _intend_rest(
        self, lane: Lane, intent: Intent | None, rest: Batch | None, packed: Iterable[Collection[int]]
    ) -> Intent | None:
        """Return the intent of the part of a batch that its answer does not mention."""
        if intent is None or rest is None:
            return None
        return attrs.evolve(
            intent,
            after=self._describe_after_first(lane, packed),
            layout=rest.layout,
            positions=rest.positions,
            superseded=lane.superseded_unsettled + rest.superseded,
            digest=rest.digest(),
        )

    async def finish(self, report: Report, /) -> None:
        """Commit that nothing is left to do, and delete the spool."""
        await self._journal.finish(report, self._rows.checkpoint)
        await self._journal.store.spool.delete()

    def _entry_of(self, lane: Lane) -> _Entry:
        """Return the entry of a lane; one that sends for several begins with what is known of them."""
        entry = self._entries.get(lane.number)
        if entry is None:
            known = [self._entries[member].settled_up_to for member in lane.members if member in self._entries]
            entry = self._entries[lane.number] = _Entry(max(known, default=-1))
        return entry

    def _describe_after_first(self, lane: Lane, packed: Iterable[Collection[int]]) -> LaneState:
        """Return what is settled once the first batch is."""
        return self._describe(lane, itertools.islice(lane.queue, 1, None), packed)

    def _describe(self, lane: Lane, queue: Iterable[Batch], packed: Iterable[Collection[int]]) -> LaneState:
        entry, left = self._entry_of(lane), self._rows.settled.unsettled
        waiting = itertools.chain(
            [entry.unsettled],
            itertools.chain.from_iterable((batch.positions, batch.superseded) for batch in queue),
            packed,
            (left.get(member, ()) for member in lane.members),
        )
        return describe_lanes(lane.members, entry.settled_up_to, waiting)


async def _read_nothing() -> AsyncGenerator[Slice, None]:
    return
    yield
