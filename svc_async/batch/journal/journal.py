"""The journal of a job: one SQLite file that tells what is settled and what is in doubt, however the job ended.

Theory of operation
-------------------
A row falls into a lane by its key, and only the rows of one lane have an order among them. For each lane the journal
knows how far it is acknowledged, and which rows before that are not settled after all: a row that differs from an
earlier one of its key waits for a later batch, so a batch may settle rows that stand behind it. A row is settled when
its position is not beyond the acknowledged one and not among those left behind. So the journal grows with the lanes
and with what one request holds, never with the rows.

Before each sending an *intent* is committed: the positions of the batch in the order of its body, how they are
grouped into operations, the time that is pinned, the SHA-256 of the body, when it is sent, and what the lane will look
like once the batch is settled. Equal rows that gave way to one of the batch are settled with it: never after it, or
they would undo it when they are read again. The answer replaces the intent by that state, together with the totals.
It need not be waited for, since commits keep their order: the next intent of the lane carries it along.

A line is what sends one batch after the other: a lane of its own, or, when the source has ended, the tails of several
lanes that share requests. All of these lanes are then acknowledged together; nothing of them is left elsewhere.

When a job is taken up again, its source is read from the start twice. The first reading stops where the job had come
to; it proves that the source is the same, by a digest of all that was read, and gathers the rows of the open intents.
These are sent first, the same bytes, after what remains of the quarantine: a request that was on its way when the
process died may still be applied late. Then the source is read as ever, and what is settled is skipped. Rows that
break a rule never reach a lane; they are found again, and told again.

    killed before the intent is committed      nothing was sent; the rows are read again
    killed after it, before the answer         in doubt: quarantine, then the same bytes
    killed after the answer, before its commit likewise: the journal cannot know better
    killed after the commit                    settled; skipped

One thread writes. It commits together what has gathered while it was at the disk (WAL, `synchronous=FULL`). The file
is locked as long as a job runs; `JournalRecord` reads it all the same. It holds no token and no identifier.

With each commit goes how far the job is after how many seconds of work: 512 samples at most, since two are merged into
one, and each stands for twice the time, whenever there would be more.
"""

import asyncio
import json
import queue
import sqlite3
import threading
import zlib
from array import array
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import attrs
import msgspec

from svc_async.batch.ledger import Intent, JournalCheckpoint, LaneState, Settlement, Totals
from svc_async.batch.report import KEPT_FAILURES, Failure, Report
from svc_async.errors import InvalidArgument, SvcError

__all__ = [
    "Journal",
    "JournalUnwritable",
    "annotate",
    "check_format",
    "intent_of",
]

T = TypeVar("T")

_VERSION = 1
_APPLICATION = 0x73766A6C
_SLOTS = 512
"""Samples of the timeline."""
_PATIENCE = 0.25
"""Seconds to wait for somebody who only looks."""
_TABLES = """
CREATE TABLE job (
    about TEXT NOT NULL, lanes INTEGER NOT NULL,
    accepted INTEGER NOT NULL DEFAULT 0, coalesced INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0,
    requests INTEGER NOT NULL DEFAULT 0,
    rows_read INTEGER NOT NULL DEFAULT 0, digest TEXT NOT NULL DEFAULT '', ended INTEGER NOT NULL DEFAULT 0,
    aside INTEGER NOT NULL DEFAULT 0, report TEXT,
    misfits INTEGER NOT NULL DEFAULT 0, runs INTEGER NOT NULL DEFAULT 0,
    begun REAL NOT NULL, active REAL NOT NULL, worked REAL NOT NULL DEFAULT 0, pause REAL NOT NULL DEFAULT 0.0625
);
CREATE TABLE note (note TEXT NOT NULL);
CREATE TABLE timeline (slot INTEGER PRIMARY KEY, accepted INTEGER NOT NULL, requests INTEGER NOT NULL);
CREATE TABLE lanes (lane INTEGER PRIMARY KEY, acknowledged INTEGER NOT NULL);
CREATE TABLE behind (line INTEGER PRIMARY KEY, positions BLOB NOT NULL);
CREATE TABLE intents (line INTEGER PRIMARY KEY, intent BLOB NOT NULL);
CREATE TABLE failures (position INTEGER PRIMARY KEY, reason TEXT NOT NULL, code TEXT NOT NULL, attribute TEXT);
"""


class JournalUnwritable(SvcError):
    """The journal cannot be written, so nothing more is sent."""


