"""Counting windows, without I/O: when may the next request of one limit go.

Times are ticks, whole microseconds of the monotonic clock, and every "has it left?" is the one expression
`time + period <= now`: what `opens_at` names is open at that very tick.

A `Window` counts each request twice. By its grant, against limit x headroom: this is the rate we mean to keep. By its
answer, with what is in flight on top, against the limit itself: the service counts a request somewhere between its
grant and its answer, so this count is exact in any window of the service, however late requests arrive.

How the service counts (fixed windows, from the first request, sliding) is not detected: no decision here would be
another, because the sliding count is within all three.
"""

from collections import deque

import attrs

from svc_async.governor.rate_headers import SECOND, Told

__all__ = ["NEVER", "Concurrency", "Log", "Window"]

NEVER = 1 << 62
_LONG_LOG = 2_000
_MINUTE = 60 * SECOND
_EVEN_FROM = 100
"""Limits of at least so many a minute are paced evenly and keep headroom; smaller ones may burst."""
_BURST = 100
"""An evenly paced limit may run ahead by one hundredth of itself, so that late timers cost no use."""
_RESERVE = 20
"""Of a limit that may burst, bulk leaves one twentieth to interactive requests."""
_CUT = 0.7
_MOST_DOUBLINGS = 6
_MOST_AT_ONCE = 100
_EPSILON = 1e-9
"""100 x 0.97 must not become 96 by rounding."""


