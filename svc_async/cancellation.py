"""Finishes what must not be left half done when its caller is cancelled: work in threads, and futures."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

__all__ = ["complete", "in_thread", "iterate_in_thread", "wait_through_cancellation"]

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


async def iterate_in_thread(items: Generator[T, None, None]) -> AsyncGenerator[T, None]:
    """Yield what a generator yields, which runs in one thread of its own, an item ahead, from its start to its end.

    The thread has the context variables of the caller. If the caller stops or is cancelled, the generator is closed in
    that thread as well, after the item in progress.
    """
    loop, context, end = asyncio.get_running_loop(), copy_context(), object()

    def read() -> tuple[Any, Exception | None]:
        try:
            return context.run(next, items, end), None
        except Exception as error:  # noqa: BLE001 - a future would replace some, such as a TimeoutError, by new ones
            return end, error

    with ThreadPoolExecutor(1, thread_name_prefix="svc_async-rows") as thread:
        ahead = loop.run_in_executor(thread, read)
        try:
            while (result := await complete(ahead))[0] is not end:
                ahead = loop.run_in_executor(thread, read)
                yield result[0]
            if result[1] is not None:
                raise result[1]
        finally:
            close = loop.run_in_executor(thread, partial(context.run, items.close))
            await complete(asyncio.gather(ahead, close, return_exceptions=True))


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
