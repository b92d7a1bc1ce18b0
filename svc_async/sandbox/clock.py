"""The sandbox's time: the machine's, or one that a test advances.

A `VirtualClock` does not move until it is advanced. `advance()` runs due timers in the order (time, order of creation),
and lets the event loop become idle after each, so that the effects of one timer are scheduled before the next one
fires. With `mode="jump"` the clock moves by itself: as soon as a task sleeps (or a timer is set) and the loop is idle,
time jumps to the earliest of them, one at a time. A `timeout()` does not move time, it only fires when time passes it,
unless the sandbox stays silent on purpose (`expect_timeout()`). While the sandbox processes a request (`hold()`)
nothing jumps, so that an answer on its way over a real socket is not overtaken by another task's sleep.

The sandbox's own work runs in tasks that the clock tracks (`start()`). Time does not move, and `advance()` waits, until
each of them is done or idle: until it sleeps on this clock. A task that does neither within a real second, such as one
whose target never answers, is assumed to wait for the clock too.
"""

import asyncio
import heapq
import itertools
import time
import weakref
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

import attrs

from svc_async.sandbox.kinds import WrongArgument, check_kind

__all__ = ["Clock", "SystemClock", "Timer", "VirtualClock", "VirtualTimer", "require_event_loop"]

_IDLE_TURNS = 30
"""Turns of the event loop after which it counts as idle: a loopback exchange takes fewer."""

_CANCELLED_TO_KEEP = 256
_MAX_WAIT = 1.0
"""Real seconds that time waits for a task that neither ends nor sleeps on the clock, but waits for a socket."""

T = TypeVar("T")
_Kind = Literal["sleep", "timeout", "background"]
_Mode = Literal["manual", "jump"]


def require_event_loop() -> None:
    """Check that a sandbox can be started here.

    Raises:
        RuntimeError: no event loop of asyncio runs.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        message = "a sandbox needs an event loop of asyncio; with anyio, use its backend asyncio"
        raise RuntimeError(message) from None


class SystemClock:
    """The time of the machine and of the running event loop."""

    def now(self) -> datetime:
        """Return the machine's time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the machine's monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task."""
        await asyncio.sleep(seconds)

    def call_later(
        self, seconds: float, callback: Callable[[], object], *, moves_time: bool = True
    ) -> asyncio.TimerHandle:
        """Call `callback` from the running loop after `seconds`."""
        del moves_time
        return asyncio.get_running_loop().call_later(seconds, callback)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task; the caller keeps a reference to it."""
        return asyncio.get_running_loop().create_task(work)

    async def settle(self) -> None:
        """Yield to the event loop once: the machine's time does not wait."""
        await asyncio.sleep(0)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """Return the standard library's timeout."""
        return asyncio.timeout(seconds)

    def hold(self) -> AbstractContextManager[None]:
        """Do nothing: the machine's time cannot be kept from passing."""
        return nullcontext()

    release = expect_timeout = hold  # a `VirtualClock` jumps, unless it is held


@attrs.define(eq=False)
class VirtualTimer:
    """A callback that is scheduled on a `VirtualClock`."""

    when: float
    order: int
    callback: Callable[[], object] | None
    kind: _Kind
    clock: "VirtualClock" = attrs.field(repr=False)

    def __lt__(self, other: "VirtualTimer") -> bool:
        return (self.when, self.order) < (other.when, other.order)

    def cancel(self) -> None:
        """Cancel the callback; no effect once it has run."""
        if self.callback is not None:
            self.callback = None
            self.clock.discard(self)


@attrs.define(eq=False)
class _TrackedTask:
    """A task that time waits for while it is busy."""

    clock: "VirtualClock" = attrs.field(repr=False)
    sleepers: int = 0
    done: bool = False
    max_wait: asyncio.TimerHandle | None = None

    def mark_busy(self) -> None:
        self.max_wait = asyncio.get_running_loop().call_later(_MAX_WAIT, self.mark_idle)
        self.clock.busy.add(self)

    def mark_idle(self) -> None:
        if self.max_wait is not None:
            self.max_wait.cancel()
        self.clock.busy.discard(self)
        self.clock.on_idle_task()

    def mark_done(self, _task: asyncio.Task[Any]) -> None:
        self.done = True
        self.mark_idle()

    @contextmanager
    def sleep(self) -> Generator[None]:
        self.sleepers += 1
        self.mark_idle()
        try:
            yield
        finally:
            self.sleepers -= 1
            if not self.sleepers and not self.done:
                self.mark_busy()


_current: ContextVar[_TrackedTask | None] = ContextVar("_current", default=None)