@attrs.define(eq=False)
class Log:
    """An exact sliding log, run-length: costs of one tick are one entry.

    Attributes:
        period: ticks after which an entry leaves.
        grain: times are rounded up to a multiple of this, so that a large limit has a short log.
        used: the cost of what has not left, as of the last `count`.
    """

    period: int
    grain: int = 1
    used: int = 0
    _runs: deque[list[int]] = attrs.field(factory=deque[list[int]], init=False)

    def add(self, cost: int, now: int) -> None:
        """Enter a cost."""
        time = self._rounded(now)
        self.used += cost
        if self._runs and self._runs[-1][0] >= time:
            self._runs[-1][1] += cost
        else:
            self._runs.append([time, cost])

    def take_back(self, cost: int, time: int) -> None:
        """Strike out a cost that was entered at `time`; harmless if it has left."""
        entered = self._rounded(time)
        found = next((run for run in reversed(self._runs) if run[0] <= entered), None)
        if found is not None:
            struck = min(cost, found[1])
            found[1] -= struck
            self.used -= struck

    def count(self, now: int) -> int:
        """Let go what has left and give the cost of the rest."""
        runs = self._runs
        while runs and runs[0][0] + self.period <= now:
            self.used -= runs.popleft()[1]
        return self.used

    def leaves_at(self, cost: int) -> int:
        """Give the tick at which so much of the cost will have left; NEVER if there is not so much."""
        for time, amount in self._runs:
            cost -= amount
            if cost <= 0:
                return time + self.period
        return NEVER

    def _rounded(self, time: int) -> int:
        return time if self.grain == 1 else -(-time // self.grain) * self.grain


@attrs.define(eq=False)
class Concurrency:
    """How many requests may be in flight: one probe when nothing is known, fewer under trouble.

    Attributes:
        allowed: how many; whole requests count.
        cold: nothing has been heard yet.
    """

    allowed: float = 1
    cold: bool = True
    _quick_until: float = attrs.field(default=0, init=False)

    def answered(self) -> None:
        """Open fully after the probe, else grow: by doubling up to what there was before a refusal, then slowly."""
        if self.cold:
            self.cold, self.allowed = False, _MOST_AT_ONCE
        elif self.allowed < _MOST_AT_ONCE:
            quick = self.allowed < self._quick_until
            self.allowed = min(_MOST_AT_ONCE, self.allowed + (1 if quick else 1 / self.allowed))

    def refused(self) -> None:
        """Start again from one probe: those who wait leave in turn, not all at once."""
        self._quick_until = max(self.allowed, self._quick_until)
        self.allowed, self.cold = 1, False

    def troubled(self, in_flight: int) -> None:
        """Halve what was in flight."""
        self._quick_until = 0
        self.allowed = max(1, min(self.allowed, in_flight) / 2)


@attrs.define(eq=False)
class Window:
    """One limit of one user, account or app.

    Attributes:
        limit: requests in a period; None as long as it is unknown.
        period: ticks; of an unknown limit, the longest distance of a reset that was seen.
        headroom: the part of a limit that is used, where it is paced evenly.
        exact: the limit is documented: the service may tell a lower one, never a higher one.
        in_flight: granted and not yet answered.
        closed_until: the gate of a 429.
        concurrency: how many may be in flight.
        reserve: what bulk leaves to interactive requests.
    """

    limit: int | None
    period: int
    headroom: float = 1.0
    exact: bool = False
    in_flight: int = attrs.field(default=0, init=False)
    closed_until: int = attrs.field(default=0, init=False)
    concurrency: Concurrency = attrs.field(factory=Concurrency, init=False)
    reserve: int = attrs.field(default=0, init=False)
    _known: int | None = attrs.field(init=False)
    _grants: Log = attrs.field(init=False)
    _answers: Log = attrs.field(init=False)
    _remaining: int = attrs.field(default=0, init=False)
    _reset: int = attrs.field(default=-1, init=False)
    _reset_at: int = attrs.field(default=-1, init=False)
    _next_at: int = attrs.field(default=0, init=False)
    _factor: float = attrs.field(default=1.0, init=False)
    _factor_at: int = attrs.field(default=0, init=False)
    _cut_at: int = attrs.field(default=-1, init=False)
    _refusals: int = attrs.field(default=0, init=False)
    _target: int = attrs.field(default=NEVER, init=False)
    _ceiling: int = attrs.field(default=NEVER, init=False)
    _step: int = attrs.field(default=0, init=False)
    _ahead: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._known = self.limit
        self._grants, self._answers = Log(self.period), Log(self.period)
        self._resize(1.0)

    @property
    def is_even(self) -> bool:
        """Whether requests are paced evenly and keep headroom."""
        return self.limit is not None and self.limit * _MINUTE >= _EVEN_FROM * self.period

    @property
    def spacing(self) -> int:
        """The ticks from one request to the next, if all of the limit is used evenly."""
        return self.period // self.limit if self.limit else 0

    def used(self, now: int) -> int:
        """Count what the service may count at this tick."""
        return self.in_flight + self._answers.count(now)

    def remaining(self, now: int) -> int | None:
        """Give what the service said is left, less what it has not said since; None if that is over."""
        return max(0, self._remaining) if now < self._reset_at else None

    def opens_at(self, cost: int, now: int) -> int:
        """Give the tick from which time alone does not forbid this cost; it may have passed."""
        opens = self.closed_until
        if self._remaining < cost and now < self._reset_at:
            opens = max(opens, self._reset_at)
        if self.limit is None:
            return opens
        if self._factor < 1.0:
            self._recover(now)
        return max(opens, self._log_opens_at(cost, now), self._next_at - self._ahead + (cost - 1) * self._step)

    def awaits_answer(self, cost: int, now: int) -> bool:
        """Whether the answer of a request in flight decides this cost."""
        return self.in_flight + 1 > self.concurrency.allowed or (
            self._remaining - self.in_flight < cost <= self._remaining and now < self._reset_at
        )

    def admits(self, cost: int, now: int) -> bool:
        """Whether this cost may go now."""
        return self.opens_at(cost, now) <= now and not self.awaits_answer(cost, now)

    def look_again_at(self, cost: int, now: int) -> int:
        """Give the next tick at which time alone may change what `admits` says."""
        opens = self.opens_at(cost, now)
        if opens <= now and self._reset_at > now:
            return self._reset_at
        return opens if opens > now else NEVER

    def take(self, cost: int, now: int) -> None:
        """Grant a cost."""
        self.in_flight += cost
        self._grants.add(cost, now)
        self._next_at = max(self._next_at, now) + self._step * cost

    def refund(self, cost: int, granted_at: int) -> None:
        """Take back a grant that was not used."""
        self.in_flight -= cost
        self._grants.take_back(cost, granted_at)
        self._next_at -= self._step * cost

    def settle(self, cost: int, now: int, told: Told | None = None) -> None:
        """End a request: with what its answer told about this limit, or with nothing."""
        self.in_flight -= cost
        self._answers.add(cost, now)
        if told is None or not self._heed(told, now):
            self._remaining -= cost

    def answered(self, granted_at: int) -> None:
        """Heed that the service did its work."""
        if granted_at > self._cut_at:
            self._refusals = 0
            self.concurrency.answered()

    def troubled(self, granted_at: int, now: int) -> None:
        """Lower the concurrency after a 503 or a lost answer (already settled), once for all that flew together."""
        if granted_at > self._cut_at:
            self._cut_at = now
            self.concurrency.troubled(self.in_flight + 1)

    def refused(self, told: Told, granted_at: int, now: int, jitter: float) -> None:
        """Close the gate after a 429.

        Args:
            told: what the answer said; without a reset or retry-after in the future the closure is short and grows,
                and the rate is cut.
            granted_at: when the refused request was granted; requests that flew together count as one refusal.
            now: the tick of the answer.
            jitter: from 0 to 1, in seconds on top.
        """
        until = max(told.reset_at or 0, told.retry_at or 0)
        if until <= now:
            until = now + self._short_closure(granted_at, now)
        self._cut_at = now
        self.closed_until = max(self.closed_until, until + int(jitter * SECOND))
        self._next_at = self.closed_until + self._ahead
        self.concurrency.refused()

    def is_idle(self, now: int) -> bool:
        """Whether a new window would do as well."""
        return not (self.in_flight or self._answers.count(now) or self._grants.count(now)) and now >= max(
            self.closed_until, self._reset_at, self._cut_at + self.period
        )

    def _log_opens_at(self, cost: int, now: int) -> int:
        opens = 0
        excess = self._grants.count(now) + min(cost, self._target) - self._target
        if excess > 0:
            opens = self._grants.leaves_at(excess)
        excess = self.in_flight + self._answers.count(now) + min(cost, self._ceiling) - self._ceiling
        if excess > self._answers.used:
            return max(opens, now + self.period)  # it must be answered first, and then leave
        return max(opens, self._answers.leaves_at(excess)) if excess > 0 else opens

    def _heed(self, told: Told, now: int) -> bool:
        if told.limit is not None:
            self._heed_limit(told, told.limit, now)
        if told.remaining is None or told.reset is None or told.reset_at is None:
            return False
        if now >= self._reset_at or told.reset > self._reset:
            self._reset, self._reset_at, self._remaining = told.reset, told.reset_at, told.remaining
        elif told.reset == self._reset:
            self._remaining = min(self._remaining, told.remaining)
        return True

    def _heed_limit(self, told: Told, limit: int, now: int) -> None:
        period = self.period
        if self._known is None and told.reset_at is not None:
            period = max(period, told.reset_at - now)
        if self.exact and self._known is not None:
            limit = min(limit, self._known)
        if (limit, period) != (self.limit, self.period):
            self.limit, self.period = limit, period
            self._resize(self._factor)

    def _short_closure(self, granted_at: int, now: int) -> int:
        if granted_at > self._cut_at:
            self._refusals += 1
            self._factor_at = now
            self._resize(self._factor * _CUT)
        doublings = min(max(self._refusals - 1, 0), _MOST_DOUBLINGS)
        return min(SECOND << doublings, max(self.period, SECOND))

    def _recover(self, now: int) -> None:
        gained = (1 - _CUT) * (now - self._factor_at) / self.period
        self._factor_at = now
        self._resize(min(1.0, self._factor + gained))

    def _resize(self, factor: float) -> None:
        self._factor = factor
        if self.limit is None:
            return
        even = self.is_even
        lowered = max(1, int(self.limit * factor + _EPSILON))
        self._ceiling = self.limit if even else lowered
        self._target = max(1, int(self.limit * factor * self.headroom + _EPSILON)) if even else lowered
        self._step = self.period // self._target if even else 0
        self._ahead = max(1, self._target // _BURST) * self._step
        self.reserve = 0 if even or self.limit == 1 else max(1, lowered // _RESERVE)
        for log in (self._grants, self._answers):
            log.period = self.period
            log.grain = 1 if self.limit <= _LONG_LOG else max(1, self.period // _LONG_LOG)
