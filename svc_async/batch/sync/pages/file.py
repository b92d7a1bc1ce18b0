"""The tables of a state in a SQLite file."""

import sqlite3
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from svc_async.batch.sync.pages.page import DamagedState
from svc_async.batch.sync.pages.tables import COLUMNS, add_checksum, check_row
from svc_async.cancellation import in_thread
from svc_async.errors import UnusableFile
from svc_async.store.file import DatabaseFile, FileFormat

__all__ = ["FORMAT", "StateFile"]

FORMAT = FileFormat(
    kind="a sync state",
    parameter="state",
    application_id=0x73766373,
    version=5,
    shrinks=True,
    has_log=False,  # a transaction may be as large as the file
    in_memory="the next sync needs it",
    advice="without it, the next sync sends all rows and removes none: move the file away",
    tables="""
    CREATE TABLE about (
        id INTEGER PRIMARY KEY, target TEXT, pages INTEGER, rows INTEGER, expires INTEGER,
        monotonic REAL, boot TEXT, checksum INTEGER
    );
    CREATE TABLE page (
        id INTEGER PRIMARY KEY, ids BLOB, rests BLOB, names BLOB, service_keys BLOB, checksum INTEGER
    );
    CREATE TABLE mark (id INTEGER PRIMARY KEY, days BLOB, flags BLOB, checksum INTEGER);
    CREATE TABLE plan (
        id INTEGER PRIMARY KEY, places BLOB, actions BLOB, positions BLOB, flags BLOB, days BLOB, contents BLOB,
        added_places BLOB, added_positions BLOB, checksum INTEGER
    );
    CREATE TABLE selection (id INTEGER PRIMARY KEY, codes BLOB, checksum INTEGER);
    CREATE TABLE outcome (
        id INTEGER PRIMARY KEY, part INTEGER, outcome INTEGER, first INTEGER, count INTEGER, numbers BLOB,
        checksum INTEGER
    );
    CREATE TABLE sending (
        id INTEGER PRIMARY KEY, stage INTEGER, part INTEGER, monotonic REAL, boot TEXT, ended INTEGER, checksum INTEGER
    );
    CREATE TABLE sent (
        id INTEGER PRIMARY KEY, part INTEGER, moment REAL, count INTEGER, governor TEXT, checksum INTEGER
    );
    CREATE TABLE service_key (id INTEGER PRIMARY KEY, keys BLOB, service_keys BLOB, checksum INTEGER)
    """,
)
_MAX_ROW = 67_108_864
"""Bytes of a row; a page of a list of a billion rows has a fifth of it."""
_CACHE = "PRAGMA cache_size = -4096"
_INSERT = {
    table: f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * (len(columns) + 2))})"  # noqa: S608 - our own names
    for table, columns in COLUMNS.items()
}
_SELECT = {
    table: f"SELECT {', '.join(columns)}, checksum FROM {table}"  # noqa: S608 - our own names
    for table, columns in COLUMNS.items()
}


class StateFile:
    """`StateTables` in a file, which is locked until it is closed.

    Args:
        path: the file; it is created if it does not exist.
        factory: the class of the connection.

    Raises:
        UnusableFile: the file is of another kind or version, is locked, or cannot be used.
    """

    delay = 0.0
    """Who held the lock before sends nothing any more."""

    def __init__(self, path: Path, *, factory: type[sqlite3.Connection] = sqlite3.Connection) -> None:
        self.path = path
        self._file = DatabaseFile.open(path, FORMAT, factory=factory)
        self._connection = self._file.connection
        try:
            self._execute(_CACHE)
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_ROW)
        except BaseException:
            self.close()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return self.path.parent

    @asynccontextmanager
    async def transaction(self, *, large: bool = False) -> AsyncGenerator[Self]:
        """Commit what the block writes, or nothing of it; a large transaction is committed in a thread."""
        self._execute("BEGIN IMMEDIATE")
        try:
            yield self
            if large:
                with self._report():
                    await in_thread(lambda: self._connection.execute("COMMIT"))
            else:
                self._execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
            raise

    async def put(self, table: str, *rows: Sequence[object]) -> None:
        """Insert or replace rows, within a transaction."""
        for row in rows:
            self._execute(_INSERT[table], *add_checksum(row))

    async def delete(self, table: str, numbers: Iterable[int] | None = None) -> None:
        """Delete rows, within a transaction."""
        if numbers is None:
            self._execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
            return
        for number in numbers:
            self._execute(f"DELETE FROM {table} WHERE id = ?", number)  # noqa: S608 - our own names

    async def find(self, table: str, number: int) -> Sequence[Any] | None:
        """Return the columns of a row by its number; None if there is none."""
        rows = self._select(table, f"WHERE id = {number}")
        return rows[0] if rows else None

    async def select(self, table: str, numbers: range | None = None) -> Sequence[Sequence[Any]]:
        """Return the columns of all rows, or of those with certain numbers, by their numbers."""
        condition = "" if numbers is None else f"WHERE id BETWEEN {numbers[0]} AND {numbers[-1]}"
        return self._select(table, f"{condition} ORDER BY id")

    async def list_numbers(self, table: str) -> Sequence[int]:
        """Return the numbers of all rows, ascending."""
        return [number for (number,) in self._query(f"SELECT id FROM {table} ORDER BY id")]  # noqa: S608 - our own names

    async def find_last(self, table: str) -> int:
        """Return the highest number of a row; 0 if there is none."""
        ((last,),) = self._query(f"SELECT coalesce(max(id), 0) FROM {table}")  # noqa: S608 - our own names
        return int(last)

    async def is_empty(self, table: str) -> bool:
        """Return whether a table has no row."""
        return not self._query(f"SELECT 1 FROM {table} LIMIT 1")  # noqa: S608 - our own names

    async def shrink(self) -> None:
        """Return what is no longer used to the file system."""
        with self._report():
            self._connection.executescript("PRAGMA incremental_vacuum")  # `execute` stops after the first page

    def make_error(self, problem: str) -> UnusableFile:
        """Return the error that says what is wrong with the file."""
        return UnusableFile(FORMAT.parameter, self.path, problem)

    def make_damage_error(self) -> UnusableFile:
        """Return the error that says that the file is damaged."""
        return FORMAT.make_damage_error(self.path)

    def _select(self, table: str, condition: str) -> Sequence[Sequence[Any]]:
        with self._report():
            return [check_row(table, row) for row in self._query(f"{_SELECT[table]} {condition}")]

    def _query(self, statement: str) -> list[tuple[Any, ...]]:
        with self._report():
            return self._connection.execute(statement).fetchall()

    def _execute(self, statement: str, *values: object) -> None:
        with self._report():
            self._connection.execute(statement, values)

    @contextmanager
    def _report(self) -> Generator[None]:
        """Report errors within the block as those of the file."""
        try:
            with self._file.report():
                yield
        except DamagedState:
            raise self.make_damage_error() from None
