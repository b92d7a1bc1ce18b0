"""Keeps records in a SQLite file, and opens the other files of this kind.

A file is recognised by the application id and the version in its header. A file of another kind or version is refused
before anything in it is changed.

Whoever writes a file alone locks `PATH-lock` beside it: with `flock` (on Windows with `msvcrt.locking`), which belongs
to the open file. The locks of SQLite belong to the process, which loses them when it opens and closes the database once
more, as a backup does. Readers take no lock: they read what was committed last, while a job goes on. Where several
processes write, a file is opened without `exclusive`, and each waits up to five seconds for the others.

A `Writer` commits in a thread of its own, so that the event loop never waits for the disk. Work that is queued while a
commit is at the disk shares the next transaction: the cost of a commit is paid once for all of it.
"""

import asyncio
import os
import queue
import re
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

import attrs

from svc_async.cancellation import in_thread
from svc_async.errors import Hint, InvalidArgument, UnusableFile, WrongState
from svc_async.lazy import LazyModule
from svc_async.private_files import (
    check_private,
    check_trusted,
    create_missing,
    ensure_private,
    open_by_name,
    open_private,
    open_trusted,
)
from svc_async.store.records import (
    COUNT,
    MAX_BODY,
    Begin,
    Changes,
    DamagedRecord,
    Records,
    check_all,
    check_each,
    check_record,
    compute_checksum,
    decode,
    encode,
)
from svc_async.value_rules import instance_of

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = LazyModule("sqlite3")  # a job without a file needs none

__all__ = ["RECORDS", "DatabaseFile", "FileFormat", "FileLocation", "FileLock", "FileStore", "Work", "Writer"]

T = TypeVar("T")

Work = Callable[["sqlite3.Connection"], T]
"""Statements that belong to one transaction."""

RECORDS = """
    CREATE TABLE records (
        kind TEXT NOT NULL, number INTEGER NOT NULL, body BLOB NOT NULL, checksum INTEGER NOT NULL,
        PRIMARY KEY (kind, number)
    )
"""
"""The statement that creates the table of records; it has row ids, since bodies of a megabyte are slow without."""
_PUT = "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)"
_DELETE = "DELETE FROM records WHERE kind = ? AND number = ?"
_SELECT = "SELECT kind, number, body, checksum FROM records"
_SOME = f"{_SELECT} WHERE kind = ? AND number BETWEEN ? AND ? ORDER BY number"
_WHOLE = range(-(2**63), 2**63)
_INTACT = "ok"
_WAIT = 5.0
"""Seconds to wait for another connection."""
_LOCK_ATTEMPTS, _LOCK_PAUSE = 10, 0.02
"""Whoever asks whether a file is locked has its lock for a moment."""
_IN_MEMORY = re.compile(r":memory:|file:.*(:memory:|mode=memory).*")
_PATH = instance_of((str, Path), "a path")
_SIDE_FILES = ("-wal", "-shm", "-journal")


