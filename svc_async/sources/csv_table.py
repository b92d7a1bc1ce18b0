"""Tables in CSV: the dialect, the header and slices of rows, whatever their columns mean.

A file is never read row by row in Python: blocks become lines, lines become rows and rows become the columns that are
needed. A block without quotes is split; only others need the parser, and only a slice with something unusual (a blank
line, a row that is too short or too long, a cell of several lines) is processed row by row.
"""

import asyncio
import csv
import re
from array import array
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain, islice
from typing import Any

import attrs

from svc_async.errors import Hint, UnusableFile
from svc_async.sources.blocks.decoding import MAX_LINE, TextReader, split_lines
from svc_async.sources.columns import NO_EMPTY_VALUES, EmptyValues
from svc_async.users.encoding import SLICE_ROWS
from svc_async.users.names import looks_like_data
from svc_async.users.tables import ColumnarRows

__all__ = ["DELIMITERS", "CsvLayout", "CsvTable", "LineIndex", "count_lines"]

_PAUSE = 1_048_576
"""Characters after which a slice ends early."""


class CsvRows:
    """Parses the blocks of a text; `csv` itself would wait for the end of a row without any limit.

    Args:
        text: the text, for its errors.
        blocks: its blocks, each of which ends where a line ends.
        delimiter: the character between cells.

    Attributes:
        rows: the rows of the last slice, also of one that ended with an error.
        lines: how many lines of the file have been read.
    """

    def __init__(self, text: TextReader, blocks: Iterator[str], delimiter: str) -> None:
        self._text = text
        self._blocks = blocks
        self._delimiter = delimiter
        self._size = 0
        self._lines_before = text.lines_before
        self._has_ended = self._is_paused = self._has_quotes = False
        self.rows: list[list[str]] = []
        self._reader = self._start()

    @property
    def lines(self) -> int:
        """How many lines of the file have been read."""
        return self._lines_before + int(self._reader.line_num)

    def read(self, count: int) -> list[list[str]]:
        """Return the next rows, a blank line as an empty one; fewer if they are long, none at the end.

        Raises:
            csv.Error: the text is not CSV.
            UnusableFile: a row is too long, or the text cannot be read.
        """
        self.rows = []
        self._first_line, self._size = self.lines, 0
        while not self.rows and count and not self._has_ended:
            if self._is_paused:
                self._restart()
            self.rows.extend(islice(self._reader, count))
        return self.rows

    def read_plain(self, width: int) -> Generator[Sequence[Sequence[str]], None, None]:
        """Yield the next blocks column by column, as long as each line of them is a row of this width without quotes.

        Raises:
            UnusableFile: the text cannot be read.
        """
        while self._is_paused:
            block = next(self._blocks, "")
            columns = _split_plain(block, self._delimiter, width)
            if columns is None:
                self._restart(block)
                return
            self._lines_before += len(columns[0])
            yield columns

    def _restart(self, *first: str) -> None:
        self._lines_before, self._is_paused, self._has_quotes = self.lines, False, False
        self._blocks = chain(first, self._blocks)
        self._reader = self._start()

    def _start(self) -> Any:
        lines = chain.from_iterable(map(split_lines, self._take_blocks()))
        return csv.reader(lines, delimiter=self._delimiter, strict=True)

    def _take_blocks(self) -> Iterator[str]:
        """Yield blocks to the end, or until the last row is complete."""
        for block in self._blocks:
            self._size += len(block)
            self._has_quotes = self._has_quotes or '"' in block
            yield block
            if self._is_complete():
                self._is_paused = True
                return
        self._has_ended = True

    def _is_complete(self) -> bool:
        """Return whether the last row is complete: certainly without quotes; otherwise it is found now and then."""
        if not self._has_quotes:
            return True
        if self._size <= _PAUSE:
            return False
        lines = sum(map(count_lines, self.rows))
        if self.lines - self._first_line == lines:
            return True
        if self._size > _PAUSE + MAX_LINE:
            line = self._first_line + lines + 1
            raise self._text.refuse(f"has a row longer than 4 MiB on line {line}; is a quote not closed?")
        return False


