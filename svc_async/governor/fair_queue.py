"""Whose turn it is, without I/O: the lines that wait at the buckets.

A bucket is one window with those who wait for it. A line is the requests of one account and one class that take the
same buckets: among themselves they go first in, first out. At each bucket the lines of a class take turns, and
interactive lines go before bulk lines. A line that one of its other buckets keeps closed is passed over, so that a
busy bucket never holds up a free one. There is one exception: whose turn it is at the slowest of its buckets may hold
that one for a moment in which a faster one opens. Else lighter requests could take the one or the other for ever.
"""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain
from typing import Generic, TypeVar

import attrs

from svc_async.clock import Timer
from svc_async.governor.rate_headers import SECOND
from svc_async.governor.windows import NEVER, Window

__all__ = ["Bucket", "Line"]

W = TypeVar("W")

_BULK_EVERY = 9
"""Interactive requests in a row while bulk waits; then bulk is first once."""
_HELD_FOR = SECOND


@attrs.define(eq=False)
class Bucket(Generic[W]):
    """One window and the lines before it.

    Attributes:
        name: the limit's name.
        scope: whose requests it counts.
        window: the counts.
        in_a_row: interactive grants since bulk, while bulk waited.
        patience: no waiter's deadline is earlier than this tick.
        wake_at: the tick for which `timer` is set.
        timer: the next look at this bucket.
    """

    name: str
    scope: str
    window: Window
    in_a_row: int = attrs.field(default=0, init=False)
    patience: int = attrs.field(default=NEVER, init=False)
    wake_at: int = attrs.field(default=NEVER, init=False)
    timer: Timer | None = attrs.field(default=None, init=False)
    interactive: "OrderedDict[Line[W], None]" = attrs.field(factory=OrderedDict, init=False)
    bulk: "OrderedDict[Line[W], None]" = attrs.field(factory=OrderedDict, init=False)
    _held_for: "Line[W] | None" = attrs.field(default=None, init=False)
    _held_until: int = attrs.field(default=0, init=False)

    @property
    def lines(self) -> "Iterator[Line[W]]":
        """Those who wait, in turn."""
        if self._is_bulks_turn:
            return chain(self.bulk, self.interactive)
        return chain(self.interactive, self.bulk)

    @property
    def is_waited_for(self) -> bool:
        """Whether anyone waits here."""
        return bool(self.interactive or self.bulk)

    @property
    def is_watched(self) -> bool:
        """Whether anyone waits here, or a timer is set for someone who did."""
        return self.timer is not None or self.is_waited_for

    def cost(self, *, bulk: bool) -> int:
        """Give what must be free for one request: bulk leaves the reserve, except when its turn has come."""
        return 1 + self.window.reserve if bulk and not self._is_bulks_turn else 1

    def next_line(self, now: int) -> "Line[W] | None":
        """Give the line whose first request may go now."""
        self._held_for = None
        if not self.window.admits(1, now):
            return None
        for line in self.lines:
            if line.may_go(now):
                return line
            if line.slowest is self and now < line.opens_at(now) <= now + _HELD_FOR:
                self._held_for, self._held_until = line, line.opens_at(now)
                return None
        return None

    def admits(self, line: "Line[W]", now: int) -> bool:
        """Whether one request of a line may go now, as far as this bucket decides."""
        if self._held_for is not None and self._held_for is not line and now < self._held_until:
            return False
        return self.window.admits(self.cost(bulk=line.is_bulk), now)

    def look_again_at(self, now: int) -> int:
        """Give the tick at which waiting requests may go or lose patience; NEVER if only an answer can help."""
        costs = {1, self.cost(bulk=bool(self.bulk))}
        held_until = NEVER if self._held_for is None else self._held_until
        return min(self.patience, held_until, *(self.window.look_again_at(cost, now) for cost in costs))

    def took(self, line: "Line[W]") -> None:
        """Send a line that was served to the end."""
        self.in_a_row = self.in_a_row + 1 if self.bulk and not line.is_bulk else 0
        (self.bulk if line.is_bulk else self.interactive).move_to_end(line)

    @property
    def _is_bulks_turn(self) -> bool:
        return self.in_a_row >= _BULK_EVERY


@attrs.define(eq=False)
class Line(Generic[W]):
    """Requests that take the same buckets, in the order in which they came.

    Attributes:
        buckets: all of them are taken at once.
        is_bulk: the class.
        waiting: the requests, with the tick at which each loses patience.
    """

    buckets: tuple[Bucket[W], ...]
    is_bulk: bool
    waiting: OrderedDict[W, int] = attrs.field(factory=OrderedDict, init=False)

    def join(self, waiter: W, deadline: int) -> None:
        """Stand at the end."""
        self.waiting[waiter] = deadline
        for bucket in self.buckets:
            (bucket.bulk if self.is_bulk else bucket.interactive)[self] = None
            bucket.patience = min(bucket.patience, deadline)

    def leave(self, waiter: W) -> None:
        """Step out; the others move up."""
        del self.waiting[waiter]
        if not self.waiting:
            for bucket in self.buckets:
                del (bucket.bulk if self.is_bulk else bucket.interactive)[self]

    @property
    def slowest(self) -> Bucket[W]:
        """The bucket with the fewest requests in a time."""
        return max(self.buckets, key=lambda bucket: bucket.window.spacing)

    def first(self) -> W:
        """Give whoever stands first."""
        return next(iter(self.waiting))

    def may_go(self, now: int) -> bool:
        """Whether all buckets admit one request now."""
        return all(bucket.admits(self, now) for bucket in self.buckets)

    def opens_at(self, now: int, *, ahead: int = 0) -> int:
        """Give the earliest tick at which time lets so many go, and then one more."""
        return max(bucket.window.opens_at(bucket.cost(bulk=self.is_bulk) + ahead, now) for bucket in self.buckets)

    def serve(self) -> W:
        """Let the first go; the line's next turn comes after those of the others."""
        for bucket in self.buckets:
            bucket.took(self)
        waiter = self.first()
        self.leave(waiter)
        return waiter
