"""The journal of a job: records of what is settled and what is in doubt, however the job ended.

Theory of operation
-------------------
Rows are assigned to lanes by key, and only the rows of one lane have an order among them. For each lane the journal
records the position up to which its rows are settled, and which rows before that position are not: a row that differs
from an earlier one with the same key waits for a later batch, so a batch may settle rows that come after it. The
journal therefore grows with the number of lanes and the size of a request, never with the number of rows.

Before each request an *intent* is committed: the positions of the batch in the order of its body, how they are grouped
into operations, the pinned time, the SHA-256 of the body, the time, and the state of the lane once the batch is
settled. Rows that were superseded by an equal row of the batch are settled with it, and never after it: if they were
read again, they would undo it. The answer replaces the intent by that state and updates the totals. It need not be
awaited, since commits keep their order: the next intent of the lane is committed after it.

A request that waits for the rate limit has no intent: it is committed when the request has its turn, together with how
many requests were sent in each second, for the rate limit of the next run. If the request is not sent after all, since
no connection opens or the job is cancelled, the intent is retracted: that of an attempt before holds again, and without
one the intent says that it had no effect.

A sender sends one batch after another: a lane or, once the source has ended, the remaining rows of several lanes that
share requests. All of these lanes are then settled together; nothing of them is left elsewhere.

A run that ends in good order records how far it has read, so that the rows of its report are those of the journal.

When a job is resumed, its source is read from the start twice. The first reading stops at the checkpoint of the
earlier run; it verifies with a digest that the source is the same, and collects the rows of open intents. These are
resent first, byte for byte, after a whole quarantine: a request that was in flight when the process died may still be
applied late. No clock says when the process died, but that of a database says when it last confirmed that it has the
journal, without which it sends nothing. The time since then counts, or since it ended in good order. Then the
source is read again, and settled rows are skipped. Rows that break a rule never reach a lane; they are found again
and reported again.

If the last run was killed, nothing at all is sent before that: SQLite drops without notice what follows a damaged place
of its log. Rows are then sent again in their order, and what the journal has forgotten is waited for.

    killed before the intent is committed       nothing was sent; the rows are read again
    killed after it, before the answer          in doubt: quarantine, then the same bytes
    killed after the answer, before its commit  likewise: the journal cannot tell the difference
    killed after the commit                     settled; skipped

A finished journal is of a definite job as well: the source is read again, and its digest compared. The records contain
no token and no identifier. Each commit also records the progress of the job, as `timeline` describes it.

Where the records are kept is a matter of `store/`. All of what decides is in memory: the records are read once.
"""

import itertools
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import attrs

from svc_async.batch.destination import Destination
from svc_async.batch.journal.file import FORMAT, JournalFile, Journals
from svc_async.batch.journal.records import (
    KINDS,
    JobState,
    JournalChanges,
    JournalCheckpoint,
    JournalRecords,
    OrderlyEnd,
)
from svc_async.batch.journal.resume import RemainingRows, SettledRows, SourceReplay, digest_source
from svc_async.batch.journal.spool import Spool
from svc_async.batch.lane import Lane, Settle
from svc_async.batch.ledger import GRACE, LONGEST_WINDOW, Intent, Ledger, Resumption, check_sendable
from svc_async.batch.packing.batch import Batch
from svc_async.batch.packing.positions import Positions
from svc_async.batch.report import KEPT_FAILURES, SLOT_WIDTH, SLOTS, Accounting, Failure, Report, widen_slots
from svc_async.batch.settings import BatchSettings
from svc_async.batch.source import RowSource, Slice
from svc_async.cancellation import complete, in_thread
from svc_async.clock import Clock, find_boot, read_boottime
from svc_async.counts import Counts
from svc_async.errors import Hint, SvcError, UnusableFile, UnusableState
from svc_async.store.records import Changes, RecordLocation, Records, RecordStore
from svc_async.value_rules import ValueRule, has_members

__all__ = [
    "JournalLedger",
    "JournalLocation",
    "JournalPath",
    "JournalUnwritable",
]


class JournalUnwritable(SvcError):
    """The journal cannot be written, so nothing more is sent."""


class JournalLocation(RecordLocation, Protocol):
    """A place where one journal is kept, which may not exist yet: a value of `journal=`."""

    @property
    def most_spooled(self) -> float:
        """Bytes of rows that can be read only once that it keeps at most."""
        ...


JournalPath = str | Path | Journals | JournalLocation
"""The path of a journal, what names one for each run, or another place than a file."""
_IS_LOCATION = has_members("a place of a journal", "open", "make_error", "most_spooled")
_JOURNAL = ValueRule(
    lambda value: isinstance(value, str | Path | Journals) or _IS_LOCATION.accepts(value),
    "a path, Journals(folder) or state.journal(name)",
)
_IDENTITY = ("host", "destination")
"""What tells the jobs of a folder apart; their settings may differ from run to run."""


_NOT_ALL_SPOOLED = "belongs to a job that ended before all of its rows were spooled, and the iterator yields none now"


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
    """A ledger in a journal: rows belong to the lane of their key, so that later runs find them there.

    Attributes:
        store: commits its records, once it is entered.
    """

    keyed = True
    store: RecordStore

    def __init__(
        self,
        journal: JournalPath,
        *,
        destination: Destination[Any],
        settings: BatchSettings,
        clock: Clock,
        note: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare to keep a job.

        Args:
            journal: where the journal is kept, or what names one for each run.
            destination: where the job sends its rows.
            settings: how it sends them.
            clock: the time.
            note: a description of the job for a new journal, as values for JSON.

        Raises:
            InvalidArgument: no journal can be kept there.
        """
        super().__init__()
        _JOURNAL.check("journal", journal)
        if isinstance(journal, str | Path):
            FORMAT.check_path(journal)
            journal = JournalFile(journal)
        self._place = journal
        self._destination = destination
        self._settings = settings
        self._clock = clock
        self._note = note
        self._entries: dict[int, _Entry] = {}
        self._confirmed_at = -inf
        """When the last commit was begun after which requests may be sent, by `read_boottime`."""

    async def __aenter__(self) -> Self:
        """Take up the journal of the job, or begin it.

        Raises:
            SvcError: the journal belongs to another job, is locked, or cannot be used.
        """
        place = self._place
        if isinstance(place, Journals):
            find, identity = place.find, {name: self._destination.about[name] for name in _IDENTITY}
            place = JournalFile(await in_thread(lambda: find(identity, self._clock.now())))
        self._location: JournalLocation = place
        await complete(self._open(), undo=lambda _: self._close())
        return self

    async def _open(self) -> None:
        _, self.store = await self._location.open(self._begin, kinds=KINDS)
        if self._killed:
            self._idle = self.store.silence

    def _begin(self, found: Records) -> tuple[None, Changes]:
        """Take over what earlier runs have recorded, and return the records that say that this run has begun."""
        records = JournalRecords.of(found)
        self._state = state = self._find_state(records)
        self._known = state.checkpoint
        self._killed = state.end is None and state.runs > 0
        self._idle = 0.0
        """Seconds that have certainly passed since the last run ended, or last confirmed."""
        if state.end is not None:
            self._idle = state.end.measure_time_since(self._clock.monotonic(), find_boot(self._clock))
        self._began, self._worked_before = self._clock.now().timestamp(), state.worked
        self._intents = [*records.load_intents()]
        self._settled_up_to = dict(records.load_all("lane", int))
        self._unsettled = dict(records.load_unsettled())
        self._slots = dict(records.load_all("slot", tuple[int, int]))
        self._sent = dict(records.load_all("second", int))
        """How many requests were sent in each of the last seconds, by time since the epoch."""
        self.sent_at = [
            datetime.fromtimestamp(second + 1, UTC) for second, count in self._sent.items() for _ in range(count)
        ]
        failures = records.load_failures()
        self._kept_failures = len(failures)
        in_doubt = sum(len(intent.positions) for intent in self._intents if intent.sent_at is not None)
        self.accounting = Accounting(state.count_rows(in_doubt=in_doubt), failures=[*failures])
        if state.finished:
            self.finished = Report(failures=tuple(failures)) + state.counts
        self.lanes = state.lanes
        self._rows = RemainingRows(
            self._destination.limits, self._known, lanes=self.lanes, make_error=self._location.make_error
        )
        self._pending = JournalChanges(records)
        if self._note is not None and not records.has("note") and not state.runs:
            self._pending.put_note(self._note)
        if not state.finished:
            state.runs += 1
        state.end = None
        self._pending.put("job", 0, state)
        return None, self._pending.take()

    def _find_state(self, records: JournalRecords) -> JobState:
        """Return the state that the last run left, or the one in which a job begins.

        Raises:
            SvcError: the journal belongs to another job.
        """
        about = {**self._destination.about, "ordered": self._settings.ordered}
        if not records.has("job"):
            now = self._clock.now().timestamp()
            return JobState(about=about, lanes=self.lanes, began_at=now, slot_width=SLOT_WIDTH, active_at=now)
        state = records.load("job", 0, JobState)
        if state.about != about:
            names = sorted(name for name in {*state.about, *about} if state.about.get(name) != about.get(name))
            pairs = [f"{name} is {state.about.get(name)!r} there, not {about.get(name)!r}" for name in names]
            raise self._location.make_error(f"belongs to another job: {', '.join(pairs)}", Hint.KEEP_THE_SETTINGS)
        return state

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Record that the run ended in good order, and let go of the journal, even if the caller is cancelled."""
        await self._close()

    async def _close(self) -> None:
        if not self._state.finished:
            if self._rows.is_sound:  # rows after the last intent are counted then
                self._advance()
            self._state.end = OrderlyEnd(find_boot(self._clock), self._clock.monotonic())
            self._submit()
        await self.store.close()

    async def resume(self, source: RowSource) -> Resumption:
        """Find out what earlier runs left, and verify that the source is the same."""
        if self.finished is not None:
            await self._check_source(source, self._known)
            return Resumption(RowSource(_read_nothing, replayable=True))
        source = await self._ensure_replayable(source)
        unsettled = itertools.chain.from_iterable(self._unsettled.values())
        replay = SourceReplay(self._intents, unsettled, lanes=self.lanes)
        if self._known.rows and await replay.read(source, self._known) != self._known:
            raise self._make_source_error()
        left = [(intent, replay.rebuild(intent, self._destination.limits)) for intent in self._intents]
        self._intents = []
        for intent, batch in left:
            if batch.digest() != intent.digest:
                problem = "was written by a version that encodes requests differently; finish it with that version"
                raise self._location.make_error(problem)
            self._entries[intent.sender] = _Entry(intent.settled_up_to, intent.unsettled, intent)
        lane_of = replay.lane_of  # the rest of the replay is not kept
        rest = RowSource(lambda: self._read_rest(source, lane_of), replayable=False)
        may_be_running = self._killed and not self.store.is_locked
        # Without order, what the other run still sends is the same as what is sent again.
        grace = GRACE if may_be_running and self._settings.ordered else 0.0
        return Resumption(rest, iter(left), self._killed, grace, self._idle)

    async def _ensure_replayable(self, source: RowSource) -> RowSource:
        """Return the source, or its rows in the spool, if it can be read only once.

        Raises:
            SvcError: it has no rows, although an earlier run was given some and did not read them all.
        """
        if source.replayable:
            return source
        state, spool = self._state, self._spool
        spooled = spool.read(self._destination.parse_group)
        if state.spool_digest:
            known = JournalCheckpoint(digest=state.spool_digest)
            await self._check_source(source, known)
            await self._check_source(spooled, known)  # all of it, before anything is sent
            return spooled
        written = await spool.write(source, on_first_rows=self._begin_spool)
        if not written.rows and state.spool_begun:
            raise self._location.make_error(_NOT_ALL_SPOOLED, Hint.GIVE_ALL_ROWS)
        state.spool_digest = written.digest
        await self._commit()
        return spooled

    @property
    def _spool(self) -> Spool:
        return Spool(self.store, self._location.make_error, self._location.most_spooled)

    async def _begin_spool(self) -> None:
        self._state.spool_begun = True
        await self._commit()

    async def _check_source(self, source: RowSource, known: JournalCheckpoint) -> None:
        """Read a source and compare it with what an earlier run has read to the end.

        A source that can be read only once may be empty: its rows were read before, and may not be there any more.

        Raises:
            SvcError: it is another one.
        """
        given = await digest_source(source)
        is_gone = not given.rows and not source.replayable and self._state.spool_digest
        if not is_gone and given.digest != known.digest:
            raise self._make_source_error()

    def _make_source_error(self) -> SvcError:
        kind, hint = (
            ("an unfinished", Hint.GIVE_ITS_SOURCE)
            if self.finished is None
            else ("a finished", Hint.NAME_A_NEW_JOURNAL)
        )
        return self._location.make_error(f"belongs to {kind} job with another source, or it has changed", hint)

    async def _read_rest(self, source: RowSource, lane_of: Mapping[int, int]) -> AsyncGenerator[Slice, None]:
        """Yield the rows that are not settled, when nothing is in doubt any more."""
        if self._known.rows:
            unsettled: dict[int, set[int]] = {}
            for position in itertools.chain.from_iterable(self._unsettled.values()):
                unsettled.setdefault(lane_of[position], set()).add(position)
            # From now on they belong to the lanes: a sender of several has another number in each run.
            self._pending.delete_all("unsettled")
            self._unsettled = {lane: Positions.pack(sorted(positions)) for lane, positions in unsettled.items()}
            for lane, positions in self._unsettled.items():
                self._pending.put("unsettled", lane, positions.to_plain())
            await self._commit()
            self._rows.settled = SettledRows({**self._settled_up_to}, unsettled)
            self._entries = {lane: _Entry(self._settled_up_to.get(lane, -1)) for lane in range(self.lanes)}
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
        """Commit that the first batch of a lane is about to be sent.

        Raises:
            SvcError: it could not be committed.
        """
        entry, batch = self._entry_of(lane), lane.queue[0]
        positions = batch.positions
        entry.settled_up_to = max(entry.settled_up_to, positions.highest)
        entry.before = entry.intent
        entry.intent = intent = Intent(
            sender=lane.number,
            lanes=lane.members,
            settled_up_to=entry.settled_up_to,
            unsettled=self._find_unsettled(lane, itertools.islice(lane.queue, 1, None), packed),
            layout=batch.layout,
            positions=positions,
            superseded=Positions.pack(lane.superseded_unsettled + batch.superseded),
            pinned=batch.built,
            sent_at=self._clock.now().timestamp(),
            digest=batch.digest(),
        )
        self._pending.put_intent(intent)
        self._count_request(intent, 1)
        self._advance()
        now = read_boottime(self._clock)
        await self._commit(confirms=True)
        self._confirmed_at = max(self._confirmed_at, now)

    async def retract(self, lane: Lane, /) -> None:
        """Note that the last intent of a lane was not sent; the next commit includes it."""
        entry = self._entry_of(lane)
        if entry.intent is not None and entry.intent is not entry.before:
            self._count_request(entry.intent, -1)
            entry.intent = entry.before or attrs.evolve(entry.intent, sent_at=None)
            self._pending.put_intent(entry.intent)
            self._submit()

    def check_sendable(self) -> None:
        """Make sure that nobody else can have taken up the journal so long ago that it would not wait for a request."""
        if not self.store.is_locked:
            check_sendable(self._confirmed_at, read_boottime(self._clock))

    async def release(self, lane: Lane, /) -> None:
        """Note that the request certainly had no effect; the next commit includes it."""
        entry = self._entry_of(lane)
        if entry.intent is not None:
            entry.intent = attrs.evolve(entry.intent, sent_at=None)
            self._pending.put_intent(entry.intent)
            self._submit()

    async def settle(self, lane: Lane, settle: Settle, packed: Iterable[Collection[int]], /) -> None:
        """Note the result of rows; the next commit includes it."""
        entry, rest, receipt, packed = self._entry_of(lane), settle.in_doubt, settle.receipt, list(packed)
        if entry.intent is None or rest is None:
            entry.intent = None
            self._pending.delete("intent", lane.number)
        else:
            entry.intent = attrs.evolve(
                entry.intent,
                lanes=lane.members,
                settled_up_to=entry.settled_up_to,
                unsettled=self._find_unsettled(lane, itertools.islice(lane.queue, 1, None), packed),
                layout=rest.layout,
                positions=rest.positions,
                superseded=Positions.pack(lane.superseded_unsettled + rest.superseded),
                digest=rest.digest(),
            )
            self._pending.put_intent(entry.intent)
        for member in lane.members:
            self._settled_up_to[member] = entry.settled_up_to
            self._pending.put("lane", member, entry.settled_up_to)
        for each in (*lane.members, lane.number):
            self._unsettled.pop(each, None)
            self._pending.delete("unsettled", each)
        if unsettled := self._find_unsettled(lane, lane.queue, packed):  # nothing of the members is left elsewhere
            self._unsettled[lane.number] = unsettled
            self._pending.put("unsettled", lane.number, unsettled.to_plain())
        self._state.counts += Counts(
            accepted=receipt.accepted, coalesced=len(settle.superseded), failed=len(receipt.failures)
        )
        self._add_failures(receipt.failures)
        self._submit()

    async def finish(self, report: Report, /) -> None:
        """Commit that nothing is left to do, with the digest of the source, and delete the spool.

        Raises:
            SvcError: it could not be committed.
        """
        self._pending.delete_all("failure")
        self._kept_failures = 0
        self._add_failures(report.failures)
        self._state.finished, self._state.counts = True, Counts() + report
        self._state.checkpoint = self._rows.checkpoint
        await self._commit(is_last=True)
        if self._state.spool_digest:
            await self._spool.delete()

    def _entry_of(self, lane: Lane) -> _Entry:
        """Return the entry of a lane; one that sends for several begins with what is known of them."""
        entry = self._entries.get(lane.number)
        if entry is None:
            known = [self._entries[member].settled_up_to for member in lane.members if member in self._entries]
            entry = self._entries[lane.number] = _Entry(max(known, default=-1))
        return entry

    def _find_unsettled(self, lane: Lane, queue: Iterable[Batch], packed: Iterable[Collection[int]]) -> Positions:
        """Return the positions of the rows of a lane that are not settled, up to the highest that was intended.

        Args:
            lane: the lane.
            queue: its batches that are not settled.
            packed: positions of its rows that wait in packers.
        """
        entry, left = self._entry_of(lane), self._rows.settled.unsettled
        waiting = itertools.chain(
            [entry.unsettled],
            itertools.chain.from_iterable((batch.positions, batch.superseded) for batch in queue),
            packed,
            (left.get(member, ()) for member in lane.members),
        )
        return Positions.merge(_select_up_to(entry.settled_up_to, positions) for positions in waiting)

    def _advance(self) -> None:
        """Note how far the source was read, unless an earlier run has read more of it."""
        read, known = self._rows.checkpoint, self._state.checkpoint
        if read.rows and read.rows >= known.rows and read.ended >= known.ended:
            self._state.checkpoint = read

    def _count_request(self, intent: Intent, number: int) -> None:
        """Count a request, or one less, also in the second in which it had its turn."""
        self._state.counts += Counts(requests=number)
        second = int(intent.sent_at or 0.0)
        if second not in self._sent:
            for outdated in [each for each in self._sent if each < second - LONGEST_WINDOW]:
                del self._sent[outdated]
                self._pending.delete("second", outdated)
        self._sent[second] = self._sent.get(second, 0) + number
        self._pending.put("second", second, self._sent[second])

    def _add_failures(self, failures: Sequence[Failure]) -> None:
        for failure in failures[: KEPT_FAILURES - self._kept_failures]:
            self._pending.put_failure(failure)
            self._kept_failures += 1

    async def _commit(self, *, is_last: bool = False, confirms: bool = False) -> None:
        try:
            await self.store.commit(self._take_changes(), is_last=is_last, confirms=confirms)
        except (UnusableFile, UnusableState) as error:
            raise JournalUnwritable(f"the {error}") from error

    def _submit(self) -> None:
        self.store.submit(self._take_changes())

    def _take_changes(self) -> Changes:
        """Return what was recorded since the last commit, with the progress of the job."""
        state, now = self._state, self._clock.now().timestamp()
        state.active_at, state.worked = now, self._worked_before + max(0.0, now - self._began)
        if state.worked >= SLOTS * state.slot_width:
            self._slots, state.slot_width = widen_slots(self._slots, state.slot_width, seconds=state.worked)
            self._pending.delete_all("slot")
            for slot, counts in self._slots.items():
                self._pending.put("slot", slot, counts)
        slot = int(state.worked / state.slot_width)
        self._slots[slot] = (state.counts.accepted, state.counts.requests)
        self._pending.put("slot", slot, self._slots[slot])
        self._pending.put("job", 0, state)
        return self._pending.take()


def _select_up_to(highest: int, positions: Collection[int]) -> Positions:
    if isinstance(positions, Positions):
        return positions.select_up_to(highest)
    return Positions.pack(sorted(position for position in positions if position <= highest))


async def _read_nothing() -> AsyncGenerator[Slice, None]:
    return
    yield
