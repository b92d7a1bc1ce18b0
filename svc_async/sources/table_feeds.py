"""Merchant feeds that are tables: CSV, TSV, JSON lines and Parquet."""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from svc_async.sources.blocks.decoding import TextReader
from svc_async.sources.blocks.files import Input, compute_digest, open_input
from svc_async.sources.columns import IGNORED, ColumnMatcher
from svc_async.sources.csv_table import CsvLayout, CsvTable
from svc_async.sources.empty_values import EmptyValues
from svc_async.sources.json_lines import JsonLinesSource
from svc_async.sources.line_index import LineIndex
from svc_async.sources.parquet import ParquetSource
from svc_async.sources.product_attributes import LONG_PRODUCT, MAX_PRODUCT, PRODUCTS, join_values, normalize_value
from svc_async.sources.rows import ArrowTable, from_arrow
from svc_async.sources.source import ReplayableRows, SlicedRows, UnparsedRow
from svc_async.users.encoding import SLICE_ROWS
from svc_async.users.names import Vocabulary
from svc_async.users.tables import Columns

__all__ = ["CsvFeed", "TableFeed", "open_json_feed", "open_parquet_feed", "products_from_arrow"]


class CsvFeed:
    """A product feed as a table with a header.

    A column is recognised by the name of the attribute, in any case, with spaces or dashes for underscores and with or
    without `g:`, or by `mapping`. Other columns are left out. Blank cells are absent. A row with more cells than the
    header fails with that reason.

    Args:
        file: its path, or an input.
        mapping: from names of columns to attributes; `-` ignores a column.
        encoding: any of Python's, if it is not Unicode.
        delimiter: the character between cells, if it cannot be detected from the header.
        vocabulary: what columns may contain.
        empty: texts that stand for no value, such as `n/a`, in any case.
        header: the names of the columns, if the file has no header.

    Attributes:
        name: its path.
        columns: the attributes that the file has a column for.
        ignored: the names of the columns that are left out.
        size: bytes of the file.
        exhausted: whether the last product of `products()` has been read.

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
        vocabulary: Vocabulary = PRODUCTS,
        empty: Collection[str] = (),
        header: Sequence[str] | None = None,
    ) -> None:
        self._input = open_input(file)
        self.name = self._input.name
        self.size = self._input.size
        self.exhausted = False
        self._text = TextReader(self._input, encoding=encoding)
        self._empty = EmptyValues.parse(empty)
        self._table = CsvTable(self._text, delimiter=delimiter, empty=self._empty, header=header)
        names = [_strip_prefix(name) for name in self._table.header]
        mapping = {_strip_prefix(name): key for name, key in (mapping or {}).items()}
        keys = ColumnMatcher(self.name, names, mapping, self._text.refuse, vocabulary).match_columns()
        self.columns: Sequence[str] = tuple(key for key in keys if key != IGNORED)
        self.ignored: Sequence[str] = tuple(name for name, key in zip(names, keys, strict=True) if key == IGNORED)
        self._wanted = [index for index, key in enumerate(keys) if key != IGNORED]
        self._lines = LineIndex()
        self._products: Generator[Iterable[Mapping[str, Any]], None, None] | None = None

    @property
    def layout(self) -> CsvLayout:
        """How the table is written."""
        return self._table.layout

    @property
    def bytes_read(self) -> int:
        """How many bytes `products()` has read."""
        return self._text.bytes_read if self._products is not None else 0

    async def check(self) -> None:
        """Read the whole file to find what would stop a job midway, before anything is sent.

        Raises:
            UnusableFile: names the line that is not in its encoding, contains a NUL or has a quote that is not closed.
        """
        await self._table.check()

    def products(self) -> ReplayableRows[Mapping[str, Any]]:
        """Return the products from the start, for an uploader; positions count them from 0."""
        return ReplayableRows(self._begin)

    def find_line(self, position: int) -> int | None:
        """Return the line of the file, counted from 1, on which a product that was read begins."""
        return self._lines.find(position)

    async def fingerprint(self) -> str:
        """Return a digest of the file and of what its columns mean."""
        settings = self._table.settings, self.columns, self._wanted, self._empty.texts
        return await compute_digest(self._input, "csv", self._text.encoding, *settings)

    def close(self) -> None:
        """Close the file, if `products()` was not read to its end."""
        self._stop()
        self._input.close()

    def _begin(self) -> Iterable[Iterable[Mapping[str, Any]]]:
        self._stop()
        self._lines = LineIndex()
        self.exhausted = False
        self._products = self._read_products()
        return self._products

    def _stop(self) -> None:
        if self._products is not None:
            self._products.close()

    def _read_products(self) -> Generator[Iterable[Mapping[str, Any]], None, None]:
        for rows in self._table.read_slices(self._wanted, self._lines):
            yield map(self._parse_row, rows)
        self.exhausted = True

    def _parse_row(self, row: Sequence[str]) -> Mapping[str, Any]:
        if not row:  # so the table yields a row with too many cells
            return UnparsedRow("must not have more cells than the header")
        if sum(map(len, row)) > MAX_PRODUCT:
            return UnparsedRow(LONG_PRODUCT)
        cells = zip(self.columns, row, strict=True)
        return {name: normalize_value(name, value) for name, value in cells if value.strip()}


def _strip_prefix(name: str) -> str:
    """Remove the prefix that attributes have in XML."""
    return name.strip().removeprefix("g:").removeprefix("G:")


@attrs.frozen
class TableFeed:
    """A product feed that is read as a table, a slice of rows at a time.

    Values are texts, integers, or lists of these, which are several values of an attribute; other values are left to
    the checks of products. Blank values are absent.

    Attributes:
        table: the rows.
    """

    table: JsonLinesSource | ParquetSource

    @property
    def name(self) -> str:
        """Its path."""
        return self.table.name

    @property
    def ignored(self) -> Sequence[str]:
        """The names of the columns that are left out."""
        return self.table.ignored

    @property
    def size(self) -> int:
        """Bytes of JSON lines, or rows of Parquet."""
        return self.table.size

    @property
    def bytes_read(self) -> int:
        """How much of it `products()` has read."""
        return self.table.bytes_read

    @property
    def exhausted(self) -> bool:
        """Whether the last product of `products()` has been read."""
        return self.table.exhausted

    async def check(self) -> None:
        """Read the whole file to find what would stop a job midway, before anything is sent.

        Raises:
            UnusableFile: names the line or row.
        """
        await self.table.check()

    def products(self) -> ReplayableRows[Mapping[str, Any]]:
        """Return the products from the start, for an uploader; positions count them from 0."""
        return ReplayableRows(self._read_products)

    def find_line(self, position: int) -> int | None:
        """Return the line of the file, counted from 1, of a product that was read; None for Parquet."""
        return self.table.find_line(position)

    async def fingerprint(self) -> str:
        """Return a digest of the file and of what its columns mean."""
        return await self.table.fingerprint()

    def close(self) -> None:
        """Close the file, if `products()` was not read to its end."""
        self.table.close()

    def _read_products(self) -> Iterator[Iterable[Mapping[str, Any]]]:
        rows = self.table.rows()
        if not isinstance(rows.rows, ReplayableRows):
            raise TypeError("the readers of files return replayable rows")
        for part in rows.rows.once().slices(SLICE_ROWS):
            yield [_parse_product(rows.columns, row) for row in part]


def open_json_feed(
    file: str | Path | Input,
    *,
    mapping: Mapping[str, str] | None = None,
    encoding: str | None = None,
    vocabulary: Vocabulary = PRODUCTS,
    empty: Collection[str] = (),
) -> TableFeed:
    """Open a feed with an object on each line; arguments as of `JsonLinesSource`."""
    return TableFeed(JsonLinesSource(file, mapping=mapping, encoding=encoding, vocabulary=vocabulary, empty=empty))


def open_parquet_feed(
    file: str | Path | Input,
    *,
    mapping: Mapping[str, str] | None = None,
    vocabulary: Vocabulary = PRODUCTS,
    empty: Collection[str] = (),
) -> TableFeed:
    """Open a feed in Parquet; arguments as of `ParquetSource`."""
    return TableFeed(ParquetSource(file, mapping=mapping, vocabulary=vocabulary, empty=empty))


def products_from_arrow(
    table: ArrowTable, *, mapping: Mapping[str, str] | None = None
) -> ReplayableRows[Mapping[str, Any]] | SlicedRows[Mapping[str, Any]]:
    """Return the products of a table for an uploader; the columns are those of a feed.

    Arguments and exceptions: see `svc_async.sources.rows.from_arrow`. They can be read once if the table is an
    iterator, such as a `RecordBatchReader`.
    """
    columns = from_arrow(table, mapping=mapping, vocabulary=PRODUCTS)
    read = partial(_parse_batches, columns)
    return SlicedRows(read()) if isinstance(table, Iterator) else ReplayableRows(read)


def _parse_batches(columns: Columns) -> Iterator[Iterable[Mapping[str, Any]]]:
    batches: Any = columns.batches
    for batch in batches:
        yield [_parse_product(columns.names, row) for row in zip(*batch, strict=True)]


def _parse_product(columns: Sequence[str], row: Sequence[Any]) -> Mapping[str, Any]:
    found = {name: value for name, value in zip(columns, row, strict=True) if not _is_blank(value)}
    if sum(len(value if isinstance(value, str) else str(value)) for value in found.values()) > MAX_PRODUCT:
        return UnparsedRow(LONG_PRODUCT)
    return {name: _parse_value(name, value) for name, value in found.items()}


def _is_blank(value: object) -> bool:
    return value is None or (not value.strip() if isinstance(value, str) else value == [])


def _parse_value(name: str, value: Any) -> object:
    if _is_plain(value):
        return normalize_value(name, str(value))
    if isinstance(value, list) and all(map(_is_plain, value)):
        return join_values(name, [str(each).strip() for each in value])
    return value


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)
