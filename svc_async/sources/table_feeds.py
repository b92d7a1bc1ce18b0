"""Merchant feeds that are tables: CSV, TSV, JSON lines and Parquet."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from svc_async.sources.blocks.files import Input
from svc_async.sources.csv_source import CsvSource
from svc_async.sources.json_lines import JsonLinesSource
from svc_async.sources.parquet import ParquetSource
from svc_async.sources.product_attributes import (
    LONG_PRODUCT,
    MAX_ID,
    MAX_PRODUCT,
    PRODUCTS,
    join_values,
    normalize_value,
)
from svc_async.sources.rows import ArrowTable, from_arrow
from svc_async.sources.source import ReplayableRows, SlicedRows, UnparsedRow
from svc_async.users.encoding import SLICE_ROWS
from svc_async.users.names import Vocabulary
from svc_async.users.tables import Columns

__all__ = ["TableFeed", "open_csv_feed", "open_json_feed", "open_parquet_feed", "products_from_arrow"]


@attrs.frozen
class TableFeed:
    """A product feed that is read as a table, a slice of rows at a time.

    Values are texts, integers, or lists of these, which are several values of an attribute; other values are left to
    the checks of products. Blank values are absent.

    Attributes:
        table: the rows.
    """

    table: CsvSource | JsonLinesSource | ParquetSource

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
        """Bytes of text, or rows of Parquet."""
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
        parse = _parse_texts if isinstance(self.table, CsvSource) else _parse_product
        for part in rows.rows.once().slices(SLICE_ROWS):
            yield [parse(rows.columns, row) for row in part]


def open_csv_feed(
    file: str | Path | Input,
    *,
    mapping: Mapping[str, str] | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    vocabulary: Vocabulary = PRODUCTS,
    empty: Collection[str] = (),
    header: Sequence[str] | None = None,
) -> TableFeed:
    """Open a feed in CSV or TSV, whose columns may have the prefix `g:`; arguments as of `CsvSource`."""
    table = CsvSource(
        file,
        mapping=mapping,
        encoding=encoding,
        delimiter=delimiter,
        vocabulary=vocabulary,
        empty=empty,
        header=header,
        clean_name=_strip_prefix,
    )
    return TableFeed(table)


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


def _strip_prefix(name: str) -> str:
    """Remove the prefix that attributes have in XML."""
    return name.strip().removeprefix("g:").removeprefix("G:")


def _parse_texts(columns: Sequence[str], row: Sequence[Any]) -> Mapping[str, Any]:
    if not row:  # so the table yields a row with too many cells
        return UnparsedRow("must not have more cells than the header")
    if sum(map(len, row)) > MAX_PRODUCT:
        return UnparsedRow(LONG_PRODUCT, _find_id(zip(columns, row, strict=True)))
    cells = zip(columns, row, strict=True)
    return {name: normalize_value(name, value) for name, value in cells if value.strip()}


def _parse_product(columns: Sequence[str], row: Sequence[Any]) -> Mapping[str, Any]:
    found = {name: value for name, value in zip(columns, row, strict=True) if not _is_blank(value)}
    if sum(len(value if isinstance(value, str) else str(value)) for value in found.values()) > MAX_PRODUCT:
        return UnparsedRow(LONG_PRODUCT, _find_id(found.items()))
    return {name: _parse_value(name, value) for name, value in found.items()}


def _find_id(cells: Iterable[tuple[str, object]]) -> object:
    """Return the id of a product that is too long, as it would be sent; None if it is no short text."""
    found = next((value for name, value in cells if name == "id"), None)
    product_id = _parse_value("id", found)
    return product_id if isinstance(product_id, str) and 0 < len(product_id) <= MAX_ID else None


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
