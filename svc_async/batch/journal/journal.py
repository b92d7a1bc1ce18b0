"""The journal of a job: one SQLite file that records what is settled and what is in doubt, however the job ended.

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

A request may wait at the rate limit for minutes after its intent. The time at which it is sent is recorded with the
next commit, and so is how many requests were sent in each second, for the rate limit of the next run.

A sender sends one batch after another: a lane or, once the source has ended, the remaining rows of several lanes that
share requests. All of these lanes are then settled together; nothing of them is left elsewhere.

When a job is resumed, its source is read from the start twice. The first reading stops at the checkpoint of the
earlier run; it verifies with a digest that the source is the same, and collects the rows of open intents. These are
resent first, byte for byte, after a whole quarantine: a request that was in flight when the process died may still be
applied late, and no clock says when the process died. If it ended in good order, the time since then counts. Then the
source is read again, and settled rows are skipped. Rows that break a rule never reach a lane; they are found again
and reported again.

If the last run was killed, nothing at all is sent before that: SQLite drops without notice what follows a damaged place
of its log. Rows are then sent again in their order, and what the journal has forgotten is waited for.

    killed before the intent is committed       nothing was sent; the rows are read again
    killed after it, before the answer          in doubt: quarantine, then the same bytes
    killed after the answer, before its commit  likewise: the journal cannot tell the difference
    killed after the commit                     settled; skipped

A finished journal is of a definite job as well: the source is read again, and its digest compared. The file is locked
while a job runs; `JournalRecord` reads it nevertheless. It contains no token and no identifier. Each commit also
records the progress of the job, as `timeline` describes it. Each record has a checksum.
"""

import sqlite3
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import attrs

from svc_async.batch.journal.codec import decode_positions, encode_intent, encode_positions
from svc_async.batch.journal.records import Records
from svc_async.batch.journal.schema import FORMAT
from svc_async.batch.journal.state import JobState, OrderlyEnd, describe_difference
from svc_async.batch.ledger import Intent, JournalCheckpoint, LaneState, Settlement
from svc_async.batch.report import KEPT_FAILURES, Failure, Report, Totals
from svc_async.batch.sender import LONGEST_WINDOW
from svc_async.batch.timeline import SLOT_WIDTH, SLOTS, widen_slots
from svc_async.clock import Clock, find_boot
from svc_async.errors import SvcError, UnusableFile
from svc_async.sqlite import Work, Writer, connect, in_thread, report_unusable

__all__ = ["Job", "Journal", "JournalUnwritable", "annotate"]

T = TypeVar("T")


