"""What one process holds of a bucket that several processes count: leases, what it knows, and its reports; no I/O."""

from collections import deque
from collections.abc import Sequence
from uuid import UUID, uuid4

import attrs

from svc_async.governor.windows import NEVER, SECOND, Demand, RateLimitHeaders, Window, is_even

__all__ = ["Holding", "Lease", "LeaseReport", "LeaseRequest", "SharedLimit", "Usage", "make_share", "scale_headers"]


@attrs.frozen(kw_only=True)
class KnownCount:
    """What was known of a bucket when it was last reached.

    Attributes:
        limit: requests per period; None while it is unknown.
        period: ticks.
        headroom: the share of the limit that is used.
        documented: the reference states the limit.
        used: what the service may count, of all processes.
        at: the tick of this knowledge.
        closed_until: the gate.
        processes: how many processes use the bucket.
    """

    limit: int | None
    period: int
    headroom: float
    documented: bool
    used: int = 0
    at: int = 0
    closed_until: int = 0
    processes: int = 1

    @property
    def is_even(self) -> bool:
        """Whether requests are paced evenly."""
        return is_even(self.limit, self.period)

    def time_behind(self, others: int) -> int:
        """Return the ticks that a request goes at least after the first one that waits, with `others` before it."""
        if self.limit is None:
            return 0
        if self.is_even:
            return others * (self.period // max(1, int(self.limit * self.headroom)))
        return others // self.limit * self.period


def make_share(known: KnownCount, in_flight: int, now: int) -> Window:
    """Return the window of one process: its share of the limit, of which its share of what was used is used up."""
    limit = None if known.limit is None else _divide(known.limit * known.headroom, known.processes)
    share = Window(limit, known.period, 1.0, known.documented, paced=known.is_even)  # a share has fewer a minute
    share.concurrency.on_success()  # the shared count has had its probe
    share.gate.close(known.closed_until, is_stated=True)
    share.in_flight = in_flight
    if limit is not None:
        used = min(limit, max(in_flight, -(-known.used // known.processes)))
        # Requests at an even pace were about a step apart; of others it is not known when they were sent.
        step = known.period // limit if known.is_even else 0
        times = [known.at - index * step for index in range(used)]
        share.granted.restore(times)
        share.answered.restore(times[in_flight:])
        share.pace.restart(now)
    return share


def scale_headers(headers: RateLimitHeaders | None, known: KnownCount) -> RateLimitHeaders | None:
    """Return headers with the limit of one process: the service states the limit of all."""
    if headers is None or headers.limit is None:
        return headers
    return attrs.evolve(headers, limit=_divide(headers.limit * known.headroom, known.processes))


def _divide(limit: float, processes: int) -> int:
    return max(1, int(limit / processes + 1e-9))


@attrs.frozen(kw_only=True)
class SharedLimit:
    """The limit that a bucket counts, as the process that asks first knows it.

    Attributes:
        bucket: identifies the bucket in all processes, and names nobody.
        name: the limit's name.
        limit: requests per period; None if it is to be learned.
        period: its length.
        headroom: the share of the limit that is used, in millionths.
        documented: the reference states the limit.
    """

    bucket: UUID
    name: str
    limit: int | None
    period: int
    headroom: int = 1_000_000
    documented: bool = True


@attrs.frozen(kw_only=True)
class LeaseReport:
    """What became of the requests of one process since it last asked.

    Every number is either a state or a total, so that a report whose confirmation was lost may be repeated.

    Attributes:
        outstanding: requests that were granted and are not in `answered`: unanswered, or a lease that is not used yet.
        answered: requests answered since the process has begun to count this bucket.
        ages: how long ago the latest of these were answered, the newest first.
        counts: how many at each of these ages; they reach back at least to the last confirmed report.
        generation: the generation of the grants of which `succeeded` counts the successes.
        succeeded: successes since the last confirmed report.
        silent: answers without a rate-limit header since then.
        retires_guess: one of them was a success.
        limit: the limit that the service last stated.
        remaining: what it reported as remaining.
        reset: the Unix second in which the window of that report ends.
        reset_in: how long it is until that second is over.
        refused: the newest generation of a grant that was refused for its rate; None if none was.
        closed_for: how long no request may go after a refusal; None if the service stated nothing.
        jitter: what is added to the closure.
    """

    outstanding: int = 0
    answered: int = 0
    ages: Sequence[int] = ()
    counts: Sequence[int] = ()
    generation: int = 0
    succeeded: int = 0
    silent: int = 0
    retires_guess: bool = False
    limit: int | None = None
    remaining: int | None = None
    reset: int | None = None
    reset_in: int | None = None
    refused: int | None = None
    closed_for: int | None = None
    jitter: int = 0


@attrs.frozen(kw_only=True)
class LeaseRequest:
    """What one process wants of one bucket, with its report.

    Attributes:
        limit: the limit of the bucket.
        process: identifies the process.
        interactive: how many more interactive requests it could send now.
        bulk: how many more bulk requests.
        report: what became of the earlier ones.
    """

    limit: SharedLimit
    process: UUID
    interactive: int = 0
    bulk: int = 0
    report: LeaseReport = LeaseReport()


@attrs.frozen(kw_only=True)
class Lease:
    """What a process may send, and what is known of the bucket.

    Attributes:
        granted: how many requests it may send, within a second.
        ask_in: when to ask for the rest; None if there is no rest.
        opens_in: how long no process can be granted a request.
        closed_for: how long the bucket is closed after a 429.
        firm_for: how long an answer, and not only a guessed limit, forbids every request.
        generation: how many refusals there were; to be reported with a success.
        allowed: how many requests all processes together may have in flight after a refusal; None if any number.
        limit: requests per period; None while it is unknown.
        period: its length.
        is_guess: neither the reference nor a header states the limit.
        remaining: what the service reported as remaining; None if that is over.
        used: what the service may count, of all processes.
        processes: how many processes have used the bucket within the last period, this one included.
    """

    granted: int
    ask_in: int | None
    opens_in: int
    closed_for: int
    firm_for: int
    generation: int
    allowed: int | None
    limit: int | None
    period: int
    is_guess: bool
    remaining: int | None
    used: int
    processes: int


_CELLS = 60
_REPEATED = 2 * SECOND
"""Answers of this time are reported again: a crash of the database loses the leases that it was about to write."""


@attrs.define(eq=False)
class Usage:
    """Counts answers, and makes reports of them; a report that was lost is contained in the next.

    Attributes:
        period: ticks; older answers need not be reported.
        answered: how many requests were answered.
        cells: when those of the last period were answered, the oldest first, a few at a time.
        succeeded: successes since the last confirmed report.
        silent: answers without a usable header.
        retires_guess: a success had none.
        headers: the latest report of the service.
        refused: the newest generation of a grant that was refused.
        closed_until: the tick until which the service closed the bucket; 0 if it stated nothing.
        jitter: ticks on top.
    """

    period: int
    answered: int = 0
    cells: deque[list[int]] = attrs.field(factory=deque[list[int]], init=False)
    succeeded: int = attrs.field(default=0, init=False)
    silent: int = attrs.field(default=0, init=False)
    retires_guess: bool = attrs.field(default=False, init=False)
    headers: RateLimitHeaders | None = attrs.field(default=None, init=False)
    refused: int | None = attrs.field(default=None, init=False)
    closed_until: int = attrs.field(default=0, init=False)
    jitter: int = attrs.field(default=0, init=False)
    _confirmed: int = attrs.field(default=0, init=False)
    """How many answers the shared count has."""
    _newest_since: int = attrs.field(default=0, init=False)
    _lent: "tuple[int, Usage] | None" = attrs.field(default=None, init=False)

    def add_answer(self, cost: int, now: int, headers: RateLimitHeaders | None) -> None:
        """Count an answer."""
        self.answered += cost
        if self.cells and now < self._newest_since + self.period // _CELLS:
            self.cells[-1][0] = now
            self.cells[-1][1] += cost
        else:
            self.cells.append([now, cost])
            self._newest_since = now
        self._drop_old(now)
        if headers is None or headers.remaining is None or headers.reset is None:
            self.silent += cost
        if headers is not None:
            self._add_headers(headers)

    def add_refusal(self, generation: int, closed_until: int, jitter: int) -> None:
        """Note a 429 for a grant of a generation; `closed_until` is 0 if it says nothing."""
        self.refused = generation if self.refused is None else max(self.refused, generation)
        self.closed_until = max(self.closed_until, closed_until)
        self.jitter = max(self.jitter, jitter)

    def report(self, outstanding: int, generation: int, now: int) -> LeaseReport:
        """Return what is to be reported; `confirm` or `restore` must follow."""
        self._drop_old(now)
        headers = self.headers or RateLimitHeaders()
        answers = self._list_answers(now)
        report = LeaseReport(
            outstanding=outstanding,
            answered=self.answered,
            ages=[age for age, _ in answers],
            counts=[count for _, count in answers],
            generation=generation,
            succeeded=self.succeeded,
            silent=self.silent,
            retires_guess=self.retires_guess,
            limit=headers.limit,
            remaining=headers.remaining,
            reset=headers.reset,
            reset_in=None if headers.reset_at is None else max(0, headers.reset_at - now),
            refused=self.refused,
            closed_for=max(0, self.closed_until - now) or None,
            jitter=self.jitter,
        )
        self._lent = self.answered, self._move()
        return report

    @property
    def is_unreported(self) -> bool:
        """Whether the shared count may not have all answers."""
        return self.answered != self._confirmed

    def confirm(self) -> None:
        """Forget what was reported: the shared count has it."""
        if self._lent is None:
            return
        self._confirmed, self._lent = self._lent[0], None

    def restore(self) -> None:
        """Report again what may have been lost, whatever was confirmed: the database may have lost that, too."""
        self._confirmed = 0
        if self._lent is None:
            return
        lent, self._lent = self._lent[1], None
        self.succeeded += lent.succeeded
        self.silent += lent.silent
        self.retires_guess |= lent.retires_guess
        newer, self.headers = self.headers, lent.headers
        if newer is not None:
            self._add_headers(newer)
        if lent.refused is not None:
            self.add_refusal(lent.refused, lent.closed_until, lent.jitter)

    def _list_answers(self, now: int) -> list[tuple[int, int]]:
        """Return the ages and numbers of answers that the shared count may not have, the newest first."""
        answers = []
        left = self.answered - self._confirmed
        for time, count in reversed(self.cells):
            age = max(0, now - time)
            if left <= 0 and age > _REPEATED:
                break
            answers.append((age, count))
            left -= count
        return answers

    def _move(self) -> "Usage":
        """Return what is confirmed as a whole, and start it anew."""
        lent = Usage(self.period)
        for name in ("succeeded", "silent", "retires_guess", "headers", "refused", "closed_until", "jitter"):
            fresh = getattr(lent, name)
            setattr(lent, name, getattr(self, name))
            setattr(self, name, fresh)
        return lent

    def _add_headers(self, headers: RateLimitHeaders) -> None:
        """Keep the report of the latest window of the service; within one, `remaining` only falls."""
        known = self.headers
        if known is None or known.reset is None or known.remaining is None:
            self.headers = headers
        elif headers.reset is not None and headers.remaining is not None and headers.reset >= known.reset:
            lowest = min(headers.remaining, known.remaining) if headers.reset == known.reset else headers.remaining
            self.headers = attrs.evolve(headers, remaining=lowest)

    def _drop_old(self, now: int) -> None:
        while self.cells and self.cells[0][0] + self.period <= now:
            self.cells.popleft()


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
