"""Work that goes on behind the requests, such as checks, deliveries and heartbeats; all of it ends with the sandbox."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import attrs

from svc_async.sandbox.clock import Clock, Timer

__all__ = ["Jobs"]

T = TypeVar("T")


@attrs.define(eq=False)
class Jobs:
    """The jobs of one sandbox."""

    clock: Clock
    _tasks: set[asyncio.Task[Any]] = attrs.field(factory=set[asyncio.Task[Any]], init=False)
    _timers: set[Timer] = attrs.field(factory=set[Timer], init=False)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a job."""
        task = self.clock.start(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def later(self, seconds: float, callback: Callable[[], object], *, moves_time: bool = True) -> Timer:
        """Call `callback` after `seconds` on the clock, unless the sandbox has closed by then."""

        def ring() -> None:
            self._timers.discard(timer)
            callback()

        timer = self.clock.call_later(seconds, ring, moves_time=moves_time)
        self._timers.add(timer)
        return timer

    def forget(self, timer: Timer) -> None:
        """Call a timer off."""
        timer.cancel()
        self._timers.discard(timer)

    async def close(self) -> None:
        """Call off all that is still to come, and wait for what is cancelled."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
