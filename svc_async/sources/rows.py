"""Tables: of a database cursor, of Arrow or any iterable of rows."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import Any, Protocol, TypeVar, runtime_checkable

import attrs

from svc_async.errors import Hint, InvalidArgument
from svc_async.sources.blocks.arrow import Arrow
from svc_async.sources.blocks.parquet_bounds import MAX_BATCH, MAX_VALUE
from svc_async.sources.columns import IGNORED, ColumnMatcher
from svc_async.sources.product_attributes import PRODUCTS, parse_products
from svc_async.sources.source import ReplayableRows, SlicedRows
from svc_async.users.encoding import SLICE_ROWS
from svc_async.users.names import USERS, VOCABULARY, Vocabulary
from svc_async.users.tables import Columns, Rows
from svc_async.value_rules import TEXT_BY_TEXT, TEXTS, ValueRule, or_none

__all__ = ["ArrowTable", "from_arrow", "from_cursor", "from_rows", "products_from_arrow", "replay_as"]

T = TypeVar("T")

_NAMES = ValueRule(
    lambda names: TEXTS.accepts(names) and not isinstance(names, Mapping | set | frozenset), "a sequence of strings"
)  # also an index of pandas, which is no Sequence
_TABLE = "the table"
_NO_CURSOR = (
    "must be one of the DB-API, with description and fetchmany; of an asynchronous driver without these, "
    "pass (dict(row) async for row in cursor) in place of from_cursor(cursor)"
)


@runtime_checkable
class ArrowTable(Protocol):
    """What exports its batches by the Arrow PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export a stream of batches."""
        ...


AnyRows = Iterable[Sequence[Any]] | AsyncIterable[Sequence[Any]]


def from_rows(
    names: Sequence[str],
    rows: AnyRows,
    *,
    mapping: Mapping[str, str] | None = None,
    vocabulary: Vocabulary = USERS,
) -> Rows:
    """Return the rows of a table for an uploader, reduced to the columns that are recognised or mapped.

    They can be read once; a job with a journal keeps them there.

    Args:
        names: the names of the columns.
        rows: tuples with a value for each column.
        mapping: from names of columns to the service's keys; `-` ignores a column, and `*` stands for all columns
            that are not recognised.
        vocabulary: what columns may contain.

    Raises:
        InvalidArgument: a column is not recognised, or none is.
    """
    _NAMES.check("names", names)
    keys = _match_columns(names, mapping, vocabulary)
    wanted = [index for index, key in enumerate(keys) if key != IGNORED]
    columns = tuple(keys[index] for index in wanted)
    if len(columns) == len(names):
        return Rows(columns, rows)

    def select(row: Sequence[Any]) -> Sequence[Any]:
        return [row[index] for index in wanted] if len(row) == len(names) else ()

    if isinstance(rows, AsyncIterable):
        return Rows(columns, (select(row) async for row in rows))
    return Rows(columns, map(select, rows))


def from_cursor(cursor: Any, *, mapping: Mapping[str, str] | None = None, vocabulary: Vocabulary = USERS) -> Rows:
    """Return the rows of a database cursor, which are fetched a few hundred at a time.

    The cursor is one of the DB-API that has executed a query, or one that has the same methods, to be awaited. Order
    the rows in the query, so that they have the same positions next time. Other cursors of asynchronous drivers, such
    as those of asyncpg, need no `from_cursor`: pass `(dict(row) async for row in cursor)`.

    Args:
        cursor: has `description` and `fetchmany`.
        mapping: as in `from_rows`.
        vocabulary: what columns may contain.

    Raises:
        InvalidArgument: it is not such a cursor, there is no result, a column is not recognised, or none is.
    """
    if not (hasattr(cursor, "description") and hasattr(cursor, "fetchmany")):
        raise InvalidArgument("cursor", _NO_CURSOR)
    if not getattr(cursor, "description", None):
        raise InvalidArgument("cursor", "must have executed a query that returns rows")
    names = [column[0] for column in cursor.description]
    is_async = hasattr(cursor, "__aiter__") or iscoroutinefunction(cursor.fetchmany)
    rows = _read_async_cursor(cursor) if is_async else _read_cursor(cursor)
    return from_rows(names, rows, mapping=mapping, vocabulary=vocabulary)


def from_arrow(
    table: ArrowTable, *, mapping: Mapping[str, str] | None = None, vocabulary: Vocabulary = USERS
) -> Columns:
    """Return the columns of a table for an uploader, those that are recognised or mapped.

    They contain strings, integers, or lists of these; null is no value. They are read a few hundred rows at a time, as
    often as the table can be exported: any number of times, unless it is an iterator, such as a `RecordBatchReader`. A
    query must have an order then, so that its rows have the same positions each time. A relation runs its query here; a
    job that gets the relation itself runs it in a thread.

    Args:
        table: a table or a stream of batches.
        mapping: from names of columns to the service's keys; `-` ignores a column, and `*` stands for all columns
            that are not recognised.
        vocabulary: what columns may contain.

    Raises:
        InvalidArgument: the extra `feeds` is missing, it is not a table, a column is not recognised or has values of
            another type, or none is recognised.
    """
    arrow = Arrow.load("table", "needs")
    reader = _export(arrow, table)
    names = reader.schema.names
    keys = _match_columns(names, mapping, vocabulary)
    wanted = {index: names[index] for index, key in enumerate(keys) if key != IGNORED}
    for index, name in wanted.items():
        if not arrow.is_supported(reader.schema.types[index], numbers=vocabulary.numbers):
            raise _refuse(f"must have strings or integers in column {name!r}, not {reader.schema.types[index]}")
    batches = _Batches(arrow, table, wanted, [reader])
    return Columns([keys[index] for index in wanted], iter(batches) if isinstance(table, Iterator) else batches)


def products_from_arrow(
    table: ArrowTable, *, mapping: Mapping[str, str] | None = None
) -> ReplayableRows[Mapping[str, Any]] | SlicedRows[Mapping[str, Any]]:
    """Return the products of a table for an uploader; columns are named as in a feed.

    Arguments and exceptions: see `from_arrow`. They can be read once if the table is an iterator, such as a
    `RecordBatchReader`.
    """
    columns = from_arrow(table, mapping=mapping, vocabulary=PRODUCTS)

    def read() -> Iterator[Iterable[Mapping[str, Any]]]:
        batches: Any = columns.batches
        for batch in batches:
            yield parse_products(columns.names, zip(*batch, strict=True))

    return replay_as(table, read)


def replay_as(table: ArrowTable, read: Callable[[], Iterator[Iterable[T]]]) -> ReplayableRows[T] | SlicedRows[T]:
    """Return the rows that a function reads of a table: once if the table is an iterator, else any number of times."""
    return SlicedRows(read(), blocks=True) if isinstance(table, Iterator) else ReplayableRows(read, blocks=True)


def _match_columns(names: Sequence[str], mapping: Mapping[str, str] | None, vocabulary: Vocabulary) -> Sequence[str]:
    or_none(TEXT_BY_TEXT).check("mapping", mapping)
    VOCABULARY.check("vocabulary", vocabulary)
    return ColumnMatcher(_TABLE, names, mapping or {}, _refuse, vocabulary, place="it").match_columns()


def _refuse(problem: str, hint: Hint | None = None) -> InvalidArgument:
    return InvalidArgument("table", problem, hint=hint)


def _export(arrow: Arrow, table: ArrowTable) -> Any:
    no_table: tuple[type[Exception], ...] = (*arrow.errors, TypeError)
    try:
        return arrow.arrow.RecordBatchReader.from_stream(table)
    except no_table:
        raise _refuse("must be a table with named columns, each with values of one type") from None


@attrs.frozen
class _Batches:
    """The batches of a table, which is exported anew for each iteration but the first.

    Attributes:
        wanted: the names of the columns to read by their indexes.
        opened: what was exported already and was not read.
    """

    arrow: Arrow
    table: ArrowTable
    wanted: Mapping[int, str]
    opened: list[Any]

    def __iter__(self) -> Iterator[Sequence[Any]]:
        reader = self.opened.pop() if self.opened else _export(self.arrow, self.table)
        first = 0
        for batch in reader:
            size = self._count_rows(batch)
            for start in range(0, batch.num_rows, size):
                part = batch.slice(start, size)
                yield [
                    self._list_values(part.column(index), name, first + start) for index, name in self.wanted.items()
                ]
            first += batch.num_rows

    def _count_rows(self, batch: Any) -> int:
        """Return how many rows are decoded at once; a few bytes may stand for a long text in each of many rows.

        Raises:
            InvalidArgument: a value is too long.
        """
        columns = {index: batch.column(index) for index in self.wanted}
        shared = {index: column for index, column in columns.items() if self.arrow.shares_values(column.type)}
        lengths = {index: self.arrow.measure_longest(column) for index, column in shared.items()}
        for index, length in lengths.items():
            if length > MAX_VALUE:
                raise _refuse(f"has a value longer than {MAX_VALUE >> 20} MiB in column {self.wanted[index]!r}")
        return max(1, min(SLICE_ROWS, MAX_BATCH // max(1, sum(lengths.values()))))

    def _list_values(self, column: Any, name: str, first: int) -> Sequence[Any]:
        try:
            return self.arrow.list_values(column)
        except self.arrow.errors:
            row = first + 1 + self.arrow.find_undecodable(column)
        raise _refuse(f"has text that is not UTF-8 in row {row} of column {name!r}")


def _read_cursor(cursor: Any) -> Iterator[Sequence[Any]]:
    """Yield the rows of a cursor once, so that a journal spools them."""
    while rows := cursor.fetchmany(SLICE_ROWS):
        yield from rows


async def _read_async_cursor(cursor: Any) -> AsyncIterator[Sequence[Any]]:
    while rows := await cursor.fetchmany(SLICE_ROWS):
        for row in rows:
            yield row