def count_lines(row: Sequence[str]) -> int:
    """Return how many lines a row takes."""
    text = "\0".join(row)  # a row may have millions of cells; no text has this character
    return 1 + text.count("\n") + text.count("\r") - text.count("\r\n")


def _split_plain(block: str, delimiter: str, width: int) -> Sequence[Sequence[str]] | None:
    """Return the cells of a block column by column; None if any needs the parser."""
    if not block or '"' in block or len(block) > csv.field_size_limit():
        return None
    lines = block.replace("\r\n", "\n").removesuffix("\n")
    if "\r" in lines:
        return None
    if width == 1:
        column = lines.split("\n")
        return None if delimiter in lines or "" in column else [column]
    # The first cell of each row but the first begins with the line end, and no other cell does.
    cells = lines.replace("\n", f"{delimiter}\n").split(delimiter)
    first = "".join(cells[::width]).split("\n")
    if len(cells) != width * len(first) or lines.count("\n") != len(first) - 1:
        return None
    return [first, *(cells[index::width] for index in range(1, width))]


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

    def _record_start(self) -> None:
        """Record where the next row begins, unless the last offset already says so."""
        offset = self._line - self._rows
        if offset != self._offsets[-1] and len(self._positions) <= _MAX_CHANGES:
            self._positions.append(self._rows)
            self._offsets.append(offset)


DELIMITERS = ",;\t|"
_match_separator = re.compile(r'"?sep=([^\r\n"])"?\s*').fullmatch


@attrs.frozen
class CsvLayout:
    """How a table is written.

    Attributes:
        encoding: its encoding.
        delimiter: the character between cells.
        head: how many records come before the rows: the header, and a line that names the delimiter.
    """

    encoding: str
    delimiter: str
    head: int


