"""User files in CSV."""

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from pathlib import Path

from svc_async.printable import clean
from svc_async.sources.blocks.decoding import BLOCK_SIZE, TextReader
from svc_async.sources.blocks.files import Input, compute_digest, open_input
from svc_async.sources.columns import IGNORED, ColumnMatcher, EmptyValues
from svc_async.sources.csv_table import CsvLayout, CsvTable, LineIndex
from svc_async.sources.source import ReplayableRows
from svc_async.users.encoding import SLICE_ROWS
from svc_async.users.names import USERS, Vocabulary, normalize_name
from svc_async.users.tables import Rows

__all__ = ["CsvSource"]

_log = logging.getLogger("svc_async")


class CsvSource:
    """A CSV file with a header.

    The encoding is detected from the first bytes, the delimiter (comma, semicolon, tab or bar) from the header. A
    column is recognised by the service's key or another common name, in any case, with spaces or dashes for
    underscores, or by `mapping`. Blank lines are skipped. In a row with fewer cells than the header the last ones are
    empty; a row with more fails.

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
        name: its path.
        names: the names of all columns.
        columns: the service's keys that the file has a column for.
        ignored: the names of the columns that are left out.
        size: bytes of the file.
        exhausted: whether the last row of `rows()` has been read.

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
        self._input = open_input(file)
        self.name = self._input.name
        self.size = self._input.size
        self.exhausted = False
        self._text = TextReader(self._input, encoding=encoding, block_size=block_size)
        self._empty = EmptyValues.parse(empty)
        self._table = CsvTable(self._text, delimiter=delimiter, slice_size=slice_size, empty=self._empty, header=header)
        self.names = names = [clean_name(name) for name in self._table.header]
        mapping = {clean_name(name): key for name, key in (mapping or {}).items()}
        keys = ColumnMatcher(self.name, names, mapping, self._text.refuse, vocabulary).match_columns()
        self.columns: Sequence[str] = tuple(key for key in keys if key != IGNORED)
        self.ignored: Sequence[str] = tuple(name for name, key in zip(names, keys, strict=True) if key == IGNORED)
        self._wanted = [index for index, key in enumerate(keys) if key != IGNORED]
        if self._has_second_header(vocabulary, clean_name):
            said = "line 1 of %s looks like a header, and is read as a row, since the columns were named"
            _log.warning(said, clean(self.name))
        self._lines = LineIndex()
        self._slices: Generator[Iterable[Sequence[str]], None, None] | None = None

    @property
    def layout(self) -> CsvLayout:
        """How the table is written."""
        return self._table.layout

    @property
    def bytes_read(self) -> int:
        """How many bytes `rows()` has read."""
        return self._text.bytes_read if self._slices is not None else 0

    def _has_second_header(self, vocabulary: Vocabulary, clean_name: Callable[[str], str]) -> bool:
        """Return whether the first line holds names of columns, although their names were given."""
        names = {normalize_name(name) for name in self.names}
        cells = [clean_name(cell) for cell in self._table.first if cell.strip()]
        return bool(cells) and all(normalize_name(cell) in names or vocabulary.find_key(cell) for cell in cells)

    async def check(self) -> None:
        """Read the whole file to find what would stop a job midway, before anything is sent.

        Raises:
            UnusableFile: names the line that is not in its encoding, contains a NUL or has a quote that is not closed.
        """
        await self._table.check()

    def rows(self) -> Rows:
        """Return the rows from the start, for an uploader; positions count them from 0."""
        return Rows(self.columns, ReplayableRows(self._begin))

    def find_line(self, position: int) -> int | None:
        """Return the line of the file, counted from 1, on which a row that was read begins."""
        return self._lines.find(position)

    async def fingerprint(self) -> str:
        """Return a digest of the file and of what its columns mean."""
        settings = self._table.settings, self.columns, self._wanted, self._empty.texts
        return await compute_digest(self._input, "csv", self._text.encoding, *settings)

    def close(self) -> None:
        """Close the file, if `rows()` was not read to its end."""
        self._stop()
        self._input.close()

    def _begin(self) -> Iterable[Iterable[Sequence[str]]]:
        self._stop()
        self._lines = LineIndex()
        self.exhausted = False
        self._slices = self._read_slices()
        return self._slices

    def _stop(self) -> None:
        if self._slices is not None:
            self._slices.close()

    def _read_slices(self) -> Generator[Iterable[Sequence[str]], None, None]:
        yield from self._table.read_slices(self._wanted, self._lines)
        self.exhausted = True
