"""Lets tasks and threads run without waiting for time to pass."""

import asyncio
import time
from collections.abc import Callable

__all__ = ["let_threads_run", "run_ready_tasks", "wait_until"]


async def run_ready_tasks() -> None:
    """Yield to the event loop until tasks that need no time have run."""
    for _ in range(50):
        await asyncio.sleep(0)


def let_threads_run() -> None:
    """Leave the interpreter to other threads, which wait for it in turns of 5 ms as long as an event loop is busy."""
    time.sleep(0.0005)


async def wait_until(condition: Callable[[], object]) -> None:
    """Yield to other tasks and to threads until a condition holds, of which nothing else tells.

    The loop stays busy, since a virtual clock that jumps does so as soon as it is idle.
    """
    while not condition():
        let_threads_run()
        await asyncio.sleep(0)
