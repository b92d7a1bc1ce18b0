"""The sandbox's time: the machine's, or one that a test moves.

A `VirtualClock` stands still until it is told to move. `advance()` runs what falls due in the order (time, order of
asking), and lets the event loop come to rest after each, so that what one timer starts is in line before the
next one fires. With `mode="jump"` the clock moves by itself: as soon as somebody sleeps (or asked for a call later) and
the loop has come to rest, time steps to the earliest of them, one at a time. A `timeout()` never moves time, it only
fires when time passes it; and while the sandbox works on a request (`holding()`) nothing jumps, so that an answer
which is on its way over a real socket is not overtaken by somebody else's sleep.

Work of the sandbox's own runs as a job (`start()`). Time stands still, and `advance()` waits, until each job is done or
rests: until something that it runs sleeps on this clock. A job that does neither for a moment of real time, such as
one whose target never answers, is taken to wait for the clock too.
"""

import asyncio
import heapq
import itertools
import time
import weakref
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol, TypeVar

import attrs

__all__ = ["Clock", "SystemClock", "Timer", "VirtualClock"]

_TURNS_TO_REST = 30
"""Turns of the event loop after which whoever could go on has gone on: a loopback exchange takes fewer."""

_CANCELLED_TO_KEEP = 256
_PATIENCE = 1.0
"""Real seconds that time waits for a job that neither ends nor sleeps on the clock: a socket, a thread, or nothing."""

T = TypeVar("T")


class Timer(Protocol):
    """A call that was asked for and can be called off."""

    def cancel(self) -> None:
        """Call it off; harmless once it has run."""


class Clock(Protocol):
    """Time as the sandbox sees it."""

    def now(self) -> datetime:
        """Give the time of day in UTC."""
        ...

    def monotonic(self) -> float:
        """Give seconds that never run backwards."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Pause the calling task."""

    def call_later(self, seconds: float, callback: Callable[[], object], *, moves_time: bool = True) -> Timer:
        """Call `callback` once, after `seconds`; a clock that jumps passes by what does not move time."""
        ...

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a job, which time waits for."""
        ...

    async def settle(self) -> None:
        """Wait until the tasks have done what they can do now."""

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """Give a block that fails with `TimeoutError` after `seconds`."""
        ...


class SystemClock:
    """The time of the machine and of the running event loop."""

    def now(self) -> datetime:
        """Give the machine's time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Give the machine's monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Pause the calling task."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object], *, moves_time: bool = True) -> Timer:
        """Call `callback` from the running loop after `seconds`."""
        del moves_time
        return asyncio.get_running_loop().call_later(seconds, callback)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a job; whoever begins it keeps the task."""
        return asyncio.get_running_loop().create_task(work)

    async def settle(self) -> None:
        """Let what is ready go on: the machine's time waits for nobody."""
        await asyncio.sleep(0)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """Give the standard library's block."""
        return asyncio.timeout(seconds)


@attrs.define(eq=False)
class _Timer:
    when: float
    order: int
    callback: Callable[[], object] | None
    moves_time: bool
    clock: "VirtualClock" = attrs.field(repr=False)

    def __lt__(self, other: "_Timer") -> bool:
        return (self.when, self.order) < (other.when, other.order)

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self.clock.forget(self)


@attrs.define(eq=False)
class _Job:
    """Work that time waits for while it is busy."""

    clock: "VirtualClock" = attrs.field(repr=False)
    sleepers: int = 0
    done: bool = False
    patience: asyncio.TimerHandle | None = None

    def work(self) -> None:
        self.patience = asyncio.get_running_loop().call_later(_PATIENCE, self.rest)
        self.clock.busy.add(self)

    def rest(self) -> None:
        if self.patience is not None:
            self.patience.cancel()
        self.clock.busy.discard(self)
        self.clock.job_rests()

    def end(self, _task: asyncio.Task[Any]) -> None:
        self.done = True
        self.rest()

    @contextmanager
    def sleeping(self) -> Generator[None]:
        self.sleepers += 1
        self.rest()
        try:
            yield
        finally:
            self.sleepers -= 1
            if not self.sleepers and not self.done:
                self.work()


_job: ContextVar[_Job | None] = ContextVar("_job", default=None)


def _sleeping() -> AbstractContextManager[None]:
    job = _job.get()
    return nullcontext() if job is None else job.sleeping()