class CsvTable:
    """A table in CSV with a header.

    Args:
        text: its text.
        delimiter: the character between cells; comma, semicolon, tab or bar, detected from the header, if None.
        slice_size: rows that are parsed at a time.
        empty: what stands for no value.
        header: the names of the columns, if the table has no header.

    Attributes:
        header: the names of the columns.
        delimiter: the character between cells.
        first: the cells of the first line, if the names of the columns were given.

    Raises:
        UnusableFile: there is no header.
    """

    def __init__(
        self,
        text: TextReader,
        *,
        delimiter: str | None = None,
        slice_size: int = SLICE_ROWS,
        empty: EmptyValues = NO_EMPTY_VALUES,
        header: Sequence[str] | None = None,
    ) -> None:
        self._empty = empty
        self._text = text
        self._slice_size = slice_size
        self._preamble = 0
        self._has_header = header is None
        self.first: Sequence[str] = ()
        self.header, self.delimiter = self._read_header(delimiter, header)

    @property
    def layout(self) -> CsvLayout:
        """How the table is written."""
        return CsvLayout(self._text.encoding, self.delimiter, self._preamble + self._has_header)

    @property
    def settings(self) -> tuple[object, ...]:
        """What decides the meaning of the text."""
        return self.delimiter, self._has_header or self.header

    async def check(self) -> None:
        """Read the whole table to find what would stop a job midway.

        Raises:
            UnusableFile: names the line and the rule that it breaks.
        """
        are_plain, longest = True, 0
        with closing(self._text.read_blocks()) as blocks:
            for text in blocks:
                are_plain = are_plain and _has_plain_quotes(text, self.delimiter)
                longest = max(longest, len(text))
                await asyncio.sleep(0)
        if not are_plain or longest > csv.field_size_limit():  # a block ends with a line: one may have a cell this long
            with closing(self.read_slices(range(len(self.header)), LineIndex())) as slices:
                for _ in slices:
                    await asyncio.sleep(0)

    def read_slices(self, wanted: Sequence[int], lines: LineIndex) -> Generator[Iterable[Sequence[str]], None, None]:
        """Yield slices of rows, each reduced to the columns that are wanted.

        Blank lines are skipped. In a row with fewer cells than the header the last ones are empty; a row with more is
        yielded without any, so that it fails.

        Args:
            wanted: the indexes of the columns.
            lines: records where each row begins.

        Raises:
            UnusableFile: names the line and the rule that it breaks.
        """
        with closing(self._text.read_blocks()) as blocks:
            yield from self._parse(CsvRows(self._text, blocks, self.delimiter), wanted, lines)

    def _parse(self, reader: CsvRows, wanted: Sequence[int], lines: LineIndex) -> Iterator[Iterable[Sequence[str]]]:
        reader.read(self.layout.head)
        lines.start_after(reader.lines)
        while True:
            for columns in reader.read_plain(len(self.header)):
                lines.add(columns[0], reader.lines, blank=False)
                yield ColumnarRows([self._empty.clear_all(columns[index]) for index in wanted])
            rows = self._read_slice(reader, lines)
            if not rows:
                return
            widths = set(map(len, rows))
            lines.add(rows, reader.lines, blank=0 in widths)
            if widths == {len(self.header)}:
                yield ColumnarRows([self._empty.clear_all([row[index] for row in rows]) for index in wanted])
            else:
                yield [self._fit_to_header(row, wanted) for row in rows if row]

    def _read_slice(self, reader: CsvRows, lines: LineIndex) -> list[list[str]]:
        try:
            return reader.read(self._slice_size)
        except csv.Error as error:
            raise self._describe_error(error, lines.line_after(reader.rows)) from None

    def _describe_error(self, error: csv.Error, line: int) -> UnusableFile:
        if "field limit" in str(error):
            return self._text.refuse(f"has a cell without an end on line {line}; is a quote not closed?")
        if "end of data" in str(error):
            return self._text.refuse(f"has a quote on line {line} that is not closed; is the file truncated?")
        return self._text.refuse(f"has unmatched quotes on line {line}; double a quote inside a quoted cell")

    def _fit_to_header(self, row: Sequence[str], wanted: Sequence[int]) -> Sequence[str]:
        if len(row) > len(self.header):
            return ()
        return self._empty.clear_all([row[index] if index < len(row) else "" for index in wanted])

    def _read_header(self, delimiter: str | None, header: Sequence[str] | None) -> tuple[Sequence[str], str]:
        with closing(self._text.read_blocks()) as blocks:
            lines = chain.from_iterable(map(split_lines, blocks))
            first = next(lines, "")
            # Spreadsheets write a line `sep=;` before the header, and expect one.
            if hint := _match_separator(first):
                self._preamble, first = 1, next(lines, "")
                delimiter = delimiter or hint[1]
        delimiter = delimiter or _detect_delimiter(first)
        if header is not None:
            self.first = _split_cells(first, delimiter)
            return [*header], delimiter
        if not first.strip(f"{DELIMITERS} \r\n"):
            raise self._text.refuse("has no header: line 1 is blank; delete the blank lines before the header")
        return self._parse_header(delimiter), delimiter

    def _parse_header(self, delimiter: str) -> Sequence[str]:
        with closing(self._text.read_blocks()) as blocks:
            try:
                *_, header = CsvRows(self._text, blocks, delimiter).read(self._preamble + 1)
            except csv.Error:
                raise self._text.refuse("has no header: the quotes on line 1 do not match") from None
        names = [name.strip() for name in header]
        if looks_like_data(names):
            raise self._text.refuse("has no header: line 1 looks like data", Hint.NAME_THE_COLUMNS)
        return names


def _has_plain_quotes(text: str, delimiter: str) -> bool:
    """Return whether all quotes begin or end a cell, so that none is unmatched; others need a closer look."""
    quotes = text.count('"')
    if not quotes:
        return True
    opening = text.startswith('"') + text.count(f'{delimiter}"') + text.count('\n"')
    closing = text.endswith('"') + sum(text.count(f'"{end}') for end in (delimiter, "\n", "\r"))
    return opening == closing == quotes / 2


def _detect_delimiter(line: str) -> str:
    return max(DELIMITERS, key=lambda candidate: len(_split_cells(line, candidate)))


def _split_cells(line: str, delimiter: str) -> Sequence[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter))
    except csv.Error:  # a cell of more than 131,072 characters
        return ()
