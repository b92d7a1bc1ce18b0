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

Where the records are kept is a matter of `store`. All of what decides is in memory: the file is read once.
"""

import asyncio
from array import array
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from types import TracebackType
from typing import Any, Self

import attrs

from svc_async.batch.journal.codec import decode_positions, encode_intent, encode_positions
from svc_async.batch.journal.records import JournalChanges, JournalRecords
from svc_async.batch.journal.state import JobState, OrderlyEnd, describe_difference
from svc_async.batch.journal.store import JournalLocation, JournalStore
from svc_async.batch.ledger import Intent, JournalCheckpoint, LaneState, Settlement
from svc_async.batch.report import KEPT_FAILURES, Failure, Report
from svc_async.batch.sender import LONGEST_WINDOW
from svc_async.batch.timeline import SLOT_WIDTH, SLOTS, widen_slots
from svc_async.cancellation import wait_through_cancellation
from svc_async.clock import Clock, find_boot, read_boottime
from svc_async.store.records import Changes

__all__ = ["Job", "Journal", "annotate"]


@attrs.frozen(kw_only=True)
class Job:
    """What a journal is opened for.

    Attributes:
        about: what identifies the job, as values for JSON; it must be the same whenever the job is resumed.
        lanes: how many lanes the rows of a new job are assigned to.
        note: what describes a new job; None for nothing.
    """

    about: Mapping[str, Any]
    lanes: int
    note: Mapping[str, Any] | None = None


class Journal:
    """The journal of one job; `open` it and use it as a context manager.

    It decides what is recorded; its store commits that.

    Attributes:
        location: where it is kept.
        store: what commits its records.
        lanes: how many lanes the rows are assigned to.
        counts: what became of the rows that earlier runs read.
        failures: the failures of these.
        checkpoint: how far the source was read.
        intents: what earlier runs left in doubt.
        spool_digest: the digest of the rows, if all were spooled.
        report: the report, if nothing is left to do.
        killed: whether the last run did not end in good order.
        idle: seconds that have certainly passed since the last run ended, or last confirmed.
        sent: how many requests were sent in each of the last seconds, by time since the epoch.
        confirmed_at: when the last commit was begun after which requests may be sent, by `read_boottime`.
    """

    store: JournalStore

    def __init__(self, location: JournalLocation, records: JournalRecords, job: Job, clock: Clock) -> None:
        self.location = location
        self._clock = clock
        self._state = state = _find_state(location, records, job, clock.now().timestamp())
        self.killed = state.end is None and state.runs > 0
        self.idle = 0.0 if state.end is None else state.end.measure_time_since(clock.monotonic(), find_boot(clock))
        self._began, self._worked_before = clock.now().timestamp(), state.worked
        self.failures = records.load_failures()
        self._failures = len(self.failures)
        self.lanes = state.lanes
        self.checkpoint = state.checkpoint
        self.intents: Sequence[Intent] = [*records.load_intents()]
        self.counts = state.count_rows(
            in_doubt=sum(len(intent.positions) for intent in self.intents if intent.sent_at is not None)
        )
        self.spool_digest = state.spool_digest
        self.report = None if state.report is None else Report(**state.report, failures=tuple(self.failures))
        self.sent: dict[int, int] = dict(records.load_all("second", int))
        self._settled_up_to = dict(records.load_all("lane", int))
        self._unsettled = dict(records.load_all("unsettled", bytes))
        self._slots = dict(records.load_all("slot", tuple[int, int]))
        self._pending = JournalChanges(records)
        self.confirmed_at = -inf
        self._is_closed = False

    @classmethod
    async def open(cls, location: JournalLocation, job: Job, *, clock: Clock) -> "Journal":
        """Take up the journal of a job, or begin it.

        Args:
            location: where it is kept.
            job: the job.
            clock: the time; also read in another thread.

        Raises:
            SvcError: the journal belongs to another job, is locked, or cannot be used.
        """

        def begin(records: JournalRecords) -> tuple[Journal, Changes]:
            journal = cls(location, records, job, clock)
            return journal, journal._begin_run(job, is_new=not records.has("note"))

        opening = asyncio.ensure_future(location.open(begin))
        cancelled = await wait_through_cancellation(opening)
        if cancelled is not None and opening.exception() is not None:
            raise cancelled
        journal: Journal
        journal, journal.store = opening.result()
        if journal.killed:
            journal.idle = journal.store.silence
        if cancelled is not None:
            await journal.close()
            raise cancelled
        return journal

    def _begin_run(self, job: Job, *, is_new: bool) -> Changes:
        """Count the run, and return the records that say that it has begun."""
        if job.note is not None and is_new and not self._state.runs:
            self._pending.put_note(job.note)
        if self._state.report is None:
            self._state.runs += 1
        self._state.end = None
        self._pending.put("job", 0, self._state)
        return self._pending.take()

    def find_settled(self) -> tuple[Mapping[int, int], "array[int]"]:
        """Return the position up to which each lane is settled, and the positions before it that are not."""
        unsettled = array("q")
        for blob in self._unsettled.values():
            unsettled.extend(decode_positions(blob))
        return {**self._settled_up_to}, unsettled

    async def intend(self, intent: Intent, checkpoint: JournalCheckpoint) -> None:
        """Commit that a batch is about to be sent.

        Raises:
            SvcError: it could not be committed.
        """
        self._pending.put("intent", intent.sender, encode_intent(intent))
        self._count_request(intent, 1)
        self._advance(checkpoint)
        await self.confirm()

    async def confirm(self) -> None:
        """Commit what was recorded; that succeeds only if nobody else has taken up the journal.

        Raises:
            SvcError: it could not be committed.
        """
        now = read_boottime(self._clock)
        await self.store.commit(self._take_changes(), confirms=True)
        self.confirmed_at = max(self.confirmed_at, now)

    def retract(self, intent: Intent, before: Intent) -> None:
        """Record that a batch was not sent after its intent; the next commit includes it.

        Args:
            intent: the intent.
            before: what holds in its place.
        """
        self._count_request(intent, -1)
        self._put_intent(intent.sender, before)
        self.store.submit(self._take_changes())

    def release(self, intent: Intent) -> None:
        """Record that a batch had no effect, so that no quarantine is needed; the next commit includes it."""
        self._put_intent(intent.sender, intent)
        self.store.submit(self._take_changes())

    def settle(self, settlement: Settlement) -> None:
        """Record what an answer settled; the next commit includes it."""
        sender = settlement.sender
        self._put_intent(sender, settlement.in_doubt)
        self._update_lanes(sender, settlement.after)
        self._state.accepted += settlement.accepted
        self._state.coalesced += settlement.coalesced
        self._state.failed += len(settlement.failures)
        self._add_failures(settlement.failures)
        self.store.submit(self._take_changes())

    @property
    def spool_begun(self) -> bool:
        """Whether this run or an earlier one has spooled rows, all or some."""
        return self._state.spool_begun

    async def begin_spool(self) -> None:
        """Commit that rows are spooled from now on.

        Raises:
            SvcError: it could not be committed.
        """
        self._state.spool_begun = True
        await self.store.commit(self._take_changes())

    async def mark_spooled(self, digest: str) -> None:
        """Commit that all rows were spooled, and their digest.

        Raises:
            SvcError: it could not be committed.
        """
        self._state.spool_digest = digest
        await self.store.commit(self._take_changes())
        self.spool_digest = digest

    async def assign_unsettled(self, unsettled: Mapping[int, Iterable[int]]) -> None:
        """Commit to which lane each unsettled row belongs.

        Raises:
            SvcError: it could not be committed.
        """
        self._pending.delete_all("unsettled")
        self._unsettled = {}
        for lane, positions in unsettled.items():
            self._put_unsettled(lane, sorted(positions))
        await self.store.commit(self._take_changes())

    async def finish(self, report: Report, checkpoint: JournalCheckpoint) -> None:
        """Commit the report of a job that has nothing left to do, and the digest of its source.

        Raises:
            SvcError: it could not be committed.
        """
        self._pending.delete_all("failure")
        self._failures = 0
        self._add_failures(report.failures)
        self._state.report, self._state.checkpoint = {**report.counts}, checkpoint
        await self.store.commit(self._take_changes(), is_last=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, checkpoint: JournalCheckpoint | None = None) -> None:
        """Record that the run ended in good order, and let go of the journal, even if the caller is cancelled.

        Args:
            checkpoint: how far the source was read, if that is certain; rows after the last intent are counted then.
        """
        if not self._is_closed and self._state.report is None:
            if checkpoint is not None:
                self._advance(checkpoint)
            self._state.end = OrderlyEnd(find_boot(self._clock), self._clock.monotonic())
            self.store.submit(self._take_changes())
        self._is_closed = True
        await self.store.close()

    def _advance(self, checkpoint: JournalCheckpoint) -> None:
        """Note how far the source was read, unless an earlier run has read more of it."""
        known = self._state.checkpoint
        if checkpoint.rows and checkpoint.rows >= known.rows and checkpoint.ended >= known.ended:
            self._state.checkpoint = checkpoint

    def _put_intent(self, sender: int, intent: Intent | None) -> None:
        if intent is None:
            self._pending.delete("intent", sender)
        else:
            self._pending.put("intent", sender, encode_intent(intent))

    def _count_request(self, intent: Intent, number: int) -> None:
        """Count a request, or one less, also in the second in which it had its turn."""
        self._state.requests += number
        second = int(intent.sent_at or 0.0)
        if second not in self.sent:
            for outdated in [each for each in self.sent if each < second - LONGEST_WINDOW]:
                del self.sent[outdated]
                self._pending.delete("second", outdated)
        self.sent[second] = self.sent.get(second, 0) + number
        self._pending.put("second", second, self.sent[second])

    def _update_lanes(self, sender: int, after: LaneState) -> None:
        for lane in after.lanes:
            self._settled_up_to[lane] = after.settled_up_to
            self._pending.put("lane", lane, after.settled_up_to)
        for lane in (*after.lanes, sender):
            self._unsettled.pop(lane, None)
            self._pending.delete("unsettled", lane)
        if after.unsettled:
            self._put_unsettled(sender, after.unsettled)

    def _put_unsettled(self, lane: int, positions: Sequence[int]) -> None:
        self._unsettled[lane] = blob = encode_positions(positions)
        self._pending.put("unsettled", lane, blob)

    def _add_failures(self, failures: Sequence[Failure]) -> None:
        for failure in failures[: KEPT_FAILURES - self._failures]:
            self._pending.put_failure(failure)
            self._failures += 1

    def _take_changes(self) -> Changes:
        """Return what was recorded since the last commit, with the progress of the job."""
        state, now = self._state, self._clock.now().timestamp()
        state.active_at, state.worked = now, self._worked_before + max(0.0, now - self._began)
        if state.worked >= SLOTS * state.slot_width:
            self._widen_slots()
        slot = int(state.worked / state.slot_width)
        self._slots[slot] = (state.accepted, state.requests)
        self._pending.put("slot", slot, self._slots[slot])
        self._pending.put("job", 0, state)
        return self._pending.take()

    def _widen_slots(self) -> None:
        self._slots, self._state.slot_width = widen_slots(
            self._slots, self._state.slot_width, seconds=self._state.worked
        )
        self._pending.delete_all("slot")
        for slot, counts in self._slots.items():
            self._pending.put("slot", slot, counts)


def _find_state(location: JournalLocation, records: JournalRecords, job: Job, now: float) -> JobState:
    """Return the state that the last run left, or that of a new job.

    Raises:
        SvcError: the journal belongs to another job.
    """
    if not records.has("job"):
        return JobState(about=dict(job.about), lanes=job.lanes, began_at=now, slot_width=SLOT_WIDTH, active_at=now)
    state = records.load("job", 0, JobState)
    if state.about != job.about:
        difference = describe_difference(state.about, job.about)
        advice = "a job is resumed with the settings that it was begun with; a new job needs a new journal"
        raise location.make_error(f"belongs to another job: {difference}; {advice}")
    return state


async def annotate(location: JournalLocation, note: Mapping[str, Any]) -> None:
    """Store a note that describes the job; once the job has begun, the note is not changed.

    Args:
        location: where the journal is kept; it is created if it does not exist.
        note: values for JSON.

    Raises:
        SvcError: the journal is locked, or cannot be used.
    """

    def begin(records: JournalRecords) -> tuple[None, Changes]:
        pending = JournalChanges(records)
        if not records.has("job"):
            pending.put_note(note)
        return None, pending.take()

    _, store = await location.open(begin)
    await store.close()
