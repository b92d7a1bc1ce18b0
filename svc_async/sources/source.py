"""What a job needs to know about the source of its rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Generic, Protocol, TypeVar

import attrs

from svc_async.users.tables import ColumnarRows, Rows, slice_columns

__all__ = ["ProductFeed", "ReplayableRows", "ReplayableSource", "SlicedRows", "UnparsedRow", "UserSource", "find_id"]

T = TypeVar("T")


class SlicedRows(Iterator[T]):
    """Rows that are read once, one by one or in slices whose size in bytes their source limits."""

    def __init__(self, slices: Iterable[Iterable[T]]) -> None:
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

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._begin())

    def once(self) -> SlicedRows[T]:
        """Return the rows from the start, to be read once."""
        return SlicedRows(self._begin())


class ReplayableSource(Protocol):
    """Users or products that can be read again, each at the same position every time."""

    @property
    def name(self) -> str:
        """The name to show to users."""
        ...

    @property
    def ignored(self) -> Sequence[str]:
        """The names of the columns that are left out."""
        ...

    @property
    def size(self) -> int:
        """How much there is to read, in units of its own; at least 1."""
        ...

    @property
    def bytes_read(self) -> int:
        """How much of it has been read, in the same units."""
        ...

    @property
    def exhausted(self) -> bool:
        """Whether the last row has been read."""
        ...

    async def check(self) -> None:
        """Read the whole source to find what would stop a job midway, before anything is sent.

        Raises:
            UnusableFile: names the line or row and the rule that it breaks, never the value.
        """
        ...

    async def fingerprint(self) -> str:
        """Return a digest of the content and of what decides its meaning: equal for equal rows at equal positions."""
        ...

    def find_line(self, position: int) -> int | None:
        """Return the line, counted from 1, on which a row that was read begins; None for sources without lines."""
        ...

    def close(self) -> None:
        """Release the resources."""
        ...


class UserSource(ReplayableSource, Protocol):
    """Rows of users."""

    @property
    def columns(self) -> Sequence[str]:
        """The service's keys that rows may have values of."""
        ...

    def rows(self) -> Rows:
        """Return the rows from the start, for an uploader; positions count them from 0."""
        ...


class ProductFeed(ReplayableSource, Protocol):
    """Products of a merchant."""

    def products(self) -> Iterable[Mapping[str, Any]]:
        """Return the products from the start, for an uploader; positions count them from 0."""
        ...


class UnparsedRow(dict[str, Any]):
    """A row that its source could not parse as a product; it fails with this reason.

    Args:
        reason: what is wrong with it.
        product_id: its id, if that could be read.
    """

    def __init__(self, reason: str, product_id: object = None) -> None:
        super().__init__()
        self.reason = reason
        self.product_id = product_id


def find_id(product: object) -> str | None:
    """Return the id of a product, also of one that breaks rules; None if it has none that can be read."""
    if isinstance(product, UnparsedRow):
        product_id: object = product.product_id
    else:
        product_id = product.get("id") if isinstance(product, Mapping) else getattr(product, "id", None)
    if not isinstance(product_id, str) or not product_id:
        return None
    try:
        product_id.encode()
    except UnicodeEncodeError:
        return None
    return product_id
