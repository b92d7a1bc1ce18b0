"""The window of one bucket, without I/O: when may the next request go.

A `Window` counts each request twice. By its grant, against limit x headroom: this is the rate it aims at. By its
answer, with what is in flight on top, against the limit itself: the service counts a request somewhere between its
grant and its answer, so this count is exact in any window of the service, however late requests arrive.

The rest is up to its parts (`parts.py`): `opens_at` is the latest of theirs.

A limit is documented, stated by headers, or a guess of the table. A guess sets the pace until the service has answered:
headers correct it, and a success without headers retires it. A 429 without headers brings it back for one period. A
guess never refuses a request: one whose `max_wait` is over goes, and the service decides.
"""

from collections.abc import Callable, Sequence

import attrs

from svc_async.governor.parts import Concurrency, Gate, Pace, RateCut, ServerCount, SlidingLog
from svc_async.governor.rate_headers import RateLimitHeaders
from svc_async.governor.ticks import NEVER, SECOND

__all__ = ["Demand", "FirmLimit", "Window", "WindowState", "is_even"]

_LONG_LOG = 2_000
_MINUTE = 60 * SECOND
_HOUR = 3_600 * SECOND
_EVEN_FROM = 100
"""Limits of at least this many a minute are paced evenly and keep headroom; smaller ones may burst."""
_BURST = 100
"""An evenly paced limit may run ahead by one hundredth of itself."""
_RESERVE = 20
"""Of a limit that may burst, bulk leaves one twentieth to interactive requests."""
_RESTORED_LATENCY = 5 * SECOND
"""Of a request of an earlier process it is known when it was sent, not when the service counted it."""
_EPSILON = 1e-9
"""100 x 0.97 must not become 96 by rounding."""


def is_even(limit: int | None, period: int) -> bool:
    """Return whether the requests of a limit are paced evenly and keep headroom."""
    return limit is not None and limit * _MINUTE >= _EVEN_FROM * period


@attrs.frozen
class Demand:
    """How many requests wait at a bucket, by priority."""

    interactive: int
    bulk: int


@attrs.frozen(kw_only=True)
class FirmLimit:
    """What is certain of a limit. It changes seldom, and then the requests that wait have other turns than it seemed.

    Attributes:
        limit: requests per period; None while it is unknown or guessed.
        period: in ticks.
        closed_until: the end of the closure that a 429 stated.
        reset: identifies the window of the service that was reported last.
    """

    limit: int | None
    period: int
    closed_until: int
    reset: int = -NEVER


@attrs.frozen(kw_only=True)
class WindowState:
    """A window at one tick.

    Attributes:
        limit: requests per period; None while it is unknown.
        used: what the service may count.
        remaining: what the service reported as remaining; None if that is over.
        opens_at: the tick from which time alone does not forbid a request.
        closed_until: the end of a closure after a 429; 0 or a tick that has passed if there is none.
        concurrency: how many requests may be in flight.
        is_degraded: a shared count cannot be reached, and this process keeps to its share of the limit.
        shared_turn_at: the tick at which this process expects its turn among those that share the count; 0 if an
            answer decides, or nobody shares it.
    """

    limit: int | None
    used: int
    remaining: int | None
    opens_at: int
    closed_until: int
    concurrency: int
    is_degraded: bool = False
    shared_turn_at: int = 0