class VirtualClock:
    """A clock that a test moves.

    Args:
        start: the time of day at the beginning; a text is read as ISO 8601.
        mode: `manual` stands still until `advance()`; `jump` steps to the earliest sleeper when all else rests.
    """

    def __init__(
        self, start: datetime | str = "2026-06-10T12:00:00Z", *, mode: Literal["manual", "jump"] = "manual"
    ) -> None:
        moment = datetime.fromisoformat(start) if isinstance(start, str) else start
        if moment.tzinfo is None:
            raise ValueError("start must carry a time zone")
        self.mode = mode
        self._start = moment.astimezone(UTC)
        self._elapsed = 0.0
        self._timers: list[_Timer] = []
        self._order = itertools.count()
        self._cancelled = 0
        self._sleepers = 0
        self._held = 0
        self._advancing = False
        self.busy: set[_Job] = set()
        self._rested = asyncio.Event()
        self._turns: int | None = None
        """Turns since the last stir on the clock; None while nobody is waiting for the loop to rest."""

    def now(self) -> datetime:
        """Give the time of day in UTC."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Give the seconds since the start."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Park the calling task until the clock has moved by `seconds`."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._at(self._elapsed + seconds, lambda: _wake(woken), moves_time=True)
        try:
            with _sleeping():
                await woken
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], object], *, moves_time: bool = True) -> Timer:
        """Call `callback` once the clock has moved by `seconds`."""
        return self._at(self._elapsed + max(seconds, 0.0), callback, moves_time=moves_time)

    def call_at(self, when: datetime, callback: Callable[[], object]) -> Timer:
        """Call `callback` at a time of day."""
        return self.call_later((when - self.now()).total_seconds(), callback)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """Give a block that fails with `TimeoutError` when this clock passes `seconds`; never by itself."""
        block = asyncio.timeout(None)
        if seconds is not None:
            self._expire_at(self._elapsed + max(seconds, 0.0), block)
        return block

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a job, which time waits for."""
        job, context = _Job(self), copy_context()
        context.run(_job.set, job)
        task = asyncio.get_running_loop().create_task(work, context=context)
        job.work()
        task.add_done_callback(job.end)
        return task

    async def settle(self) -> None:
        """Wait until every job is done or rests; a job does not wait for itself."""
        await _rest()
        while self.busy - {_job.get()}:
            self._rested.clear()
            await self._rested.wait()
            await _rest()

    def job_rests(self) -> None:
        """Take note that a job is done or waits for the clock."""
        self._rested.set()
        self._stir()

    async def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Move time and run all that falls due, each at its own time, in order.

        Raises:
            ValueError: time does not run backwards.
        """
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds()
        if span < 0:
            raise ValueError("time does not run backwards")
        self._advancing = True
        try:
            await self.settle()
            end = self._elapsed + span
            while (timer := self._next()) is not None and timer.when <= end:
                self._run(timer)
                await self.settle()
            self._elapsed = max(self._elapsed, end)
        finally:
            self._advancing = False
            self._stir()

    @contextmanager
    def holding(self) -> Generator[None]:
        """Keep time from jumping while something that is not on this clock is under way."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            self._stir()

    @contextmanager
    def released(self) -> Generator[None]:
        """Let time jump for a while inside `holding()`: what is under way waits for the clock itself."""
        self._held -= 1
        self._stir()
        try:
            yield
        finally:
            self._held += 1

    def forget(self, timer: _Timer) -> None:
        """Take note that a timer was called off, and drop those once they are many."""
        self._sleepers -= timer.moves_time
        self._cancelled += 1
        if self._cancelled > _CANCELLED_TO_KEEP and self._cancelled * 2 > len(self._timers):
            self._timers = [timer for timer in self._timers if timer.callback is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def _at(self, when: float, callback: Callable[[], object], *, moves_time: bool) -> _Timer:
        timer = _Timer(when, next(self._order), callback, moves_time, self)
        heapq.heappush(self._timers, timer)
        if moves_time:
            self._sleepers += 1
            self._stir()
        return timer

    def _expire_at(self, when: float, block: asyncio.Timeout) -> None:
        known = weakref.ref(block, lambda _: timer.cancel())
        timer = self._at(when, lambda: _expire(known()), moves_time=False)

    def _next(self) -> _Timer | None:
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
            self._cancelled = max(self._cancelled - 1, 0)
        return self._timers[0] if self._timers else None

    def _run(self, timer: _Timer) -> None:
        heapq.heappop(self._timers)
        self._elapsed = max(self._elapsed, timer.when)
        callback, timer.callback = timer.callback, None
        if callback is not None:
            self._sleepers -= timer.moves_time
            callback()

    def _stir(self) -> None:
        if self.mode != "jump":
            return
        if self._turns is None:
            asyncio.get_running_loop().call_soon(self._turn)
        self._turns = 0

    def _turn(self) -> None:
        if self._held or self._advancing or self.busy or not self._sleepers:
            self._turns = None
            return
        self._turns = (self._turns or 0) + 1
        asyncio.get_running_loop().call_soon(self._turn)
        if self._turns >= _TURNS_TO_REST:
            self._turns = 0
            timer = self._next()
            if timer is not None:
                self._run(timer)


def _expire(block: asyncio.Timeout | None) -> None:
    if block is None or block.expired():
        return
    try:
        block.reschedule(asyncio.get_running_loop().time())
    except RuntimeError:
        return  # the block was left before its time came


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


async def _rest() -> None:
    for _ in range(_TURNS_TO_REST):
        await asyncio.sleep(0)
