"""The only access to time: everything that waits or reads the time takes a Clock as an argument."""

import asyncio
import calendar
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Protocol, runtime_checkable

__all__ = ["BootClock", "Clock", "SystemClock", "Timer", "find_boot", "months_after"]


class Timer(Protocol):
    """A scheduled callback that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the callback; no effect once it has run."""


class Clock(Protocol):
    """The time of the SDK.

    Any object with these methods will do; tests inject one that advances only on request.
    """

    def now(self) -> datetime:
        """Return the wall-clock time, as an aware datetime in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never decrease."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Pause the calling task."""

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` once, after `seconds`."""
        ...

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """Return a context manager that raises `TimeoutError` after `seconds`; None means never."""
        ...


@runtime_checkable
class BootClock(Protocol):
    """A clock that knows since when its monotonic seconds count."""

    def boot(self) -> str | None:
        """Return what identifies the start from which `monotonic` counts; None if it is not known."""
        ...


def find_boot(clock: Clock) -> str | None:
    """Return what identifies the start from which the monotonic seconds of a clock count; None if it is not known."""
    return clock.boot() if isinstance(clock, BootClock) else None


class SystemClock:
    """The system clock and the running event loop."""

    def now(self) -> datetime:
        """Return the system time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the monotonic seconds of the system."""
        return time.monotonic()

    def boot(self) -> str | None:
        """Return what identifies the start of the machine, from which `monotonic` counts; None if it is not known."""
        return _read_boot() if type(self).monotonic is SystemClock.monotonic else None

    async def sleep(self, seconds: float) -> None:
        """Pause the calling task."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` from the running loop after `seconds`."""
        return asyncio.get_running_loop().call_later(seconds, callback)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """Return the timeout of the standard library."""
        return asyncio.timeout(seconds)


@cache
def _read_boot() -> str | None:
    """Return the id of the present boot of Linux, and of the namespace of its clocks."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/time').readlink()}"
    except (OSError, ValueError):
        return None


def months_after(moment: datetime, months: int) -> datetime:
    """Return the same time this many months later, or the last day of a month that is too short."""
    year, month = divmod(moment.month - 1 + months, 12)
    year += moment.year
    day = min(moment.day, calendar.monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)
