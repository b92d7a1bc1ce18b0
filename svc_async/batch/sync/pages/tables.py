"""The tables of a state, wherever they are kept: rows that consist of a number, some columns, and their checksum."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from svc_async.batch.sync.pages.page import DamagedState, checksum
from svc_async.errors import SvcError

__all__ = ["COLUMNS", "PLAN_TABLES", "StateTables", "TableWriter", "add_checksum", "check_row"]

_TYPES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "about": {
            "target": str,
            "pages": int,
            "rows": int,
            "expires": int,
            "monotonic": float | None,
            "boot": str | None,
        },
        "page": dict.fromkeys(("ids", "rests", "names", "service_keys"), bytes),
        "mark": dict.fromkeys(("days", "flags"), bytes),
        "plan": dict.fromkeys(
            (
                "places",
                "actions",
                "positions",
                "flags",
                "days",
                "contents",
                "added_places",
                "added_positions",
            ),
            bytes,
        ),
        "selection": {"codes": bytes},
        "outcome": {"part": int, "outcome": int, "first": int, "count": int, "numbers": bytes},
        "sending": {"stage": int, "part": int, "monotonic": float, "boot": str | None, "ended": int},
        "sent": {"part": int, "moment": float, "count": int, "governor": str},
        "service_key": dict.fromkeys(("keys", "service_keys"), bytes),
    }
)
COLUMNS: Mapping[str, Sequence[str]] = MappingProxyType({table: tuple(types) for table, types in _TYPES.items()})
"""The columns of each table, besides the number of the row and the checksum."""
PLAN_TABLES = ("plan", "selection", "outcome", "sending", "service_key")
"""What is empty when nothing is left to settle."""


class TableWriter(Protocol):
    """Writes rows, all of them or none."""

    async def put(self, table: str, *rows: Sequence[object]) -> None:
        """Insert or replace rows: the number of each, and its columns."""
        ...

    async def delete(self, table: str, numbers: Iterable[int] | None = None) -> None:
        """Delete rows by their numbers, or all rows."""
        ...


class StateTables(Protocol):
    """The tables of one state, for one sync at a time; reads need not see what a transaction has not committed yet.

    Every method raises SvcError if the state cannot be read or written, or if another process has taken it up.
    """

    @property
    def folder(self) -> Path:
        """Where temporary files may be created, as large as the state and the source."""
        ...

    @property
    def delay(self) -> float:
        """For how many seconds after it was opened an earlier process may still begin to send what it noted."""
        ...

    def transaction(self, *, large: bool = False) -> AbstractAsyncContextManager[TableWriter]:
        """Commit what the block writes, or nothing of it.

        Args:
            large: whether it may write as much as the state holds.
        """
        ...

    async def find(self, table: str, number: int) -> Sequence[Any] | None:
        """Return the columns of a row by its number; None if there is none."""
        ...

    async def select(self, table: str, numbers: range | None = None) -> Sequence[Sequence[Any]]:
        """Return the columns of all rows, or of those with certain numbers, by their numbers."""
        ...

    async def list_numbers(self, table: str) -> Sequence[int]:
        """Return the numbers of all rows, ascending."""
        ...

    async def find_last(self, table: str) -> int:
        """Return the highest number of a row; 0 if there is none."""
        ...

    async def is_empty(self, table: str) -> bool:
        """Return whether a table has no row."""
        ...

    async def shrink(self) -> None:
        """Return the space that is no longer used."""
        ...

    def make_error(self, problem: str) -> SvcError:
        """Return the error that says what is wrong with the state."""
        ...

    def make_damage_error(self) -> SvcError:
        """Return the error that says that the state is damaged, and what to do."""
        ...


def add_checksum(row: Sequence[object]) -> tuple[object, ...]:
    """Return a row, which begins with its number, with the checksum of its columns."""
    return (*row, checksum(*row[1:]))


def check_row(table: str, row: Sequence[Any]) -> Sequence[Any]:
    """Return the columns of a row without the checksum at its end.

    Raises:
        DamagedState: it is another one, or a column is of another type.
    """
    columns = row[:-1]
    if checksum(*columns) != row[-1] or not all(map(isinstance, columns, _TYPES[table].values())):
        raise DamagedState
    return columns
