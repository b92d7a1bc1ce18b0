"""Rows of tables in a SQLite file, each with a checksum of its other columns."""

import sqlite3
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from zlib import error as ZlibError  # noqa: N812 - it is a class

from svc_async.batch.sync.pages.page import DamagedState, checksum
from svc_async.errors import UnusableFile
from svc_async.sqlite import FileFormat, connect, in_thread, report_unusable

__all__ = ["CheckedDatabase"]

_CACHE = "PRAGMA cache_size = -4096"


class CheckedDatabase:
    """A SQLite file of which every row has a checksum; the first column of a table is `id`, the last `checksum`.

    Args:
        path: the file; it is created if it does not exist.
        file_format: what it holds.
        factory: the class of the connection.

    Raises:
        UnusableFile: the file is of another kind or version, is locked, or cannot be used.
    """

    def __init__(self, path: Path, file_format: FileFormat, *, factory: type[sqlite3.Connection]) -> None:
        self.path = path
        self._format = file_format
        # A transaction may be as large as the file.
        self._connection = connect(path, file_format, exclusive=True, journal_mode="DELETE", factory=factory)
        try:
            self.execute(_CACHE)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None]:
        """Commit what the block does, or nothing of it."""
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            with self.report():
                await in_thread(lambda: self._connection.execute("COMMIT"))
        except BaseException:
            self._roll_back()
            raise

    @contextmanager
    def short_transaction(self) -> Generator[None]:
        """Commit the few rows that the block writes, or none of them."""
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def shrink(self) -> None:
        """Return what is no longer used to the file system."""
        with self.report():
            self._connection.executescript("PRAGMA incremental_vacuum")  # `execute` stops after the first page

    def is_empty(self, table: str) -> bool:
        """Return whether a table has no row."""
        return not self.query(f"SELECT 1 FROM {table} LIMIT 1")  # noqa: S608 - our own names

    def find(self, table: str, columns: str, number: int) -> tuple[Any, ...] | None:
        """Return columns of a row, by its id; None if there is none."""
        rows = self.select(table, columns, f"WHERE id = {number}")
        return rows[0] if rows else None

    def select(self, table: str, columns: str, condition: str = "ORDER BY id") -> list[tuple[Any, ...]]:
        """Return all columns of rows but the id and the checksum."""
        rows = self.query(f"SELECT {columns}, checksum FROM {table} {condition}")  # noqa: S608 - our own names
        if any(checksum(*row[:-1]) != row[-1] for row in rows):
            raise self.make_damage_error()
        return [row[:-1] for row in rows]

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, unchecked."""
        with self.report():
            return self._connection.execute(statement).fetchall()

    def put(self, table: str, number: int | None, *values: object) -> None:
        """Insert or replace a row; without a number it is the next."""
        marks = ", ".join("?" * (len(values) + 2))
        self.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", number, *values, checksum(*values))  # noqa: S608 - our own names

    def delete(self, table: str, condition: str = "") -> None:
        """Delete rows."""
        self.execute(f"DELETE FROM {table} {condition}")  # noqa: S608 - our own names

    def execute(self, statement: str, *values: object) -> None:
        """Execute a statement."""
        with self.report():
            self._connection.execute(statement, values)

    def make_damage_error(self) -> UnusableFile:
        """Return the error that says that the file is damaged."""
        return self._format.make_damage_error(self.path)

    @contextmanager
    def report(self) -> Generator[None]:
        """Report errors within the block as those of the file."""
        try:
            with report_unusable(self.path, self._format):
                yield
        except (DamagedState, ZlibError):
            raise self.make_damage_error() from None
