"""A journal in a SQLite file, with its spool beside it.

A job locks the file against every other connection, readers included, so that no two jobs work on one file. Its
contents can be read nevertheless, without that lock and without weakening it: the file and its write-ahead log are
copied, and the copy is read. The log contains every commit since it was restarted, so a copy of both is consistent
unless the log was restarted in between, which its header shows.
"""

import sqlite3
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs

from svc_async.batch.journal.records import MAX_SIZE, Changes, Records, check_rows, compute_checksum
from svc_async.batch.journal.spool import FileSpool
from svc_async.batch.journal.store import Begin, JournalStore, JournalUnwritable
from svc_async.errors import UnusableFile
from svc_async.private_files import create_private
from svc_async.sqlite import FileFormat, Writer, connect, in_thread, report_unusable

__all__ = ["FORMAT", "JournalFile", "read_records", "write_changes"]

T = TypeVar("T")

FORMAT = FileFormat(
    kind="a journal",
    parameter="journal",
    application_id=0x73766A6C,
    version=4,
    tables="""
    CREATE TABLE records (
        kind TEXT NOT NULL, number INTEGER NOT NULL, body BLOB NOT NULL, checksum INTEGER NOT NULL,
        PRIMARY KEY (kind, number)
    ) WITHOUT ROWID
    """,
    in_memory="leave journal= out for a job that cannot be resumed",
    advice="delete it after the quarantine and run the job again: what the service has already is sent once more",
)
_INTACT = "ok"
_MAX_VALUE = 67_108_864
_LOG_HEADER = 32
"""Bytes of the header of a write-ahead log; it changes whenever the log is restarted."""
_ATTEMPTS = 100


@attrs.frozen
class JournalFile:
    """A file that holds a journal; its folder exists.

    Attributes:
        path: the file.
    """

    path: Path = attrs.field(converter=Path)
    _factory: type[sqlite3.Connection] = attrs.field(default=sqlite3.Connection, repr=False)

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    async def open(self, begin: Begin[T]) -> tuple[T, JournalStore]:
        """Lock the file for one run, or create it.

        Raises:
            UnusableFile: the file is locked, damaged, holds something else, or cannot be opened.
        """
        return await in_thread(lambda: self._open(begin), undo=_undo)

    def _open(self, begin: Begin[T]) -> tuple[T, JournalStore]:
        connection = connect(self.path, FORMAT, exclusive=True, factory=self._factory)
        try:
            with report_unusable(self.path, FORMAT):
                result, changes = begin(read_records(self.path, connection))
                connection.execute("BEGIN IMMEDIATE")
                write_changes(changes, connection)
                connection.execute("COMMIT")
                # The file itself says that a run has begun: the log may be damaged, or left behind when it is moved.
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                return result, _FileStore(self.path, connection)
        except BaseException:
            connection.close()
            raise

    def make_error(self, problem: str) -> UnusableFile:
        """Return the error that says why the file cannot be used."""
        return UnusableFile(FORMAT.parameter, self.path, problem)

    def read(self) -> tuple[Records, bool]:
        """Return the records, and whether a job uses the file; nothing in it is changed, and no job is disturbed.

        Raises:
            UnusableFile: the file does not exist, or is not a journal that can be read.
        """
        if not self.path.is_file():
            raise self.make_error("is a folder" if self.path.is_dir() else "does not exist")
        try:
            with _open_copy(self.path) as (connection, is_running):
                connection.execute("BEGIN")
                if FORMAT.is_empty(self.path, connection):
                    return Records({}, lambda: FORMAT.make_damage_error(self.path)), is_running
                return read_records(self.path, connection), is_running
        except (ValueError, TypeError, OverflowError):  # SQLite quotes what is damaged
            raise FORMAT.make_damage_error(self.path) from None
        except (sqlite3.Error, OSError) as error:
            if getattr(error, "sqlite_errorname", "").startswith("SQLITE_CORRUPT"):
                raise FORMAT.make_damage_error(self.path) from None
            raise self.make_error(f"cannot be read: {error}") from None


