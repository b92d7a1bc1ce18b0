"""Finishes what must not be left half done when its caller is cancelled: work in threads, and futures."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

__all__ = ["complete", "in_thread", "wait_through_cancellation"]

T = TypeVar("T")


async def in_thread(work: Callable[[], T], *, undo: Callable[[T], Awaitable[object]] | None = None) -> T:
    """Return what a thread returns, or raise what it raises.

    If the caller is cancelled meanwhile, however often, the work is finished and then undone, before the cancellation
    goes on.

    Args:
        work: what the thread does.
        undo: undoes it; must itself finish when it is cancelled, as whatever ends with this function does.
    """
    # Not a task, which would be cancelled with all others when the loop ends, while the thread goes on.
    return await complete(asyncio.get_running_loop().run_in_executor(None, work), undo=undo)


async def complete(work: Awaitable[T], *, undo: Callable[[T], Awaitable[object]] | None = None) -> T:
    """Return the result of work, which is finished and then undone if the caller is cancelled; see `in_thread`."""
    future = asyncio.ensure_future(work)
    cancelled = await wait_through_cancellation(future)
    if cancelled is None:
        return future.result()
    if future.exception() is None and undo is not None:
        await undo(future.result())
    raise cancelled


async def wait_through_cancellation(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until a future is done; return the cancellation of the caller, if it was cancelled meanwhile.

    The caller raises it once everything is released.
    """
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled
