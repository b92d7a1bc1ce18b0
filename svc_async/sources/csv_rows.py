"""Rows of CSV, parsed a slice at a time within bounded memory."""

import csv
from collections.abc import Generator, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from svc_async.sources.blocks.decoding import MAX_LINE, TextReader, split_lines

__all__ = ["CsvRows", "count_lines"]

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
