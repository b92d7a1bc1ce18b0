"""Runs work until it is done or somebody asks to stop."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["Interrupted", "until_stopped"]

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """SIGINT (Ctrl-C) or SIGTERM came, and the work was cancelled and has cleaned up."""


async def until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`; the first SIGINT or SIGTERM cancels it, a second one has its usual effect.

    Raises:
        Interrupted: a signal came.
    """
    task = asyncio.ensure_future(work)
    asked = False

    def stop() -> None:
        nonlocal asked
        asked = True
        task.cancel()

    with _told_of_signals(stop):
        try:
            return await task
        except asyncio.CancelledError:
            if asked:
                raise Interrupted from None
            raise


@contextmanager
def _told_of_signals(stop: Callable[[], None]) -> Generator[None]:
    loop = asyncio.get_running_loop()

    def forget() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def once() -> None:
        forget()
        stop()

    try:
        for number in _SIGNALS:
            loop.add_signal_handler(number, once)
    except NotImplementedError:  # Windows: Ctrl-C cancels by way of KeyboardInterrupt
        yield
        return
    try:
        yield
    finally:
        forget()
