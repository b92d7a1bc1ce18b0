"""A store whose windows share one count by leases that arrive later, as a database for several processes would."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import attrs

from svc_async.governor.rate_headers import RateLimitHeaders
from svc_async.governor.ticks import NEVER, SECOND
from svc_async.governor.window_store import WindowSpec
from svc_async.governor.windows import Demand, Window, WindowState
from tests.support.clock import DrivenClock

__all__ = ["LeasedWindow", "LeasedWindows"]

_ROUND_TRIP = 0.005


class LeasedWindows:
    """Counts for several governors together.

    Attributes:
        is_reachable: while it is not, each governor keeps to its share.
        opened: how many governors have opened it and not closed it.
    """

    def __init__(self, clock: DrivenClock, *, members: int) -> None:
        self.clock = clock
        self.members = members
        self.is_reachable = True
        self.opened = 0
        self.counts: dict[WindowSpec, Window] = {}
        self._windows: defaultdict[WindowSpec, list[LeasedWindow]] = defaultdict(list)

    async def open(self) -> None:
        self.opened += 1

    async def close(self) -> None:
        self.opened -= 1
        for windows in self._windows.values():
            for window in windows:
                window.return_leases()

    def window(self, spec: WindowSpec, on_change: Callable[[], object]) -> "LeasedWindow":
        count = self.counts.setdefault(spec, _new_window(spec, spec.limit))
        window = LeasedWindow(self, spec, count, on_change)
        self._windows[spec].append(window)
        return window

    def notify(self, spec: WindowSpec) -> None:
        for window in self._windows[spec]:
            asyncio.get_running_loop().call_soon(window.on_change)


@attrs.define(eq=False)
class LeasedWindow:
    """What one governor holds of a shared count."""

    store: LeasedWindows
    spec: WindowSpec
    count: Window
    on_change: Callable[[], object]
    leases: list[int] = attrs.field(factory=list, init=False)
    _share: Window = attrs.field(init=False)
    _is_asking: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        limit = self.spec.limit
        self._share = _new_window(self.spec, None if limit is None else max(1, limit // self.store.members))

    @property
    def limit(self) -> int | None:
        return self._window.limit

    @property
    def documented(self) -> bool:
        return self.spec.documented

    @property
    def reserve(self) -> int:
        return 0

    @property
    def spacing(self) -> int:
        return self._window.spacing

    def admits(self, cost: int, now: int) -> bool:
        if not self.store.is_reachable:
            return self._share.admits(cost, now)
        return bool(self.leases) and self.count.gate.closed_until <= now

    def opens_at(self, cost: int, now: int) -> int:
        return self.count.gate.closed_until if self.leases else self._window.opens_at(cost, now)

    def firm_opens_at(self, cost: int, now: int) -> int:
        return self.opens_at(cost, now)

    def admits_beyond_guess(self, cost: int, now: int) -> bool:
        return self.admits(cost, now)

    def next_check_at(self, cost: int, now: int) -> int:
        if not self.store.is_reachable:
            return self._share.next_check_at(cost, now)
        return self.count.gate.closed_until if self.count.gate.closed_until > now else NEVER

    def request_capacity(self, demand: Callable[[], Demand], now: int) -> None:
        del now
        if self.store.is_reachable and not self._is_asking:
            waiting = demand()
            self._ask(waiting.interactive + waiting.bulk, _ROUND_TRIP)

    def take(self, cost: int, now: int) -> None:
        if self.store.is_reachable:
            self.leases.pop()
        else:
            self._share.take(cost, now)

    def refund(self, cost: int, granted_at: int) -> None:
        self._window.refund(cost, granted_at)
        self.store.notify(self.spec)

    def restore(self, sent_at: Sequence[int]) -> None:
        """Do nothing: the shared count has them."""

    def settle(self, cost: int, now: int, headers: RateLimitHeaders | None = None) -> None:
        self._window.settle(cost, now, headers)

    def on_success(self, granted_at: int) -> None:
        self._window.on_success(granted_at)
        self.store.notify(self.spec)

    def retire_guess(self, now: int) -> None:
        """Do nothing: the shared count is kept."""

    def on_overload(self, granted_at: int, now: int) -> None:
        self._window.on_overload(granted_at, now)
        self.store.notify(self.spec)

    def on_rate_limited(self, headers: RateLimitHeaders, granted_at: int, now: int, jitter: float) -> None:
        self._window.on_rate_limited(headers, granted_at, now, jitter)
        self.store.notify(self.spec)

    def is_idle(self, now: int) -> bool:
        return not self.leases and self._window.is_idle(now)

    def state(self, now: int) -> WindowState:
        return attrs.evolve(self._window.state(now), is_degraded=not self.store.is_reachable)

    def return_leases(self) -> None:
        while self.leases:
            self.count.refund(1, self.leases.pop())
        self.store.notify(self.spec)

    @property
    def _window(self) -> Window:
        return self.count if self.store.is_reachable else self._share

    def _ask(self, wanted: int, seconds: float) -> None:
        self._is_asking = True
        self.store.clock.call_later(seconds, partial(self._lease, wanted))

    def _lease(self, wanted: int) -> None:
        self._is_asking = False
        now = int(self.store.clock.monotonic() * SECOND)
        while len(self.leases) < wanted and self.count.admits(1, now):
            self.count.take(1, now)
            self.leases.append(now)
        check = self.count.next_check_at(1, now)
        if not self.leases and check < NEVER:
            self._ask(wanted, (check - now) / SECOND)
        self.on_change()


def _new_window(spec: WindowSpec, limit: int | None) -> Window:
    return Window(limit, spec.period, spec.headroom, spec.documented)
