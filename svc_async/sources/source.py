"""The source of the rows of a job: they can be read again, in slices."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Generic, TypeVar

import attrs

from svc_async.users.tables import ColumnarRows, Rows, slice_columns

__all__ = ["ReplayableRows", "SlicedRows", "Source"]

T = TypeVar("T")


class SlicedRows(Iterator[T]):
    """Rows that are read once, one by one or in slices whose size in bytes their source limits.

    Args:
        slices: the rows.
        blocks: whether a slice may take long, as where a database answers a query; a job reads these in a thread.
    """

    def __init__(self, slices: Iterable[Iterable[T]], *, blocks: bool = False) -> None:
        self.blocks = blocks
        self._slices = slices
        self._rows = chain.from_iterable(slices)

    def __next__(self) -> T:
        return next(self._rows)

    def slices(self, size: int) -> Iterator[Sequence[T]]:
        """Yield the rows in slices of this number at most; what is held as columns stays so."""
        for rows in self._slices:
            if isinstance(rows, ColumnarRows):
                yield from slice_columns(rows.columns, size)
                continue
            remaining = iter(rows)
            while part := list(islice(remaining, size)):
                yield part


@attrs.frozen
class ReplayableRows(Generic[T]):
    """Rows that start from the beginning on every iteration; `_begin` returns them in slices."""

    _begin: Callable[[], Iterable[Iterable[T]]]
    blocks: bool = attrs.field(default=False, kw_only=True)

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._begin())

    def once(self) -> SlicedRows[T]:
        """Return the rows from the start, to be read once."""
        return SlicedRows(self._begin(), blocks=self.blocks)


class Source:
    """Users or products that can be read again: a row has the same position every time.

    Attributes:
        name: the name to show to users.
        columns: the service's keys that rows of users may have values of.
        size: how much there is to read, in units of its own; at least 1.
        bytes_read: how much of it has been read, in the same units.
        exhausted: whether the last row has been read.
    """

    name: str
    columns: Sequence[str] = ()
    size: int = 1
    bytes_read: int = 1
    exhausted: bool = True

    @property
    def ignored(self) -> Sequence[str]:
        """The names of the columns that are left out, of those read so far."""
        return ()

    async def check(self) -> None:
        """Read all rows to find what would stop a job midway, before anything is sent.

        Raises:
            UnusableFile: names the line or row and the rule that it breaks, never the value.
        """

    async def fingerprint(self) -> str:
        """Return a digest of the content and of what decides its meaning: equal for equal rows at equal positions."""
        raise NotImplementedError

    def find_line(self, position: int) -> int | None:
        """Return the line, counted from 1, on which a row that was read begins; None if that is not known."""
        raise NotImplementedError

    def rows(self) -> Rows:
        """Return the rows of users from the start, for an uploader; positions count them from 0."""
        raise NotImplementedError

    def products(self) -> Iterable[Mapping[str, Any]]:
        """Return the products from the start, for an uploader; positions count them from 0."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what it holds."""
