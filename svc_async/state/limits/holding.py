"""What one process holds of a bucket that several processes count: leases, what it knows, and its reports; no I/O."""

from collections import deque
from uuid import UUID, uuid4

import attrs

from svc_async.governor.rate_headers import RateLimitHeaders
from svc_async.governor.ticks import NEVER, SECOND
from svc_async.governor.windows import Demand
from svc_async.state.limits.lease import Lease, LeaseRequest, SharedLimit
from svc_async.state.limits.share import KnownCount
from svc_async.state.limits.usage import Usage

__all__ = ["Holding"]

_LEASE = SECOND
"""How long what was granted may be used."""
_HEARTBEAT = 2 * SECOND
"""A process with requests in flight reports at least this often."""
_RENEWAL = SECOND // 5
_MOST_AHEAD = 20
_MILLION = 1_000_000
_HOUR = 3_600 * SECOND


@attrs.define(eq=False)
class Holding:
    """What one process holds of a bucket.

    Attributes:
        shared: the limit, as this process knows it.
        process: identifies this holding among those of all processes.
        in_flight: taken and not answered.
        usage: what is to be reported.
        known: what is known of the bucket.
        lease: the latest lease; None before the first.
        ask_at: the tick of the turn of what waits.
        has_asked_interactive: it waits for interactive requests.
        opens_at: the tick before which no process is granted a request.
        firm_opens_at: the same, whatever is guessed.
        generation_since: grants from this tick on belong to the generation of the latest lease.
    """

    shared: SharedLimit
    process: UUID = attrs.field(factory=uuid4)
    in_flight: int = 0
    usage: Usage = attrs.field(init=False)
    known: KnownCount = attrs.field(init=False)
    lease: Lease | None = None
    ask_at: int = 0
    has_asked_interactive: bool = False
    opens_at: int = 0
    firm_opens_at: int = 0
    generation_since: int = -NEVER
    has_surplus: bool = False
    """A lease ended unused, or a grant was refunded, and this is not reported yet."""
    _leases: deque[list[int]] = attrs.field(factory=deque[list[int]], init=False)
    """When each ends, and how much of it is left."""
    _asked_at: int = attrs.field(default=-NEVER, init=False)
    _taken: int = attrs.field(default=0, init=False)
    """Requests taken since the latest lease was asked for."""
    _unmet: Demand = attrs.field(default=Demand(0, 0), init=False)
    """What was asked for and not granted."""

    def __attrs_post_init__(self) -> None:
        self.usage = Usage(self.shared.period)
        self.known = KnownCount(
            limit=self.shared.limit,
            period=self.shared.period,
            headroom=self.shared.headroom / _MILLION,
            documented=self.shared.documented,
        )

    @property
    def is_guess(self) -> bool:
        """Whether neither the reference nor a header states the limit."""
        if self.known.limit is None:
            return True
        return self.lease.is_guess if self.lease is not None else not self.shared.documented

    @property
    def is_ramping(self) -> bool:
        """Whether the next requests wait for the success of those in flight, of all processes."""
        return self.lease is None or self.lease.allowed is not None

    def bound(self, headers: RateLimitHeaders, now: int) -> RateLimitHeaders:
        """Return headers that close nothing for longer than the period of a known limit, or than an hour."""
        period = self.known.period
        longest = period if self.shared.documented else max(period, _HOUR)
        return headers.bound(reset_at=now + longest + SECOND, retry_at=now + _HOUR)

    def count_leased(self, now: int) -> int:
        """Return how many requests a lease covers now; what has ended is returned with the next report."""
        leases = self._leases
        while leases and (leases[0][0] <= now or not leases[0][1]):
            self.has_surplus |= leases.popleft()[1] > 0
        return sum(left for _, left in leases)

    def take(self, cost: int, now: int, *, is_leased: bool) -> None:
        """Send a request, which a lease covers if there is one."""
        if is_leased and self.count_leased(now) >= cost:
            self._leases[0][1] -= cost
        self.in_flight += cost
        self._taken += cost

    def drop_leases(self) -> None:
        """Use no lease any more."""
        self.has_surplus |= any(left for _, left in self._leases)
        self._leases.clear()

    def close(self, until: int) -> None:
        """Send nothing until a tick."""
        self.known = attrs.evolve(self.known, closed_until=max(self.known.closed_until, until))
        self.drop_leases()

    def note_refusal(self, granted_at: int, stated: int, now: int, jitter: int) -> None:
        """Close after a 429; `stated` is the tick that it names, or 0."""
        generation = 0 if self.lease is None else self.lease.generation
        self.usage.add_refusal(generation if granted_at >= self.generation_since else generation - 1, stated, jitter)
        self.generation_since = now + 1
        self.close(max(stated, now + SECOND) + jitter)

    def needs_report(self, now: int) -> bool:
        """Return whether there is something to report although nothing waits."""
        self.count_leased(now)
        if self.has_surplus or self.usage.refused is not None or (self.is_ramping and self.usage.succeeded):
            return True
        return self.in_flight > 0 and now >= self._asked_at + _HEARTBEAT

    def needs_end_report(self, now: int) -> bool:
        """Return whether there is something to report when this process leaves."""
        is_holding = self.in_flight > 0 or self.count_leased(now) > 0 or self.has_surplus
        return is_holding or self.ask_at > now or self.usage.is_unreported

    def next_report_at(self, now: int) -> int:
        """Return the tick of the next lease or report that is due; NEVER if only a request can make it so."""
        if self.needs_report(now):
            return now
        due = [self.ask_at] if self.ask_at > now else []
        due += [end for end, _ in self._leases]
        due += [self._asked_at + _HEARTBEAT] if self.in_flight else []
        return min(due, default=NEVER)

    def make_request(self, demand: Demand | None, now: int) -> LeaseRequest:
        """Return what to ask for: what waits and, of a large limit, as much again as was used of late.

        Args:
            demand: what waits; None for a report, which keeps the turn of what waits already.
            now: the current tick.
        """
        demand = demand or (self._unmet if self.ask_at > now else Demand(0, 0))
        interactive, bulk = demand.interactive, demand.bulk
        is_steady = self.known.is_even and now - self._asked_at <= _RENEWAL
        ahead = min(self._taken, _MOST_AHEAD) if is_steady else 0
        if interactive:
            interactive += ahead
        elif bulk:
            bulk += ahead
        outstanding = self.in_flight + self.count_leased(now)
        self._asked_at, self._taken, self.has_surplus = now, 0, False
        self.has_asked_interactive = interactive > 0
        self._unmet = Demand(interactive, bulk)
        return LeaseRequest(
            limit=self.shared,
            process=self.process,
            interactive=interactive,
            bulk=bulk,
            report=self.usage.report(outstanding, 0 if self.lease is None else self.lease.generation, now),
        )

    def apply(self, lease: Lease, now: int) -> None:
        """Take over a lease that was just received."""
        self.usage.confirm()
        if self.lease is None or lease.generation != self.lease.generation:
            self.generation_since = now
            self.drop_leases()
        self.lease = lease
        urgent = min(lease.granted, self._unmet.interactive)
        self._unmet = Demand(self._unmet.interactive - urgent, self._unmet.bulk - (lease.granted - urgent))
        self.known = attrs.evolve(
            self.known,
            limit=lease.limit,
            period=lease.period,
            used=lease.used,
            at=now,
            processes=lease.processes,
        )
        self.usage.period = lease.period
        self.opens_at, self.firm_opens_at = now + lease.opens_in, now + lease.firm_for
        self.ask_at = 0 if lease.ask_in is None else now + lease.ask_in
        if lease.closed_for:
            self.close(now + lease.closed_for)
        if lease.granted:
            self._leases.append([self._asked_at + _LEASE, lease.granted])

    def lose(self) -> None:
        """Note that a report may be lost, and that no lease can be had."""
        self.usage.restore()
        self._leases.clear()
        self.ask_at = 0

    def end(self, now: int) -> None:
        """Return the leases and count what is in flight as answered: nobody will report it."""
        self._leases.clear()
        if self.in_flight:
            self.usage.add_answer(self.in_flight, now, None)
            self.in_flight = 0
