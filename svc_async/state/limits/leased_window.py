"""The window of a bucket whose requests several processes count together; no I/O.

It admits what a lease covers. The store asks for leases, with what waits and what was answered; while it cannot, the
window keeps to this process's share of the limit.
"""

from collections.abc import Callable, Sequence

import attrs

from svc_async.governor.windows import (
    NEVER,
    SECOND,
    Concurrency,
    Demand,
    FirmLimit,
    RateLimitHeaders,
    Window,
    WindowState,
)
from svc_async.state.limits.holding import Holding, Lease, make_share, scale_headers

__all__ = ["LeasedWindow"]

_REST = 5 * SECOND


@attrs.define(eq=False)
class LeasedWindow:
    """The window of one governor; it does what `CountingWindow` says.

    Attributes:
        holding: what this process holds of the shared count.
        on_change: makes the scheduler look again.
        ask: makes the store ask for a lease, or report, unless it is asking.
        is_asking: the store is asking.
        concurrency: how many requests this process may have in flight; an overload lowers it.
        share: what counts while the shared count cannot be reached.
    """

    holding: Holding
    on_change: Callable[[], object]
    ask: Callable[["LeasedWindow", Demand | None], object]
    is_asking: bool = False
    concurrency: Concurrency = attrs.field(factory=Concurrency, init=False)
    share: Window | None = attrs.field(default=None, init=False)
    _overload_at: int = attrs.field(default=-NEVER, init=False)
    _active_at: int = attrs.field(default=-NEVER, init=False)

    def __attrs_post_init__(self) -> None:
        self.concurrency.on_success()  # probes are counted over all processes

    @property
    def limit(self) -> int | None:
        """Requests per period; None while it is unknown."""
        return self.holding.known.limit

    @property
    def documented(self) -> bool:
        """Whether the reference states the limit."""
        return self.holding.shared.documented

    @property
    def firm_limit(self) -> FirmLimit:
        """What is certain of the limit; while the next requests wait for the first answers, their turns are not."""
        if self.share is not None:
            return self.share.firm_limit
        known = self.holding.known
        limit = None if self.holding.is_guess or self.holding.is_ramping else known.limit
        return FirmLimit(limit=limit, period=known.period, closed_until=known.closed_until)

    @property
    def reserve(self) -> int:
        """What bulk leaves to interactive requests; of leases the shared count takes care."""
        return 0 if self.share is None else self.share.reserve

    @property
    def spacing(self) -> int:
        """The ticks from one request to the next, if all of the limit is used evenly."""
        known = self.holding.known
        return known.period // known.limit if known.limit else 0

    def admits(self, cost: int, now: int) -> bool:
        """Return whether a lease covers this cost now."""
        if self.share is not None:
            return self.share.admits(cost, now)
        is_open = self.holding.known.closed_until <= now and self._has_concurrency(now)
        return is_open and self.holding.count_leased(now) >= cost

    def opens_at(self, cost: int, now: int) -> int:
        """Return the tick from which time alone does not forbid this cost, as far as it is known."""
        if self.share is not None:
            return self.share.opens_at(cost, now)
        opens, leased = self.holding.known.closed_until, self.holding.count_leased(now)
        if leased >= cost:
            return opens
        opens = max(opens, self.holding.opens_at)
        return opens + self.holding.known.time_behind(cost - leased - 1) if opens > now else opens

    def firm_opens_at(self, cost: int, now: int) -> int:
        """Return what `opens_at` does, apart from what only a guessed limit forbids."""
        if self.share is not None:
            return self.share.firm_opens_at(cost, now)
        return self.holding.firm_opens_at if self.holding.is_guess else self.opens_at(cost, now)

    def admits_beyond_guess(self, cost: int, now: int) -> bool:
        """Return whether at most a guessed limit forbids that this cost goes now."""
        if self.share is not None:
            return self.share.admits_beyond_guess(cost, now)
        if not self.holding.is_guess:
            return self.admits(cost, now)
        return not self.holding.is_ramping and self._has_concurrency(now) and self.holding.firm_opens_at <= now

    def next_check_at(self, cost: int, now: int) -> int:
        """Return the next tick at which time alone may change what `admits` returns."""
        if self.share is not None:
            return self.share.next_check_at(cost, now)
        if not self.holding.count_leased(now):
            return NEVER
        changes = (self.holding.known.closed_until, self.concurrency.opens_at(self.holding.in_flight))
        return min((tick for tick in changes if tick > now), default=NEVER)

    def request_capacity(self, demand: Callable[[], Demand], now: int) -> None:
        """Ask for a lease, unless it is not the time yet."""
        holding = self.holding
        if self.share is not None or self.is_asking or (now < holding.ask_at and holding.has_asked_interactive):
            return
        waiting = demand()
        if now < holding.ask_at and not waiting.interactive:
            return
        leased = holding.count_leased(now)
        interactive = max(0, waiting.interactive - leased)
        bulk = max(0, waiting.bulk - max(0, leased - waiting.interactive))
        if interactive or bulk:
            self.ask(self, Demand(interactive, bulk))

    def take(self, cost: int, now: int) -> None:
        """Use a lease, or what only a guess forbids."""
        if self.share is not None:
            self.share.take(cost, now)
        self.holding.take(cost, now, is_leased=self.share is None)
        self.concurrency.on_grant(now)
        self._active_at = now

    def refund(self, cost: int, granted_at: int) -> None:
        """Take back a grant of which nothing was sent; the shared count has it with the next report."""
        self.holding.in_flight -= cost
        self.holding.has_surplus = True
        if self.share is not None:
            self.share.refund(cost, granted_at)

    def restore(self, sent_at: Sequence[int]) -> None:
        """Do nothing: the shared count has them."""

    def settle(self, cost: int, now: int, headers: RateLimitHeaders | None = None) -> None:
        """End a request that was sent."""
        self.holding.in_flight -= cost
        self._active_at = now
        self.holding.usage.add_answer(cost, now, headers and self.holding.bound(headers, now))
        if self.share is not None:
            self.share.settle(cost, now, scale_headers(headers, self.holding.known))

    def on_success(self, granted_at: int) -> None:
        """Note, after `settle`, that the service did its work."""
        if granted_at > self._overload_at:
            self.concurrency.on_success()
        if granted_at >= self.holding.generation_since:
            self.holding.usage.succeeded += 1
        if self.share is not None:
            self.share.on_success(granted_at)
        elif self.holding.is_ramping:
            self.ask(self, None)

    def retire_guess(self, now: int) -> None:
        """Note, after `settle`, a success without rate-limit headers."""
        self.holding.usage.retires_guess = True
        if self.share is not None:
            self.share.retire_guess(now)

    def on_overload(self, granted_at: int, now: int) -> None:
        """Note, after `settle`, an overload or a lost answer: what this process may have in flight is halved."""
        if granted_at > self._overload_at:
            self._overload_at = now
            self.concurrency.on_overload(self.holding.in_flight + 1)
        if self.share is not None:
            self.share.on_overload(granted_at, now)

    def on_rate_limited(self, headers: RateLimitHeaders, granted_at: int, now: int, jitter: float) -> None:
        """Close the bucket after a 429, and everywhere with the next report, which is sent at once."""
        stated = self.holding.bound(headers, now).reopens_at
        self.holding.note_refusal(granted_at, stated, now, int(jitter * SECOND))
        if self.share is not None:
            self.share.on_rate_limited(headers, granted_at, now, jitter)
        else:
            self.ask(self, None)

    def is_idle(self, now: int) -> bool:
        """Return whether the governor may forget this window: the shared count has all that matters."""
        holding = self.holding
        if holding.in_flight or self.is_asking or holding.count_leased(now) or holding.has_surplus:
            return False
        is_at_rest = now >= max(self._active_at + _REST, holding.known.closed_until)
        return is_at_rest and (self.share is None or self.share.is_idle(now))

    def state(self, now: int) -> WindowState:
        """Return what a snapshot shows."""
        if self.share is not None:
            return attrs.evolve(self.share.state(now), is_degraded=True)
        holding, known, lease = self.holding, self.holding.known, self.holding.lease
        allowed = int(self.concurrency.allowed)
        waits_for_answer = holding.is_guess or holding.is_ramping or not self._has_concurrency(now)
        return WindowState(
            limit=known.limit,
            used=known.used,
            remaining=None if lease is None else lease.remaining,
            opens_at=self.opens_at(1, now),
            closed_until=known.closed_until,
            concurrency=allowed if lease is None or lease.allowed is None else min(allowed, lease.allowed),
            shared_turn_at=0 if waits_for_answer else max(holding.ask_at, now + self.spacing),
        )

    def apply(self, lease: Lease, now: int) -> None:
        """Take over a lease that was just received."""
        self.share = None
        self.holding.apply(lease, now)

    def degrade(self, now: int) -> None:
        """Keep to this process's share, from what was known last."""
        self.holding.lose()
        if self.share is None:
            self.share = make_share(self.holding.known, self.holding.in_flight, now)

    def _has_concurrency(self, now: int) -> bool:
        return self.concurrency.opens_at(self.holding.in_flight) <= now
