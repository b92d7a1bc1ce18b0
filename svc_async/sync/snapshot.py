"""The rows of a source for a sync: read once, compared, and kept on disk until they are sent."""

import abc
from array import array
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import attrs

from svc_async.batch.report import Failure
from svc_async.errors import InvalidArgument
from svc_async.sync.entries import Entries, SelectRows
from svc_async.sync.pages.spill import Blobs, report_unwritable

__all__ = ["SliceSpill", "Snapshot", "SnapshotSlice", "require_replayable"]

T = TypeVar("T")


@attrs.frozen
class SnapshotSlice:
    """Some consecutive rows of a source.

    Attributes:
        count: how many there are.
        entries: what is compared; its positions count the rows of the slice from 0.
        content: what is sent, as `pack_users` or `pack_products` has packed it.
    """

    count: int
    entries: Entries = attrs.field(repr=False)
    content: bytes = attrs.field(repr=False)


class Snapshot(abc.ABC):
    """The rows of a source."""

    @abc.abstractmethod
    def slices(self) -> AsyncGenerator[SnapshotSlice, None]:
        """Yield all rows in the order of the source; it is called once.

        Raises:
            SvcError: a part of the source could not be read.
        """

    def locate(self, failure: Failure) -> Failure:
        """Return a failure, whose position counts the rows from 0, with the place of the row in the source."""
        return failure


def require_replayable(parameter: str, rows: Iterable[T] | AsyncIterable[T]) -> Iterable[T]:
    """Return rows that can be iterated again: a call that is repeated to finish a sync needs all of them.

    Raises:
        InvalidArgument: the rows can be read only once; an iterator would be empty the next time, and all would be
            removed.
    """
    if isinstance(rows, Iterator) or not isinstance(rows, Iterable):
        raise InvalidArgument(parameter, "must be a file, or a list or another iterable that can be read again")
    return rows


class SliceSpill:
    """The slices of a snapshot, in their order, in a file without a name.

    Args:
        folder: the folder of the file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with report_unwritable(folder):
            self._blobs = Blobs(folder)
        self._ends = array("Q", [0])
        self._rows = array("Q", [0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._blobs.close()

    def add(self, part: SnapshotSlice) -> Entries:
        """Add a slice, and return its rows at their positions: they come after those that were added before."""
        first = self._rows[-1]
        with report_unwritable(self._folder):
            self._blobs.add(part.content)
        self._ends.append(self._ends[-1] + len(part.content))
        self._rows.append(first + part.count)
        return part.entries.shift(first)

    def read(self, select: SelectRows) -> Iterator[tuple[bytes, range, Sequence[int]]]:
        """Yield each slice of which rows are selected: its content, its rows, and those of them that are selected.

        Args:
            select: returns which of some consecutive rows are selected, counted from the first of them.
        """
        for number in range(len(self._ends) - 1):
            rows = range(self._rows[number], self._rows[number + 1])
            selected = select(rows)
            if selected:
                start, end = self._ends[number], self._ends[number + 1]
                yield self._blobs.read(start, end - start), rows, selected
