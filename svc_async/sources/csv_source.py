"""Files in CSV.

A file is never read row by row in Python: blocks become lines, lines become rows and rows become the columns that are
needed. A block without quotes is split; only others need the parser, and only a slice with something unusual (a blank
line, a row that is too short or too long, a cell of several lines) is processed row by row.
"""

import asyncio
import csv
import logging
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any

from svc_async.errors import Hint, UnusableFile
from svc_async.printable import clean
from svc_async.sources.blocks.decoding import BLOCK_SIZE, MAX_LINE, TextReader, split_lines
from svc_async.sources.blocks.files import Input
from svc_async.sources.columns import IGNORED, OTHERS
from svc_async.sources.file_source import LineIndex, TableSource, count_lines
from svc_async.users.encoding import SLICE_ROWS
from svc_async.users.names import USERS, Vocabulary, looks_like_data, normalize_name
from svc_async.users.tables import ColumnarRows

__all__ = ["CsvSource", "describe_unmatched"]

_log = logging.getLogger("svc_async")
_PAUSE = 1_048_576
"""Characters after which a slice ends early."""
_DELIMITERS = ",;\t|"
_match_separator = re.compile(r'"?sep=([^\r\n"])"?\s*').fullmatch


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
        between = re.escape(delimiter)
        # An odd number of quotes after other text ends a quoted cell, whatever comes before; others may be within one.
        ends = rf'("(?<=[^"{between}\r\n ]")(?:"")*+) +(?=[{between}\r\n]|\Z)'
        self._drop_blanks = re.compile(ends if delimiter != " " else "(?!)").sub
        self._size = 0
        self._lines_before = text.lines_before
        self._has_ended = self._is_paused = self._has_quotes = False
        self.rows: list[list[str]] = []
        self._reader = self._start()

    @property
    def lines(self) -> int:
        """The number of lines that have been read."""
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
        return _read_cells(lines, self._delimiter, strict=True)

    def _take_blocks(self) -> Iterator[str]:
        """Yield blocks to the end, or until the last row is complete."""
        for block in self._blocks:
            self._size += len(block)
            self._has_quotes = self._has_quotes or '"' in block
            # A single character is searched for much faster than two.
            has_blanks = self._has_quotes and " " in block and '" ' in block
            yield self._drop_blanks(r"\1", block) if has_blanks else block
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