@attrs.frozen(kw_only=True)
class FileFormat:
    """A kind of database file.

    Attributes:
        kind: what messages call such a file, such as `a journal`.
        parameter: the parameter that names it, for messages.
        application_id: the number that identifies the kind, in the header of the file.
        version: the version of what the file holds; no other is read.
        tables: the statements that create its tables, separated by semicolons.
        restore: what to do with a file that is damaged.
        give: what to give in place of a path that is not such a file.
        holder: who may have locked such a file.
        share: what to do then, besides waiting.
        in_memory: what to do instead of having SQLite keep such a file in memory.
        has_log: whether commits go to a write-ahead log, which others can read meanwhile. A log takes as much space as
            the largest transaction.
        shrinks: whether pages that are no longer used can be given back one by one. Otherwise what is left is written
            anew, which is faster where that is little.
    """

    kind: str
    parameter: str
    application_id: int
    version: int
    tables: str = RECORDS
    restore: Hint = Hint.RESTORE_OR_DELETE
    give: Hint | None = None
    holder: str = "another job"
    share: Hint | None = None
    in_memory: Hint = Hint.NAME_A_FILE
    has_log: bool = True
    shrinks: bool = False

    def check_path(self, path: str | Path) -> None:
        """Check that a path may name a file of this kind, before it is opened.

        Raises:
            InvalidArgument: the path is not a path, or is empty, or names what SQLite would keep in memory.
            UnusableFile: this Python has no SQLite.
        """
        _PATH.check(self.parameter, path)
        if str(path) in {"", "."}:
            raise InvalidArgument(self.parameter, "must be the path of a file, and is empty or the current folder")
        if _IN_MEMORY.fullmatch(str(Path(path))):
            lost = "SQLite would keep it in memory, and it would end with the process"
            raise InvalidArgument(self.parameter, f"must be the path of a file: {lost}", hint=self.in_memory)
        try:
            import_module("sqlite3")
        except ImportError:
            raise UnusableFile(self.parameter, path, "cannot be used: this Python was built without SQLite") from None

    def is_empty(self, path: Path, connection: "sqlite3.Connection") -> bool:
        """Return whether a file holds nothing yet; otherwise make sure that it is of this kind and version.

        Raises:
            UnusableFile: the file is of another kind or version, or has other tables.
        """
        application_id, version, tables = (
            connection.execute(statement).fetchone()[0]
            for statement in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_schema")
        )
        if tables and application_id != self.application_id:
            raise UnusableFile(self.parameter, path, f"is not {self.kind}", hint=self.give)
        if version > self.version:
            raise UnusableFile(self.parameter, path, "was written by a newer version of this SDK")
        if tables and version < self.version:
            raise UnusableFile(self.parameter, path, "was written by an earlier version of this SDK")
        # Reading the file must run no statement of somebody else, such as a view without an end.
        expected = {" ".join(statement.split()) for statement in self.tables.split(";")}
        found = connection.execute("SELECT sql FROM sqlite_schema WHERE name NOT GLOB 'sqlite_*'").fetchall()
        if not all(isinstance(sql, str) and " ".join(sql.split()) in expected for (sql,) in found):
            raise self.make_damage_error(path)
        return not tables

    def create(self, connection: "sqlite3.Connection") -> None:
        """Create the tables, within a transaction."""
        for statement in self.tables.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {self.application_id}")
        connection.execute(f"PRAGMA user_version = {self.version}")

    def make_damage_error(self, path: Path) -> UnusableFile:
        """Return the error that says that a file of this kind is damaged, and what to do with it."""
        return UnusableFile(self.parameter, path, "is damaged", hint=self.restore)

    @contextmanager
    def report(self, path: Path) -> Generator[None]:
        """Report errors of SQLite within the block, and damage, as those of the file.

        Raises:
            UnusableFile: the file is locked or damaged, or SQLite reports another error.
        """
        try:
            yield
        except (sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError):
            raise  # they are about what was to be written
        except sqlite3.DataError:  # larger than anything that was written
            raise self.make_damage_error(path) from None
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise UnusableFile(self.parameter, path, "is locked by another process", repeatable=True) from None
            if not name or name.startswith("SQLITE_CORRUPT"):  # Python quotes text that is not UTF-8, without a name
                raise self.make_damage_error(path) from None
            is_other = name == "SQLITE_NOTADB"
            problem = f"is not {self.kind}" if is_other else f"cannot be used: {error}"
            raise UnusableFile(self.parameter, path, problem, hint=self.give if is_other else None) from None
        except (DamagedRecord, UnicodeDecodeError):  # SQLite quotes what is damaged
            raise self.make_damage_error(path) from None
        except BlockingIOError:
            problem = f"is locked by {self.holder}"
            raise UnusableFile(self.parameter, path, problem, hint=self.share, repeatable=True) from None
        except FileNotFoundError:
            problem = "cannot be used: its folder does not exist"
            raise UnusableFile(self.parameter, path, problem, hint=Hint.CREATE_THE_FOLDER) from None
        except OSError as error:
            raise UnusableFile(self.parameter, path, f"cannot be used: {error.strerror}") from None


