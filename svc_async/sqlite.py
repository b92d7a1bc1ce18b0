"""Opens SQLite files, and commits to them in a thread.

A file is recognised by the application id and the version in its header. A file of another kind or version is refused
before anything in it is changed.

    exclusive    one connection at a time, readers included; the lock is held until the file is closed
    shared       several processes may write; each waits up to five seconds for the others

A `Writer` commits in a thread of its own, so that the event loop never waits for the disk. Work that is queued while a
commit is at the disk shares the next transaction: the cost of a commit is paid once for all of it.
"""

import asyncio
import queue
import re
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import attrs

from svc_async.errors import InvalidArgument, UnusableFile, WrongState
from svc_async.private_files import check_private, check_trusted, create_missing, ensure_private
from svc_async.value_rules import instance_of

__all__ = ["FileFormat", "Work", "Writer", "connect", "in_thread", "report_unusable", "wait_through_cancellation"]

T = TypeVar("T")

Work = Callable[[sqlite3.Connection], T]
"""Statements that belong to one transaction."""

_WAIT_FOR_READERS = 0.25
"""Seconds to wait for an exclusive lock: a reader of a journal holds the file only for a moment."""
_WAIT_FOR_WRITERS = 5.0
_IN_MEMORY = re.compile(r":memory:|file:.*(:memory:|mode=memory).*")
_QUOTES_TEXT = "Could not decode"
"""How Python begins its message about text that is not UTF-8, which it quotes."""
_PATH = instance_of((str, Path), "a path")
_SIDE_FILES = ("-wal", "-shm", "-journal")


@attrs.frozen(kw_only=True)
class FileFormat:
    """A kind of database file.

    Attributes:
        kind: what messages call such a file, such as `a journal`.
        parameter: the parameter that names it, for messages.
        application_id: the number that identifies the kind, in the header of the file.
        version: the version of the tables; no other is read.
        tables: the statements that create them.
        advice: what to do with a file that is damaged.
        holder: who may have locked such a file, and what to do then.
        in_memory: what to do instead of having SQLite keep such a file in memory.
        shrinks: whether pages that are no longer used can be given back, by `PRAGMA incremental_vacuum`.
    """

    kind: str
    parameter: str
    application_id: int
    version: int
    tables: str
    advice: str = "restore it from a backup, or delete it"
    holder: str = "another job"
    in_memory: str = "name a file"
    shrinks: bool = False

    def check_path(self, path: str | Path) -> None:
        """Check that a path may name a file of this kind, before it is opened.

        Raises:
            InvalidArgument: it is no path, or empty, or SQLite would keep what it names in memory.
        """
        _PATH.check(self.parameter, path)
        if str(path) in {"", "."}:
            raise InvalidArgument(self.parameter, "must be the path of a file, and is empty or the current folder")
        if _IN_MEMORY.fullmatch(str(Path(path))):
            lost = "SQLite would keep it in memory, and it would end with the process"
            raise InvalidArgument(self.parameter, f"must be the path of a file: {lost}; {self.in_memory}")

    def is_empty(self, path: Path, connection: sqlite3.Connection) -> bool:
        """Return whether a file holds nothing yet; otherwise make sure that it is of this kind and version.

        Raises:
            UnusableFile: it is not.
        """
        application_id, version, tables = (
            connection.execute(statement).fetchone()[0]
            for statement in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_schema")
        )
        if tables and application_id != self.application_id:
            raise UnusableFile(self.parameter, path, f"is not {self.kind}")
        if version > self.version:
            raise UnusableFile(self.parameter, path, "was written by a newer version of this SDK")
        if tables and version < self.version:
            raise UnusableFile(self.parameter, path, "was written by an earlier version of this SDK")
        self._check_tables(path, connection)
        return not tables

    def make_damage_error(self, path: Path) -> UnusableFile:
        """Return the error that says that a file of this kind is damaged, and what to do with it."""
        return UnusableFile(self.parameter, path, f"is damaged; {self.advice}")

    def _check_tables(self, path: Path, connection: sqlite3.Connection) -> None:
        """Make sure that reading the file runs no statement of somebody else, such as a view without an end."""
        expected = {" ".join(statement.split()) for statement in self.tables.split(";")}
        found = connection.execute("SELECT sql FROM sqlite_schema WHERE name NOT GLOB 'sqlite_*'")
        if not all(isinstance(sql, str) and " ".join(sql.split()) in expected for (sql,) in found):
            raise self.make_damage_error(path)

    def create(self, connection: sqlite3.Connection) -> None:
        """Create the tables, within a transaction."""
        for statement in self.tables.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {self.application_id}")
        connection.execute(f"PRAGMA user_version = {self.version}")


