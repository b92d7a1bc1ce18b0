"""Tables in CSV: the dialect, the header and slices of rows, whatever their columns mean.

A file is never read row by row in Python: blocks become lines, lines become rows and rows are cut down to the columns
that are wanted, all of it by iterators of the standard library. Only a slice that holds something unusual (a blank
line, a row that is too short or too long, a cell of several lines) is looked at row by row.
"""

import asyncio
import csv
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain, islice
from operator import itemgetter

from svc_async.errors import InvalidArgument
from svc_async.sources.columns import looks_like_data
from svc_async.sources.decoding import Texts, lines_of
from svc_async.sources.line_index import Lines

__all__ = ["DELIMITERS", "CsvTable"]

DELIMITERS = ",;\t|"
_SLICE = 512


class CsvTable:
    """A table in CSV with a header.

    Args:
        texts: its text.
        delimiter: what stands between cells; comma, semicolon, tab or bar, told from the header, if not given.

    Attributes:
        header: the names of the columns.
        delimiter: what stands between cells.

    Raises:
        InvalidArgument: there is no header.
    """

    def __init__(self, texts: Texts, *, delimiter: str | None = None) -> None:
        self._texts = texts
        self.header, self.delimiter = self._read_header(delimiter)

    async def check(self) -> None:
        """Look through the whole table for what would stop a job half-way.

        Raises:
            InvalidArgument: names the line and the rule that it breaks.
        """
        quotes = 0
        with closing(self._texts.blocks()) as blocks:
            for text in blocks:
                quotes += text.count('"')
                await asyncio.sleep(0)
        if quotes % 2:
            with closing(self.slices(range(len(self.header)), Lines())) as slices:
                for _ in slices:
                    await asyncio.sleep(0)

    def slices(self, wanted: Sequence[int], lines: Lines) -> Generator[Iterable[Sequence[str]], None, None]:
        """Cut the table into slices of rows, each cut down to the columns that are wanted.

        Blank lines are skipped. A row with fewer cells than the header lacks the last ones; a row with more comes
        without any, so that it fails.

        Args:
            wanted: the indexes of the columns.
            lines: takes note of where each row begins.

        Raises:
            InvalidArgument: names the line and the rule that it breaks.
        """
        with closing(self._texts.blocks()) as blocks:
            yield from self._cut(chain.from_iterable(map(lines_of, blocks)), wanted, lines)

    def _cut(self, text: Iterator[str], wanted: Sequence[int], lines: Lines) -> Iterator[Iterable[Sequence[str]]]:
        reader = csv.reader(text, delimiter=self.delimiter, strict=True)
        next(reader)
        lines.start(reader.line_num)
        while rows := self._next_slice(reader, lines):
            widths = set(map(len, rows))
            lines.follow(rows, reader.line_num, blank=0 in widths)
            if widths == {len(self.header)}:
                yield zip(*(map(itemgetter(index), rows) for index in wanted), strict=True)
            else:
                yield [self._made_even(row, wanted) for row in rows if row]

    def _next_slice(self, reader: Iterator[list[str]], lines: Lines) -> list[list[str]]:
        rows: list[list[str]] = []
        try:
            rows.extend(islice(reader, _SLICE))
        except csv.Error as error:
            raise self._misquoted(error, lines.after(rows)) from None
        return rows

    def _misquoted(self, error: csv.Error, line: int) -> InvalidArgument:
        if "field limit" in str(error):
            return self._texts.refused(f"has a cell that never ends on line {line}: is a quote not closed?")
        if "end of data" in str(error):
            return self._texts.refused(f"opens a quote on line {line} that is not closed; is the file cut short?")
        return self._texts.refused(f"has quotes on line {line} that do not match; write a quote inside of quotes twice")

    def _made_even(self, row: Sequence[str], wanted: Sequence[int]) -> Sequence[str]:
        if len(row) > len(self.header):
            return ()
        return [row[index] if index < len(row) else "" for index in wanted]

    def _read_header(self, delimiter: str | None) -> tuple[Sequence[str], str]:
        with closing(self._texts.blocks()) as blocks:
            return self._header(chain.from_iterable(map(lines_of, blocks)), delimiter)

    def _header(self, lines: Iterator[str], delimiter: str | None) -> tuple[Sequence[str], str]:
        first = next(lines, "")
        if not first.strip(f"{DELIMITERS} \r\n"):
            raise self._texts.refused("has no header: line 1 is blank")
        mark = delimiter or max(DELIMITERS, key=lambda mark: len(_cells(first, mark)))
        try:
            header = next(csv.reader(chain([first], lines), delimiter=mark, strict=True))
        except csv.Error:
            raise self._texts.refused("has no header: the quotes of line 1 do not match") from None
        names = [name.strip() for name in header]
        if looks_like_data(names):
            raise self._texts.refused("has no header: line 1 looks like data; put the names of the columns there")
        return names, mark


def _cells(line: str, delimiter: str) -> Sequence[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter))
    except csv.Error:  # a cell of more than 131,072 characters
        return ()
