"""The journal of a job: one SQLite file that records what is settled and what is in doubt, however the job ended.

Theory of operation
-------------------
Rows are assigned to lanes by key, and only the rows of one lane have an order among them. For each lane the journal
records the position up to which its rows are settled, and which rows before that position are not: a row that differs
from an earlier one with the same key waits for a later batch, so a batch may settle rows that come after it. The
journal therefore grows with the number of lanes and the size of a request, never with the number of rows.

Before each request an *intent* is committed: the positions of the batch in the order of its body, how they are grouped
into operations, the pinned time, the SHA-256 of the body, when it is sent, and the state of the lane once the batch is
settled. Rows that were superseded by an equal row of the batch are settled with it, and never after it: if they were
read again, they would undo it. The answer replaces the intent by that state and updates the totals. It need not be
awaited, since commits keep their order: the next intent of the lane is committed after it.

A sender sends one batch after another: a lane or, once the source has ended, the remaining rows of several lanes that
share requests. All of these lanes are then settled together; nothing of them is left elsewhere.

When a job is resumed, its source is read from the start twice. The first reading stops at the checkpoint of the
earlier run; it verifies with a digest that the source is the same, and collects the rows of open intents. These are
resent first, byte for byte, after the rest of the quarantine: a request that was in flight when the process died may
still be applied late. Then the source is read again, and settled rows are skipped. Rows that break a rule never reach
a lane; they are found again and reported again.

    killed before the intent is committed       nothing was sent; the rows are read again
    killed after it, before the answer          in doubt: quarantine, then the same bytes
    killed after the answer, before its commit  likewise: the journal cannot tell the difference
    killed after the commit                     settled; skipped

The file is locked while a job runs; `JournalRecord` reads it nevertheless. It contains no token and no identifier.
Each commit also records the progress of the job, as `timeline` describes it.
"""

import json
import sqlite3
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import attrs

from svc_async.batch.journal.codec import decode_intent, decode_positions, encode_intent, encode_positions
from svc_async.batch.journal.schema import FORMAT
from svc_async.batch.ledger import Intent, JournalCheckpoint, LaneState, Settlement, Totals
from svc_async.batch.report import Failure, Report
from svc_async.batch.timeline import SLOT_WIDTH, SLOTS, widen_slots
from svc_async.errors import SvcError, UnusableFile
from svc_async.sqlite import Work, Writer, connect, in_thread, report_unusable

__all__ = ["Journal", "JournalUnwritable", "annotate"]

T = TypeVar("T")

_KEPT = 10_000
"""Failures that are kept, as in a report."""


class JournalUnwritable(SvcError):
    """The journal cannot be written, so nothing more is sent."""


