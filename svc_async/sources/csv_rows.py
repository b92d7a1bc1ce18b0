"""Rows of CSV, parsed a slice at a time within bounded memory."""

import csv
from collections.abc import Iterator, Sequence
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
        lines: how many lines have been read.
    """

    def __init__(self, text: TextReader, blocks: Iterator[str], delimiter: str) -> None:
        self._text = text
        self._blocks = blocks
        self._delimiter = delimiter
        self._size = 0
        self._lines_before = 0
        self._has_ended = self._is_paused = False
        self.rows: list[list[str]] = []
        self._reader = self._start()

    @property
    def lines(self) -> int:
        """How many lines have been read."""
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
                self._lines_before, self._is_paused = self.lines, False
                self._reader = self._start()
            self.rows.extend(islice(self._reader, count))
        return self.rows

    def _start(self) -> Any:
        lines = chain.from_iterable(map(split_lines, self._take_blocks()))
        return csv.reader(lines, delimiter=self._delimiter, strict=True)

    def _take_blocks(self) -> Iterator[str]:
        """Yield blocks to the end, or until the slice is large and its last row is complete."""
        while True:
            if self._size > _PAUSE:
                lines = sum(map(count_lines, self.rows))
                if self.lines - self._first_line == lines:
                    self._is_paused = True
                    return
                if self._size > _PAUSE + MAX_LINE:
                    line = self._first_line + lines + 1
                    raise self._text.refuse(f"has a row longer than 4 MiB on line {line}; is a quote not closed?")
            block = next(self._blocks, None)
            if block is None:
                self._has_ended = True
                return
            self._size += len(block)
            yield block


def count_lines(row: Sequence[str]) -> int:
    """Return how many lines a row takes."""
    text = "\0".join(row)  # a row may have millions of cells; no text has this character
    return 1 + text.count("\n") + text.count("\r") - text.count("\r\n")
