"""At most one request for a token at a time.

The request does not belong to the call that started it: that call may be cancelled, and the request continues for the
other callers and for the token, which would otherwise be lost in transit. All callers share its outcome, a failure
included.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

import attrs

from svc_async.clock import Clock

__all__ = ["SingleFlight"]

T = TypeVar("T")

_CLOSE_TIMEOUT = 5.0
"""Seconds that a fetch has to finish when its session closes."""


@attrs.define(eq=False)
class SingleFlight(Generic[T]):
    """At most one fetch at a time: all callers wait for the same one."""

    _fetch: Callable[[], Coroutine[Any, Any, T]]
    _task: "asyncio.Task[T] | None" = None

    async def result(self) -> T:
        """Return what the fetch in progress returns; start one if there is none."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._fetch())
            self._task.add_done_callback(_retrieve_exception)
        return await asyncio.shield(self._task)

    async def close(self, clock: Clock) -> None:
        """Wait a while for the fetch: its result may be all that is left of a token. Then cancel it."""
        if self._task is None or self._task.done() or self._task.get_loop().is_closed():
            return
        try:
            async with clock.timeout(_CLOSE_TIMEOUT):
                await asyncio.wait({self._task})
        except TimeoutError:
            pass
        finally:
            self._task.cancel()
            await asyncio.wait({self._task})


def _retrieve_exception(task: "asyncio.Task[object]") -> None:
    """Keep asyncio from logging a failure that no caller waited for."""
    if not task.cancelled():
        task.exception()
