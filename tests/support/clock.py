"""The sandbox's virtual clock, driven through a piece of work, with a count of its timers."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import attrs

from svc_async.sandbox import VirtualClock
from svc_async.sandbox.clock import Timer

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


@attrs.define(eq=False)
class _CountedTimer:
    timer: Timer
    pending: "set[_CountedTimer]"

    def cancel(self) -> None:
        self.timer.cancel()
        self.pending.discard(self)


class DrivenClock(VirtualClock):
    """A clock that starts at `EPOCH` and moves only in `run` and `advance`."""

    def __init__(self) -> None:
        super().__init__(EPOCH)
        self._pending: set[_CountedTimer] = set()

    @property
    def pending_timers(self) -> int:
        """How many calls are due later."""
        return len(self._pending)

    def call_later(self, seconds: float, callback: Callable[[], object], *, moves_time: bool = True) -> Timer:
        """Call `callback` once the clock has moved by `seconds`."""

        def run() -> None:
            self._pending.discard(counted)
            callback()

        counted = _CountedTimer(super().call_later(seconds, run, moves_time=moves_time), self._pending)
        self._pending.add(counted)
        return counted

    async def run(self, *work: Awaitable[T]) -> list[T]:
        """Let time jump from one timer to the next until all the work is done; return its results."""
        self.mode = "jump"
        try:
            with self.hold():  # leaving it makes the clock look for timers that were set before
                results = asyncio.gather(*work)
            return await results
        finally:
            self.mode = "manual"
