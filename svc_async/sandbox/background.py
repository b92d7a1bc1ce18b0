"""Background work, such as checks, deliveries and heartbeats; all of it ends with the sandbox."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import attrs

from svc_async.sandbox.clock import Clock, Timer

__all__ = ["BackgroundTasks"]

T = TypeVar("T")


@attrs.define(eq=False)
class BackgroundTasks:
    """The tasks and timers of one sandbox."""

    clock: Clock
    _tasks: set[asyncio.Task[Any]] = attrs.field(factory=set[asyncio.Task[Any]], init=False)
    _timers: set[Timer] = attrs.field(factory=set[Timer], init=False)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task."""
        task = self.clock.start(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def call_later(self, seconds: float, callback: Callable[[], object], *, moves_time: bool = True) -> Timer:
        """Call `callback` after `seconds` on the clock, unless the sandbox has closed by then."""

        def fire() -> None:
            self._timers.discard(timer)
            callback()

        timer = self.clock.call_later(seconds, fire, moves_time=moves_time)
        self._timers.add(timer)
        return timer

    def cancel(self, timer: Timer) -> None:
        """Cancel a timer."""
        timer.cancel()
        self._timers.discard(timer)

    async def close(self) -> None:
        """Cancel all timers and tasks, and wait for the tasks to end."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
