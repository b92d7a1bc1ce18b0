"""Rows that a program gives: of a database cursor or of any iterable, and how they are kept to be read again."""

import asyncio
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from inspect import isawaitable
from itertools import chain, islice
from typing import Any

import msgspec

from svc_async.errors import InvalidArgument
from svc_async.sources.columns import IGNORED, PEOPLE, Matching, Vocabulary
from svc_async.sources.files import refused
from svc_async.sources.source import Replay
from svc_async.users.encoding import Rows

__all__ = ["SpooledRows", "from_cursor", "from_rows"]

_SLICE = 512
_NO_TEXT: Mapping[str, str] = {}
"""What stands for a value that cannot be written: no identifier either, so that its row fails all the same."""

AnyRows = Iterable[Sequence[Any]] | AsyncIterable[Sequence[Any]]


def from_rows(
    names: Sequence[str],
    rows: AnyRows,
    *,
    mapping: Mapping[str, str] | None = None,
    vocabulary: Vocabulary = PEOPLE,
) -> Rows:
    """Give the rows of a table for an uploader, cut down to the columns that are known or mapped.

    They can be read once; `SpooledRows` keeps them.

    Args:
        names: the names of the columns.
        rows: tuples with a value for each column.
        mapping: from names of columns to the service's keys; `-` ignores a column, and `*` stands for all columns
            that are not known.
        vocabulary: what columns may hold.

    Raises:
        InvalidArgument: a column is not known, or none is.
    """
    chosen = Matching("the table", names, mapping or {}, vocabulary, of="its columns").chosen()
    wanted = [index for index, key in enumerate(chosen) if key != IGNORED]
    columns = tuple(chosen[index] for index in wanted)
    if len(columns) == len(names):
        return Rows(columns, rows)
    cut = _cutter(wanted, len(names))
    return Rows(columns, _mapped(cut, rows) if isinstance(rows, AsyncIterable) else map(cut, rows))


def from_cursor(cursor: Any, *, mapping: Mapping[str, str] | None = None, vocabulary: Vocabulary = PEOPLE) -> Rows:
    """Give the rows of a database cursor, a few hundred at a time.

    Any cursor of the DB-API that has executed a query will do, and one whose `fetchmany` is awaited. Let the query
    order its rows, so that they stand at the same positions next time.

    Args:
        cursor: has `description` and `fetchmany`.
        mapping: as for `from_rows`.
        vocabulary: what columns may hold.

    Raises:
        InvalidArgument: there is no result, a column is not known, or none is.
    """
    if not cursor.description:
        raise InvalidArgument("cursor", "must have executed a query that gives rows")
    names = [column[0] for column in cursor.description]
    return from_rows(names, _Fetched(cursor), mapping=mapping, vocabulary=vocabulary)


class _Fetched:
    """The rows of a cursor, whichever way it is to be asked."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    async def __aiter__(self) -> AsyncIterator[Sequence[Any]]:
        while rows := await self._next():
            for row in rows:
                yield row

    async def _next(self) -> Sequence[Sequence[Any]]:
        asked = self._cursor.fetchmany(_SLICE)
        rows: Sequence[Sequence[Any]] = await asked if isawaitable(asked) else asked
        return rows


def _cutter(wanted: Sequence[int], width: int) -> Callable[[Sequence[Any]], Sequence[Any]]:
    def cut(row: Sequence[Any]) -> Sequence[Any]:
        return [row[index] for index in wanted] if len(row) == width else ()

    return cut


async def _mapped(
    cut: Callable[[Sequence[Any]], Sequence[Any]], rows: AsyncIterable[Sequence[Any]]
) -> AsyncIterator[Sequence[Any]]:
    async for row in rows:
        yield cut(row)


class SpooledRows:
    """Rows that were read once and are kept in a file without a name, so that they can be read again.

    Make it with `await SpooledRows.of(rows)`.

    Attributes:
        name: what people call it.
        columns: the service's keys.
        ignored: none.
        size: bytes of the file.
        bytes_read: how far `rows()` has come.
        exhausted: whether `rows()` has given its last row.
    """

    name = "the table"
    ignored: Sequence[str] = ()

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns
        self.size = 1
        self.bytes_read = 0
        self.exhausted = False
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the source
        self._digest = sha256(repr(tuple(columns)).encode())

    @classmethod
    async def of(cls, rows: Rows) -> "SpooledRows":
        """Read rows to their end.

        Raises:
            InvalidArgument: there is no room for them.
        """
        spooled = cls(rows.columns)
        try:
            await spooled._fill(rows.rows)
        except OSError as error:
            spooled.close()
            raise refused(cls.name, f"cannot be kept in {tempfile.gettempdir()}: {error.strerror}") from None
        except BaseException:
            spooled.close()
            raise
        return spooled

    async def check(self) -> None:
        """Find nothing: the rows have been read."""

    def rows(self) -> Rows:
        """Give the rows from the start, for an uploader; positions count them from 0."""
        return Rows(self.columns, Replay(self._begin))

    def line(self, position: int) -> None:
        """Give none: there are no lines."""

    async def fingerprint(self) -> str:
        """Give a digest of the rows and their columns."""
        return self._digest.hexdigest()

    def close(self) -> None:
        """Delete the file."""
        self._file.close()

    def _begin(self) -> Iterator[Sequence[Any]]:
        self.exhausted = False
        return chain.from_iterable(self._slices())

    async def _fill(self, rows: AnyRows) -> None:
        async for part in _in_slices(rows):
            written = _written(part)
            block = len(written).to_bytes(8) + written
            self._file.write(block)
            self._digest.update(block)
            await asyncio.sleep(0)
        self._file.flush()
        self.size = max(1, self._file.tell())

    def _slices(self) -> Generator[Sequence[Sequence[Any]], None, None]:
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


async def _in_slices(rows: AnyRows) -> AsyncIterator[Sequence[Any]]:
    if not isinstance(rows, AsyncIterable):
        walk: Iterator[Any] = iter(rows)
        while part := list(islice(walk, _SLICE)):
            yield part
        return
    part = []
    async for row in rows:
        part.append(row)
        if len(part) == _SLICE:
            yield part
            part = []
    if part:
        yield part


def _written(part: Sequence[Any]) -> bytes:
    rows = [_plain_row(row) for row in part]
    try:
        return msgspec.msgpack.encode(rows)
    except (TypeError, UnicodeError, OverflowError):
        return msgspec.msgpack.encode([_writable_row(row) for row in rows])


def _plain_row(row: Any) -> Any:
    """Take rows of databases for tuples; what is no row at all has no values, so that it fails."""
    return tuple(row) if isinstance(row, Iterable) and not isinstance(row, str | bytes | Mapping) else ()


def _writable_row(row: Sequence[Any]) -> Sequence[Any]:
    return [value if _is_writable(value) else _NO_TEXT for value in row]


def _is_writable(value: Any) -> bool:
    try:
        msgspec.msgpack.encode(value)
    except (TypeError, UnicodeError, OverflowError):
        return False
    return True
