"""The parts of a window, without I/O: each holds one reason why a request may have to wait.

Where time alone ends the wait, a part answers `opens_at`: the tick from which it admits a request. Every "has it left?"
is the one expression `time + period <= now`, so what `opens_at` returns is open at that very tick.
"""

from collections import Counter, deque
from collections.abc import Iterable

import attrs

from svc_async.governor.rate_headers import RateLimitHeaders
from svc_async.governor.ticks import NEVER, SECOND

__all__ = ["Concurrency", "Gate", "Pace", "RateCut", "ServerCount", "SlidingLog"]

_CUT = 0.7
_MAX_DOUBLINGS = 6
_MAX_IN_FLIGHT = 100
_PATIENCE = 5 * SECOND
"""Ticks after which one more request goes although none of those in flight was answered."""


@attrs.define(eq=False)
class SlidingLog:
    """The cost within the last period: an exact sliding log, run-length encoded.

    Why: a service may count in fixed windows, from the first request on, or in a sliding window. A sliding count
    stays within all three, so how the service counts need not be detected: no decision would be a different one.
    Costs of one tick are one entry, and `grain` bounds the number of entries of a large limit.

    Attributes:
        period: ticks after which an entry leaves.
        grain: times are rounded up to a multiple of this.
        capacity: the cost that may be used within a period.
        used: the cost that has not left, as of the last `count` or `opens_at`.
    """

    period: int
    grain: int = 1
    capacity: int = NEVER
    used: int = attrs.field(default=0, init=False)
    _runs: deque[list[int]] = attrs.field(factory=deque[list[int]], init=False)

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, cost: int, now: int) -> None:
        """Record a cost."""
        time = self._round_up(now)
        self.used += cost
        if self._runs and self._runs[-1][0] >= time:
            self._runs[-1][1] += cost
        else:
            self._runs.append([time, cost])

    def remove(self, cost: int, time: int) -> None:
        """Remove a cost that was recorded at `time`; harmless if it has left."""
        recorded = self._round_up(time)
        run = next((run for run in reversed(self._runs) if run[0] <= recorded), None)
        if run is not None:
            removed = min(cost, run[1])
            run[1] -= removed
            self.used -= removed

    def restore(self, times: Iterable[int]) -> None:
        """Record costs of 1 that came before those recorded so far, or between them."""
        runs = Counter(map(self._round_up, times))
        for time, cost in self._runs:
            runs[time] += cost
        self._runs = deque([time, cost] for time, cost in sorted(runs.items()))
        self.used = runs.total()

    def count(self, now: int) -> int:
        """Drop what has left and return the cost of the rest."""
        runs = self._runs
        while runs and runs[0][0] + self.period <= now:
            self.used -= runs.popleft()[1]
        return self.used

    def opens_at(self, cost: int, now: int, in_flight: int = 0) -> int:
        """Return the tick from which there is room for a cost; it may have passed.

        Args:
            cost: what is about to be used; more than `capacity` counts as `capacity`.
            now: the current tick.
            in_flight: what will be recorded later, and is used up already.
        """
        room = self.capacity - in_flight - self.count(now)
        if cost <= room:
            return 0
        excess = min(cost, self.capacity) - room
        if excess <= 0:
            return 0
        if excess > self.used:
            return now + self.period  # what is in flight must be answered first, and then leave
        return self.leaves_at(excess)

    def leaves_at(self, cost: int) -> int:
        """Return the tick at which this much of the cost will have left; NEVER if less than this is used."""
        for time, amount in self._runs:
            cost -= amount
            if cost <= 0:
                return time + self.period
        return NEVER

    def _round_up(self, time: int) -> int:
        return time if self.grain == 1 else -(-time // self.grain) * self.grain


@attrs.define(eq=False)
class Pace:
    """Even spacing of requests.

    Why: without it, a large limit is used up in a burst at the start of each period, and later requests wait for the
    rest of it. The pace may run `ahead` by a part of the limit, so that timers which fire late cost no use.
    Small limits have no pace: their requests are few and somebody waits for each, so they may burst.

    Attributes:
        step: ticks from one request to the next; 0 without a pace.
        ahead: ticks by which requests may precede the pace.
        next_at: the tick of the next request at an even pace.
    """

    step: int = 0
    ahead: int = 0
    next_at: int = 0

    def opens_at(self, cost: int) -> int:
        """Return the tick from which the pace admits a cost."""
        return self.next_at - self.ahead + (cost - 1) * self.step

    def take(self, cost: int, now: int) -> None:
        """Move on by a cost."""
        self.next_at = max(self.next_at, now) + self.step * cost

    def refund(self, cost: int) -> None:
        """Move back by a cost that was not used."""
        self.next_at -= self.step * cost

    def restart(self, tick: int) -> None:
        """Start again at a tick, with nothing run ahead: after a refusal, one request goes first."""
        self.next_at = tick + self.ahead


@attrs.define(eq=False)
class ServerCount:
    """The service's own count: what it last reported as remaining, until its window ends.

    Why: other programs may use the same limit, which only the service sees.
    Answers overtake one another, so within one window `remaining` only falls; a later reset is a new window, an
    earlier one a late answer. What an answer does not report is subtracted here.

    Attributes:
        remaining: requests that the service will still accept, less those answered since without a report.
        reset: the Unix second in which the reported window ends.
        reset_at: the tick at which that second is over; from then on nothing is known.
    """

    remaining: int = NEVER
    reset: int = -NEVER
    reset_at: int = -NEVER

    def report(self, now: int) -> int | None:
        """Return what remains, or None if the reported window is over."""
        return max(0, self.remaining) if now < self.reset_at else None

    def opens_at(self, cost: int, now: int) -> int:
        """Return the tick from which the reported window does not forbid a cost."""
        return self.reset_at if now < self.reset_at and self.remaining < cost else 0

    def awaits_answer(self, cost: int, in_flight: int, now: int) -> bool:
        """Return whether what remains covers a cost only if requests in flight turn out not to count."""
        return now < self.reset_at and self.remaining - in_flight < cost <= self.remaining

    def update(self, headers: RateLimitHeaders, now: int) -> bool:
        """Take over a report; return False if the headers hold none."""
        if headers.remaining is None or headers.reset is None or headers.reset_at is None:
            return False
        if now >= self.reset_at or headers.reset > self.reset:
            self.reset, self.reset_at, self.remaining = headers.reset, headers.reset_at, headers.remaining
        elif headers.reset == self.reset:
            self.remaining = min(self.remaining, headers.remaining)
        return True

    def consume(self, cost: int) -> None:
        """Subtract a cost that was answered without a report."""
        self.remaining -= cost


@attrs.define(eq=False)
class Gate:
    """The closure after a 429.

    Why: until the reset that a 429 names, every further request is refused, and refusals may be penalised.
    A 429 that names no usable reset closes the gate for a second, and for twice as long with each further refusal:
    long enough to get through in the end, short enough not to waste a limit that opens soon.

    Attributes:
        closed_until: the tick at which it opens; it never moves back.
        stated_until: the latest tick that an answer stated.
        refusals: closures in a row whose length had to be guessed.
    """

    closed_until: int = 0
    stated_until: int = 0
    refusals: int = 0

    def close(self, until: int, *, is_stated: bool) -> None:
        """Close at least until a tick, which an answer stated or which was guessed."""
        self.closed_until = max(self.closed_until, until)
        if is_stated:
            self.stated_until = max(self.stated_until, until)

    def guess_closure(self, period: int) -> int:
        """Return the ticks to close for when a 429 does not say."""
        doublings = min(max(self.refusals - 1, 0), _MAX_DOUBLINGS)
        return min(SECOND << doublings, max(period, SECOND))


@attrs.define(eq=False)
class RateCut:
    """The temporary reduction of the rate after a 429 that names no reset.

    Why: such a refusal means that the limit is lower than assumed, or shared with others; the same rate would be
    refused again. A cut by three tenths, which then recovers evenly over one period, finds the rate that
    the service accepts and follows it when it rises again.

    Attributes:
        factor: the part of the limit that is used, up to 1.
        at: the tick of the last change.
    """

    factor: float = 1.0
    at: int = -NEVER

    def cut(self, now: int) -> None:
        """Reduce the rate."""
        self.factor *= _CUT
        self.at = now

    def recover(self, now: int, period: int) -> None:
        """Raise the rate by what has been gained since the last change."""
        self.factor = min(1.0, self.factor + (1 - _CUT) * (now - self.at) / period)
        self.at = now


@attrs.define(eq=False)
class Concurrency:
    """How many requests may be in flight.

    Why: nothing is known of a fresh window, so one probe goes first, and its answer opens the window. An overloaded
    service serves fewer requests at once than it was sent, so overload halves what was in flight. After a refusal
    one request goes first, then two, then four: if the gate opened too early, that costs one refusal, not a hundred.
    The answers of all in flight may be lost, and their timeouts far away: each time that nothing was granted for five
    seconds, one more request goes.

    Attributes:
        allowed: how many; whole requests count.
        cold: there has been no answer yet.
    """

    allowed: float = 1
    cold: bool = True
    _doubles_below: float = attrs.field(default=0, init=False)
    _granted_at: int = attrs.field(default=-NEVER, init=False)

    def opens_at(self, in_flight: int) -> int:
        """Return the tick from which one more request may be in flight, even without an answer."""
        return -NEVER if in_flight + 1 <= self.allowed else self._granted_at + _PATIENCE

    def on_grant(self, now: int) -> None:
        """Note that a request goes."""
        self._granted_at = now

    def on_success(self) -> None:
        """Open fully after the probe, else grow: double up to the value before a refusal, then by one a round."""
        if self.cold:
            self.cold, self.allowed = False, _MAX_IN_FLIGHT
        elif self.allowed < _MAX_IN_FLIGHT:
            doubles = self.allowed < self._doubles_below
            self.allowed = min(_MAX_IN_FLIGHT, self.allowed + (1 if doubles else 1 / self.allowed))

    def on_rate_limited(self) -> None:
        """Start again from one probe."""
        self._doubles_below = max(self.allowed, self._doubles_below)
        self.allowed, self.cold = 1, False

    def on_overload(self, in_flight: int) -> None:
        """Halve what was in flight."""
        self._doubles_below = 0
        self.allowed = max(1, min(self.allowed, in_flight) / 2)