@attrs.define(eq=False)
class Window:
    """One limit of one user, account or app.

    Attributes:
        limit: requests per period; None while it is unknown.
        period: ticks; of an unknown limit, the longest distance of a reset seen so far.
        headroom: the share of a limit that is used, where it is paced evenly.
        documented: the reference states the limit: the service may lower it, never raise it.
        paced: whether requests are paced evenly; None if the limit decides.
        is_guess: neither the reference nor a header states the limit.
        in_flight: granted and not yet answered.
        reserve: what bulk leaves to interactive requests.
        granted: what was granted, against limit x headroom.
        answered: what was answered, against the limit.
    """

    limit: int | None
    period: int
    headroom: float = 1.0
    documented: bool = False
    paced: bool | None = None
    is_guess: bool = attrs.field(init=False)
    in_flight: int = attrs.field(default=0, init=False)
    reserve: int = attrs.field(default=0, init=False)
    granted: SlidingLog = attrs.field(init=False)
    answered: SlidingLog = attrs.field(init=False)
    pace: Pace = attrs.field(factory=Pace, init=False)
    server: ServerCount = attrs.field(factory=ServerCount, init=False)
    gate: Gate = attrs.field(factory=Gate, init=False)
    rate_cut: RateCut = attrs.field(factory=RateCut, init=False)
    concurrency: Concurrency = attrs.field(factory=Concurrency, init=False)
    _initial_limit: int | None = attrs.field(init=False)
    _longest_closure: int = attrs.field(init=False)
    _guess_until: int = attrs.field(default=0, init=False)
    """The tick from which a success without headers retires a guess."""
    _setback_at: int = attrs.field(default=-NEVER, init=False)
    """The last refusal or overload: requests granted before it add nothing to it, and their success says nothing."""

    def __attrs_post_init__(self) -> None:
        self._initial_limit = self.limit
        self._longest_closure = self.period if self.documented else max(self.period, _HOUR)
        self.is_guess = self.limit is not None and not self.documented
        self.granted, self.answered = SlidingLog(self.period), SlidingLog(self.period)
        self._resize()

    @property
    def is_even(self) -> bool:
        """Whether requests are paced evenly and keep headroom."""
        return is_even(self.limit, self.period) if self.paced is None else self.paced

    @property
    def spacing(self) -> int:
        """The ticks from one request to the next, if all of the limit is used evenly."""
        return self.period // self.limit if self.limit else 0

    @property
    def firm_limit(self) -> FirmLimit:
        """What is certain of the limit."""
        return FirmLimit(
            limit=None if self.is_guess else self.limit,
            period=self.period,
            closed_until=self.gate.stated_until,
            reset=self.server.reset,
        )

    def state(self, now: int) -> WindowState:
        """Return what a snapshot shows."""
        return WindowState(
            limit=self.limit,
            used=self.in_flight + self.answered.count(now),
            remaining=self.server.report(now),
            opens_at=self.opens_at(1, now),
            closed_until=self.gate.closed_until,
            concurrency=int(self.concurrency.allowed),
        )

    def opens_at(self, cost: int, now: int) -> int:
        """Return the tick from which time alone does not forbid this cost; it may have passed."""
        if self.limit is None:
            self.granted.count(now)
            self.answered.count(now)
            return max(self.gate.closed_until, self.server.opens_at(cost, now))
        if self.rate_cut.factor < 1.0:
            self.rate_cut.recover(now, self.period)
            self._resize()
        return max(
            self.gate.closed_until,
            self.server.opens_at(cost, now),
            self.granted.opens_at(cost, now),
            self.answered.opens_at(cost, now, self.in_flight),
            self.pace.opens_at(cost),
        )

    def firm_opens_at(self, cost: int, now: int) -> int:
        """Return the tick from which neither a known limit nor an answer forbids this cost; a guess does not count."""
        if self.is_guess or self.limit is None:
            return max(self.gate.stated_until, self.server.opens_at(cost, now))
        opens = self.opens_at(cost, now)
        if self.is_even or cost <= self.limit:
            return opens
        rounds, rest = divmod(cost - 1, self.limit)  # the pace of an even limit counts them; others may burst
        return max(opens, max(now, self.opens_at(rest + 1, now)) + rounds * self.period)

    def admits_beyond_guess(self, cost: int, now: int) -> bool:
        """Return whether at most a guess forbids that this cost goes now."""
        return self.firm_opens_at(cost, now) <= now and not self.awaits_answer(cost, now)

    def awaits_answer(self, cost: int, now: int) -> bool:
        """Return whether the answer of a request in flight decides this cost."""
        is_full = self.concurrency.opens_at(self.in_flight) > now
        return is_full or self.server.awaits_answer(cost, self.in_flight, now)

    def admits(self, cost: int, now: int) -> bool:
        """Return whether this cost may go now; more than the limit never may."""
        is_open = self.opens_at(cost, now) <= now and not self.awaits_answer(cost, now)
        return is_open and (self.limit is None or cost <= self.granted.capacity)

    def next_check_at(self, cost: int, now: int) -> int:
        """Return the next tick at which time alone may change what `admits` returns; NEVER if only an answer can."""
        opens = self.opens_at(cost, now)
        if opens > now:
            return opens
        changes = (self.server.reset_at, self.concurrency.opens_at(self.in_flight))
        return min((tick for tick in changes if tick > now), default=NEVER)

    def request_capacity(self, demand: Callable[[], Demand], now: int) -> None:
        """Do nothing: what this process counts by itself need not be requested from elsewhere."""

    def take(self, cost: int, now: int) -> None:
        """Grant a cost."""
        self.in_flight += cost
        self.granted.add(cost, now)
        self.pace.take(cost, now)
        self.concurrency.on_grant(now)

    def restore(self, sent_at: Sequence[int]) -> None:
        """Count requests that were sent by an earlier process, each as late as it may have been counted."""
        counted = [tick + _RESTORED_LATENCY for tick in sent_at]
        self.granted.restore(counted)
        self.answered.restore(counted)

    def refund(self, cost: int, granted_at: int) -> None:
        """Take back a grant that was not used."""
        self.in_flight -= cost
        self.granted.remove(cost, granted_at)
        self.pace.refund(cost)

    def settle(self, cost: int, now: int, headers: RateLimitHeaders | None = None) -> None:
        """End a request: with what its answer says about this limit, or with nothing."""
        self.in_flight -= cost
        self.answered.add(cost, now)
        if headers is not None and headers.limit is not None:
            self._update_limit(headers.limit, headers.reset_at, now)
        if headers is None or not self.server.update(self._bound(headers, now), now):
            self.server.consume(cost)

    def on_success(self, granted_at: int) -> None:
        """Note that the service did its work."""
        if granted_at > self._setback_at:
            self.gate.refusals = 0
            self.concurrency.on_success()

    def retire_guess(self, now: int) -> None:
        """Note, after `settle`, a success without rate-limit headers: the service does not show the limit guessed."""
        if self.is_guess and now >= self._guess_until:
            self.limit = None

    def on_overload(self, granted_at: int, now: int) -> None:
        """Lower the concurrency after an overload or a lost answer (already settled).

        It is lowered once for all requests in flight at the time.
        """
        if granted_at > self._setback_at:
            self._setback_at = now
            self.concurrency.on_overload(self.in_flight + 1)

    def on_rate_limited(self, headers: RateLimitHeaders, granted_at: int, now: int, jitter: float) -> None:
        """Close the gate after a 429.

        Args:
            headers: of the answer; without a reset or retry-after in the future the closure is short and grows, and
                the rate is cut.
            granted_at: when the refused request was granted; requests in flight together count as one refusal.
            now: the tick of the answer.
            jitter: from 0 to 1, in seconds on top.
        """
        until = self._bound(headers, now).reopens_at
        is_stated = until > now
        if not is_stated:
            self._recall_guess(now)
            if granted_at > self._setback_at:
                self.gate.refusals += 1
                self.rate_cut.cut(now)
                self._resize()
            until = now + self.gate.guess_closure(self.period)
        self._setback_at = now
        self.gate.close(until + int(jitter * SECOND), is_stated=is_stated)
        self.pace.restart(self.gate.closed_until)
        self.concurrency.on_rate_limited()

    def is_idle(self, now: int) -> bool:
        """Return whether a new window would decide the same."""
        if self.in_flight or self.answered.count(now) or self.granted.count(now):
            return False
        return now >= max(self.gate.closed_until, self.server.reset_at, self._setback_at + self.period)

    def _bound(self, headers: RateLimitHeaders, now: int) -> RateLimitHeaders:
        """Return headers that close nothing for longer than the period of a known limit, or than an hour."""
        # Unspecified: how far ahead a reset may be. After an hour one request finds out whether it was right.
        return headers.bound(reset_at=now + self._longest_closure + SECOND, retry_at=now + _HOUR)

    def _recall_guess(self, now: int) -> None:
        self._guess_until = now + self.period
        if self.limit is None and self._initial_limit is not None:
            self.limit = self._initial_limit
            self._resize()

    def _update_limit(self, limit: int, reset_at: int | None, now: int) -> None:
        period = self.period
        if self._initial_limit is None and reset_at is not None:
            period = max(period, reset_at - now)
        if self.documented and self._initial_limit is not None:
            limit = min(limit, self._initial_limit)
        self.is_guess = False
        if (limit, period) != (self.limit, self.period):
            self.limit, self.period = limit, period
            self._resize()

    def _resize(self) -> None:
        """Fit the parts to the limit, its period and the cut."""
        if self.limit is None:
            return
        even = self.is_even
        reduced = max(1, int(self.limit * self.rate_cut.factor + _EPSILON))
        target = max(1, int(self.limit * self.rate_cut.factor * self.headroom + _EPSILON)) if even else reduced
        self.granted.capacity = target
        self.answered.capacity = self.limit if even else reduced
        self.pace.step = self.period // target if even else 0
        self.pace.ahead = max(1, target // _BURST) * self.pace.step
        self.reserve = 0 if even or reduced == 1 else max(1, reduced // _RESERVE)
        for log in (self.granted, self.answered):
            log.period = self.period
            log.grain = 1 if self.limit <= _LONG_LOG else max(1, self.period // _LONG_LOG)
