"""The only access to time: everything that waits or reads the time takes a Clock as an argument."""

import asyncio
import calendar
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import attrs

from svc_async.errors import WrongState

__all__ = [
    "Clock",
    "SystemClock",
    "Timer",
    "find_boot",
    "months_after",
    "read_boottime",
    "require_event_loop",
]


_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)  # Linux has it


class Timer(Protocol):
    """A scheduled callback that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the callback; no effect once it has run."""


class Clock(Protocol):
    """The time of the SDK.

    Any object with these methods will do; tests inject one that advances only on request. One that has them may also
    say from which start of the machine `monotonic` counts (`boot`), and count the seconds in which the machine is
    suspended (`boottime`), as `SystemClock` does.
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

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Return a context manager that raises `TimeoutError` after `seconds`; None means never."""
        ...


def find_boot(clock: Clock) -> str | None:
    """Return what identifies the start from which the monotonic seconds of a clock count; None if it is not known."""
    boot: Callable[[], str | None] | None = getattr(clock, "boot", None)
    return None if boot is None else boot()


def read_boottime(clock: Clock) -> float:
    """Return the seconds of a clock that count suspension; those of `monotonic` if it has no others."""
    boottime: Callable[[], float] = getattr(clock, "boottime", clock.monotonic)
    return boottime()


class SystemClock:
    """The system clock and the running event loop."""

    def now(self) -> datetime:
        """Return the system time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the monotonic seconds of the system."""
        return time.monotonic()

    def boottime(self) -> float:
        """Return the seconds since the machine was started, suspension included, where the system counts that."""
        if _BOOTTIME is None or type(self).monotonic is not SystemClock.monotonic:
            return self.monotonic()
        return time.clock_gettime(_BOOTTIME)

    def boot(self) -> str | None:
        """Return what identifies the start of the machine, from which `monotonic` counts; None if it is not known."""
        return _read_boot() if type(self).monotonic is SystemClock.monotonic else None

    async def sleep(self, seconds: float) -> None:
        """Pause the calling task."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` from the running loop after `seconds`."""
        return asyncio.get_running_loop().call_later(seconds, callback)

    def timeout(self, seconds: float | None) -> "SharedTimeout":
        """Return a context manager that raises `TimeoutError` after `seconds`; None means never."""
        return SharedTimeout(seconds)


@attrs.define(eq=False)
class SharedTimeout:
    """Does what `asyncio.timeout` does, with one timer for all blocks of one length.

    Nearly all blocks end long before their time is over: a timer each would be set and cancelled for nothing.
    """

    _seconds: float | None
    _timer: "_SharedTimer | None" = attrs.field(default=None, init=False)
    _task: "asyncio.Task[object] | None" = attrs.field(default=None, init=False)
    _cancelling: int = attrs.field(default=0, init=False)
    _is_over: bool = attrs.field(default=False, init=False)

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        if self._task is None:
            raise RuntimeError("a timeout must be used inside a task")
        self._cancelling = self._task.cancelling()
        if self._seconds is not None:
            self._timer = _find_timer(self._seconds)
            self._timer.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.deadlines.pop(self, None)
        if self._is_over and self._task is not None:
            is_ours = self._task.uncancel() <= self._cancelling
            if is_ours and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def when(self) -> float | None:
        """Return the time of the event loop at which the block is cancelled; None if it is not."""
        return None if self._timer is None else self._timer.deadlines.get(self)

    def end(self) -> None:
        """Cancel the block: its time is over."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()


@attrs.define(eq=False)
class _SharedTimer:
    """The one timer of all blocks of one length in one event loop; it stays set while they come and go.

    Attributes:
        deadlines: the open blocks; since all have one length, the first to begin is the first to end.
    """

    _loop: asyncio.AbstractEventLoop
    _seconds: float
    deadlines: dict[SharedTimeout, float] = attrs.field(factory=dict[SharedTimeout, float], init=False)
    _is_set: bool = attrs.field(default=False, init=False)

    def add(self, block: SharedTimeout) -> None:
        """Begin to count the time of a block."""
        self.deadlines[block] = deadline = self._loop.time() + self._seconds
        if not self._is_set:
            self._set(deadline)

    def _set(self, deadline: float) -> None:
        self._is_set = True
        self._loop.call_at(deadline, self._end_blocks)

    def _end_blocks(self) -> None:
        self._is_set = False
        now = self._loop.time()
        while self.deadlines:
            block, deadline = next(iter(self.deadlines.items()))
            if now < deadline:
                self._set(deadline)
                return
            del self.deadlines[block]
            block.end()
        _timers.pop((self._loop, self._seconds), None)


_timers: dict[tuple[asyncio.AbstractEventLoop, float], _SharedTimer] = {}


def _find_timer(seconds: float) -> _SharedTimer:
    loop = asyncio.get_running_loop()
    timer = _timers.get((loop, seconds))
    if timer is None:
        for key in [each for each in _timers if each[0].is_closed()]:
            _timers.pop(key, None)
        timer = _timers[loop, seconds] = _SharedTimer(loop, seconds)
    return timer


@cache
def _read_boot() -> str | None:
    """Return the id of the present boot of Linux, and of the namespace of its clocks."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/time').readlink()}"
    except (OSError, ValueError):
        return None


def require_event_loop(what: str) -> None:
    """Check that an event loop of asyncio runs, in which a clock can sleep, before something is opened.

    Raises:
        WrongState: none runs; it names what was to be opened.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise WrongState(f"{what} needs an event loop of asyncio; with anyio, use its backend asyncio") from None


def months_after(moment: datetime, months: int) -> datetime:
    """Return the same time this many months later, or the last day of a month that is too short."""
    year, month = divmod(moment.month - 1 + months, 12)
    year += moment.year
    day = min(moment.day, calendar.monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)