class JournalUnwritable(SvcError):
    """The journal cannot be written, so nothing more is sent."""


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
    """The file of one job; `open` it and use it as a context manager.

    Attributes:
        path: the file.
        lanes: how many lanes the rows are assigned to.
        totals: what earlier runs settled.
        checkpoint: how far the source was read.
        intents: what earlier runs left in doubt.
        spool_digest: the digest of the rows, if they were spooled.
        report: the report, if nothing is left to do.
        killed: whether the last run did not end in good order.
        idle: seconds that have certainly passed since the last run.
        sent: how many requests were sent in each of the last seconds, by time since the epoch.
        unmarked: how many requests in doubt may have been sent at a time that was not recorded.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, job: Job, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._records = records = Records.open(path, connection)
        self._state = state = _begin_run(connection, records, path, job, clock.now().timestamp())
        self.killed = state.end is None and state.runs > 1
        self.idle = 0.0 if state.end is None else state.end.measure_time_since(clock.monotonic(), find_boot(clock))
        state.end = None
        self._began, self._worked_before = clock.now().timestamp(), state.worked
        failures = [Failure(number, *rest) for number, rest in records.load_all("failure", tuple[str, str, str | None])]
        self._failures = len(failures)
        self.lanes = state.lanes
        self.totals = Totals(
            accepted=state.accepted,
            coalesced=state.coalesced,
            failed=state.failed,
            requests=state.requests,
            failures=failures,
        )
        self.checkpoint = state.checkpoint
        self.intents: Sequence[Intent] = [*records.load_intents()]
        self.spool_digest = state.spool_digest
        self.report = None if state.report is None else Report(**state.report, failures=tuple(failures))
        self.sent: Mapping[int, int] = dict(records.load_all("second", int))
        self.unmarked = sum(
            intent.sent_at is not None and not records.has("sent", intent.sender) for intent in self.intents
        )
        self._just_sent: deque[tuple[int, float]] = deque()
        self._is_closed = False
        self._writer = Writer(connection, before_commit=self._record_progress, stop_on_error=True)

    @classmethod
    async def open(
        cls,
        path: str | Path,
        job: Job,
        *,
        clock: Clock,
        factory: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> "Journal":
        """Open the journal of a job, or begin it.

        Args:
            path: the file; its folder exists.
            job: the job.
            clock: the time; also read in another thread.
            factory: the class of the connection.

        Raises:
            UnusableFile: the file belongs to another job, is locked, or cannot be opened.
        """
        return await in_thread(lambda: cls._open(Path(path), job, clock, factory), undo=Journal._close)

    @classmethod
    def _open(cls, path: Path, job: Job, clock: Clock, factory: type[sqlite3.Connection]) -> "Journal":
        connection = connect(path, FORMAT, exclusive=True, factory=factory)
        try:
            with report_unusable(path, FORMAT):
                return cls(path, connection, job, clock)
        except BaseException:
            connection.close()
            raise

    async def load_settled(self) -> tuple[Mapping[int, int], "array[int]"]:
        """Return the position up to which each lane is settled, and the positions before it that are not.

        Raises:
            JournalUnwritable: what was recorded before could not be committed.
        """

        def select(_: sqlite3.Connection) -> tuple[Mapping[int, int], "array[int]"]:
            unsettled = array("q")
            for blob in dict(self._records.load_all("unsettled", bytes)).values():
                unsettled.extend(decode_positions(blob))
            return dict(self._records.load_all("lane", int)), unsettled

        return await self._commit(select)

    async def intend(self, intent: Intent, checkpoint: JournalCheckpoint) -> None:
        """Commit that a batch is about to be sent.

        Raises:
            JournalUnwritable: it could not be committed.
        """
        blob = encode_intent(intent)

        def insert(_: sqlite3.Connection) -> None:
            self._record_sent()
            self._records.put("intent", intent.sender, blob)
            self._records.delete("sent", intent.sender)
            self._state.requests += 1
            if checkpoint.rows >= self._state.checkpoint.rows and checkpoint.ended >= self._state.checkpoint.ended:
                self._state.checkpoint = checkpoint

        await self._commit(insert)

    def mark_sent(self, sender: int) -> None:
        """Record that a request is sent now; the next commit includes it."""
        self._just_sent.append((sender, self._clock.now().timestamp()))

    def mark_refused(self, intent: Intent) -> None:
        """Record that a batch had no effect, so that no quarantine is needed; the next commit includes it."""
        blob = encode_intent(attrs.evolve(intent, sent_at=None))

        def update(_: sqlite3.Connection) -> None:
            self._record_sent()
            if self._records.has("intent", intent.sender):
                self._records.put("intent", intent.sender, blob)

        self._writer.submit(update)

    def settle(self, settlement: Settlement) -> None:
        """Record what an answer settled; the next commit includes it."""
        sender = settlement.sender
        doubt = None if settlement.in_doubt is None else encode_intent(settlement.in_doubt)

        def update(_: sqlite3.Connection) -> None:
            self._record_sent()
            if doubt is None:
                self._records.delete("intent", sender)
                self._records.delete("sent", sender)
            else:
                self._records.put("intent", sender, doubt)
            self._update_lanes(sender, settlement.after)
            self._state.accepted += settlement.accepted
            self._state.coalesced += settlement.coalesced
            self._state.failed += len(settlement.failures)
            self._add_failures(settlement.failures)

        self._writer.submit(update)

    async def mark_spooled(self, digest: str) -> None:
        """Commit that all rows were spooled, and their digest.

        Raises:
            JournalUnwritable: it could not be committed.
        """

        def update(_: sqlite3.Connection) -> None:
            self._state.spool_digest = digest

        await self._commit(update)
        self.spool_digest = digest

    async def assign_unsettled(self, unsettled: Mapping[int, Iterable[int]]) -> None:
        """Commit to which lane each unsettled row belongs.

        Raises:
            JournalUnwritable: it could not be committed.
        """
        blobs = {lane: encode_positions(array("q", sorted(positions))) for lane, positions in unsettled.items()}

        def replace(_: sqlite3.Connection) -> None:
            self._records.delete_all("unsettled")
            for lane, blob in blobs.items():
                self._records.put("unsettled", lane, blob)

        await self._commit(replace)

    async def finish(self, report: Report, checkpoint: JournalCheckpoint) -> None:
        """Commit the report of a job that has nothing left to do, and the digest of its source.

        Raises:
            JournalUnwritable: it could not be committed.
        """
        totals = {name: value for name, value in report.as_dict().items() if name != "failures"}

        def update(_: sqlite3.Connection) -> None:
            self._records.delete_all("failure")
            self._failures = 0
            self._add_failures(report.failures)
            self._state.report, self._state.checkpoint = totals, checkpoint

        await self._commit(update)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        if not self._is_closed and self._state.report is None:
            end = OrderlyEnd(find_boot(self._clock), self._clock.monotonic())
            self._writer.submit(lambda _: setattr(self._state, "end", end))
        self._is_closed = True
        await self._writer.close()

    async def _commit(self, work: Work[T]) -> T:
        try:
            return await self._writer.run(work)
        except sqlite3.Error as error:
            raise JournalUnwritable(f"the journal {self.path} cannot be written: {error}") from error

    # What follows runs in the thread of the writer.

    def _update_lanes(self, sender: int, after: LaneState) -> None:
        for lane in after.lanes:
            self._records.put("lane", lane, after.settled_up_to)
            self._records.delete("unsettled", lane)
        self._records.delete("unsettled", sender)
        if after.unsettled:
            self._records.put("unsettled", sender, encode_positions(after.unsettled))

    def _add_failures(self, failures: Sequence[Failure]) -> None:
        for failure in failures[: KEPT_FAILURES - self._failures]:
            self._records.put("failure", failure.position, (failure.reason, failure.code, failure.attribute))
            self._failures += 1

    def _record_sent(self) -> None:
        """Record what was sent since the last commit."""
        seconds = dict[int, int]()
        while self._just_sent:
            sender, at = self._just_sent.popleft()
            self._records.put("sent", sender, at)
            seconds[int(at)] = seconds.get(int(at), self.sent.get(int(at), 0)) + 1
        if not seconds:
            return
        for second, count in seconds.items():
            self._records.put("second", second, count)
        outdated = [second for second in self.sent if second < max(seconds) - LONGEST_WINDOW]
        for second in outdated:
            self._records.delete("second", second)
        self.sent = {second: count for second, count in {**self.sent, **seconds}.items() if second not in outdated}

    def _record_progress(self, _: sqlite3.Connection) -> None:
        self._record_sent()
        state, now = self._state, self._clock.now().timestamp()
        state.active_at, state.worked = now, self._worked_before + max(0.0, now - self._began)
        if state.worked >= SLOTS * state.slot_width:
            self._widen_slots()
        self._records.put("slot", int(state.worked / state.slot_width), (state.accepted, state.requests))
        self._records.put("job", 0, state)
        self._records.write_count()

    def _widen_slots(self) -> None:
        slots = dict(self._records.load_all("slot", tuple[int, int]))
        slots, self._state.slot_width = widen_slots(slots, self._state.slot_width, seconds=self._state.worked)
        self._records.delete_all("slot")
        for slot, counts in slots.items():
            self._records.put("slot", slot, counts)


def _begin_run(connection: sqlite3.Connection, records: Records, path: Path, job: Job, now: float) -> JobState:
    """Insert the job if the journal is new, count the run, and return the state before it.

    Raises:
        UnusableFile: the journal belongs to another job.
    """
    state = records.load("job", 0, JobState) if records.has("job") else None
    if state is None:
        state = JobState(about=dict(job.about), lanes=job.lanes, began_at=now, slot_width=SLOT_WIDTH, active_at=now)
    elif state.about != job.about:
        difference = describe_difference(state.about, job.about)
        advice = "a job is resumed with the settings that it was begun with; a new job needs a new journal"
        raise UnusableFile("journal", path, f"belongs to another job: {difference}; {advice}")
    connection.execute("BEGIN IMMEDIATE")
    if job.note is not None and not records.has("note") and not state.runs:
        records.put_note(job.note)
    if state.report is None:
        state.runs += 1
    records.put("job", 0, attrs.evolve(state, end=None))
    records.write_count()
    connection.execute("COMMIT")
    # The file itself says that a run has begun: the log may be damaged, or left behind when the file is moved.
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return state


async def annotate(path: str | Path, note: Mapping[str, Any]) -> None:
    """Store a note that describes the job; once the job has begun, the note is not changed.

    Args:
        path: the file; it is created if it does not exist.
        note: values for JSON.

    Raises:
        UnusableFile: the file is locked, is not a journal, or cannot be written.
    """
    await in_thread(lambda: _annotate(Path(path), note))


def _annotate(path: Path, note: Mapping[str, Any]) -> None:
    with closing(connect(path, FORMAT, exclusive=True)) as connection, report_unusable(path, FORMAT):
        records = Records.open(path, connection)
        if records.has("job"):
            return
        connection.execute("BEGIN IMMEDIATE")
        records.put_note(note)
        records.write_count()
        connection.execute("COMMIT")