@attrs.frozen
class FileLock:
    """A lock that one process at a time has, until it releases it or ends.

    Attributes:
        path: the file that is locked; it is deleted with the lock, where the system allows that.
    """

    path: Path
    _descriptor: int

    @classmethod
    def take(cls, path: Path) -> Self:
        """Take the lock.

        Raises:
            BlockingIOError: somebody has it.
            OSError: the file cannot be opened, or cannot be locked.
        """
        for attempt in range(_LOCK_ATTEMPTS):
            if attempt:
                time.sleep(_LOCK_PAUSE)
            descriptor = open_private(path, os.O_RDWR | os.O_CREAT)
            try:
                _lock(descriptor)
                if _is_at(path, descriptor):  # whoever had the lock before may have deleted the file meanwhile
                    _own_locks.add(_identify(os.fstat(descriptor)))
                    return cls(path, descriptor)
            except BlockingIOError:
                pass
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        raise BlockingIOError

    @staticmethod
    def is_taken(path: Path) -> bool:
        """Return whether somebody has the lock."""
        if not os.path.lexists(path):
            return False
        try:
            descriptor = open_trusted(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        except OSError:  # another user left it, or has it
            return True
        try:
            _lock(descriptor)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    @staticmethod
    def is_own(path: Path) -> bool:
        """Return whether this process has the lock."""
        try:
            return _identify(path.stat()) in _own_locks
        except OSError:
            return False

    def release(self) -> None:
        """Release the lock."""
        _own_locks.discard(_identify(os.fstat(self._descriptor)))
        if sys.platform != "win32" and _is_at(self.path, self._descriptor):
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)


_own_locks: set[tuple[int, int]] = set()
"""The files of the locks that this process has."""