class Journal:
    """The file of one job; `open` it and use it as a context manager.

    Attributes:
        lanes: into how many lanes the rows fall.
        totals: what earlier runs have settled.
        checkpoint: how far the source had been read.
        intents: what earlier runs left in doubt.
        aside: whether the rows were put aside.
        finished: the report, if there is nothing left to do.
    """

    def __init__(self, path: Path, database: sqlite3.Connection, now: Callable[[], datetime]) -> None:
        self._path = path
        self._database = database
        self._now = now
        self._began = now().timestamp()
        self._before = 0.0
        self._pause = 0.0
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self._waiting: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._broken: JournalUnwritable | None = None
        self.lanes = 0
        self.totals = Totals()
        self.checkpoint = JournalCheckpoint()
        self.intents: Sequence[Intent] = ()
        self.aside = False
        self.finished: Report | None = None

    @classmethod
    async def open(
        cls, path: str | Path, *, about: Mapping[str, Any], lanes: int, now: Callable[[], datetime]
    ) -> "Journal":
        """Open the journal of a job, or begin it.

        Args:
            path: the file; its folder exists.
            about: what must be the same whenever the job is taken up.
            lanes: into how many lanes the rows of a new job fall.
            now: tells the time; also asked in another thread.

        Raises:
            InvalidArgument: says why the file cannot be used.
        """
        opening = asyncio.to_thread(cls._opened, Path(path), json.dumps(about, sort_keys=True), lanes, now)
        return await _to_its_end(opening, undo=Journal._let_go)

    @classmethod
    def _opened(cls, path: Path, about: str, lanes: int, now: Callable[[], datetime]) -> "Journal":
        with _connected(path) as database:
            journal = cls(path, database, now)
            journal._begin(about, lanes)
        journal._thread.start()
        return journal

    def _begin(self, about: str, lanes: int) -> None:
        run = self._database.execute
        _prepare(self._path, run)
        if not run("SELECT count(*) FROM job").fetchone()[0]:
            run(
                "INSERT INTO job (about, lanes, begun, active) VALUES (?, ?, ?, ?)",
                (about, lanes, self._began, self._began),
            )
        run("UPDATE job SET runs = runs + 1 WHERE about = ? AND report IS NULL", (about,))
        run("COMMIT")
        self._load(about)

    def _load(self, about: str) -> None:
        run = self._database.execute
        (was_about, self.lanes, accepted, coalesced, failed, requests, rows, digest, ended, aside, report) = run(
            "SELECT about, lanes, accepted, coalesced, failed, requests, rows_read, digest, ended, aside, report"
            " FROM job"
        ).fetchone()
        self._before, self._pause = run("SELECT worked, pause FROM job").fetchone()
        self.aside = bool(aside)
        if was_about != about:
            raise InvalidArgument("journal", f"{self._path} is of another job: {_difference(was_about, about)}")
        failures = [Failure(*row) for row in run("SELECT * FROM failures ORDER BY position")]
        self.totals = Totals(
            accepted=accepted, coalesced=coalesced, failed=failed, requests=requests, failures=failures
        )
        self.checkpoint = JournalCheckpoint(rows, digest, bool(ended))
        self.intents = [intent_of(blob) for (blob,) in run("SELECT intent FROM intents ORDER BY line")]
        if report is not None:
            self.finished = Report(**json.loads(report), failures=tuple(failures))

    async def unsettled(self) -> tuple[Mapping[int, int], "array[int]"]:
        """Give how far each lane is acknowledged, and the positions left behind.

        Raises:
            JournalUnwritable: what was noted before could not be committed.
        """
        await self._commit(lambda _: None)  # the writer has come to rest behind it
        acknowledged = dict(self._database.execute("SELECT lane, acknowledged FROM lanes"))
        behind = array("q")
        for (blob,) in self._database.execute("SELECT positions FROM behind"):
            behind.extend(_positions(blob))
        return acknowledged, behind

    async def intend(self, intent: Intent, checkpoint: JournalCheckpoint) -> None:
        """Commit that a batch is about to be sent.

        Raises:
            JournalUnwritable: it could not be committed.
        """
        blob = _blob(intent)

        def write(run: _Run) -> None:
            run("INSERT OR REPLACE INTO intents VALUES (?, ?)", (intent.sender, blob))
            run("UPDATE job SET requests = requests + 1")
            _keep(run, checkpoint)

        await self._commit(write)

    def refused(self, intent: Intent) -> None:
        """Note that a batch had no effect, so that nobody need wait for it."""
        blob = _blob(attrs.evolve(intent, sent_at=None))
        self._enter(lambda run: run("UPDATE intents SET intent = ? WHERE line = ?", (blob, intent.sender)))

    def settle(self, settlement: Settlement) -> None:
        """Note what an answer has settled; the next commit carries it."""

        def write(run: _Run) -> None:
            run("DELETE FROM intents WHERE line = ?", (settlement.sender,))
            if settlement.in_doubt is not None:
                run("INSERT INTO intents VALUES (?, ?)", (settlement.sender, _blob(settlement.in_doubt)))
            _advance(run, settlement.sender, settlement.after)
            run(
                "UPDATE job SET accepted = accepted + ?, coalesced = coalesced + ?, failed = failed + ?",
                (settlement.accepted, settlement.coalesced, len(settlement.failures)),
            )
            _keep_failures(run, settlement.failures)

        self._enter(write)

    async def put_aside(self) -> None:
        """Commit that the rows were put aside, all of them.

        Raises:
            JournalUnwritable: it could not be committed.
        """
        await self._commit(lambda run: run("UPDATE job SET aside = 1"))

    async def regroup(self, behind: Mapping[int, Iterable[int]]) -> None:
        """Put what is left behind down to the lane that it belongs to.

        Raises:
            JournalUnwritable: it could not be committed.
        """

        def write(run: _Run) -> None:
            run("DELETE FROM behind")
            for lane, positions in behind.items():
                run("INSERT INTO behind VALUES (?, ?)", (lane, _packed(array("q", sorted(positions)))))

        await self._commit(write)

    async def finish(self, report: Report) -> None:
        """Commit that nothing is left to do.

        Raises:
            JournalUnwritable: it could not be committed.
        """
        text = json.dumps({name: value for name, value in report.as_dict().items() if name != "failures"})

        def write(run: _Run) -> None:
            run("DELETE FROM failures")
            _keep_failures(run, report.failures)
            run("UPDATE job SET report = ?", (text,))

        await self._commit(write)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._let_go()

    async def _let_go(self) -> None:
        """Commit what has gathered, and unlock the file."""
        self._waiting.put(None)
        await _to_its_end(asyncio.to_thread(self._close))

    def _close(self) -> None:
        self._thread.join()
        self._database.close()

    async def _commit(self, write: "_Write") -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def tell(broken: JournalUnwritable | None) -> None:
            loop.call_soon_threadsafe(_resolve, done, broken)

        self._waiting.put(_Entry(write, tell))
        await done

    def _enter(self, write: "_Write") -> None:
        self._waiting.put(_Entry(write))

    def _write(self) -> None:
        """Commit what has gathered, until there is nothing more to come; runs in a thread of its own."""
        entries: list[_Entry] = []
        while (entry := self._waiting.get()) is not None:
            entries = [entry, *self._gathered()]
            self._transact(entries)

    def _gathered(self) -> "Iterable[_Entry]":
        while not self._waiting.empty():
            entry = self._waiting.get()
            if entry is None:
                self._waiting.put(None)
                return
            yield entry

    def _transact(self, entries: "Sequence[_Entry]") -> None:
        if self._broken is None:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                for entry in entries:
                    entry.write(self._database.execute)
                self._sample(self._database.execute)
                self._database.execute("COMMIT")
            except sqlite3.Error as error:
                self._broken = JournalUnwritable(f"the journal {self._path} cannot be written: {error}")
        for entry in entries:
            if entry.tell is not None:
                entry.tell(self._broken)

    def _sample(self, run: "_Run") -> None:
        """Take note of how far the job is."""
        now = self._now().timestamp()
        worked = self._before + max(0.0, now - self._began)
        while worked >= _SLOTS * self._pause:
            self._pause *= 2
            _merge(run)
        run("UPDATE job SET active = ?, worked = ?, pause = ?", (now, worked, self._pause))
        run("INSERT OR REPLACE INTO timeline SELECT ?, accepted, requests FROM job", (int(worked / self._pause),))


