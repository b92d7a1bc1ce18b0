"""The window of one bucket, without I/O: when may the next request go.

A `Window` counts each request twice. By its grant, against limit x headroom: this is the rate it aims at. By its
answer, with what is in flight on top, against the limit itself: the service counts a request somewhere between its
grant and its answer, so this count is exact in any window of the service, however late requests arrive.

The rest is up to its parts: `opens_at` is the latest of theirs.

A limit is documented, stated by headers, or a guess of the table. A guess sets the pace until the service has answered:
headers correct it, and a success without headers retires it. A 429 without headers brings it back for one period. A
guess never refuses a request: one whose `max_wait` is over goes, and the service decides.

Time is counted in ticks: whole microseconds of the monotonic clock. Sums of floats round, and a rounded comparison can
hang: a timer fires just before the tick for which it was set, finds nothing open, and is set again without end.
"""

import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

import attrs

from svc_async.wire.envelope import other_resets, parse_http_date, service_time

__all__ = [
    "NEVER",
    "SECOND",
    "Concurrency",
    "Demand",
    "FirmLimit",
    "Gate",
    "Pace",
    "RateCut",
    "RateLimitHeaders",
    "ServerCount",
    "SlidingLog",
    "Window",
    "WindowState",
    "is_even",
]

SECOND = 1_000_000
"""Ticks of a second."""
NEVER = sys.maxsize

# Unspecified: a reset more than a day ahead is a mistake (milliseconds, say), not a limit to wait for.
_DAY = 86_400
_MAX_DIGITS = 12

_Names: TypeAlias = tuple[str, str, str]
_Numbers: TypeAlias = tuple[int | None, int | None, int | None]

_NO_NUMBERS: _Numbers = (None, None, None)
_USER: _Names = ("x-rate-limit-limit", "x-rate-limit-remaining", "x-rate-limit-reset")
_ACCOUNT: _Names = ("x-account-rate-limit-limit", "x-account-rate-limit-remaining", "x-account-rate-limit-reset")
_READ = (_ACCOUNT, _USER)
_WRITE = (_USER, _ACCOUNT)


@attrs.frozen(kw_only=True)
class RateLimitHeaders:
    """The usable part of the rate-limit headers of one answer; what is absent, malformed or implausible is None.

    Attributes:
        limit: requests per window.
        remaining: requests left in this window.
        reset: the Unix second in which the window ends; it distinguishes one window from the next.
        reset_at: the tick at which that second is over, measured against the answer's `Date`; it may be in the past.
        retry_at: the tick at which `retry-after` is over, and with it every limit of another name that is exhausted.
    """

    limit: int | None = None
    remaining: int | None = None
    reset: int | None = None
    reset_at: int | None = None
    retry_at: int | None = None

    @classmethod
    def parse(
        cls, headers: Mapping[str, str], *, now: int, wall: Callable[[], datetime], is_read: bool, is_429: bool = False
    ) -> "RateLimitHeaders":
        """Parse the rate-limit headers of an answer.

        Args:
            headers: the answer's headers, with names in lower case.
            now: the tick at which it arrived.
            wall: returns our time, for an answer without `Date`; it is called only if a header needs it.
            is_read: whether the request was a read, where the account's headers take precedence over the user's.
            is_429: whether a limit was exceeded, which may be one of another name.
        """
        limit, remaining, reset = _choose(headers, _READ if is_read else _WRITE)
        retry_after = headers.get("retry-after")
        others = other_resets(headers) if is_429 else ()
        if limit is None and reset is None and retry_after is None and not others:
            return _NOTHING
        service_now = service_time(headers, wall())
        unix = service_now.timestamp()
        if reset is not None and reset > unix + _DAY:
            reset = None
        retries = [None if retry_after is None else _parse_retry_after(retry_after.strip(), now, service_now)]
        seconds = (each + 1 - unix for each in map(_parse_int, others) if each is not None)
        retries += [now + round(each * SECOND) for each in seconds if each <= _DAY]
        return cls(
            limit=limit,
            remaining=remaining,
            reset=reset,
            # Unspecified: whether the second is rounded up or down; waiting until it is over is right in both cases.
            reset_at=None if reset is None else now + round((reset + 1 - unix) * SECOND),
            retry_at=max(filter(None, retries), default=None),
        )

    @property
    def is_silent(self) -> bool:
        """True if the headers say nothing about a limit."""
        return self.limit is None and self.remaining is None and self.reset is None

    def bound(self, *, reset_at: int, retry_at: int) -> "RateLimitHeaders":
        """Return these headers with times that are not later than these ticks."""
        if (self.reset_at or 0) <= reset_at and (self.retry_at or 0) <= retry_at:
            return self
        return attrs.evolve(
            self,
            reset_at=self.reset_at and min(self.reset_at, reset_at),
            retry_at=self.retry_at and min(self.retry_at, retry_at),
        )

    @property
    def reopens_at(self) -> int:
        """The later of reset and retry-after; 0 if neither is known."""
        return max(self.reset_at or 0, self.retry_at or 0)


_NOTHING = RateLimitHeaders()


def _choose(headers: Mapping[str, str], kinds: tuple[_Names, _Names]) -> _Numbers:
    """Return the numbers of the preferred kind if they are complete, else those of the other kind, if it has any."""
    first = _parse_numbers(headers, kinds[0])
    if first[1] is not None and first[2] is not None:
        return first
    second = _parse_numbers(headers, kinds[1])
    return second if second != _NO_NUMBERS else first


def _parse_numbers(headers: Mapping[str, str], names: _Names) -> _Numbers:
    limit, remaining, reset = names
    return _parse_int(headers.get(limit)) or None, _parse_int(headers.get(remaining)), _parse_int(headers.get(reset))


def _parse_int(text: str | None) -> int | None:
    if text is None:
        return None
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


def _parse_retry_after(text: str, now: int, service_now: datetime) -> int | None:
    number = _parse_int(text)
    date = parse_http_date(text) if number is None else None
    seconds = number if date is None else (date - service_now).total_seconds()
    return now + round(seconds * SECOND) if seconds is not None and 0 < seconds <= _DAY else None


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
            self._guess_until = now + self.period
            if self.limit is None and self._initial_limit is not None:
                self.limit = self._initial_limit
                self._resize()
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
