"""The only door to time: whatever waits or asks the time is given a Clock."""

import asyncio
import calendar
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock", "Timer", "months_after"]


class Timer(Protocol):
    """A callback that has been asked for and can be called off."""

    def cancel(self) -> None:
        """Call it off; harmless once it has run."""


class Clock(Protocol):
    """Time, as the SDK sees it.

    Any object with these methods serves; a test injects one that stands still until it is advanced.
    """

    def now(self) -> datetime:
        """Give the wall-clock time, in UTC and aware of it."""
        ...

    def monotonic(self) -> float:
        """Give seconds that never run backwards."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Pause the calling task."""

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` once, after `seconds`."""
        ...

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """Give a block that is cancelled with `TimeoutError` after `seconds`; None means never."""
        ...


class SystemClock:
    """The clock of the machine and of the running event loop."""

    def now(self) -> datetime:
        """Give the machine's time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Give the machine's monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Pause the calling task."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` from the running loop after `seconds`."""
        return asyncio.get_running_loop().call_later(seconds, callback)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """Give the standard library's timeout block."""
        return asyncio.timeout(seconds)


def months_after(moment: datetime, months: int) -> datetime:
    """Return the same time this many months later, or the last day of a month that is too short."""
    year, month = divmod(moment.month - 1 + months, 12)
    year += moment.year
    day = min(moment.day, calendar.monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)