def connect(
    path: Path,
    file_format: FileFormat,
    *,
    exclusive: bool,
    journal_mode: Literal["WAL", "DELETE"] = "WAL",
    synchronous: Literal["FULL", "NORMAL"] = "FULL",
    factory: type[sqlite3.Connection] = sqlite3.Connection,
) -> sqlite3.Connection:
    """Open a database file, or create it in a folder that exists; only this user can read it.

    Args:
        path: the file.
        file_format: what the file holds.
        exclusive: lock the file against all other connections.
        journal_mode: DELETE for transactions that are too large for a write-ahead log.
        synchronous: FULL survives the loss of power, NORMAL the end of the process.
        factory: the class of the connection.

    Raises:
        InvalidArgument: the path names no file.
        UnusableFile: the file is of another kind or version, is locked, or cannot be opened.
    """
    file_format.check_path(path)
    _prepare(path, file_format)
    with report_unusable(path, file_format):
        connection = sqlite3.connect(
            path,
            timeout=_WAIT_FOR_READERS if exclusive else _WAIT_FOR_WRITERS,
            isolation_level=None,
            check_same_thread=False,
            factory=factory,
        )
        try:
            if exclusive:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            is_empty = file_format.is_empty(path, connection)  # a file of another kind stays as it is
            _withdraw(path, file_format)  # before SQLite creates files beside it with the same mode
            if is_empty and file_format.shrinks:
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # not possible once there are tables
            connection.execute(f"PRAGMA journal_mode = {journal_mode}")
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            connection.execute("BEGIN IMMEDIATE")  # takes the exclusive lock, or waits for who may be creating tables
            if file_format.is_empty(path, connection):
                file_format.create(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
    return connection


def _prepare(path: Path, file_format: FileFormat) -> None:
    """Create a file that only this user can open; what exists may be somebody else's, and keeps its mode."""
    _apply(create_missing, check_trusted, path, file_format)


def _withdraw(path: Path, file_format: FileFormat) -> None:
    """Make sure that only this user can open the file and those beside it."""
    _apply(ensure_private, check_private, path, file_format)


def _apply(
    to_file: Callable[[Path], None], to_side_file: Callable[[str], None], path: Path, file_format: FileFormat
) -> None:
    try:
        to_file(path)
        for suffix in _SIDE_FILES:
            to_side_file(f"{path}{suffix}")
    except FileNotFoundError:
        problem = "cannot be used: its folder does not exist; create that first, or give another path"
        raise UnusableFile(file_format.parameter, path, problem) from None
    except OSError as error:
        raise UnusableFile(file_format.parameter, path, f"cannot be used: {error.strerror}") from None


@contextmanager
def report_unusable(path: Path, file_format: FileFormat) -> Generator[None]:
    """Report errors of SQLite within the block as those of the file.

    Raises:
        UnusableFile: the file is locked or damaged, or SQLite reports another error.
    """
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            problem = f"is locked by {file_format.holder}"
            raise UnusableFile(file_format.parameter, path, problem, repeatable=True) from None
        if name.startswith("SQLITE_CORRUPT") or str(error).startswith(_QUOTES_TEXT):
            raise file_format.make_damage_error(path) from None
        raise UnusableFile(file_format.parameter, path, f"cannot be used: {error}") from None
    except UnicodeDecodeError:  # SQLite quotes what is damaged
        raise file_format.make_damage_error(path) from None


class Writer:
    """Commits work to a database file in a thread of its own, in the order in which it is submitted.

    Args:
        connection: the open file; the writer closes it.
        before_commit: run once in each transaction, after its work.
        stop_on_error: whether the first error ends the writing: the transaction is rolled back, nothing more is
            written, and every caller gets the error. Otherwise only the work that failed is undone.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        before_commit: Callable[[sqlite3.Connection], object] | None = None,
        stop_on_error: bool = False,
    ) -> None:
        self._connection = connection
        self._before_commit = before_commit
        self._stop_on_error = stop_on_error
        self._failure: Exception | None = None
        self._closed = False
        self._queue: queue.SimpleQueue[_QueuedWork | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="svc-async sqlite", daemon=True)
        self._thread.start()

    async def run(self, work: Work[T]) -> T:
        """Do work and return its result once it is committed; a caller that is cancelled does not undo it.

        Raises:
            sqlite3.Error: it was not committed; or any exception that the work itself raised.
            WrongState: the writer is closed.
        """
        future = asyncio.get_running_loop().create_future()
        self._put(_QueuedWork(work, future))
        return cast(T, await future)

    def submit(self, work: Work[object]) -> None:
        """Do work with the next commit, without waiting for it; see `stop_on_error` for what happens if it fails."""
        self._put(_QueuedWork(work))

    async def close(self) -> None:
        """Commit what is queued, close the file and release its lock, even if the caller is cancelled meanwhile."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await in_thread(self._thread.join)

    def _put(self, entry: "_QueuedWork") -> None:
        if self._closed:
            raise WrongState("the database file is closed")
        self._queue.put(entry)

    def _serve(self) -> None:
        while entries := self._take_queued():
            outcomes = self._transact([entry.work for entry in entries])
            waiting = {}
            for entry, outcome in zip(entries, outcomes, strict=True):
                if entry.future is not None:
                    waiting[entry.future] = outcome
            _resolve_in_loop(waiting)
        self._connection.close()

    def _take_queued(self) -> "Sequence[_QueuedWork]":
        """Return what is queued, waiting for the first entry; nothing once the writer is closed."""
        entries: list[_QueuedWork] = []
        while (entry := self._queue.get()) is not None:
            entries.append(entry)
            if self._queue.empty():
                return entries
        if entries:
            self._queue.put(None)
        return entries

    def _transact(self, works: Sequence[Work[Any]]) -> Sequence[object]:
        """Return the result of each piece of work once they are committed, or a `_FailedWork` with the reason."""
        if self._failure is not None:
            return [_FailedWork(self._failure)] * len(works)
        try:
            return self._commit(works)
        except Exception as error:  # noqa: BLE001 - every caller that waits gets it
            with suppress(sqlite3.Error):  # SQLite may have rolled back by itself
                self._connection.execute("ROLLBACK")
            self._failure = error if self._stop_on_error else None
            return [_FailedWork(error)] * len(works)

    def _commit(self, works: Sequence[Work[Any]]) -> Sequence[object]:
        self._connection.execute("BEGIN IMMEDIATE")
        results = [self._perform(work) for work in works]
        if self._before_commit is not None:
            self._before_commit(self._connection)
        self._connection.execute("COMMIT")
        return results

    def _perform(self, work: Work[Any]) -> object:
        if self._stop_on_error:
            return work(self._connection)
        self._connection.execute("SAVEPOINT work")
        try:
            result = work(self._connection)
        except Exception as error:
            if not self._connection.in_transaction:  # a full disk, say: SQLite has rolled back all of it
                raise
            self._connection.execute("ROLLBACK TO work")
            result = _FailedWork(error)
        self._connection.execute("RELEASE work")
        return result


async def in_thread(work: Callable[[], T], *, undo: Callable[[T], Awaitable[object]] | None = None) -> T:
    """Return what a thread returns, or raise what it raises.

    If the caller is cancelled meanwhile, however often, the work is finished and then undone, before the cancellation
    goes on.

    Args:
        work: what the thread does.
        undo: undoes it; must itself finish when it is cancelled, as whatever ends with this function does.
    """
    # Not a task, which would be cancelled with all others when the loop ends, while the thread goes on.
    future = asyncio.get_running_loop().run_in_executor(None, work)
    cancelled = await wait_through_cancellation(future)
    if cancelled is None:
        return future.result()
    if future.exception() is None and undo is not None:
        await undo(future.result())
    raise cancelled


async def wait_through_cancellation(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until a future is done; return the cancellation of the caller, if it was cancelled meanwhile.

    The caller raises it once everything is released.
    """
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


@attrs.frozen
class _QueuedWork:
    work: Work[Any]
    future: asyncio.Future[Any] | None = None


@attrs.frozen
class _FailedWork:
    error: Exception


def _resolve_in_loop(outcomes: Mapping[asyncio.Future[Any], object]) -> None:
    """Resolve futures from another thread; a loop is woken once."""
    for loop in {future.get_loop() for future in outcomes}:
        own = {future: outcome for future, outcome in outcomes.items() if future.get_loop() is loop}
        with suppress(RuntimeError):  # the loop was closed, and nothing waits any more
            loop.call_soon_threadsafe(_resolve, own)


def _resolve(outcomes: Mapping[asyncio.Future[Any], object]) -> None:
    for future, outcome in outcomes.items():
        if future.done():  # its caller was cancelled
            continue
        if isinstance(outcome, _FailedWork):
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome)
