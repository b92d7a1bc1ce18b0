"""Time that stands still until it is driven, and services that count as real ones may."""

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Protocol

import attrs

from svc_async.clock import Timer
from svc_async.governor.governor import Governor
from svc_async.governor.slot import Priority
from svc_async.wire.route import Request, Surface

EPOCH = datetime(2026, 6, 10, 12, 0, 0, tzinfo=UTC)
USERS = "/12/accounts/{account_id}/custom_audiences/{custom_audience_id}/users"


@attrs.define(eq=False)
class _Timer:
    due: float
    callback: Callable[[], object]
    is_on: bool = True

    def cancel(self) -> None:
        self.is_on = False


class VirtualTime:
    """A clock whose time moves only in `run` and `advance`."""

    def __init__(self, start: float = 1_000.0) -> None:
        self._start = self._now = start
        self._timers: list[tuple[float, int, _Timer]] = []
        self._order = count()

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._now - self._start)

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        over = asyncio.Event()
        timer = self.call_later(seconds, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        timer = _Timer(self._now + seconds, callback)
        heapq.heappush(self._timers, (timer.due, next(self._order), timer))
        return timer

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        raise NotImplementedError

    @property
    def timers(self) -> int:
        return sum(timer.is_on for _, _, timer in self._timers)

    async def settle(self) -> None:
        """Let every task run as far as it gets without time."""
        for _ in range(4):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        await self._until(self._now + seconds, lambda: False)
        await self.settle()

    async def run(self, *work: Awaitable[Any], at_most: float = 1e9) -> list[Any]:
        """Drive time until all the work is done."""
        tasks = [asyncio.ensure_future(each) for each in work]
        await self._until(self._now + at_most, lambda: all(task.done() for task in tasks))
        late = [task for task in tasks if not task.done()]
        for task in late:
            task.cancel()
        assert not late, f"{len(late)} of {len(tasks)} hang"
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    async def _until(self, end: float, is_over: Callable[[], bool]) -> None:
        while True:
            await self.settle()
            while self._timers and not self._timers[0][2].is_on:
                heapq.heappop(self._timers)
            if is_over():
                return
            if not self._timers or self._timers[0][0] > end:
                self._now = max(self._now, end) if end < 1e8 else self._now
                return
            due, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, due)
            timer.callback()


class Counting(Protocol):
    """How a service counts: what is used of a window, and when it ends."""

    limit: int
    period: float

    def used(self, now: float) -> int: ...

    def add(self, now: float) -> None: ...

    def reset(self, now: float) -> float: ...


class Fixed:
    """Windows that begin at whole periods of the wall clock."""

    def __init__(self, limit: int, period: float, start: float = 0.0) -> None:
        self.limit, self.period = limit, period
        self._start = start
        self._count = 0

    def used(self, now: float) -> int:
        if now >= self._start + self.period:
            self._start += (now - self._start) // self.period * self.period
            self._count = 0
        return self._count

    def add(self, now: float) -> None:
        self.used(now)
        self._count += 1

    def reset(self, now: float) -> float:
        self.used(now)
        return self._start + self.period


class FromFirstRequest(Fixed):
    """Windows that begin with the first request after the last one."""

    def used(self, now: float) -> int:
        if now >= self._start + self.period:
            self._start, self._count = now, 0
        return self._count


class Sliding:
    """Every request counts for one period."""

    def __init__(self, limit: int, period: float) -> None:
        self.limit, self.period = limit, period
        self._times: deque[float] = deque()

    def used(self, now: float) -> int:
        while self._times and self._times[0] <= now - self.period:
            self._times.popleft()
        return len(self._times)

    def add(self, now: float) -> None:
        self._times.append(now)

    def reset(self, now: float) -> float:
        return (self._times[0] if self._times else now) + self.period


@attrs.define(eq=False)
class Service:
    """Answers requests after a latency, and writes down when each arrived."""

    time: VirtualTime
    counting: Counting
    latency: Callable[[], float] = lambda: 0.05
    arrived: list[float] = attrs.field(factory=list)
    refused: int = 0
    neighbours_refused: int = 0

    def take(self, *, ours: bool = True) -> tuple[int, dict[str, str]]:
        now = self.time.monotonic()
        is_open = self.counting.used(now) < self.counting.limit
        if is_open:
            self.counting.add(now)
        if ours:
            self.arrived.append(now)
            self.refused += not is_open
        else:
            self.neighbours_refused += not is_open
        wall = EPOCH.timestamp() - 1_000.0
        headers = {
            "x-rate-limit-limit": str(self.counting.limit),
            "x-rate-limit-remaining": str(self.counting.limit - self.counting.used(now)),
            "x-rate-limit-reset": str(int(wall + self.counting.reset(now))),
        }
        return (200 if is_open else 429), headers

    async def call(self, governor: Governor, request: Request[Any], **ways: Any) -> int:
        """Send one request: half of the latency passes before it arrives."""
        async with slot(governor, request, **ways) as granted:
            granted.mark_sent()
            latency = self.latency()
            await self.time.sleep(latency / 2)
            status, headers = self.take()
            await self.time.sleep(latency / 2)
            granted.learn(status, headers)
            return status

    def worst_window(self, period: float) -> int:
        """Count the most requests that arrived within any period."""
        worst = first = 0
        for last, moment in enumerate(self.arrived):
            while self.arrived[first] <= moment - period:
                first += 1
            worst = max(worst, last - first + 1)
        return worst


def slot(
    governor: Governor,
    request: Request[Any],
    *,
    user: str = "ann",
    bulk: bool = False,
    max_wait: float | None = None,
) -> Any:
    priority = Priority.BULK if bulk else Priority.INTERACTIVE
    return governor.slot(request, user=user, priority=priority, max_wait=max_wait)


def users(account: str = "a1") -> Request[Any]:
    return call("POST", USERS, account_id=account, custom_audience_id="c1")


def call(
    method: str,
    template: str,
    *,
    surface: Surface = Surface.ADS,
    query: Iterable[tuple[str, str]] = (),
    **scope: str,
) -> Request[Any]:
    return Request(
        method=method,
        surface=surface,
        template=template,
        path=template.format(**scope),
        query=tuple(query),
        scope=scope,
    )


def told(
    limit: int | str | None = None,
    remaining: int | str | None = None,
    reset: float | str | None = None,
    *,
    account: bool = False,
    retry_after: str | None = None,
    at: datetime = EPOCH,
) -> Mapping[str, str]:
    """Give rate headers; a number for `reset` is in seconds from `at`."""
    prefix = "x-account-rate-limit-" if account else "x-rate-limit-"
    if isinstance(reset, int | float):
        reset = str(int(at.timestamp() + reset))
    given = {
        f"{prefix}limit": limit,
        f"{prefix}remaining": remaining,
        f"{prefix}reset": reset,
        "retry-after": retry_after,
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def uneven(seed: int, mean: float) -> Callable[[], float]:
    """Give latencies around a mean, some of them long."""
    rng = random.Random(seed)
    return lambda: mean * rng.choice((0.5, 0.8, 1.0, 1.2, 3.0))
