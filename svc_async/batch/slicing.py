"""Reads rows of any kind in slices, in the thread of the event loop or, where that may block, in another."""

import itertools
from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from svc_async.cancellation import iterate_in_thread
from svc_async.errors import Hint, WrongState
from svc_async.sources.source import ReplayableRows, SlicedRows
from svc_async.users.encoding import SLICE_ROWS
from svc_async.users.tables import Columns, ColumnSlicer

__all__ = ["slice_rows"]

T = TypeVar("T")


async def slice_rows(
    rows: Iterable[T] | AsyncIterable[T] | Columns, size: int = SLICE_ROWS
) -> AsyncGenerator[Sequence[T], None]:
    """Yield rows in slices of this size; if the source fails, what it returned before is yielded before it raises.

    A thread reads what may block, such as a generator or a cursor: whatever is not asynchronous, a list or a file.

    Raises:
        InvalidArgument: a batch of columns does not consist of columns.
        WrongState: the rows can be read only in the thread that made them.
    """
    if isinstance(rows, ReplayableRows):
        rows = rows.once()
    source = rows.batches if isinstance(rows, Columns) else rows
    slices: AsyncGenerator[Any, None]
    cut: Generator[Any, None, None]
    if isinstance(source, AsyncIterable):
        slices = _slice_columns_async(source, size) if isinstance(rows, Columns) else _slice_async(source, size)
    else:
        cut = _slice_columns(source, size) if isinstance(rows, Columns) else _slice(source, size)
        blocks = source.blocks if isinstance(source, SlicedRows) else not isinstance(source, list | tuple)
        slices = _read_in_thread(cut, source) if blocks else _read_here(cut)
    async with aclosing(slices) as parts:
        async for part in parts:
            yield part


async def _read_here(slices: Generator[T, None, None]) -> AsyncGenerator[T, None]:
    for part in slices:
        yield part


async def _read_in_thread(slices: Generator[T, None, None], source: Iterable[object]) -> AsyncGenerator[T, None]:
    is_first = True
    try:
        async with aclosing(iterate_in_thread(_close_last(slices, source))) as parts:
            async for part in parts:
                is_first = False
                yield part
    except Exception as error:
        # The libraries have no exception of their own for it: sqlite3, SQLAlchemy and Django only say so.
        if is_first and "thread" in str(error):
            raise WrongState(
                "the rows can be read only in the thread that made them, but a job reads them in one of its own",
                hint=Hint.SHARE_WITH_THREADS,
            ) from error
        raise


def _close_last(slices: Generator[T, None, None], source: Iterable[object]) -> Generator[T, None, None]:
    """Yield slices, and close the generator that they are read from in the thread that has read it.

    Nobody else can go on with it, since more of it was read than was sent.
    """
    try:
        yield from slices
    finally:
        if isinstance(source, Generator):
            source.close()


def _slice_columns(batches: Iterable[object], size: int) -> Generator[Sequence[Any], None, None]:
    slicer, failure = ColumnSlicer(size), None
    try:
        for batch in batches:
            yield from slicer.cut(batch)
    except Exception as error:  # noqa: BLE001 - whatever a source may raise
        failure = error
    yield from slicer.finish()
    if failure is not None:
        raise failure


async def _slice_columns_async(batches: AsyncIterable[object], size: int) -> AsyncGenerator[Sequence[Any], None]:
    slicer, failure = ColumnSlicer(size), None
    try:
        async for batch in batches:
            for part in slicer.cut(batch):
                yield part
    except Exception as error:  # noqa: BLE001 - likewise
        failure = error
    for part in slicer.finish():
        yield part
    if failure is not None:
        raise failure


def _slice(rows: Iterable[T], size: int) -> Generator[Sequence[T], None, None]:
    if isinstance(rows, SlicedRows):
        yield from rows.slices(size)
        return
    source = iter(rows)
    failure: Exception | None = None
    while failure is None:
        part: list[T] = []
        try:
            part.extend(itertools.islice(source, size))
        except Exception as error:  # noqa: BLE001 - whatever a source may raise
            failure = error
        if part:
            yield part
        if failure is None and len(part) < size:
            return
    raise failure


async def _slice_async(rows: AsyncIterable[T], size: int) -> AsyncGenerator[Sequence[T], None]:
    part: list[T] = []
    failure: Exception | None = None
    try:
        async for row in rows:
            part.append(row)
            if len(part) == size:
                yield part
                part = []
    except Exception as error:  # noqa: BLE001 - likewise
        failure = error
    if part:
        yield part
    if failure is not None:
        raise failure
