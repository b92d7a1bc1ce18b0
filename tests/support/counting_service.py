"""Services that count requests in the ways that real ones may."""

import random
from collections import deque
from collections.abc import Callable, Mapping
from datetime import timedelta
from email.utils import format_datetime
from typing import Any, Protocol

import attrs

from svc_async.governor.governor import Governor
from svc_async.wire.route import Request
from tests.support.clock import EPOCH, DrivenClock
from tests.support.rate_limits import request_slot

__all__ = [
    "CountingService",
    "FixedWindows",
    "SilentService",
    "SlidingWindow",
    "WindowCount",
    "WindowsFromFirstRequest",
    "uneven_latency",
]


class WindowCount(Protocol):
    """How a service counts: what is used of a window, and when it ends."""

    limit: int
    period: float

    def used(self, now: float) -> int: ...

    def add(self, now: float) -> None: ...

    def reset(self, now: float) -> float: ...


class FixedWindows:
    """Windows of equal length, one of which began before the clock was started."""

    def __init__(self, limit: int, period: float, start: float = -40.0) -> None:
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


class WindowsFromFirstRequest(FixedWindows):
    """Windows that begin with the first request after the last one."""

    def __init__(self, limit: int, period: float) -> None:
        super().__init__(limit, period, start=-period)

    def used(self, now: float) -> int:
        if now >= self._start + self.period:
            self._start, self._count = now, 0
        return self._count


class SlidingWindow:
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
class CountingService:
    """Answers requests after a latency, and records when each arrived.

    Attributes:
        clock: the time.
        window: how requests are counted.
        latency: returns the seconds between a request and its answer.
        ahead: seconds by which the clock of the service is ahead of ours; its answers have a `Date` then.
        arrived: when each of our requests arrived.
        refused: how many of them were over the limit.
    """

    clock: DrivenClock
    window: WindowCount
    latency: Callable[[], float] = lambda: 0.05
    ahead: float = 0.0
    arrived: list[float] = attrs.field(factory=list)
    refused: int = 0

    def count(self, *, is_ours: bool = True) -> tuple[int, Mapping[str, str]]:
        """Take a request that arrives now; return the status and the headers of its answer."""
        now = self.clock.monotonic()
        is_open = self.window.used(now) < self.window.limit
        if is_open:
            self.window.add(now)
        if is_ours:
            self.arrived.append(now)
            self.refused += not is_open
        headers = {
            "x-rate-limit-limit": str(self.window.limit),
            "x-rate-limit-remaining": str(self.window.limit - self.window.used(now)),
            "x-rate-limit-reset": str(int(EPOCH.timestamp() + self.ahead + self.window.reset(now))),
        }
        if self.ahead:
            headers["date"] = format_datetime(EPOCH + timedelta(seconds=int(now + self.ahead)), usegmt=True)
        return (200 if is_open else 429), headers

    async def answer(self, governor: Governor, request: Request[Any], *, bulk: bool = False) -> int:
        """Send one request through a governor: half of the latency passes before it arrives."""
        async with request_slot(governor, request, bulk=bulk) as slot:
            slot.mark_sent()
            latency = self.latency()
            await self.clock.sleep(latency / 2)
            status, headers = self.count()
            await self.clock.sleep(latency / 2)
            slot.learn(status, headers)
            return status

    def worst_window(self, period: float) -> int:
        """Return the most requests that arrived within any period."""
        worst = first = 0
        for last, moment in enumerate(self.arrived):
            while self.arrived[first] <= moment - period:
                first += 1
            worst = max(worst, last - first + 1)
        return worst


@attrs.define(eq=False)
class SilentService(CountingService):
    """A service that sends no rate-limit headers."""

    def count(self, *, is_ours: bool = True) -> tuple[int, Mapping[str, str]]:
        status, _ = super().count(is_ours=is_ours)
        return status, {}


def uneven_latency(seed: int, mean: float) -> Callable[[], float]:
    """Return latencies around a mean, some of them long."""
    rng = random.Random(seed)
    return lambda: mean * rng.choice((0.5, 0.8, 1.0, 1.2, 3.0))
