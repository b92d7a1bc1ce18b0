"""Decides which waiting request goes next, without I/O.

A bucket is one window with the requests that wait for it. A flow is the waiting requests of one account and one
priority that take the same buckets: within a flow they go first in, first out. At each bucket the flows of a priority
take turns, and interactive flows go before bulk flows. A flow that another of its buckets keeps closed is skipped, so
that a busy bucket never holds up a free one. With two exceptions, without which lighter requests could take the one or
the other forever. A flow that is skipped at the slowest of its buckets has one request kept there until it is served:
the buckets may never be open at one moment. And it may reserve that bucket for up to 1 s while a faster one opens. Only
the slowest bucket does this, so that no two flows wait for what is kept for the other.
"""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain
from operator import itemgetter
from typing import Generic, TypeVar

import attrs

from svc_async.governor.window_store import CountingWindow
from svc_async.governor.windows import NEVER, SECOND, Demand, FirmLimit

__all__ = ["Bucket", "Flow"]

W = TypeVar("W")

_BULK_EVERY = 9
"""Interactive requests in a row while bulk waits; then bulk is first once."""
_MAX_RESERVATION = SECOND


@attrs.define(eq=False)
class Bucket(Generic[W]):
    """One window and the flows that wait for it.

    Attributes:
        name: the limit's name.
        scope: whose requests it counts.
        window: the counts.
        interactive_streak: interactive grants since bulk, while bulk waited.
        next_deadline: no waiting request has an earlier deadline than this tick.
        judged_by: what was certain of the limit when the waiting requests were last judged by their places.
        wake_at: the tick for which a timer is set; NEVER if there is none.
        interactive: the interactive flows, in turn.
        bulk: the bulk flows, in turn.
    """

    name: str
    scope: str
    window: CountingWindow
    interactive_streak: int = attrs.field(default=0, init=False)
    next_deadline: int = attrs.field(default=NEVER, init=False)
    judged_by: FirmLimit | None = attrs.field(default=None, init=False)
    wake_at: int = attrs.field(default=NEVER, init=False)
    interactive: "OrderedDict[Flow[W], None]" = attrs.field(factory=OrderedDict, init=False)
    bulk: "OrderedDict[Flow[W], None]" = attrs.field(factory=OrderedDict, init=False)
    _reserved_for: "Flow[W] | None" = attrs.field(default=None, init=False)
    _reserved_until: int = attrs.field(default=NEVER, init=False)
    _kept_for: "dict[Flow[W], None]" = attrs.field(factory=dict, init=False)
    """The flows that have one request kept here."""

    @property
    def flows(self) -> "Iterator[Flow[W]]":
        """The flows that wait here, in turn."""
        if self._is_turn_of_bulk:
            return chain(self.bulk, self.interactive)
        return chain(self.interactive, self.bulk)

    @property
    def has_waiters(self) -> bool:
        """Whether any request waits here."""
        return bool(self.interactive or self.bulk)

    @property
    def needs_attention(self) -> bool:
        """Whether any request waits here, or a timer is set for one that did."""
        return self.wake_at < NEVER or self.has_waiters

    def count_waiting(self) -> Demand:
        """Return how many requests wait here."""
        return Demand(*(sum(len(flow.waiting) for flow in flows) for flows in (self.interactive, self.bulk)))

    def cost(self, *, bulk: bool) -> int:
        """Return what must be free for one request: bulk leaves the reserve, except when it is its turn."""
        return 1 + self.window.reserve if bulk and not self._is_turn_of_bulk else 1

    def find_turn(self, now: int) -> int | None:
        """Return the tick from which time admits a request that waits here; None if none waits."""
        if not self.has_waiters:
            return None
        return self.window.opens_at(self.cost(bulk=not self.interactive), now)

    def next_flow(self, now: int) -> "Flow[W] | None":
        """Return the flow whose first request may go now."""
        self._reserved_for, self._reserved_until = None, NEVER
        if not self.window.admits(1, now):
            return None
        for flow in self.flows:
            if flow.may_go(now):
                return flow
            if flow.slowest is self and self.admits(flow, now):
                self._kept_for[flow] = None
                if now < flow.opens_at(now) <= now + _MAX_RESERVATION:
                    self._reserved_for, self._reserved_until = flow, flow.opens_at(now)
                    return None
        return None

    def admits(self, flow: "Flow[W]", now: int) -> bool:
        """Return whether one request of a flow may go now, as far as this bucket decides."""
        if self._reserved_for is not None and self._reserved_for is not flow and now < self._reserved_until:
            return False
        cost = 1 if flow in self._kept_for else self.cost(bulk=flow.is_bulk) + self._count_kept()
        return self.window.admits(cost, now)

    def find_late(self, now: int) -> "list[tuple[Flow[W], list[tuple[int, W]]]]":
        """Return the flows with requests whose turn comes after their deadline, and those with their places.

        The first places tell whether there may be any. Only when what is certain of the limit has changed, all are
        judged by their places: thousands may wait, and each place costs a look-up.
        """
        firm = self.window.firm_limit
        by_place, self.judged_by = firm != self.judged_by, firm
        if not by_place and now < self.next_deadline and self.window.opens_at(1, now) <= self.next_deadline:
            return []
        self.next_deadline = NEVER
        found = []
        for flow in self.flows:
            late, next_deadline = flow.find_late(now, by_place=by_place)
            self.next_deadline = min(self.next_deadline, next_deadline)
            if late:
                found.append((flow, late))
        return found

    def next_check_at(self, now: int) -> int:
        """Return the tick at which requests may go or miss a deadline; NEVER if only an answer can help."""
        kept = self._count_kept()
        costs = {1, 1 + kept, self.cost(bulk=bool(self.bulk)) + kept}
        checks = (self.window.next_check_at(cost, now) for cost in costs)
        return min(self.next_deadline, self._reserved_until, *checks)

    def rotate(self, flow: "Flow[W]") -> None:
        """Move a flow that was served behind the others."""
        self.interactive_streak = self.interactive_streak + 1 if self.bulk and not flow.is_bulk else 0
        (self.bulk if flow.is_bulk else self.interactive).move_to_end(flow)
        self._kept_for.pop(flow, None)

    def remove(self, flow: "Flow[W]") -> None:
        """Remove a flow of which no request waits any more."""
        del (self.bulk if flow.is_bulk else self.interactive)[flow]
        self._kept_for.pop(flow, None)

    def _count_kept(self) -> int:
        """Return how many requests are kept; what was learned since may have made another bucket of a flow slowest."""
        return sum(flow.slowest is self for flow in self._kept_for)

    @property
    def _is_turn_of_bulk(self) -> bool:
        return self.interactive_streak >= _BULK_EVERY