class _FileStore:
    is_locked = True
    silence = 0.0

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.spool = FileSpool(Path(f"{path}.rows"))
        self._path = path
        self._writer = Writer(connection, stop_on_error=True)

    def submit(self, changes: Changes) -> None:
        self._writer.submit(partial(write_changes, changes))

    async def commit(
        self,
        changes: Changes,
        *,
        is_last: bool = False,  # noqa: ARG002 - users delete files
        confirms: bool = False,  # noqa: ARG002 - the file is locked
    ) -> None:
        try:
            await self._writer.run(partial(write_changes, changes))
        except sqlite3.Error as error:
            raise JournalUnwritable(f"the journal {self._path} cannot be written: {error}") from error

    async def close(self) -> None:
        await self._writer.close()


async def _undo(opened: tuple[object, JournalStore]) -> None:
    await opened[1].close()


def read_records(path: Path, connection: sqlite3.Connection) -> Records:
    """Return all records of an open file.

    Raises:
        UnusableFile: the file is damaged.
    """
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE)
    try:
        _check_file(connection)
        bodies = check_rows(connection.execute("SELECT kind, number, body, checksum FROM records"))
    except (sqlite3.DatabaseError, TypeError, ValueError) as error:
        if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise
        raise FORMAT.make_damage_error(path) from None
    return Records(bodies, lambda: FORMAT.make_damage_error(path))


def _check_file(connection: sqlite3.Connection) -> None:
    pages, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    _check_size(int(pages) * int(size))
    (state,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if state != _INTACT:
        raise ValueError(state)


def write_changes(changes: Changes, connection: sqlite3.Connection) -> None:
    """Write records within a transaction."""
    for (kind, number), body in changes.items():
        if body is None:
            connection.execute("DELETE FROM records WHERE kind = ? AND number = ?", (kind, number))
        else:
            row = (kind, number, body, compute_checksum(kind, number, body))
            connection.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", row)


def _check_size(size: int) -> None:
    if size > MAX_SIZE:
        raise ValueError("too large")


@contextmanager
def _open_copy(path: Path) -> Generator[tuple[sqlite3.Connection, bool]]:
    """Open a journal, or a copy of it if a job has locked it; yield the connection and whether it is locked."""
    with closing(sqlite3.connect(_build_uri(path, "rw"), uri=True, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("SELECT count(*) FROM sqlite_schema")
        except sqlite3.OperationalError as error:
            running = error.sqlite_errorname.startswith("SQLITE_BUSY")
        else:
            yield connection, False
            return
    # Works without permission to write to the folder, too.
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "journal"
        _copy(path, copy)
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            yield connection, running


def _copy(path: Path, copy: Path) -> None:
    for _ in range(_ATTEMPTS):
        header = _read_log(path)[:_LOG_HEADER]
        pages = _read_pages(path)
        log = _read_log(path)
        if pages is not None and _read_log(path)[:_LOG_HEADER] == header == log[:_LOG_HEADER]:
            break
    else:
        raise OSError("it changes all the time")
    for name, content in ((copy, pages), (f"{copy}-wal", log)):
        with create_private(name) as file:
            file.write(content)


def _read_pages(path: Path) -> bytes | None:
    """Return the contents of the file; None if it was written to meanwhile.

    SQLite reads it, because opening and closing the file otherwise would release the lock of a job in this process.
    """
    size = path.stat().st_size
    if not size:  # it is being created
        return b""
    _check_size(size)
    try:
        with closing(sqlite3.connect(_build_uri(path, "ro", immutable=1), uri=True)) as connection:
            return connection.serialize()
    except sqlite3.OperationalError:
        return None


def _read_log(path: Path) -> bytes:
    log = Path(f"{path}-wal")
    try:
        _check_size(log.stat().st_size)
        return log.read_bytes()
    except FileNotFoundError:
        return b""


def _build_uri(path: Path, mode: str, immutable: int = 0) -> str:
    return f"{path.absolute().as_uri()}?mode={mode}&immutable={immutable}"
