"""Tables: of a database cursor, of Arrow or any iterable of rows, and a spool to read rows again."""

import asyncio
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from inspect import isawaitable
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import attrs
import msgspec

from svc_async.errors import Hint, InvalidArgument
from svc_async.private_files import report_os_error
from svc_async.sources.blocks.arrow import Arrow
from svc_async.sources.blocks.parquet_bounds import MAX_BATCH, MAX_VALUE
from svc_async.sources.columns import IGNORED, ColumnMatcher
from svc_async.sources.source import ReplayableRows
from svc_async.users.encoding import SLICE_ROWS
from svc_async.users.names import USERS, VOCABULARY, Vocabulary
from svc_async.users.tables import Columns, Rows
from svc_async.value_rules import TEXT_BY_TEXT, TEXTS, ValueRule, or_none

__all__ = ["ArrowTable", "SpooledRows", "from_arrow", "from_cursor", "from_rows"]

_UNWRITABLE: Mapping[str, str] = {}
"""Replaces a value that cannot be written: it is not an identifier either, so its row fails as well."""

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

    They can be read once; `SpooledRows` stores them.

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
    select = _build_selector(wanted, len(names))
    return Rows(columns, _select_each(select, rows) if isinstance(rows, AsyncIterable) else map(select, rows))


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
        InvalidArgument: it is no such cursor, there is no result, a column is not recognised, or none is.
    """
    if not (hasattr(cursor, "description") and hasattr(cursor, "fetchmany")):
        raise InvalidArgument("cursor", _NO_CURSOR)
    if not getattr(cursor, "description", None):
        raise InvalidArgument("cursor", "must have executed a query that returns rows")
    names = [column[0] for column in cursor.description]
    return from_rows(names, _read_cursor(cursor), mapping=mapping, vocabulary=vocabulary)


def from_arrow(
    table: ArrowTable, *, mapping: Mapping[str, str] | None = None, vocabulary: Vocabulary = USERS
) -> Columns:
    """Return the columns of a table for an uploader, those that are recognised or mapped.

    They contain strings, integers, or lists of these; null is no value. They are read a few hundred rows at a time, as
    often as the table can be exported: any number of times, unless it is an iterator, such as a `RecordBatchReader`. A
    query must have an order then, so that its rows have the same positions each time.

    Args:
        table: a table or a stream of batches.
        mapping: from names of columns to the service's keys; `-` ignores a column, and `*` stands for all columns
            that are not recognised.
        vocabulary: what columns may contain.

    Raises:
        InvalidArgument: the extra `feeds` is missing, it is no table, a column is not recognised or has values of
            another type, or none is recognised.
    """
    arrow = Arrow.load("table", "needs")
    reader = _export(arrow, table)
    names = reader.schema.names
    keys = _match_columns(names, mapping, vocabulary)
    wanted = {index: names[index] for index, key in enumerate(keys) if key != IGNORED}
    for index, name in wanted.items():
        if not arrow.is_supported(reader.schema.types[index]):
            raise _refuse(f"must have strings or integers in column {name!r}, not {reader.schema.types[index]}")
    batches = _Batches(arrow, table, wanted, [reader])
    return Columns([keys[index] for index in wanted], iter(batches) if isinstance(table, Iterator) else batches)


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
        columns = {name: batch.column(index) for index, name in self.wanted.items()}
        shared = {name: column for name, column in columns.items() if self.arrow.shares_values(column.type)}
        lengths = {name: self.arrow.measure_longest(column) for name, column in shared.items()}
        for name, length in lengths.items():
            if length > MAX_VALUE:
                raise _refuse(f"has a value longer than {MAX_VALUE >> 20} MiB in column {name!r}")
        return max(1, min(SLICE_ROWS, MAX_BATCH // max(1, sum(lengths.values()))))

    def _list_values(self, column: Any, name: str, first: int) -> Sequence[Any]:
        try:
            return self.arrow.list_values(column)
        except self.arrow.errors:
            row = first + 1 + self.arrow.find_undecodable(column)
        raise _refuse(f"has text that is not UTF-8 in row {row} of column {name!r}")


async def _read_cursor(cursor: Any) -> AsyncIterator[Sequence[Any]]:
    """Yield the rows of a cursor, whether `fetchmany` is awaited or not; once, so that a journal spools them."""
    while rows := await _fetch(cursor):
        for row in rows:
            yield row


async def _fetch(cursor: Any) -> Sequence[Sequence[Any]]:
    result = cursor.fetchmany(SLICE_ROWS)
    rows: Sequence[Sequence[Any]] = await result if isawaitable(result) else result
    return rows


def _build_selector(wanted: Sequence[int], width: int) -> Callable[[Sequence[Any]], Sequence[Any]]:
    def select(row: Sequence[Any]) -> Sequence[Any]:
        return [row[index] for index in wanted] if len(row) == width else ()

    return select


async def _select_each(
    select: Callable[[Sequence[Any]], Sequence[Any]], rows: AsyncIterable[Sequence[Any]]
) -> AsyncIterator[Sequence[Any]]:
    async for row in rows:
        yield select(row)


class SpooledRows:
    """Rows that were read once and stored in an anonymous temporary file, so that they can be read again.

    Create it with `await SpooledRows.spool(rows)`.

    Attributes:
        name: the name to show to users.
        columns: the service's keys.
        ignored: none.
        size: bytes of the file.
        bytes_read: how many bytes `rows()` has read.
        exhausted: whether the last row of `rows()` has been read.
    """

    name = _TABLE
    ignored: Sequence[str] = ()

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns
        self.size = 1
        self.bytes_read = 0
        self.exhausted = False
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the source
        self._digest = sha256(repr(tuple(columns)).encode())

    @classmethod
    async def spool(cls, rows: Rows) -> "SpooledRows":
        """Read all rows and store them.

        Raises:
            UnusableFile: the disk is full.
        """
        with _report_unwritable():
            spooled = cls(rows.columns)
        try:
            await spooled._write(rows.rows)
        except BaseException:
            spooled.close()
            raise
        return spooled

    async def check(self) -> None:
        """Do nothing: the rows have been read."""

    def rows(self) -> Rows:
        """Return the rows from the start, for an uploader; positions count them from 0."""
        return Rows(self.columns, ReplayableRows(self._begin))

    def find_line(self, position: int) -> None:
        """Return None: a table has no lines."""

    async def fingerprint(self) -> str:
        """Return a digest of the rows and their columns."""
        return self._digest.hexdigest()

    def close(self) -> None:
        """Delete the file."""
        self._file.close()

    def _begin(self) -> Iterable[Iterable[Sequence[Any]]]:
        self.exhausted = False
        return self._read_slices()

    async def _write(self, rows: AnyRows) -> None:
        async for part in _slice_rows(rows):
            encoded = _encode(part)
            block = len(encoded).to_bytes(8) + encoded
            with _report_unwritable():
                self._file.write(block)
            self._digest.update(block)
            await asyncio.sleep(0)
        with _report_unwritable():
            self._file.flush()
        self.size = max(1, self._file.tell())

    def _read_slices(self) -> Generator[Sequence[Sequence[Any]], None, None]:
        at = 0
        while head := self._read(at, 8):
            length = int.from_bytes(head)
            part = msgspec.msgpack.decode(self._read(at + 8, length))
            at += 8 + length
            self.bytes_read = at
            yield part
        self.exhausted = True

    def _read(self, at: int, size: int) -> bytes:
        self._file.seek(at)
        return self._file.read(size)


def _report_unwritable() -> AbstractContextManager[None]:
    """Report that the temporary file cannot be written."""
    return report_os_error("spool", tempfile.gettempdir(), "cannot be written")


async def _slice_rows(rows: AnyRows) -> AsyncIterator[Sequence[Any]]:
    if not isinstance(rows, AsyncIterable):
        walk: Iterator[Any] = iter(rows)
        while part := list(islice(walk, SLICE_ROWS)):
            yield part
        return
    part = []
    async for row in rows:
        part.append(row)
        if len(part) == SLICE_ROWS:
            yield part
            part = []
    if part:
        yield part


def _encode(part: Sequence[Any]) -> bytes:
    rows = [_to_tuple(row) for row in part]
    try:
        return msgspec.msgpack.encode(rows)
    except (TypeError, UnicodeError, OverflowError):
        return msgspec.msgpack.encode([_replace_unwritable(row) for row in rows])


def _to_tuple(row: Any) -> Any:
    """Return a row of a database as a tuple; anything that is not a row becomes an empty one, so that it fails."""
    return tuple(row) if isinstance(row, Iterable) and not isinstance(row, str | bytes | Mapping) else ()


def _replace_unwritable(row: Sequence[Any]) -> Sequence[Any]:
    return [value if _is_writable(value) else _UNWRITABLE for value in row]


def _is_writable(value: Any) -> bool:
    try:
        msgspec.msgpack.encode(value)
    except (TypeError, UnicodeError, OverflowError):
        return False
    return True
