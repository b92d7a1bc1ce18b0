"""The state of a list between two syncs, in one SQLite file, so that only the differences need to be sent.

    whole snapshot → compare → Plan → removals are sent → upserts are sent → settle

A row is identified by a key of 64 bits. For each accepted row the file contains the key, what a removal needs to name
it, a digest of its content and when it expires. A snapshot is sorted by key on disk and compared in one pass, so memory
stays flat whatever its size.
"""

import asyncio
import sqlite3
from array import array
from collections.abc import AsyncIterable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from svc_async.batch.sync.plan import Entries, Part, Plan
from svc_async.batch.sync.statements import (
    COUNT_PLAN,
    COUNT_REASONS,
    COUNT_UNLISTED_REMOVALS,
    DELETE_EXPIRED,
    FORMAT,
    INSERT_LATEST,
    INSERT_REMOVALS,
    INSERT_UPSERTS,
    PLAN_TABLES,
    SETTLE,
    SNAPSHOT_TABLES,
)
from svc_async.errors import UnusableFile
from svc_async.sqlite import connect, report_unusable

__all__ = ["SyncState"]

T = TypeVar("T")

_PAGE_ROWS = 4_096
_ACCEPTED, _FAILED = 1, 0


class SyncState:
    """A `SyncStore` in a file; use it as a context manager.

    Args:
        path: the file; it is created if it does not exist.
        target: the list; a file always belongs to the same list.
        factory: the class of the connection.

    Raises:
        UnusableFile: the file belongs to another list, is locked, or cannot be used.
    """

    def __init__(self, path: Path, *, target: str, factory: type[sqlite3.Connection] = sqlite3.Connection) -> None:
        self._path = path
        # A settlement is one transaction, which may be as large as the list.
        self._connection = connect(path, FORMAT, exclusive=True, journal_mode="DELETE", factory=factory)
        try:
            with report_unusable(path, FORMAT):
                self._prepare(target)
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a plan that was not begun is discarded."""
        self._connection.close()

    async def compare(
        self, snapshot: AsyncIterable[Entries], *, now: datetime, soon: datetime, replace: bool = False
    ) -> Plan:
        """Return what a whole snapshot changes; see `SyncStore`.

        Raises:
            UnusableFile: the file cannot be written.
        """
        with report_unusable(self._path, FORMAT):
            await self.settle()
            self._connection.executescript(SNAPSHOT_TABLES)
            self._connection.execute("BEGIN IMMEDIATE")
            size = await self._insert_snapshot(snapshot)
            await self._execute(DELETE_EXPIRED, now=_to_seconds(now))
            await self._execute(INSERT_LATEST)
            await self._execute(INSERT_UPSERTS, soon=_to_seconds(soon))
            await self._execute(INSERT_REMOVALS, replace=replace)
            return await asyncio.to_thread(self._build_plan, size)

    def begin(self, *, expires: datetime | None = None) -> None:
        """Commit the plan; see `SyncStore`."""
        with report_unusable(self._path, FORMAT):
            seconds = None if expires is None else _to_seconds(expires)
            self._connection.execute("UPDATE about SET expires = ?", [seconds])
            self._connection.execute("COMMIT")

    def removals(self) -> Iterator[tuple[int, bytes, str | None]]:
        """Iterate over the rows to remove; see `SyncStore`."""
        for ordinal, name, service_key in self._select_pages("SELECT ordinal, name, service_key FROM removals"):
            yield ordinal - 1, name, service_key

    def upserts(self, rows: Iterable[T]) -> Generator[T, None, None]:
        """Select the rows to send from the rows of the snapshot; see `SyncStore`."""
        iterator, read = iter(rows), 0
        for _, position in self._select_pages("SELECT ordinal, position FROM upserts"):
            yield from islice(iterator, position - read, position - read + 1)
            read = position + 1

    def find_position(self, number: int) -> int:
        """Return the position in the snapshot of an upsert."""
        with report_unusable(self._path, FORMAT):
            (position,) = self._connection.execute(
                "SELECT position FROM upserts WHERE ordinal = ?", [number + 1]
            ).fetchone()
        return int(position)

    def record_accepted(self, part: Part, numbers: Sequence[int]) -> None:
        """Record rows that the service accepted."""
        self._record(part, _ACCEPTED, numbers)

    def record_failed(self, part: Part, numbers: Sequence[int]) -> None:
        """Record rows that certainly had no effect."""
        self._record(part, _FAILED, numbers)

    def record_service_keys(self, service_keys: Mapping[int, str]) -> None:
        """Record the service's own keys of upserts, by their key."""
        with report_unusable(self._path, FORMAT):
            self._connection.executemany(
                "INSERT OR REPLACE INTO service_keys VALUES (?, ?)",
                zip(_to_signed(list(service_keys)), service_keys.values(), strict=True),
            )

    async def settle(self) -> None:
        """Apply the recorded outcomes, in one transaction; see `SyncStore`."""
        with report_unusable(self._path, FORMAT):
            self._connection.executescript("DROP TABLE IF EXISTS temp.done; BEGIN IMMEDIATE;")
            try:
                for part, statements in SETTLE.items():
                    self._connection.execute("CREATE TEMP TABLE done (ordinal INTEGER PRIMARY KEY, outcome INTEGER)")
                    await self._insert_outcomes(part)
                    for statement in statements:
                        await self._execute(statement)
                    self._connection.execute("DROP TABLE temp.done")
                for table in PLAN_TABLES:
                    self._connection.execute(f"DELETE FROM {table}")  # noqa: S608 - names of our own tables
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def _prepare(self, target: str) -> None:
        execute = self._connection.execute
        execute("PRAGMA temp_store = FILE")
        execute("PRAGMA cache_size = -16384")
        execute("PRAGMA temp.cache_size = -16384")
        execute("INSERT INTO about SELECT ?, NULL WHERE NOT EXISTS (SELECT * FROM about)", [target])
        if execute("SELECT target FROM about").fetchone() != (target,):
            raise UnusableFile(FORMAT.parameter, self._path, "belongs to another list; each list needs its own file")

    async def _insert_snapshot(self, snapshot: AsyncIterable[Entries]) -> int:
        size = 0
        insert = "INSERT INTO snapshot VALUES (?, ?, ?, ?)"
        async for part in snapshot:
            keys, contents = _to_signed(part.keys), _to_signed(part.contents)
            self._connection.executemany(insert, zip(part.positions, keys, part.names, contents, strict=True))
            self._connection.executemany(insert, ((position, None, None, None) for position in part.invalid_rows))
            size += part.size
            await asyncio.sleep(0)
        return size

    def _build_plan(self, size: int) -> Plan:
        present, listed, all_removals, removals = self._connection.execute(COUNT_PLAN).fetchone()
        counts = dict(self._connection.execute(COUNT_REASONS).fetchall())
        (unlisted,) = self._connection.execute(COUNT_UNLISTED_REMOVALS).fetchone()
        additions, changes, refreshes = (counts.get(reason, 0) for reason in ("addition", "change", "refresh"))
        sent = additions + changes + refreshes
        return Plan(
            present=present,
            listed=listed,
            additions=additions,
            changes=changes,
            refreshes=refreshes,
            removals=removals,
            doubtful=unlisted - removals,
            unchanged=listed - sent,
            invalid_rows=counts.get("invalid", 0),
            all_removals=all_removals,
            size=round(size * sent / listed) if listed else 0,
        )

    def _record(self, part: Part, outcome: int, numbers: Sequence[int]) -> None:
        if numbers:
            with report_unusable(self._path, FORMAT):
                self._connection.execute(
                    "INSERT INTO outcomes VALUES (?, ?, ?)", [part, outcome, array("Q", numbers).tobytes()]
                )

    async def _insert_outcomes(self, part: Part) -> None:
        rows = self._connection.execute("SELECT rowid FROM outcomes WHERE part = ?", [part]).fetchall()
        for (row,) in rows:
            outcome, ordinals = self._connection.execute(
                "SELECT outcome, ordinals FROM outcomes WHERE rowid = ?", [row]
            ).fetchone()
            self._connection.executemany(
                "INSERT OR REPLACE INTO done VALUES (?, ?)", ((number + 1, outcome) for number in array("Q", ordinals))
            )
            await asyncio.sleep(0)

    def _select_pages(self, query: str) -> Iterator[Any]:
        last = 0
        while True:
            with report_unusable(self._path, FORMAT):
                rows = self._connection.execute(f"{query} WHERE ordinal > ? LIMIT {_PAGE_ROWS}", [last]).fetchall()
            yield from rows
            if not rows:
                return
            last = rows[-1][0]

    async def _execute(self, statement: str, **values: object) -> None:
        """Execute a statement that may take minutes, in a thread; a cancellation interrupts it."""
        task = asyncio.create_task(asyncio.to_thread(self._connection.execute, statement, values))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            self._connection.interrupt()
            await asyncio.wait([task])
            raise


def _to_signed(numbers: Sequence[int]) -> Sequence[int]:
    """Return unsigned 64-bit numbers as SQLite stores them."""
    return memoryview(array("Q", numbers)).cast("B").cast("q").tolist()


def _to_seconds(moment: datetime) -> int:
    return int(moment.timestamp())