class Journal:
    """The file of one job; `open` it and use it as a context manager.

    Attributes:
        path: the file.
        lanes: how many lanes the rows are assigned to.
        totals: what earlier runs settled.
        checkpoint: how far the source was read.
        intents: what earlier runs left in doubt.
        spooled: whether the rows were spooled.
        report: the report, if nothing is left to do.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, now: Callable[[], datetime]) -> None:
        self.path = path
        self._now = now
        self._began = now().timestamp()
        select = connection.execute
        (accepted, coalesced, failed, requests, rows, digest, ended, spooled, report) = select(
            "SELECT accepted, coalesced, failed, requests, rows_read, digest, source_ended, spooled, report FROM job"
        ).fetchone()
        (lanes, self._worked_before, self._slot_width) = select("SELECT lanes, worked, slot_width FROM job").fetchone()
        self.lanes: int = lanes
        failures = [Failure(*row) for row in select("SELECT * FROM failures ORDER BY position")]
        self.totals = Totals(
            accepted=accepted, coalesced=coalesced, failed=failed, requests=requests, failures=failures
        )
        self.checkpoint = JournalCheckpoint(rows, digest, bool(ended))
        self.intents: Sequence[Intent] = [
            decode_intent(blob) for (blob,) in select("SELECT intent FROM intents ORDER BY sender")
        ]
        self.spooled = bool(spooled)
        self.report = None if report is None else Report(**json.loads(report), failures=tuple(failures))
        self._writer = Writer(connection, before_commit=self._record_progress, stop_on_error=True)

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        about: Mapping[str, Any],
        lanes: int,
        now: Callable[[], datetime],
        factory: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> "Journal":
        """Open the journal of a job, or begin it.

        Args:
            path: the file; its folder exists.
            about: what identifies the job; it must be the same whenever the job is resumed.
            lanes: how many lanes the rows of a new job are assigned to.
            now: returns the time; also called in another thread.
            factory: the class of the connection.

        Raises:
            UnusableFile: the file belongs to another job, is locked, or cannot be opened.
        """
        text = json.dumps(about, sort_keys=True)
        return await in_thread(lambda: cls._open(Path(path), text, lanes, now, factory), undo=Journal._close)

    @classmethod
    def _open(
        cls, path: Path, about: str, lanes: int, now: Callable[[], datetime], factory: type[sqlite3.Connection]
    ) -> "Journal":
        connection = connect(path, FORMAT, exclusive=True, factory=factory)
        try:
            with report_unusable(path, FORMAT):
                _begin_run(connection, path, about, lanes, now().timestamp())
                return cls(path, connection, now)
        except BaseException:
            connection.close()
            raise

    async def load_settled(self) -> tuple[Mapping[int, int], "array[int]"]:
        """Return the position up to which each lane is settled, and the positions before it that are not.

        Raises:
            JournalUnwritable: what was recorded before could not be committed.
        """

        def select(connection: sqlite3.Connection) -> tuple[Mapping[int, int], "array[int]"]:
            settled_up_to = dict(connection.execute("SELECT lane, settled_up_to FROM lanes"))
            unsettled = array("q")
            for (blob,) in connection.execute("SELECT positions FROM unsettled"):
                unsettled.extend(decode_positions(blob))
            return settled_up_to, unsettled

        return await self._commit(select)

    async def intend(self, intent: Intent, checkpoint: JournalCheckpoint) -> None:
        """Commit that a batch is about to be sent.

        Raises:
            JournalUnwritable: it could not be committed.
        """
        blob = encode_intent(intent)

        def insert(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO intents VALUES (?, ?)", (intent.sender, blob))
            connection.execute("UPDATE job SET requests = requests + 1")
            _update_checkpoint(connection, checkpoint)

        await self._commit(insert)

    def mark_refused(self, intent: Intent) -> None:
        """Record that a batch had no effect, so that no quarantine is needed; the next commit includes it."""
        row = (encode_intent(attrs.evolve(intent, sent_at=None)), intent.sender)
        self._writer.submit(
            lambda connection: connection.execute("UPDATE intents SET intent = ? WHERE sender = ?", row)
        )

    def settle(self, settlement: Settlement) -> None:
        """Record what an answer settled; the next commit includes it."""
        sender = settlement.sender
        doubt = None if settlement.in_doubt is None else encode_intent(settlement.in_doubt)

        def update(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM intents WHERE sender = ?", (sender,))
            if doubt is not None:
                connection.execute("INSERT INTO intents VALUES (?, ?)", (sender, doubt))
            _update_lanes(connection, sender, settlement.after)
            connection.execute(
                "UPDATE job SET accepted = accepted + ?, coalesced = coalesced + ?, failed = failed + ?",
                (settlement.accepted, settlement.coalesced, len(settlement.failures)),
            )
            _insert_failures(connection, settlement.failures)

        self._writer.submit(update)

    async def mark_spooled(self) -> None:
        """Commit that all rows were spooled.

        Raises:
            JournalUnwritable: it could not be committed.
        """
        await self._commit(lambda connection: connection.execute("UPDATE job SET spooled = 1"))

    async def assign_unsettled(self, unsettled: Mapping[int, Iterable[int]]) -> None:
        """Commit to which lane each unsettled row belongs.

        Raises:
            JournalUnwritable: it could not be committed.
        """
        rows = [(lane, encode_positions(array("q", sorted(positions)))) for lane, positions in unsettled.items()]

        def replace(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM unsettled")
            connection.executemany("INSERT INTO unsettled VALUES (?, ?)", rows)

        await self._commit(replace)

    async def finish(self, report: Report) -> None:
        """Commit the report of a job that has nothing left to do.

        Raises:
            JournalUnwritable: it could not be committed.
        """
        text = json.dumps({name: value for name, value in report.as_dict().items() if name != "failures"})

        def update(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM failures")
            _insert_failures(connection, report.failures)
            connection.execute("UPDATE job SET report = ?", (text,))

        await self._commit(update)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        await self._writer.close()

    async def _commit(self, work: Work[T]) -> T:
        try:
            return await self._writer.run(work)
        except sqlite3.Error as error:
            raise JournalUnwritable(f"the journal {self.path} cannot be written: {error}") from error

    def _record_progress(self, connection: sqlite3.Connection) -> None:
        now = self._now().timestamp()
        worked = self._worked_before + max(0.0, now - self._began)
        if worked >= SLOTS * self._slot_width:
            self._widen_slots(connection, worked)
        connection.execute("UPDATE job SET active_at = ?, worked = ?, slot_width = ?", (now, worked, self._slot_width))
        connection.execute(
            "INSERT OR REPLACE INTO timeline SELECT ?, accepted, requests FROM job", (int(worked / self._slot_width),)
        )

    def _widen_slots(self, connection: sqlite3.Connection, worked: float) -> None:
        rows = connection.execute("SELECT slot, accepted, requests FROM timeline ORDER BY slot")
        slots = {slot: (accepted, requests) for slot, accepted, requests in rows}
        slots, self._slot_width = widen_slots(slots, self._slot_width, seconds=worked)
        connection.execute("DELETE FROM timeline")
        connection.executemany(
            "INSERT INTO timeline VALUES (?, ?, ?)", ((slot, *counts) for slot, counts in slots.items())
        )


async def annotate(path: str | Path, note: Mapping[str, Any]) -> None:
    """Store a note that describes the job; once the job has begun, the note is not changed.

    Args:
        path: the file; it is created if it does not exist.
        note: values for JSON.

    Raises:
        UnusableFile: the file is locked, is not a journal, or cannot be written.
    """
    text = json.dumps(note)
    await in_thread(lambda: _annotate(Path(path), text))


def _annotate(path: Path, note: str) -> None:
    with closing(connect(path, FORMAT, exclusive=True)) as connection, report_unusable(path, FORMAT):
        connection.execute("BEGIN IMMEDIATE")
        if not connection.execute("SELECT count(*) FROM job").fetchone()[0]:
            connection.execute("DELETE FROM note")
            connection.execute("INSERT INTO note VALUES (?)", (note,))
        connection.execute("COMMIT")


def _begin_run(connection: sqlite3.Connection, path: Path, about: str, lanes: int, now: float) -> None:
    """Insert the job if the journal is new, and count the run.

    Raises:
        UnusableFile: the journal belongs to another job.
    """
    job = connection.execute("SELECT about FROM job").fetchone()
    if job is not None and job[0] != about:
        raise UnusableFile("journal", path, f"belongs to another job: {_describe_difference(job[0], about)}")
    connection.execute("BEGIN IMMEDIATE")
    if job is None:
        connection.execute(
            "INSERT INTO job (about, lanes, began_at, active_at, slot_width) VALUES (?, ?, ?, ?, ?)",
            (about, lanes, now, now, SLOT_WIDTH),
        )
    connection.execute("UPDATE job SET runs = runs + 1 WHERE report IS NULL")
    connection.execute("COMMIT")


def _update_lanes(connection: sqlite3.Connection, sender: int, after: LaneState) -> None:
    for lane in after.lanes:
        connection.execute("INSERT OR REPLACE INTO lanes VALUES (?, ?)", (lane, after.settled_up_to))
        connection.execute("DELETE FROM unsettled WHERE sender = ?", (lane,))
    connection.execute("DELETE FROM unsettled WHERE sender = ?", (sender,))
    if after.unsettled:
        connection.execute("INSERT INTO unsettled VALUES (?, ?)", (sender, encode_positions(after.unsettled)))


def _update_checkpoint(connection: sqlite3.Connection, checkpoint: JournalCheckpoint) -> None:
    connection.execute(
        "UPDATE job SET rows_read = ?, digest = ?, source_ended = ?, invalid_rows = ?"
        " WHERE rows_read <= ? AND source_ended <= ?",
        (
            *(checkpoint.rows, checkpoint.digest, checkpoint.ended, checkpoint.invalid_rows),
            *(checkpoint.rows, checkpoint.ended),
        ),
    )


def _insert_failures(connection: sqlite3.Connection, failures: Sequence[Failure]) -> None:
    (kept,) = connection.execute("SELECT count(*) FROM failures").fetchone()
    connection.executemany(
        "INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?)", map(attrs.astuple, failures[: _KEPT - kept])
    )


def _describe_difference(stored: str, given: str) -> str:
    before, after = json.loads(stored), json.loads(given)
    return ", ".join(
        f"{name} is {before.get(name)!r} there" for name in sorted(after) if before.get(name) != after[name]
    )