async def _to_its_end(work: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[None]] | None = None) -> T:
    """Await what a thread does, and what it has done is undone if the caller was cancelled meanwhile."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if undo is not None and task.exception() is None:
            await undo(task.result())
        raise


_Run = Callable[..., Any]
_Write = Callable[[_Run], object]


async def annotate(path: str | Path, note: Mapping[str, Any]) -> None:
    """Put into a journal what its job is, for whoever finds it; once the job has begun, nothing is changed.

    Args:
        path: the file; it is made when it is not there.
        note: values for JSON.

    Raises:
        InvalidArgument: says why the file cannot be used.
    """
    await asyncio.to_thread(_annotate, Path(path), json.dumps(note))


def _annotate(path: Path, note: str) -> None:
    with _connected(path) as database, closing(database):
        _prepare(path, database.execute)
        if not database.execute("SELECT count(*) FROM job").fetchone()[0]:
            database.execute("DELETE FROM note")
            database.execute("INSERT INTO note VALUES (?)", (note,))
        database.execute("COMMIT")


@contextmanager
def _connected(path: Path) -> Generator[sqlite3.Connection]:
    """Open the file; it stays open, unless something is wrong with it."""
    database: sqlite3.Connection | None = None
    try:
        database = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        yield database
    except (sqlite3.Error, InvalidArgument) as error:
        if database is not None:
            database.close()
        raise error if isinstance(error, InvalidArgument) else _unusable(path, error) from None


def _prepare(path: Path, run: _Run) -> None:
    """Lock the file, make the tables if it is empty, and leave the transaction open."""
    run("PRAGMA locking_mode=EXCLUSIVE")
    is_new = check_format(path, run)
    run("PRAGMA journal_mode=WAL")
    run("PRAGMA synchronous=FULL")
    run("BEGIN IMMEDIATE")  # the lock is held until the file is closed
    if is_new:
        for statement in _TABLES.split(";"):
            run(statement)
        run(f"PRAGMA application_id={_APPLICATION}")
        run(f"PRAGMA user_version={_VERSION}")


def check_format(path: Path, run: _Run) -> bool:
    """Make sure that a file is a journal that can be read, or empty; answers whether it is empty.

    Raises:
        InvalidArgument: it holds something else.
    """
    (version,), (application,) = run("PRAGMA user_version").fetchone(), run("PRAGMA application_id").fetchone()
    (tables,) = run("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables and application != _APPLICATION:
        raise InvalidArgument("journal", f"{path} holds something else")
    if version > _VERSION:
        raise InvalidArgument("journal", f"{path} was written by a newer version of this SDK")
    return not tables


@attrs.frozen
class _Entry:
    write: _Write
    tell: Callable[[JournalUnwritable | None], None] | None = None


def _resolve(done: "asyncio.Future[None]", broken: JournalUnwritable | None) -> None:
    if done.done():  # who waited was cancelled
        return
    if broken is None:
        done.set_result(None)
    else:
        done.set_exception(broken)


def _advance(run: _Run, line: int, after: LaneState) -> None:
    for lane in after.lanes:
        run("INSERT OR REPLACE INTO lanes VALUES (?, ?)", (lane, after.settled_up_to))
        run("DELETE FROM behind WHERE line = ?", (lane,))
    run("DELETE FROM behind WHERE line = ?", (line,))
    if after.unsettled:
        run("INSERT INTO behind VALUES (?, ?)", (line, _packed(after.unsettled)))


def _keep(run: _Run, checkpoint: JournalCheckpoint) -> None:
    run(
        "UPDATE job SET rows_read = ?, digest = ?, ended = ?, misfits = ? WHERE rows_read <= ? AND ended <= ?",
        (
            *(checkpoint.rows, checkpoint.digest, checkpoint.ended, checkpoint.invalid_rows),
            *(checkpoint.rows, checkpoint.ended),
        ),
    )


def _keep_failures(run: _Run, failures: Iterable[Failure]) -> None:
    (kept,) = run("SELECT count(*) FROM failures").fetchone()
    for failure in list(failures)[: KEPT_FAILURES - kept]:
        run("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?)", attrs.astuple(failure))


def _merge(run: _Run) -> None:
    """Put every two samples together; the later one counts."""
    samples = run("SELECT slot, accepted, requests FROM timeline ORDER BY slot").fetchall()
    run("DELETE FROM timeline")
    for slot, accepted, requests in samples:
        run("INSERT OR REPLACE INTO timeline VALUES (?, ?, ?)", (slot // 2, accepted, requests))


def _packed(positions: "array[int]") -> bytes:
    return zlib.compress(positions.tobytes(), 1)


def _positions(blob: bytes) -> "array[int]":
    positions = array("q")
    positions.frombytes(zlib.decompress(blob))
    return positions


def _blob(intent: Intent) -> bytes:
    return msgspec.msgpack.encode(attrs.asdict(intent, value_serializer=_plain))


def _plain(_: object, __: object, value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return _packed(value) if isinstance(value, array) else value


def intent_of(blob: bytes) -> Intent:
    """Read an intent as it stands in the file."""
    fields = msgspec.msgpack.decode(blob)
    after = fields["after"]
    return Intent(
        sender=fields["sender"],
        after=LaneState(
            lanes=after["lanes"], settled_up_to=after["settled_up_to"], unsettled=_positions(after["unsettled"])
        ),
        layout=[(per_operation, rows) for per_operation, rows in fields["layout"]],
        positions=_positions(fields["positions"]),
        superseded=_positions(fields["superseded"]),
        pinned=datetime.fromisoformat(fields["pinned"]),
        sent_at=fields["sent_at"],
        digest=fields["digest"],
    )


def _difference(was: str, now: str) -> str:
    before, after = json.loads(was), json.loads(now)
    return ", ".join(
        f"{name} is {before.get(name)!r} there" for name in sorted(after) if before.get(name) != after[name]
    )


def _unusable(path: Path, error: sqlite3.Error) -> InvalidArgument:
    if getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
        return InvalidArgument("journal", f"{path} is in use by another job, which must end first")
    return InvalidArgument("journal", f"{path} cannot be used: {error}")
