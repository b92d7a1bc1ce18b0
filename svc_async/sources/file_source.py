"""The base classes of files in all formats: they are opened, checked, read and closed alike."""

import asyncio
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from svc_async.errors import Hint, UnusableFile
from svc_async.sources.blocks.files import Input, compute_digest, open_input, unusable
from svc_async.sources.columns import IGNORED, ColumnMatcher, EmptyValues
from svc_async.sources.product_attributes import parse_products
from svc_async.sources.source import ReplayableRows, SlicedRows, Source
from svc_async.users.encoding import SLICE_ROWS
from svc_async.users.names import Vocabulary
from svc_async.users.tables import Rows

__all__ = ["FileSource", "LineIndex", "TableSource", "count_lines"]


def count_lines(row: Sequence[str]) -> int:
    """Return how many lines a row takes."""
    text = "\0".join(row)  # a row may have millions of cells; no text has this character
    return 1 + text.count("\n") + text.count("\r") - text.count("\r\n")


_MAX_CHANGES = 1_000_000


class LineIndex:
    """The line on which each row begins, counted from 1.

    The distance between the position of a row and its line is constant until something unusual occurs; only the
    positions at which it changes are stored.
    """

    def __init__(self) -> None:
        self._positions = array("q", [0])
        self._offsets = array("q", [1])
        self._rows = 0
        self._line = 1

    def start_after(self, header_line: int) -> None:
        """Set the line on which the header ends."""
        self._line = header_line + 1
        self._offsets[0] = self._line

    def find(self, position: int) -> int | None:
        """Return the line of a row; None in a file with more than a million irregular rows, after these."""
        if position > self._positions[-1] and len(self._positions) > _MAX_CHANGES:
            return None
        return position + self._offsets[bisect_right(self._positions, position) - 1]

    def line_after(self, rows: Sequence[Sequence[str]]) -> int:
        """Return the line that follows these rows, which begin where the last slice ended."""
        return self._line + sum(map(count_lines, rows))

    def add(self, rows: Sequence[Sequence[str]], last_line: int, *, blank: bool) -> None:
        """Record a slice of rows.

        Args:
            rows: the rows; an empty one stands for a blank line.
            last_line: the line on which the slice ends.
            blank: whether there may be blank lines among them.
        """
        if blank or last_line - self._line + 1 != len(rows):
            self._add_each(rows)
        else:
            self._record_start()
            self._rows += len(rows)
            self._line += len(rows)

    def _add_each(self, rows: Sequence[Sequence[str]]) -> None:
        for row in rows:
            if row:
                self._record_start()
                self._rows += 1
                self._line += count_lines(row)
            else:
                self._line += 1

    def _record_start(self) -> None:
        """Record where the next row begins, unless the last offset already says so."""
        offset = self._line - self._rows
        if offset != self._offsets[-1] and len(self._positions) <= _MAX_CHANGES:
            self._positions.append(self._rows)
            self._offsets.append(offset)


Parse = Callable[[], Generator[Iterable[Any], None, None]]
"""Yields rows or products from the start, in slices."""


class FileSource(Source, ABC):
    """A file of users or of products; each format is a subclass that parses it.

    Args:
        file: its path, or an input.
        empty: texts that stand for no value, such as `n/a`, in any case.

    Attributes:
        size: its bytes, or the rows of Parquet.

    Raises:
        UnusableFile: the file cannot be used; the message says why.
        InvalidArgument: an option cannot be used.
    """

    def __init__(self, file: str | Path | Input, empty: Collection[str]) -> None:
        self._input = open_input(file)
        self._empty = EmptyValues.parse(empty)
        self.name = self._input.name
        self.size = self._input.size
        self.bytes_read = 0
        self.exhausted = False
        self._lines = LineIndex()
        self._slices: Generator[Iterable[Any], None, None] | None = None

    @property
    @abstractmethod
    def meaning(self) -> Sequence[object]:
        """The format and the settings that decide what the bytes of the file mean."""

    @abstractmethod
    def parse(self) -> Generator[Iterable[Any], None, None]:
        """Yield the rows from the start, in slices; record how much was read and where each row begins.

        Raises:
            UnusableFile: names the line or row and the rule that it breaks, never the value.
        """

    async def check(self) -> None:
        """Read the whole file to find what would stop a job midway, before anything is sent.

        Raises:
            UnusableFile: as for `parse`.
        """
        with closing(self.parse()) as slices:
            for _ in slices:
                await asyncio.sleep(0)
        self.bytes_read = 0

    def products(self) -> "ReplayableRows[Mapping[str, Any]]":
        """Return the products from the start, for an uploader; positions count them from 0."""
        return ReplayableRows(self._begin)

    def find_line(self, position: int) -> int | None:
        """Return the line, counted from 1, on which a row that was read begins; None if it was not kept."""
        return self._lines.find(position)

    async def fingerprint(self) -> str:
        """Return a digest of the bytes and of what decides their meaning."""
        return await compute_digest(self._input, *self.meaning)

    def refuse(self, problem: str, hint: Hint | None = None) -> UnusableFile:
        """Return the error that says what is wrong with the file."""
        return unusable(self.name, problem, hint)

    def close(self) -> None:
        """Release the file, also if the rows were not read to their end."""
        self._stop()
        self._input.close()

    def _begin(self, parse: Parse | None = None) -> Generator[Iterable[Any], None, None]:
        self._stop()
        self.exhausted = False
        self._slices = self._read(parse or self.parse)
        return self._slices

    def _stop(self) -> None:
        if self._slices is not None:
            self._slices.close()

    def _read(self, parse: Parse) -> Generator[Iterable[Any], None, None]:
        yield from parse()
        self.exhausted = True
        self.bytes_read = self.size


class TableSource(FileSource):
    """A file with columns, which are recognised by their names or mapped."""

    _keys: Collection[tuple[str, str]]
    """The name of each column and its key, `-` if it is left out."""

    @property
    def names(self) -> Sequence[str]:
        """The names of all columns, of those read so far."""
        return tuple(name for name, _ in self._keys)

    @property
    def ignored(self) -> Sequence[str]:
        """The names of the columns that are left out, of those read so far."""
        return tuple(name for name, key in self._keys if key == IGNORED)

    def rows(self) -> Rows:
        """Return the rows from the start, for an uploader; positions count them from 0."""
        return Rows(self.columns, ReplayableRows(self._begin))

    def products(self) -> ReplayableRows[Mapping[str, Any]]:
        """Return the rows as products from the start, for an uploader; positions count them from 0."""
        return ReplayableRows(self._read_products)

    def _read_products(self) -> Iterator[Iterable[Mapping[str, Any]]]:
        for part in SlicedRows(self._begin()).slices(SLICE_ROWS):
            yield parse_products(self.columns, part)

    def _match_columns(
        self,
        names: Sequence[str],
        mapping: Mapping[str, str] | None,
        vocabulary: Vocabulary,
        *,
        place: str,
        unused: Collection[int] = (),
    ) -> None:
        """Find out what the columns of a header contain.

        Raises:
            UnusableFile: the header cannot be used.
            InvalidArgument: the mapping cannot be used.
        """
        matcher = ColumnMatcher(self.name, names, mapping or {}, self.refuse, vocabulary, place=place, unused=unused)
        self._keys = list(zip(names, matcher.match_columns(), strict=True))
        self.columns = tuple(key for _, key in self._keys if key != IGNORED)