class CsvSource(TableSource):
    """A CSV file with a header.

    The encoding is detected from the first bytes, the delimiter (comma, semicolon, tab or bar) from the header. A
    column is recognised by the service's key or another common name, in any case, with spaces or dashes for
    underscores, or by `mapping`. Blank lines are skipped, and so are blanks around a quoted cell and columns that have
    neither a name nor a value. In a row with fewer cells than the header the last ones are empty; a row with more has
    none, so that it fails.

    Args:
        file: its path, or an input.
        mapping: from names of columns to the service's keys; `-` ignores a column, and `*` stands for all columns
            that are not recognised.
        encoding: any of Python's, if it is not Unicode.
        delimiter: the character between cells, if it cannot be detected from the header.
        vocabulary: what columns may contain.
        empty: texts that stand for no value, such as `n/a`, in any case.
        header: the names of the columns, if the file has no header.
        clean_name: returns the name of a column as it is looked up, in the file and in `mapping`.
        block_size: bytes that are decoded at a time.
        slice_size: rows that are parsed at a time.

    Attributes:
        encoding: its encoding.
        delimiter: the character between cells.
        head: how many records come before the rows: the header, and a line that names the delimiter.

    Raises:
        UnusableFile: the file cannot be used; the message says why.
        InvalidArgument: the mapping, encoding or delimiter cannot be used.
    """

    def __init__(
        self,
        file: str | Path | Input,
        *,
        mapping: Mapping[str, str] | None = None,
        encoding: str | None = None,
        delimiter: str | None = None,
        vocabulary: Vocabulary = USERS,
        empty: Collection[str] = (),
        header: Sequence[str] | None = None,
        clean_name: Callable[[str], str] = str,
        block_size: int = BLOCK_SIZE,
        slice_size: int = SLICE_ROWS,
    ) -> None:
        super().__init__(file, empty)
        self._text = TextReader(self._input, encoding=encoding, block_size=block_size)
        self._slice_size = slice_size
        self.encoding = self._text.encoding
        with closing(self._text.read_blocks()) as blocks:
            lines = chain.from_iterable(map(split_lines, blocks))
            first = next(lines, "")
            self.head = int(header is None)
            # Spreadsheets write a line `sep=;` before the header, and expect one.
            if separator := _match_separator(first):
                first, delimiter = next(lines, ""), delimiter or separator[1]
                self.head += 1
        self.delimiter = delimiter or max(_DELIMITERS, key=lambda each: len(_split_cells(first, each)))
        self._given = header and list(header)
        names = self._read_header(first) if self._given is None else self._given
        mapping = {clean_name(name): key for name, key in (mapping or {}).items()}
        names = [*map(clean_name, names)]
        unused = () if vocabulary.lenient or OTHERS in mapping or all(names) else self._find_unused(names)
        self._match_columns(names, mapping, vocabulary, place="the header", unused=unused)
        self._wanted = [index for index, (_, key) in enumerate(self._keys) if key != IGNORED]
        if self._given is not None:
            known = {*map(normalize_name, self.names)}
            cells = [clean_name(cell) for cell in _split_cells(first, self.delimiter) if cell.strip()]
            if cells and all(normalize_name(cell) in known or vocabulary.find_key(cell) for cell in cells):
                said = "line 1 of %s looks like a header, and is read as a row, since the columns were named"
                _log.warning(said, clean(self.name))

    @property
    def meaning(self) -> Sequence[object]:
        """The format and the settings that decide what the bytes of the file mean."""
        written = self.delimiter, self._given is None or self._given
        return "csv", self.encoding, written, self.columns, self._wanted, self._empty.texts

    async def check(self) -> None:
        """Read the whole file to find what would stop a job midway, before anything is sent.

        Raises:
            UnusableFile: names the line that is not in its encoding, contains a NUL or has a quote that is not closed.
        """
        are_plain, longest = True, 0
        with closing(self._text.read_blocks()) as blocks:
            for text in blocks:
                are_plain = are_plain and _has_plain_quotes(text, self.delimiter)
                longest = max(longest, len(text))
                await asyncio.sleep(0)
        if not are_plain or longest > csv.field_size_limit():  # a block ends with a line: one may have a cell this long
            await super().check()

    def parse(self) -> Generator[Iterable[Sequence[str]], None, None]:
        """Yield slices of rows, each reduced to the columns that are wanted."""
        self._lines = lines = LineIndex()
        clear_all, width = self._empty.clear_all, len(self._keys)
        with closing(self._text.read_blocks()) as blocks:
            reader = CsvRows(self._text, blocks, self.delimiter)
            reader.read(self.head)
            lines.start_after(reader.lines)
            while True:
                for columns in reader.read_plain(width):
                    lines.add(columns[0], reader.lines, blank=False)
                    self.bytes_read = self._text.bytes_read
                    yield ColumnarRows([clear_all(columns[index]) for index in self._wanted])
                try:
                    rows = reader.read(self._slice_size)
                except csv.Error as error:
                    raise self._describe_error(error, lines.line_after(reader.rows)) from None
                if not rows:
                    return
                widths = set(map(len, rows))
                lines.add(rows, reader.lines, blank=0 in widths)
                self.bytes_read = self._text.bytes_read
                if widths == {width}:
                    yield ColumnarRows([clear_all([row[index] for row in rows]) for index in self._wanted])
                else:
                    yield [self._fit_to_header(row) for row in rows if row]

    def _describe_error(self, error: csv.Error, line: int) -> UnusableFile:
        if "field limit" in str(error):
            return self.refuse(f"has a cell without an end on line {line}; is a quote not closed?")
        if "end of data" in str(error):
            return self.refuse(f"has a quote on line {line} that is not closed; is the file truncated?")
        return self.refuse(describe_unmatched(line))

    def _find_unused(self, names: Sequence[str]) -> Collection[int]:
        """Return the columns that have neither a name nor any value, such as those that a spreadsheet adds."""
        self._keys = [(name, IGNORED) for name in names]
        self._wanted = [index for index, name in enumerate(names) if not name]
        used: set[int] = set()
        with closing(self.parse()) as slices:
            for row in chain.from_iterable(slices):
                used.update(compress(self._wanted, map(str.strip, row)))
                if len(used) == len(self._wanted):
                    break
        self.bytes_read = 0
        return {*self._wanted} - used

    def _fit_to_header(self, row: Sequence[str]) -> Sequence[str]:
        if len(row) > len(self._keys):
            return ()
        return self._empty.clear_all([row[index] if index < len(row) else "" for index in self._wanted])

    def _read_header(self, first: str) -> Sequence[str]:
        if not first.strip(f"{_DELIMITERS} \r\n"):
            raise self.refuse("has no header: line 1 is blank; delete the blank lines before the header")
        with closing(self._text.read_blocks()) as blocks:
            try:
                *_, header = CsvRows(self._text, blocks, self.delimiter).read(self.head)
            except csv.Error:
                raise self.refuse("has no header: the quotes on line 1 do not match") from None
        names = [name.strip() for name in header]
        if looks_like_data(names):
            raise self.refuse("has no header: line 1 looks like data", Hint.NAME_THE_COLUMNS)
        return names


def _has_plain_quotes(text: str, delimiter: str) -> bool:
    """Return whether all quotes begin or end a cell, so that none is unmatched; others need a closer look."""
    quotes = text.count('"')
    if not quotes:
        return True
    opening = text.startswith('"') + text.count(f'{delimiter}"') + text.count('\n"')
    closing = text.endswith('"') + sum(text.count(f'"{end}') for end in (delimiter, "\n", "\r"))
    return opening == closing == quotes / 2


def describe_unmatched(line: int) -> str:
    """Return what is wrong with a line of which the parser does not know where a cell ends."""
    return f"has a blank or text after a closing quote on line {line}; double a quote inside a quoted cell"


def _read_cells(lines: Iterable[str], delimiter: str, *, strict: bool = False) -> Any:
    return csv.reader(lines, delimiter=delimiter, strict=strict, skipinitialspace=delimiter != " ")


def _split_cells(line: str, delimiter: str) -> Sequence[str]:
    try:
        return next(_read_cells([line], delimiter))
    except csv.Error:  # a cell of more than 131,072 characters
        return ()
