"""The sandbox's virtual clock, driven through a piece of work, with a count of its timers."""

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from svc_async.sandbox import VirtualClock

__all__ = ["EPOCH", "DrivenClock", "MachineClock"]

T = TypeVar("T")

EPOCH = datetime(2026, 6, 10, 12, 0, 0, tzinfo=UTC)


class MachineClock(VirtualClock):
    """A jumping clock whose wall time can be set, on a machine that is started again if `boot_id` is another one."""

    ahead = timedelta()

    def __init__(self, boot_id: str | None = "a") -> None:
        super().__init__(mode="jump")
        self.boot_id = boot_id

    def now(self) -> datetime:
        return super().now() + self.ahead

    def boot(self) -> str | None:
        return self.boot_id


class DrivenClock(VirtualClock):
    """A clock that starts at `EPOCH` and moves only in `run` and `advance`."""

    def __init__(self) -> None:
        super().__init__(EPOCH)

    @property
    def pending_timers(self) -> int:
        """How many calls are due later."""
        return sum(timer.callback is not None for timer in self._timers)

    async def run(self, *work: Awaitable[T]) -> list[T]:
        """Let time jump from one timer to the next until all the work is done; return its results."""
        self.mode = "jump"
        try:
            with self.hold():  # leaving it makes the clock look for timers that were set before
                results = asyncio.gather(*work)
            return await results
        finally:
            self.mode = "manual"
