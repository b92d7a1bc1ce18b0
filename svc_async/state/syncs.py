"""The states of lists in PostgreSQL: the tables of a SQLite file, with the list as one more column.

Who takes up a state raises its epoch. Each transaction ends with a check that no other process has done so, under a
lock that is held until the commit; each read checks it in the same statement. So a process that was replaced neither
writes nor plans from what another one has written, and a process that stands still delays nobody.
"""

import tempfile
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import attrs

from svc_async.batch.sender import GRACE
from svc_async.batch.sync.pages.page import DamagedState
from svc_async.batch.sync.pages.tables import COLUMNS, add_checksum, check_row
from svc_async.state.database import Database, extend_transaction
from svc_async.state.errors import StateUnavailable, TakenUpElsewhere, UnusableState

if TYPE_CHECKING:
    from svc_async.state.database import Connection

__all__ = ["SyncSummary", "SyncTables", "list_syncs"]

_MOST_LISTED = 10_000
_DELETED_TOGETHER = 200
_TAKE_UP = """
    INSERT INTO sync_lists (target, epoch) VALUES ($1, 1)
    ON CONFLICT (target) DO UPDATE SET epoch = sync_lists.epoch + 1, used_at = clock_timestamp()
    RETURNING sync, epoch
"""
_CHECK = "UPDATE sync_lists SET used_at = clock_timestamp() WHERE sync = $1 AND epoch = $2 RETURNING sync"
_LIST = f"""
    SELECT list.target, epoch, used_at, coalesce(about.rows, 0) AS rows, coalesce(pages.size, 0)::bigint AS size
    FROM sync_lists AS list LEFT JOIN sync_about AS about USING (sync) LEFT JOIN (
        SELECT sync, sum(
            octet_length(ids) + octet_length(rests) + octet_length(names) + octet_length(service_keys)
            + octet_length(days) + octet_length(flags)
        ) AS size
        FROM sync_page JOIN sync_mark USING (sync, id) GROUP BY sync
    ) AS pages USING (sync)
    ORDER BY list.target LIMIT {_MOST_LISTED}
"""  # noqa: S608 - our own number


def _join(columns: Iterable[str], layout: str = "{}") -> str:
    return ", ".join(layout.format(f'"{column}"') for column in columns)


def _describe_put(table: str) -> str:
    columns = [*COLUMNS[table], "checksum"]
    places = ", ".join(f"${number}" for number in range(1, len(columns) + 3))
    return (
        f"INSERT INTO sync_{table} (sync, id, {_join(columns)}) VALUES ({places}) "  # noqa: S608 - our own names
        f"ON CONFLICT (sync, id) DO UPDATE SET {_join(columns, '{0} = EXCLUDED.{0}')}"
    )


_PUT = {table: _describe_put(table) for table in COLUMNS}
_JOIN = "FROM sync_lists AS list LEFT JOIN sync_{} AS item ON item.sync = list.sync"
"""Finds the list even if it has no row, so that its epoch is always told."""
_MINE = "WHERE list.sync = $1"
_DELETE = {table: f"DELETE FROM sync_{table} WHERE sync = $1 AND id IN" for table in COLUMNS}  # noqa: S608 - our own names
_LIST_NUMBERS = {table: f"SELECT list.epoch = $2, item.id {_JOIN.format(table)}" for table in COLUMNS}
_SELECT = {
    table: f"SELECT list.epoch = $2, item.id, {_join([*columns, 'checksum'], 'item.{}')} {_JOIN.format(table)}"
    for table, columns in COLUMNS.items()
}


@attrs.frozen
class SyncSummary:
    """A state of a list.

    Attributes:
        target: the list and its host.
        rows: how many rows the list was to have after the last sync.
        size: bytes of its rows.
        used_at: when it was last taken up or written.
        epoch: how often it was taken up.
    """

    target: str
    rows: int
    size: int
    used_at: datetime
    epoch: int


async def list_syncs(database: Database) -> Sequence[SyncSummary]:
    """Return the states of all lists, at most 10,000, by their names.

    None is deleted because it is old: the next sync would send all rows of its list, and remove none.

    Raises:
        StateUnavailable: the database cannot be reached.
    """
    return [
        SyncSummary(row["target"], row["rows"], row["size"], row["used_at"], row["epoch"])
        for row in await database.fetch(_LIST)
    ]