@attrs.define(eq=False)
class Flow(Generic[W]):
    """Waiting requests that take the same buckets, in the order in which they came.

    Attributes:
        buckets: all of them are taken at once.
        is_bulk: the priority.
        waiting: the requests, with their deadlines.
    """

    buckets: tuple[Bucket[W], ...]
    is_bulk: bool
    waiting: OrderedDict[W, int] = attrs.field(factory=OrderedDict, init=False)

    def join(self, waiter: W, deadline: int) -> None:
        """Add a request at the end."""
        self.waiting[waiter] = deadline
        for bucket in self.buckets:
            (bucket.bulk if self.is_bulk else bucket.interactive)[self] = None
            bucket.next_deadline = min(bucket.next_deadline, deadline)

    def leave(self, waiter: W) -> None:
        """Remove a request; the others move up."""
        del self.waiting[waiter]
        if not self.waiting:
            for bucket in self.buckets:
                bucket.remove(self)

    @property
    def slowest(self) -> Bucket[W]:
        """The bucket that admits the fewest requests in a time."""
        return max(self.buckets, key=lambda bucket: bucket.window.spacing)

    def first(self) -> W:
        """Return the first request."""
        return next(iter(self.waiting))

    def may_go(self, now: int) -> bool:
        """Return whether all buckets admit one request now."""
        return all(bucket.admits(self, now) for bucket in self.buckets)

    def opens_at(self, now: int) -> int:
        """Return the earliest tick at which time admits one request."""
        return max(bucket.window.opens_at(bucket.cost(bulk=self.is_bulk), now) for bucket in self.buckets)

    def firm_opens_at(self, now: int, *, ahead: int = 0) -> int:
        """Return the earliest tick at which one request may go, after `ahead` others, whatever limits were guessed."""
        return self.find_firm_turn(now, ahead=ahead)[0]

    def find_firm_turn(self, now: int, *, ahead: int) -> tuple[int, Bucket[W]]:
        """Return what `firm_opens_at` does, and the bucket that decides it."""
        turns = (
            (bucket.window.firm_opens_at(bucket.cost(bulk=self.is_bulk) + ahead, now), bucket)
            for bucket in self.buckets
        )
        return max(turns, key=itemgetter(0))

    def find_shared_turn(self, now: int) -> tuple[int, Bucket[W]]:
        """Return when this process has its turn among those that share its counts, and the bucket that decides it."""
        return max(((bucket.window.state(now).shared_turn_at, bucket) for bucket in self.buckets), key=itemgetter(0))

    def find_late(self, now: int, *, by_place: bool) -> tuple[list[tuple[int, W]], int]:
        """Return the requests whose turn comes after their deadline, with their places, and the next deadline.

        Args:
            now: the current tick; a deadline that it has reached is over, too.
            by_place: judge each request by its place behind those that stay, and not all by the first place.
        """
        waiting = list(enumerate(self.waiting.items()))
        if by_place:
            late = self._find_late_by_place(waiting, 0, now)
        else:
            turn = max(self.firm_opens_at(now), now + 1)
            late = [(place, waiter) for place, (waiter, deadline) in waiting if turn > deadline]
        ends = {waiter for _, waiter in late}
        kept = (deadline for waiter, deadline in self.waiting.items() if waiter not in ends)
        return late, min(kept, default=NEVER)

    def _find_late_by_place(
        self, waiting: list[tuple[int, tuple[W, int]]], ahead: int, now: int
    ) -> list[tuple[int, W]]:
        """Return those of consecutive requests that are late, if `ahead` others stay before them.

        If the last one goes before the first deadline, none is late: so most cost no look-up of their own.
        """
        turn = max(self.firm_opens_at(now, ahead=ahead + len(waiting) - 1), now + 1)
        if turn <= min(deadline for _, (_, deadline) in waiting):
            return []
        if len(waiting) == 1:
            return [(place, waiter) for place, (waiter, _) in waiting]
        half = len(waiting) // 2
        late = self._find_late_by_place(waiting[:half], ahead, now)
        return late + self._find_late_by_place(waiting[half:], ahead + half - len(late), now)

    def serve(self) -> W:
        """Remove and return the first request; the flow's next turn comes after those of the others."""
        for bucket in self.buckets:
            bucket.rotate(self)
        waiter = self.first()
        self.leave(waiter)
        return waiter