def _identify(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _lock(descriptor: int) -> None:
    """Lock an open file until it is closed.

    Raises:
        BlockingIOError: somebody else has locked it.
    """
    if sys.platform == "win32":
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            raise BlockingIOError from None
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@attrs.frozen
class DatabaseFile:
    """A database file that is open.

    Attributes:
        path: the file.
        file_format: what it holds.
        connection: the connection.
        lock: the lock, if nobody else may write.
        turn: held by the thread that uses the connection. Where SQLite itself has another one wait, that may keep the
            interpreter meanwhile, and all threads would wait for the disk.
    """

    path: Path
    file_format: FileFormat
    connection: "sqlite3.Connection"
    lock: FileLock | None = None
    turn: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    @classmethod
    def open(
        cls,
        path: Path,
        file_format: FileFormat,
        *,
        exclusive: bool = True,
        synchronous: Literal["FULL", "NORMAL"] = "FULL",
        factory: "type[sqlite3.Connection] | None" = None,
    ) -> Self:
        """Open a database file, or create it in a folder that exists; only this user can read it.

        Args:
            path: the file.
            file_format: what the file holds.
            exclusive: lock it against all others who would write.
            synchronous: FULL survives the loss of power, NORMAL the end of the process.
            factory: the class of the connection.

        Raises:
            InvalidArgument: the path names no file.
            UnusableFile: the file is of another kind or version, is locked, or cannot be opened.
        """
        file_format.check_path(path)
        with file_format.report(path):
            create_missing(path)  # what exists may be somebody else's, and keeps its mode
            for suffix in _SIDE_FILES:
                check_trusted(f"{path}{suffix}")
            lock = FileLock.take(lock_path(path)) if exclusive else None
            try:
                connection = open_by_name(
                    path,
                    lambda: sqlite3.connect(
                        path,
                        timeout=_WAIT,
                        isolation_level=None,
                        check_same_thread=False,
                        factory=factory or sqlite3.Connection,
                    ),
                )
                try:
                    is_empty = file_format.is_empty(path, connection)  # a file of another kind stays as it is
                    ensure_private(path)  # before SQLite creates files beside it with the same mode
                    for suffix in _SIDE_FILES:
                        check_private(f"{path}{suffix}")
                    if is_empty and file_format.shrinks:
                        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # not possible once there are tables
                    connection.execute(f"PRAGMA synchronous = {synchronous}")
                    connection.execute("PRAGMA cache_size = -4096")
                    connection.execute("BEGIN IMMEDIATE")  # waits for who may be creating tables
                    if file_format.is_empty(path, connection):
                        file_format.create(connection)
                    connection.execute("COMMIT")
                except BaseException:
                    connection.close()
                    raise
            except BaseException:
                if lock is not None:
                    lock.release()
                raise
        return cls(path, file_format, connection, lock)

    def begin_log(self) -> None:
        """Have commits go to a write-ahead log, if the format has one; what was committed before is in the file itself.

        Raises:
            UnusableFile: SQLite reports an error.
        """
        if self.file_format.has_log:
            with self.report():
                if self.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
                    self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # a process that was killed has left it
                else:
                    self.connection.execute("PRAGMA journal_mode = WAL")

    def close(self) -> None:
        """Close the file, and release its lock."""
        try:
            if self.lock is not None and self.file_format.has_log:
                with suppress(sqlite3.Error):  # somebody reads it
                    # Without a log, the file can be read where no other file can be created.
                    self.connection.execute("PRAGMA journal_mode = DELETE")
            self.connection.close()
        finally:
            if self.lock is not None:
                self.lock.release()

    @contextmanager
    def report(self) -> Generator[None]:
        """Report errors of SQLite within the block, and damage, as those of the file.

        Raises:
            UnusableFile: the file is locked or damaged, or SQLite reports another error.
        """
        with self.file_format.report(self.path):
            yield

    def execute(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement while no other thread uses the connection, and return its rows.

        Raises:
            UnusableFile: the file is locked or damaged, or SQLite reports another error.
        """
        with self.use() as connection:
            return connection.execute(statement, values).fetchall()

    @contextmanager
    def use(self) -> "Generator[sqlite3.Connection]":
        """Use the connection within the block while no other thread does, and report errors as `report` does."""
        with self.report(), self.turn:
            yield self.connection


def lock_path(path: Path) -> Path:
    """Return the path of the lock of a file."""
    return path.with_name(f"{path.name}-lock")


class Writer:
    """Commits work to a database file in a thread of its own, in the order in which it is submitted.

    Args:
        file: the open file; the writer closes it.
        before_commit: run once in each transaction, after its work.
        stop_on_error: whether the first error ends the writing: the transaction is rolled back, nothing more is
            written, and every caller gets the error. Otherwise only the work that failed is undone.
    """

    def __init__(
        self,
        file: DatabaseFile,
        *,
        before_commit: Callable[["sqlite3.Connection"], object] | None = None,
        stop_on_error: bool = False,
    ) -> None:
        self._file = file
        self._connection = file.connection
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
            for loop in {future.get_loop() for future in waiting}:  # a loop is woken once
                own = {future: outcome for future, outcome in waiting.items() if future.get_loop() is loop}
                with suppress(RuntimeError):  # the loop was closed, and nothing waits any more
                    loop.call_soon_threadsafe(_resolve, own)
        self._file.close()

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
        with self._file.turn:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                results = [self._perform(work) for work in works]
                if self._before_commit is not None:
                    self._before_commit(self._connection)
                self._connection.execute("COMMIT")
            except Exception as error:  # noqa: BLE001 - every caller that waits gets it
                with suppress(sqlite3.Error):  # SQLite may have rolled back by itself
                    self._connection.execute("ROLLBACK")
                self._failure = error if self._stop_on_error else None
                return [_FailedWork(error)] * len(works)
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


@attrs.frozen
class _QueuedWork:
    work: Work[Any]
    future: asyncio.Future[Any] | None = None


@attrs.frozen
class _FailedWork:
    error: Exception


def _resolve(outcomes: Mapping[asyncio.Future[Any], object]) -> None:
    for future, outcome in outcomes.items():
        if future.done():  # its caller was cancelled
            continue
        if isinstance(outcome, _FailedWork):
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome)


@attrs.frozen
class FileLocation:
    """Records in a file: a `RecordLocation`.

    Attributes:
        path: the file; its folder exists.
        file_format: what it holds.
    """

    path: Path = attrs.field(converter=Path)
    file_format: FileFormat
    _factory: "type[sqlite3.Connection] | None" = attrs.field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    @property
    def is_in_use(self) -> bool:
        """Whether somebody has taken up the records."""
        return FileLock.is_taken(lock_path(self.path))

    async def open(self, begin: Begin[T], *, kinds: Collection[str] | None = None) -> "tuple[T, FileStore]":
        """Lock the file, or create it; see `RecordLocation`.

        Raises:
            InvalidArgument: the path names no file.
            UnusableFile: the file is locked, damaged, holds something else, or cannot be opened.
        """

        def open_() -> tuple[T, FileStore]:
            file = DatabaseFile.open(self.path, self.file_format, factory=self._factory)
            try:
                with file.report():
                    if self.file_format.has_log:
                        # Commits go to the file itself, with what a process that was killed has left in its log.
                        # This fails where another process has the file open: it uses it although somebody has deleted
                        # the file of its lock; or somebody reads it for a moment.
                        end_log = partial(file.connection.execute, "PRAGMA journal_mode = DELETE")
                        _try_again(end_log, "SQLITE_")
                    if kinds is None or COUNT in kinds:
                        _check_pages(file.connection)
                    # What is deleted leaves the file when it shrinks; a log would take all that is overwritten.
                    file.connection.execute("PRAGMA secure_delete = FAST")
                    result, changes = begin(self._load(file.connection, kinds))
                    file.connection.execute("BEGIN IMMEDIATE")
                    _write(changes, file.connection)
                    file.connection.execute("COMMIT")
                    # The file itself says that this process has begun: a log may be damaged, or be left behind.
                    file.begin_log()
            except BaseException:
                file.close()
                raise
            return result, FileStore(self, file)

        return await in_thread(open_, undo=lambda opened: opened[1].close())

    def read(self, *, kinds: Collection[str] | None = None) -> Records:
        """Return the records of some kinds, or all; nothing in the file is changed, and who writes it is not disturbed.

        Raises:
            UnusableFile: the file does not exist, holds something else, or cannot be read.
        """
        if not self.path.is_file():
            problem = "is a folder" if self.path.is_dir() else "does not exist"
            raise self.make_error(problem, self.file_format.give)
        self.file_format.check_path(self.path)
        with self.file_format.report(self.path):
            # A job has just taken it up, or ended.
            return _try_again(lambda: self._read(kinds), "SQLITE_CANTOPEN", "SQLITE_READONLY")

    def _read(self, kinds: Collection[str] | None) -> Records:
        uri = f"{self.path.absolute().as_uri()}?mode=ro"
        if Path(f"{self.path}-shm").exists() and not FileLock.is_own(lock_path(self.path)):
            # Otherwise SQLite might clear this index under a process that has lost its locks by a backup. But where the
            # writer is in this process, it shares the index, and could not write if a reader had opened it first.
            uri += "&readonly_shm=1"
        with closing(sqlite3.connect(uri, uri=True, timeout=_WAIT, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            if self.file_format.is_empty(self.path, connection):
                return Records({}, self.make_damage_error)
            return self._load(connection, kinds)

    def _load(self, connection: "sqlite3.Connection", kinds: Collection[str] | None) -> Records:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BODY)
        of_kinds = "" if kinds is None else f"WHERE kind IN ({', '.join('?' * len(kinds))})"
        check = check_all if kinds is None or COUNT in kinds else check_each
        # A cursor that an error keeps would keep its lock.
        with closing(connection.execute(f"{_SELECT} {of_kinds}", [*(kinds or ())])) as found:
            return Records(check(found), self.make_damage_error)

    def make_error(self, problem: str, hint: Hint | None = None) -> UnusableFile:
        """Return the error that says why the file cannot be used."""
        return UnusableFile(self.file_format.parameter, self.path, problem, hint=hint)

    def make_damage_error(self) -> UnusableFile:
        """Return the error that says that the file is damaged, and what to do with it."""
        return self.file_format.make_damage_error(self.path)


class FileStore:
    """Records in a file that this process has locked: a `RecordStore`.

    Args:
        location: where they are.
        file: the open file.
    """

    is_locked = True
    silence = 0.0

    def __init__(self, location: FileLocation, file: DatabaseFile) -> None:
        self._location = location
        self._file = file
        self._writer = Writer(file, stop_on_error=True)

    async def read(self, kind: str, into: type[T], numbers: range | None = None) -> Sequence[tuple[int, T]]:
        """Return the numbers and values of records of a kind; see `RecordStore`."""
        some = _WHOLE if numbers is None else numbers
        if not some:
            return []
        rows = await self._select(_SOME, kind, some[0], some[-1])
        with self._file.report():
            return [(number, decode(check_record(each, number, body, sum_), into)) for each, number, body, sum_ in rows]

    async def list_numbers(self, kind: str) -> Sequence[int]:
        """Return the numbers of the records of a kind, ascending."""
        rows = await self._select("SELECT number FROM records WHERE kind = ? ORDER BY number", kind)
        return [number for (number,) in rows]

    async def _select(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return rows: at once, or in a thread while the one that writes may be waiting for the disk."""
        select = partial(self._file.execute, statement, values)
        return await in_thread(select) if self._file.turn.locked() else select()

    def submit(self, changes: Changes) -> None:
        """Commit changes soon, without waiting for it; see `RecordStore`."""
        self._writer.submit(partial(_write, changes))

    async def commit(
        self,
        changes: Changes,
        *,
        is_last: bool = False,  # noqa: ARG002 - users delete files
        confirms: bool = False,  # noqa: ARG002 - the file is locked
    ) -> None:
        """Commit changes, and everything that was submitted before; see `RecordStore`.

        Raises:
            UnusableFile: they cannot be written.
        """
        try:
            await self._writer.run(partial(_write, changes))
        except sqlite3.Error as error:
            raise self._location.make_error(f"cannot be written: {error}") from error

    @asynccontextmanager
    async def transaction(self) -> "AsyncGenerator[_FileWriter]":
        """Commit what the block writes, or nothing of it; see `RecordStore`."""
        await self.commit({})  # what was submitted has no part in it
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield _FileWriter(self._file)
            await in_thread(lambda: self._file.execute("COMMIT"))
        except BaseException:
            if self._file.connection.in_transaction:
                with suppress(UnusableFile):
                    self._file.execute("ROLLBACK")
            raise

    async def shrink(self) -> None:
        """Return what is no longer used to the file system."""
        shrink = "PRAGMA incremental_vacuum" if self._location.file_format.shrinks else "VACUUM"

        def run() -> None:
            with self._file.use() as connection:
                connection.executescript(shrink)  # `execute` stops after the first page

        await in_thread(run)

    async def close(self) -> None:
        """Commit what was submitted, and release the file; see `RecordStore`."""
        await self._writer.close()


@attrs.frozen
class _FileWriter:
    _file: DatabaseFile

    async def put(self, kind: str, number: int, value: Any) -> None:
        self._write({(kind, number): encode(value)})

    async def delete(self, kind: str, numbers: Iterable[int] | None = None) -> None:
        if numbers is None:
            await in_thread(lambda: self._file.execute("DELETE FROM records WHERE kind = ?", (kind,)))
        else:
            self._write(dict.fromkeys((kind, number) for number in numbers))

    def _write(self, changes: Changes) -> None:
        with self._file.use() as connection:
            _write(changes, connection)


def _try_again(call: Callable[[], T], *passing: str) -> T:
    """Return the result of a call, which is repeated for a moment if it fails with an error that may pass.

    Args:
        call: the call.
        passing: how the names begin that SQLite gives to such errors.
    """
    for _ in range(_LOCK_ATTEMPTS):
        try:
            return call()
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith(passing):
                raise
        time.sleep(_LOCK_PAUSE)
    return call()


def _check_pages(connection: "sqlite3.Connection") -> None:
    """Find damage that the checksums of records do not tell, and that would harm them when the file is written.

    Raises:
        DamagedRecord: there is some.
    """
    if connection.execute("PRAGMA integrity_check(1)").fetchone() != (_INTACT,):
        raise DamagedRecord


def _write(changes: Changes, connection: "sqlite3.Connection") -> None:
    """Write records, within a transaction."""
    for (kind, number), body in changes.items():
        if body is None:
            connection.execute(_DELETE, (kind, number))
        else:
            connection.execute(_PUT, (kind, number, body, compute_checksum(kind, number, body)))
