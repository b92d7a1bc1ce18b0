"""Runs work until it is done or a signal stops it."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from svc_async.cli.exit_codes import Interrupted

__all__ = ["run_coroutine", "run_until_stopped"]

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_coroutine(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in an event loop of its own, until it is done or a signal stops it.

    Raises:
        Interrupted: a signal arrived.
    """
    return asyncio.run(run_until_stopped(work))


async def run_until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`; the first SIGINT or SIGTERM cancels it, a second one has its usual effect.

    If the work is done, the first signal has none: what it has done is about to be reported.

    Raises:
        Interrupted: a signal arrived.
    """
    task = asyncio.ensure_future(work)
    is_stopped = False

    def stop() -> None:
        nonlocal is_stopped
        is_stopped = True
        task.cancel()

    with _call_on_signal(stop):
        try:
            return await task
        except asyncio.CancelledError:
            if is_stopped:
                raise Interrupted from None
            raise


@contextmanager
def _call_on_signal(stop: Callable[[], None]) -> Generator[None]:
    loop = asyncio.get_running_loop()
    is_waiting = True

    def remove_handlers() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def handle_once() -> None:
        nonlocal is_waiting
        is_waiting = False
        remove_handlers()
        stop()

    try:
        for number in _SIGNALS:
            loop.add_signal_handler(number, handle_once)
    except NotImplementedError:  # Windows: Ctrl-C cancels by way of KeyboardInterrupt
        yield
        return
    try:
        yield
    finally:
        for number in _SIGNALS if is_waiting else ():
            loop.add_signal_handler(number, remove_handlers)  # the loop removes them when it is closed
