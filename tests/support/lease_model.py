"""The function `lease` of svc_async/state/schema/limits.sql in plain Python, which does exactly the same."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TypeAlias
from uuid import UUID

import attrs

from svc_async.state.limits.holding import Lease, LeaseReport, LeaseRequest, SharedLimit

__all__ = ["MILLION", "NEVER", "SECOND", "Bucket", "LeaseModel", "Sizes"]

SECOND = 1_000_000
MILLION = 1_000_000
NEVER = 2**62
HEARTBEAT = 5 * SECOND
GRACE = SECOND
LONGEST_ASK = 10 * SECOND
RENEWAL = SECOND // 5
CELLS = 60
EVEN_FROM = 100
MOST = 1_000_000
RAMP_ENDS = 100
PATIENCE = 5 * SECOND
BULK_EVERY = 9

Waiting: TypeAlias = Sequence[tuple[int, int, int]]
"""Of processes that wait, what they were granted so far, how much more they want, and when they will ask."""


@attrs.define
class Cells:
    """Requests within the last period, those of a sixtieth of it together at the time of the last of them."""

    times: list[int] = attrs.field(factory=list[int])
    counts: list[int] = attrs.field(factory=list[int])
    since: int = 0

    @property
    def used(self) -> int:
        return sum(self.counts)

    def drop(self, now: int, period: int) -> None:
        while self.times and self.times[0] + period <= now:
            del self.times[0], self.counts[0]

    def add(self, cost: int, time: int, now: int, period: int) -> None:
        if cost <= 0 or time + period <= now:
            return
        if self.times and self.times[-1] >= time:
            self.counts[bisect_left(self.times, time)] += cost
        elif self.times and time < self.since + period // CELLS:
            self.times[-1] = time
            self.counts[-1] += cost
        else:
            self.times.append(time)
            self.counts.append(cost)
            self.since = time

    def add_all(self, added: Iterable[tuple[int, int]], now: int, period: int) -> None:
        for time, cost in sorted(added):
            self.add(cost, time, now, period)

    def remove(self, cost: int, time: int) -> None:
        place = next((index for index, each in enumerate(self.times) if each >= time), len(self.times) - 1)
        while cost > 0 and place >= 0:
            removed = min(cost, self.counts[place])
            self.counts[place] -= removed
            cost -= removed
            place -= 1

    def opens_at(self, cost: int, capacity: int, in_flight: int, period: int) -> int:
        room = capacity - in_flight - self.used
        excess = min(cost, capacity) - room
        if excess <= 0 or excess > self.used:
            return 0
        for time, count in zip(self.times, self.counts, strict=True):
            excess -= count
            if excess <= 0:
                return time + period
        raise AssertionError("no more can leave than is used")


@attrs.define
class Holder:
    """One process at one bucket."""

    seen: int
    outstanding: int = 0
    answered: int = 0
    leased_at: int = 0
    interactive: int = 0
    bulk: int = 0
    ask_at: int = 0
    served_interactive: int = 0
    served_bulk: int = 0

    @property
    def ends_at(self) -> int:
        """When it has missed its heartbeat: one that waits for its turn comes when it was told to."""
        return max(self.seen + HEARTBEAT, min(self.ask_at, self.seen + LONGEST_ASK) + GRACE)

    def waits(self, now: int) -> bool:
        return self.ask_at + GRACE > now


@attrs.define
class Sizes:
    target: int
    capacity: int
    step: int
    ahead: int
    reserve: int


@attrs.define
class Bucket:
    """One bucket, and the processes that use it."""

    initial: int | None
    limit: int | None
    period: int
    headroom: int
    documented: bool
    is_guess: bool
    tick: int
    shift: int = 0
    guess_until: int = 0
    granted: Cells = attrs.field(factory=Cells)
    answered: Cells = attrs.field(factory=Cells)
    next_at: int = 0
    remaining: int = 0
    reset: int = 0
    reset_at: int = 0
    closed_until: int = 0
    stated_until: int = 0
    refusals: int = 0
    cut: int = MILLION
    cut_at: int = 0
    ramp: int | None = 1
    is_cold: bool = True
    leased_at: int = 0
    generation: int = 0
    streak: int = 0
    virtual_interactive: int = 0
    virtual_bulk: int = 0
    holders: dict[UUID, Holder] = attrs.field(factory=dict[UUID, Holder])
    none_ends_before: int = 0
    """Until then no process misses its heartbeat: with hundreds of them, it takes long to look at each."""
    all_recent_until: int = 0
    """Until then every process has used the bucket within a period."""

    def find_now(self, clock: int) -> int:
        self.shift = max(self.shift, self.tick - clock)
        self.tick = clock + self.shift
        return self.tick

    def expire(self, now: int) -> list[tuple[int, int]]:
        """Count what processes that missed their heartbeat had in flight as answered: return when, and how much."""
        if now < self.none_ends_before:
            return []
        expired = []
        self.none_ends_before = now + HEARTBEAT
        for holder in self.holders.values():
            if holder.outstanding and holder.ends_at <= now:
                expired.append((holder.ends_at, holder.outstanding))
                holder.answered += holder.outstanding
                holder.outstanding = 0
            elif holder.outstanding:
                self.none_ends_before = min(self.none_ends_before, holder.ends_at)
        return expired

    def count_recent(self, now: int) -> int:
        """Return how many processes have used the bucket within a period, and forget those of long ago."""
        recent = max(self.period, HEARTBEAT)
        if now < self.all_recent_until:
            return len(self.holders)
        self.holders = {
            name: each for name, each in self.holders.items() if each.seen + self.period + 60 * SECOND > now
        }
        self.all_recent_until = recent + min(each.seen for each in self.holders.values())
        return sum(each.seen + recent > now for each in self.holders.values())

    def read_headers(self, report: LeaseReport, now: int) -> None:
        if report.limit is not None:
            if self.initial is None and report.reset_in is not None:
                self.period = max(self.period, report.reset_in)
            said = min(report.limit, MOST)
            self.limit = min(said, self.initial) if self.documented and self.initial is not None else said
            self.is_guess = False
        if report.remaining is not None and report.reset is not None and report.reset_in is not None:
            if now >= self.reset_at or report.reset > self.reset:
                self.reset, self.reset_at, self.remaining = report.reset, now + report.reset_in, report.remaining
            elif report.reset == self.reset:
                self.remaining = min(self.remaining, report.remaining)
        self.remaining -= report.silent
        if report.retires_guess and self.is_guess and now >= self.guess_until:
            self.limit = None

    def note_success(self, report: LeaseReport, new: int) -> None:
        succeeded = min(report.succeeded, new)
        if succeeded <= 0 or report.generation != self.generation:
            return
        self.refusals = 0
        if self.ramp is not None:
            self.ramp += succeeded
            if self.is_cold or self.ramp >= RAMP_ENDS:
                self.ramp, self.is_cold = None, False

    def note_refusal(self, report: LeaseReport, now: int) -> bool:
        if report.refused is None:
            return False
        if report.closed_for is not None and report.closed_for > 0:
            until = now + report.closed_for + report.jitter
            self.stated_until = max(self.stated_until, until)
        else:
            self.guess_until = now + self.period
            if self.limit is None:
                self.limit = self.initial
            if report.refused == self.generation:
                self.refusals += 1
                self.cut, self.cut_at = self.cut * 7 // 10, now
            closure = min(SECOND << min(max(self.refusals - 1, 0), 6), max(self.period, SECOND))
            until = now + closure + report.jitter
        self.closed_until = max(self.closed_until, until)
        self.generation += 1
        self.ramp, self.is_cold = 1, False
        return True

    def recover(self, now: int) -> None:
        gain = 300_000 * min(now - self.cut_at, self.period) // self.period if self.cut < MILLION else 0
        if gain > 0:
            self.cut, self.cut_at = min(MILLION, self.cut + gain), now

    def sizes(self) -> Sizes:
        if self.limit is None:
            return Sizes(0, 0, 0, 0, 0)
        reduced = max(1, self.limit * self.cut // MILLION)
        if self.limit * 60 * SECOND < EVEN_FROM * self.period:
            return Sizes(reduced, reduced, 0, 0, 0 if self.limit == 1 else max(1, reduced // 20))
        target = max(1, self.limit * self.cut * self.headroom // MILLION**2)
        step = self.period // target
        ahead = max(1, target // 50, target * RENEWAL // self.period) * step
        return Sizes(target, self.limit, step, ahead, 0)

    def count_free(self, sizes: Sizes, in_flight: int, now: int, *, is_in_turn: bool) -> int:
        if self.closed_until > now:
            return 0
        free = NEVER
        if self.limit is not None:
            free = min(sizes.target - self.granted.used, sizes.capacity - self.answered.used - in_flight)
            if sizes.step:
                free = min(free, self.count_paced(sizes, now, is_in_turn=is_in_turn))
        if now < self.reset_at:
            free = min(free, self.remaining - in_flight)
        return max(0, free)

    def count_paced(self, sizes: Sizes, now: int, *, is_in_turn: bool) -> int:
        """Return how many the pace lets go; one more that comes in its turn, if another has gone in its place."""
        early = self.next_at - sizes.ahead - now
        if early <= 0:
            return -early // sizes.step + 1
        return int(is_in_turn and early <= max(sizes.step, RENEWAL))

    def count_ramp(self, in_flight: int, now: int) -> int:
        """Return how many more may be in flight after a refusal, or before the first success."""
        if self.ramp is None:
            return NEVER
        return max(self.ramp - in_flight, int(self.leased_at + PATIENCE <= now), 0)

    def opens_at(self, cost: int, sizes: Sizes, in_flight: int, now: int) -> int:
        opens = max(self.closed_until, self.reset_opens_at(cost, now))
        if self.limit is None:
            return opens
        granted = self.granted.opens_at(cost, sizes.target, 0, self.period)
        answered = self.answered.opens_at(cost, sizes.capacity, in_flight, self.period)
        pace = self.next_at - sizes.ahead + (cost - 1) * sizes.step if sizes.step else 0
        return max(opens, granted, answered, pace)

    def reset_opens_at(self, cost: int, now: int) -> int:
        return self.reset_at if now < self.reset_at and self.remaining < cost else 0


@attrs.define
class Turns:
    """The other processes that wait, by class: what each was granted so far, and how much more it wants."""

    interactive: Waiting
    bulk: Waiting

    @classmethod
    def of(cls, others: Iterable[Holder], now: int) -> "Turns":
        waiting = [each for each in others if each.waits(now)]
        return cls(
            [(each.served_interactive, each.interactive, each.ask_at) for each in waiting if each.interactive],
            [(each.served_bulk, each.bulk, each.ask_at) for each in waiting if each.bulk],
        )

    def join(self, bucket: Bucket, own: Holder, request: LeaseRequest) -> None:
        """Let a process that has not waited before begin with what those that wait were granted at least."""
        own.served_interactive = max(own.served_interactive, bucket.virtual_interactive)
        own.served_bulk = max(own.served_bulk, bucket.virtual_bulk)
        if request.interactive:
            bucket.virtual_interactive = min(own.served_interactive, *(each[0] for each in self.interactive), NEVER)
        if request.bulk:
            bucket.virtual_bulk = min(own.served_bulk, *(each[0] for each in self.bulk), NEVER)

    def divide(self, bucket: Bucket, own: Holder, request: LeaseRequest, free: int, ramp: int, reserve: int) -> int:  # noqa: PLR0917 - a step of one function
        """Return how much one process may take of what is free; the reserve is one of the limit, not of the ramp."""
        for_interactive = request.interactive + sum(each[1] for each in self.interactive)
        for_bulk = request.bulk + sum(each[1] for each in self.bulk)
        owed = min(bucket.streak // BULK_EVERY, free, ramp)
        left = min(free - max(for_interactive, reserve), ramp - for_interactive)
        free_bulk = min(for_bulk, max(owed, left, 0))
        interactive = _share(min(free, ramp) - free_bulk, own.served_interactive, request.interactive, self.interactive)
        bulk = _share(free_bulk, own.served_bulk, request.bulk, self.bulk)
        bucket.streak = max(0, bucket.streak + interactive - BULK_EVERY * bulk) if for_bulk else 0
        own.served_interactive += interactive
        own.served_bulk += bulk
        own.interactive, own.bulk = request.interactive - interactive, request.bulk - bulk
        return interactive + bulk

    def find_ask_at(self, bucket: Bucket, own: Holder, sizes: Sizes, in_flight: int, own_at: int, now: int) -> int:  # noqa: PLR0917 - a step of one function
        """Return when the next request of a process has its turn, if nothing changes."""
        if own.interactive:
            cost, alone = 1 + _count_turns(self.interactive, own.served_interactive, own_at), 1
        elif own.bulk:
            before = sum(each[1] for each in self.interactive)
            cost = 1 + sizes.reserve + before + _count_turns(self.bulk, own.served_bulk, own_at)
            alone = 1 + sizes.reserve
        else:
            return now
        turn = min(bucket.opens_at(cost, sizes, in_flight, now), now + LONGEST_ASK)
        crowd = max(len(self.interactive), len(self.bulk)) * sizes.step // 8
        pause = max(min(RENEWAL, bucket.period // 100), min(crowd, SECOND))
        return max(bucket.opens_at(alone, sizes, in_flight, now), turn, now + pause)


@attrs.define
class LeaseModel:
    """The tables of the function.

    Attributes:
        kind: the class of its buckets; another one is a control.
        buckets: one each limit.
    """

    kind: type[Bucket] = Bucket
    buckets: dict[UUID, Bucket] = attrs.field(factory=dict[UUID, Bucket])

    def lease(self, request: LeaseRequest, clock: int) -> Lease:
        bucket = self.buckets.setdefault(request.limit.bucket, _new_bucket(self.kind, request.limit, clock))
        now = bucket.find_now(clock)
        request = attrs.evolve(request, interactive=min(request.interactive, 1_000), bulk=min(request.bulk, 1_000))
        own = _settle(bucket, request, now)
        others = [each for each in bucket.holders.values() if each is not own]
        sizes = bucket.sizes()
        in_flight = own.outstanding + sum(each.outstanding for each in others)
        turns = Turns.of(others, now)
        turns.join(bucket, own, request)
        own_at = own.ask_at if (own.interactive or own.bulk) and own.waits(now) else NEVER
        free = bucket.count_free(sizes, in_flight, now, is_in_turn=own_at <= now)
        ramp = bucket.count_ramp(in_flight, now)
        taken = turns.divide(bucket, own, request, free, ramp, sizes.reserve)
        own.outstanding += taken
        own.seen = now
        in_flight += taken
        if taken:
            own_at = NEVER
            own.leased_at = bucket.leased_at = now
            bucket.granted.add(taken, now, now, bucket.period)
            bucket.next_at = max(bucket.next_at, now) + taken * sizes.step
        own.ask_at = turns.find_ask_at(bucket, own, sizes, in_flight, own_at, now)
        return _describe(bucket, own, sizes, in_flight, taken, now)


def _settle(bucket: Bucket, request: LeaseRequest, now: int) -> Holder:
    """Count what a process reports, and what others had in flight that missed their heartbeat."""
    report = request.report
    bucket.read_headers(report, now)
    bucket.granted.drop(now, bucket.period)
    bucket.answered.drop(now, bucket.period)
    bucket.answered.add_all(bucket.expire(now), now, bucket.period)
    own = bucket.holders.get(request.process)
    if own is None:
        own = bucket.holders[request.process] = Holder(now, answered=report.answered - sum(report.counts))
    new = max(0, min(report.answered - own.answered, sum(report.counts)))
    surplus = own.outstanding - new - report.outstanding
    own.answered = report.answered
    own.outstanding = report.outstanding
    bucket.granted.remove(surplus, own.leased_at)
    granted = _spread(report, -surplus - report.outstanding, now)
    granted.append((now, max(0, min(-surplus, report.outstanding))))
    bucket.granted.add_all(granted, now, bucket.period)
    bucket.answered.add_all(_spread(report, new, now), now, bucket.period)
    bucket.note_success(report, new)
    was_refused = bucket.note_refusal(report, now)
    bucket.recover(now)
    sizes = bucket.sizes()
    bucket.next_at -= max(0, surplus) * sizes.step
    if was_refused:
        bucket.next_at = bucket.closed_until + sizes.ahead
    return own


def _describe(bucket: Bucket, own: Holder, sizes: Sizes, in_flight: int, taken: int, now: int) -> Lease:  # noqa: PLR0917 - a step of one function
    opens = bucket.opens_at(1, sizes, in_flight, now)
    firm = opens
    if bucket.is_guess or bucket.limit is None:
        firm = max(bucket.stated_until, bucket.reset_opens_at(1, now))
    return Lease(
        granted=taken,
        ask_in=own.ask_at - now if own.interactive or own.bulk else None,
        opens_in=max(0, opens - now),
        closed_for=max(0, bucket.closed_until - now),
        firm_for=max(0, firm - now),
        generation=bucket.generation,
        allowed=bucket.ramp,
        limit=bucket.limit,
        period=bucket.period,
        is_guess=bucket.is_guess,
        remaining=max(0, bucket.remaining) if now < bucket.reset_at else None,
        used=in_flight + bucket.answered.used,
        processes=bucket.count_recent(now),
    )


def _new_bucket(kind: type[Bucket], limit: SharedLimit, clock: int) -> Bucket:
    initial = None if limit.limit is None else min(limit.limit, MOST)
    is_guess = initial is not None and not limit.documented
    return kind(initial, initial, limit.period, limit.headroom, limit.documented, is_guess, clock)


def _spread(report: LeaseReport, count: int, now: int) -> list[tuple[int, int]]:
    """Return when the latest answers of a report came, up to a count."""
    spread = []
    for age, most in zip(report.ages, report.counts, strict=True):
        part = max(0, min(most, count))
        spread.append((now - age, part))
        count -= part
    return spread


def _share(free: int, served: int, wanted: int, others: Waiting) -> int:
    """Return how much one process gets if what is free goes, one by one, to who was served least."""
    share = 0
    while share < min(wanted, free) and share + 1 + _count_before(others, served + share) <= free:
        share += 1
    return share


def _count_before(others: Waiting, level: int) -> int:
    """Return how much goes to others before one whose count is at a level."""
    return sum(min(wanted, level - served) for served, wanted, _ in others if served < level)


def _count_turns(others: Waiting, level: int, own_at: int) -> int:
    """Return how much others will ask for before: of those at the same level, each that has an earlier time."""
    return _count_before(others, level) + sum(served == level and ask_at < own_at for served, _, ask_at in others)