class VirtualClock:
    """A clock that a test advances.

    Args:
        start: the initial time; a string is parsed as ISO 8601.
        mode: `manual` moves with `advance()` only; `jump` moves to the earliest sleeper whenever the loop is idle.

    Raises:
        WrongArgument: the start is not a time with a time zone, or there is no such mode.
    """

    def __init__(self, start: datetime | str = "2026-06-10T12:00:00Z", *, mode: _Mode = "manual") -> None:
        check_kind("mode", _Mode, mode)
        moment: Any = start
        if isinstance(start, str):
            with suppress(ValueError):
                moment = datetime.fromisoformat(start)
        if not isinstance(moment, datetime) or moment.tzinfo is None:
            raise WrongArgument("start", "must be a time with a time zone, such as 2026-06-10T12:00:00Z")
        self.mode = mode
        self._start = moment.astimezone(UTC)
        self._elapsed = 0.0
        self._timers: list[VirtualTimer] = []
        self._order = itertools.count()
        self._cancelled = 0
        self._timer_counts: Counter[_Kind] = Counter()
        self._silences = 0
        self._holds = 0
        self._advancing = False
        self.busy: set[_TrackedTask] = set()
        self._task_idle = asyncio.Event()
        self._turns: int | None = None
        """Turns since the last change on the clock; None while no turns are counted."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Return the seconds since the start."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task until the clock has moved by `seconds`."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        awake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._schedule(self._elapsed + seconds, lambda: _wake(awake), "sleep")
        task = _current.get()
        try:
            with nullcontext() if task is None else task.sleep():
                await awake
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], object], *, moves_time: bool = True) -> VirtualTimer:
        """Call `callback` once the clock has moved by `seconds`."""
        return self._schedule(self._elapsed + max(seconds, 0.0), callback, "sleep" if moves_time else "background")

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """Return a context manager that raises `TimeoutError` when this clock passes `seconds`."""
        block = asyncio.timeout(None)
        if seconds is not None:
            known = weakref.ref(block, lambda _: timer.cancel())
            timer = self._schedule(self._elapsed + max(seconds, 0.0), lambda: _expire(known()), "timeout")
        return block

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task that time waits for."""
        tracked, context = _TrackedTask(self), copy_context()
        context.run(_current.set, tracked)
        task = asyncio.get_running_loop().create_task(work, context=context)
        tracked.mark_busy()
        task.add_done_callback(tracked.mark_done)
        return task

    async def settle(self) -> None:
        """Wait until every started task is done or idle; a task does not wait for itself."""
        await _run_until_idle()
        while self.busy - {_current.get()}:
            self._task_idle.clear()
            await self._task_idle.wait()
            await _run_until_idle()

    def on_idle_task(self) -> None:
        """Handle that a task is done or waits for the clock."""
        self._task_idle.set()
        self._restart_count()

    async def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Move time and run all due timers, each at its own time, in order.

        Raises:
            WrongArgument: the span is negative.
        """
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds()
        if span < 0:
            raise WrongArgument("seconds", "must not be negative, together with days, hours and minutes")
        self._advancing = True
        try:
            await self.settle()
            end = self._elapsed + span
            while (timer := self._peek()) is not None and timer.when <= end:
                self._run(timer)
                await self.settle()
            self._elapsed = max(self._elapsed, end)
        finally:
            self._advancing = False
            self._restart_count()

    @contextmanager
    def hold(self) -> Generator[None]:
        """Keep time from jumping while work that does not wait for this clock is in progress."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._restart_count()

    @contextmanager
    def release(self) -> Generator[None]:
        """Let time jump within `hold()` while the work waits for the clock itself."""
        self._holds -= 1
        self._restart_count()
        try:
            yield
        finally:
            self._holds += 1

    @contextmanager
    def expect_timeout(self) -> Generator[None]:
        """Let time jump to timeouts too, while somebody waits for what never comes."""
        self._silences += 1
        self._restart_count()
        try:
            yield
        finally:
            self._silences -= 1

    def discard(self, timer: VirtualTimer) -> None:
        """Count a cancelled timer, and remove cancelled timers once they are many."""
        self._timer_counts[timer.kind] -= 1
        self._cancelled += 1
        if self._cancelled > _CANCELLED_TO_KEEP and self._cancelled * 2 > len(self._timers):
            self._timers = [timer for timer in self._timers if timer.callback is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def _schedule(self, when: float, callback: Callable[[], object], kind: _Kind) -> VirtualTimer:
        timer = VirtualTimer(when, next(self._order), callback, kind, self)
        heapq.heappush(self._timers, timer)
        self._timer_counts[kind] += 1
        if kind == "sleep" or self._silences:
            self._restart_count()
        return timer

    def _peek(self) -> VirtualTimer | None:
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
            self._cancelled = max(self._cancelled - 1, 0)
        return self._timers[0] if self._timers else None

    def _run(self, timer: VirtualTimer) -> None:
        heapq.heappop(self._timers)
        self._elapsed = max(self._elapsed, timer.when)
        callback, timer.callback = timer.callback, None
        if callback is not None:
            self._timer_counts[timer.kind] -= 1
            callback()

    def _restart_count(self) -> None:
        if self.mode != "jump":
            return
        if self._turns is None:
            asyncio.get_running_loop().call_soon(self._count_turn)
        self._turns = 0

    def _count_turn(self) -> None:
        may_move = self._timer_counts["sleep"] or (self._silences and self._timer_counts["timeout"])
        if self._holds or self._advancing or self.busy or not may_move:
            self._turns = None
            return
        self._turns = (self._turns or 0) + 1
        asyncio.get_running_loop().call_soon(self._count_turn)
        if self._turns >= _IDLE_TURNS:
            self._turns = 0
            timer = self._peek()
            if timer is not None:
                self._run(timer)


Clock = SystemClock | VirtualClock
"""The time of a sandbox."""

Timer = asyncio.TimerHandle | VirtualTimer
"""A callback that a clock calls later; it can be cancelled."""


def _expire(block: asyncio.Timeout | None) -> None:
    if block is None or block.expired():
        return
    try:
        block.reschedule(asyncio.get_running_loop().time())
    except RuntimeError:
        return  # the block was left before its time came


def _wake(awake: asyncio.Future[None]) -> None:
    if not awake.done():
        awake.set_result(None)


async def _run_until_idle() -> None:
    for _ in range(_IDLE_TURNS):
        await asyncio.sleep(0)
