"""The input of a job: slices of encoded rows; no I/O but that of what it reads."""

import itertools
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from io import IOBase
from typing import Any, TypeVar

import attrs

from svc_async.batch.packing.batch import PackedRows
from svc_async.batch.report import Failure
from svc_async.errors import InvalidArgument
from svc_async.sources.source import ReplayableRows, SlicedRows
from svc_async.users.encoding import SLICE_ROWS
from svc_async.users.tables import Columns, ColumnSlicer

__all__ = ["RowSource", "Slice", "check_rows", "is_replayable", "slice_rows"]

T = TypeVar("T")


@attrs.frozen
class Slice:
    """Some consecutive rows of a source.

    Attributes:
        count: how many were read.
        rows: those that can be sent.
        failures: the others.
        partly_valid: rows that have a valid identifier beside an invalid one.
        again: how many were read by an earlier run as well.
        invalid_again: how many of these are among the failures, which that run has counted.
    """

    count: int
    rows: PackedRows = attrs.field(repr=False)
    failures: Sequence[Failure]
    partly_valid: int = 0
    again: int = 0
    invalid_again: int = 0


@attrs.frozen
class RowSource:
    """The rows of a job.

    Attributes:
        read: reads them from the start.
        replayable: whether they can be read again; if not, a job with a journal spools them first.
        open: keeps open what they are read from, as long as the job needs it.
        settings: what else decides what is sent of them, as values for JSON; a job is resumed with the same.
    """

    read: Callable[[], AsyncGenerator[Slice, None]]
    replayable: bool
    open: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    settings: Mapping[str, Any] = attrs.field(factory=dict)


def check_rows(name: str, value: object, content: str, *, takes_path: bool = False) -> None:
    """Check that rows can be read from a value.

    Args:
        name: the name of the value.
        value: the value.
        content: what its rows are.
        takes_path: whether the path of a file may be passed in its place; an open file is refused then.

    Raises:
        InvalidArgument: they cannot; the message says what to do, if the value tells.
    """
    is_file = takes_path and isinstance(value, IOBase)
    if is_file or isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable | AsyncIterable):
        raise InvalidArgument(name, f"must be an iterable or async iterable of {content}{_propose(value)}")


def _propose(value: object) -> str:
    """Return what to do with a value to get rows; nothing if it does not tell."""
    if isinstance(value, Mapping):
        return "; put a single one into a list"
    if isinstance(value, IOBase):
        return "; pass the path of the file"
    if isinstance(value, Awaitable):
        return "; await it first"
    if callable(getattr(value, "collect", None)):  # such as a LazyFrame of polars
        return "; collect it first"
    return "; call it first" if callable(value) else ""


def is_replayable(rows: object) -> bool:
    """Return whether rows can be read from the start any number of times, as those of a list can."""
    source = rows.batches if isinstance(rows, Columns) else rows
    return not isinstance(source, Iterator | AsyncIterator)


async def slice_rows(
    rows: Iterable[T] | AsyncIterable[T] | Columns, size: int = SLICE_ROWS
) -> AsyncGenerator[Sequence[T], None]:
    """Yield rows in slices of this size; if the source fails, what it returned before is yielded before it raises.

    Raises:
        InvalidArgument: a batch of columns does not consist of columns.
    """
    if isinstance(rows, ReplayableRows):
        rows = rows.once()
    if isinstance(rows, SlicedRows):
        for limited in rows.slices(size):
            yield limited
        return
    each = _slice_columns(rows.batches, size) if isinstance(rows, Columns) else _slice_each(rows, size)
    async with aclosing(each) as parts:
        async for part in parts:
            yield part


async def _slice_columns(batches: Iterable[T] | AsyncIterable[T], size: int) -> AsyncGenerator[Sequence[Any], None]:
    slicer = ColumnSlicer(size)
    try:
        async with aclosing(_slice_each(batches, 1)) as parts:
            async for (batch,) in parts:
                for part in slicer.cut(batch):
                    yield part
    except Exception:
        for part in slicer.finish():
            yield part
        raise
    for part in slicer.finish():
        yield part


async def _slice_each(rows: Iterable[T] | AsyncIterable[T], size: int) -> AsyncGenerator[list[T], None]:
    source = aiter(rows) if isinstance(rows, AsyncIterable) else iter(rows)
    while True:
        part: list[T] = []
        failure: Exception | None = None
        try:
            if isinstance(source, AsyncIterator):
                async for row in source:
                    part.append(row)
                    if len(part) == size:
                        break
            else:
                part.extend(itertools.islice(source, size))
        except Exception as error:  # noqa: BLE001 - whatever a source may raise
            failure = error
        if part:
            yield part
        if failure is not None:
            raise failure
        if len(part) < size:
            return