class SyncTables:
    """`StateTables` of one list; entering it takes up the state.

    Args:
        database: the connections.
        target: the list and its host.
    """

    delay = GRACE
    """Who has used the state before may still send what it has noted."""

    def __init__(self, database: Database, target: str) -> None:
        self._database = database
        self._target = target
        self._sync = self._epoch = 0

    async def __aenter__(self) -> Self:
        """Take up the state.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        found = await self._database.fetch_row(_TAKE_UP, self._target)
        if found is None:
            raise self.make_error("cannot be taken up")
        self._sync, self._epoch = found["sync"], found["epoch"]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the state to whoever comes next."""

    @property
    def folder(self) -> Path:
        """The folder of temporary files."""
        return Path(tempfile.gettempdir())

    @asynccontextmanager
    async def transaction(self, *, large: bool = False) -> AsyncGenerator["_SyncWriter"]:  # noqa: ARG002 - all are alike
        """Commit what the block writes, unless another process has taken up the state."""
        try:
            async with self._database.transaction() as connection:
                yield _SyncWriter(connection, self._sync)
                if await connection.fetchval(_CHECK, self._sync, self._epoch) is None:
                    raise self._make_replaced_error()
        except StateUnavailable:
            await self.is_empty("about")  # raises TakenUpElsewhere if that is why the server has ended it
            raise

    async def find(self, table: str, number: int) -> Sequence[Any] | None:
        """Return the columns of a row by its number; None if there is none."""
        rows = await self._read_rows(table, f"{_SELECT[table]} AND item.id = $3 {_MINE}", number)
        return rows[0] if rows else None

    async def select(self, table: str, numbers: range | None = None) -> Sequence[Sequence[Any]]:
        """Return the columns of all rows, or of those with certain numbers, by their numbers."""
        if numbers is None:
            return await self._read_rows(table, f"{_SELECT[table]} {_MINE} ORDER BY item.id")
        some = f"{_SELECT[table]} AND item.id BETWEEN $3 AND $4 {_MINE} ORDER BY item.id"
        return await self._read_rows(table, some, numbers[0], numbers[-1])

    async def list_numbers(self, table: str) -> Sequence[int]:
        """Return the numbers of all rows, ascending."""
        return [row[-1] for row in await self._read(f"{_LIST_NUMBERS[table]} {_MINE} ORDER BY item.id")]

    async def find_last(self, table: str) -> int:
        """Return the highest number of a row; 0 if there is none."""
        rows = await self._read(f"{_LIST_NUMBERS[table]} {_MINE} ORDER BY item.id DESC NULLS LAST LIMIT 1")
        return int(rows[0][-1]) if rows else 0

    async def is_empty(self, table: str) -> bool:
        """Return whether a table has no row."""
        return not await self._read(f"{_LIST_NUMBERS[table]} {_MINE} LIMIT 1")

    async def shrink(self) -> None:
        """Do nothing: the server reuses the space."""

    def make_error(self, problem: str) -> UnusableState:
        """Return the error that says what is wrong with the state."""
        return UnusableState(f"of {self._target}", problem)

    def make_damage_error(self) -> UnusableState:
        """Return the error that says that the state is damaged."""
        return self.make_error("is damaged; restore the database from a backup")

    async def _read_rows(self, table: str, statement: str, *arguments: object) -> Sequence[Sequence[Any]]:
        """Return the columns of rows, without number and checksum."""
        try:
            return [check_row(table, row[2:]) for row in await self._read(statement, *arguments)]
        except DamagedState:
            raise self.make_damage_error() from None

    async def _read(self, statement: str, *arguments: object) -> Sequence[Sequence[Any]]:
        """Return the rows of a statement that says first whether the epoch is that of this process.

        Raises:
            TakenUpElsewhere: it is another one.
        """
        rows = [tuple(row) for row in await self._database.fetch(statement, self._sync, self._epoch, *arguments)]
        if not rows or not rows[0][0]:
            raise self._make_replaced_error()
        return [row for row in rows if row[1] is not None]

    def _make_replaced_error(self) -> TakenUpElsewhere:
        return TakenUpElsewhere(f"the sync of {self._target}")


@attrs.frozen
class _SyncWriter:
    """Writes rows within a transaction, which may last as long as this goes on."""

    _connection: "Connection"
    _sync: int

    async def put(self, table: str, *rows: Sequence[object]) -> None:
        """Insert or replace rows."""
        if rows:
            await extend_transaction(self._connection)
            await self._connection.executemany(_PUT[table], [(self._sync, *add_checksum(row)) for row in rows])

    async def delete(self, table: str, numbers: Iterable[int] | None = None) -> None:
        """Delete rows by their numbers, or all rows."""
        await extend_transaction(self._connection)
        if numbers is not None:
            await self._connection.execute(f"{_DELETE[table]} (SELECT unnest($2::bigint[]))", self._sync, [*numbers])
            return
        # A statement has a time limit; a plan may have gigabytes.
        first = f"{_DELETE[table]} (SELECT id FROM sync_{table} WHERE sync = $1 ORDER BY id LIMIT {_DELETED_TOGETHER})"  # noqa: S608 - our own names
        while await self._connection.execute(first, self._sync) == f"DELETE {_DELETED_TOGETHER}":
            await extend_transaction(self._connection)
