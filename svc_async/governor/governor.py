"""The governor: every request takes its turn here, so that no limit of the service is exceeded.

Theory of operation.

Each limit of the table (`limits.py`) becomes one *bucket* for every app, user token or ad account that it counts. A
request takes its cost from all its buckets at once, or waits for all of them. A bucket admits a request when its
*window* (`windows.py`) does: the sliding log has room, the even pace has come to it, the service's own `remaining`
covers it and all that is in flight, the gate of a 429 is open, and the concurrency is not used up.

A *slot* lives from `async with governor.slot(...)` to the answer: granted → began → settled. Left before `began()`,
the grant is refunded and the next in line is woken. Left after it without an answer, it counts as sent. Every answer
is told to `learn()`, every lost one to `lost()`:

- a bucket of which nothing is known lets one probe through, and opens when that is answered;
- inside a window of the service, `remaining` only falls; a later reset is a new window;
- a 429 closes the bucket until the later of reset and retry-after, plus jitter. Those who wait stay in line and leave
  in turn: one, then two, then four at once. If it says nothing usable, the closure is short and grows, and the rate is
  cut and recovers over a period;
- a 503 or a lost answer halves the concurrency, which then grows again with each answer.

Those who wait stand in lines (`turns.py`), are woken by answers or by one timer for each bucket, and by no task. Who
would have to wait longer than its `max_wait` is told so as soon as it is known: `WouldWaitTooLong`.

The state is only touched between awaits, so one event loop needs no lock; a governor belongs to one loop.
"""

import asyncio
import enum
import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self

import attrs

from svc_async.clock import Clock, SystemClock
from svc_async.errors import InvalidArgument, WouldWaitTooLong
from svc_async.governor.fair_queue import Bucket, Line
from svc_async.governor.limits import LIMITS, Limit, Scope
from svc_async.governor.rate_headers import SECOND, Told, heard
from svc_async.governor.windows import NEVER, Window
from svc_async.wire.route import Request, Surface

__all__ = ["BucketState", "Governor", "Priority", "Slot"]

_TOO_MANY_REQUESTS = 429
_UNAVAILABLE = 503
_MOST_ROUTES = 4_096
_MOST_IDLE = 1_000
_LONGEST_WAIT = 1e9  # seconds; infinity, too, must become ticks
_ASKS_TOTAL = ("with_total_count", "true")


class Priority(enum.Enum):
    """The class of a request."""

    INTERACTIVE = "interactive"
    """Someone waits for it: goes first, and a part of small limits is kept for it."""
    BULK = "bulk"
    """One of many: takes what is left, and at least one turn in ten."""


@attrs.frozen(kw_only=True)
class BucketState:
    """One bucket, as it stands.

    Attributes:
        name: the limit's name; for an unknown endpoint, its method and path.
        scope: whose requests are counted.
        limit: requests in a period; None if not known yet.
        used: what the service may count now.
        remaining: what the service said is left, if that still holds.
        waiting: requests in line.
        opens_at: when the next request may go, as far as time alone decides.
        closed_until: the end of a closure after a 429, if one is on.
        concurrency: how many requests may be in flight.
    """

    name: str
    scope: str
    limit: int | None
    used: int
    remaining: int | None
    waiting: int
    opens_at: datetime
    closed_until: datetime | None
    concurrency: int


class _Stage(enum.Enum):
    NEW = enum.auto()
    WAITING = enum.auto()
    GRANTED = enum.auto()
    BEGAN = enum.auto()
    OVER = enum.auto()


@attrs.frozen
class _Route:
    """What a kind of request takes."""

    buckets: "tuple[Bucket[Slot], ...]"
    account: str
    is_read: bool


@attrs.define(eq=False)
class Slot:
    """The right to send one request; an async context manager, to be used once."""

    _desk: "_Desk"
    route: _Route
    is_bulk: bool
    max_wait: float | None
    stage: _Stage = attrs.field(default=_Stage.NEW, init=False)
    granted_at: int = attrs.field(default=0, init=False)
    turn: "asyncio.Future[None] | None" = attrs.field(default=None, init=False)

    @property
    def line_key(self) -> tuple[Any, ...]:
        """Who stands in one line."""
        return self.route.buckets, self.route.account, self.is_bulk

    @property
    def is_out(self) -> bool:
        """Whether an answer is awaited."""
        return self.stage is _Stage.GRANTED or self.stage is _Stage.BEGAN

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for its turn any more."""
        return self.turn is not None and self.turn.done()

    async def __aenter__(self) -> Self:
        turn = self._desk.enter(self)
        if turn is not None:
            try:
                await turn
            except BaseException:
                self._desk.leave(self)
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._desk.leave(self)

    def began(self) -> None:
        """Tell that the request is about to be written; until then, leaving gives the grant back."""
        if self.stage is _Stage.GRANTED:
            self.stage = _Stage.BEGAN

    def learn(self, status: int, headers: Mapping[str, str]) -> None:
        """Tell the answer, whatever its status.

        Args:
            status: the HTTP status.
            headers: the headers, with names in lower case (or looked up without regard to case).
        """
        self._desk.learn(self, status, headers)

    def lost(self) -> None:
        """Tell that no answer came: a timeout or a reset connection."""
        self._desk.lost(self)


class Governor:
    """Lets requests go in turn, within the limits of the service.

    Sessions of one event loop may share one: they then share the limits, too.
    """

    def __init__(
        self,
        *,
        limits: Sequence[Limit] = LIMITS,
        headroom: float = 0.97,
        max_wait: float | None = 60.0,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Start with nothing known.

        Args:
            limits: the known limits; `limits.changed` gives the default table with one of them changed.
            headroom: the part of a limit that is used, for limits of at least 100 a minute; above 0, at most 1.
            max_wait: the patience of interactive calls in seconds; None waits as long as it takes.
            clock: the time.
            rng: where the jitter comes from.

        Raises:
            InvalidArgument: `headroom` is out of bounds.
        """
        if not 0 < headroom <= 1:
            raise InvalidArgument("headroom", "must be above 0 and at most 1")
        self.max_wait = max_wait
        self._limits = tuple(limits)
        self._headroom = headroom
        self._buckets: dict[tuple[str, Surface, str], Bucket[Slot]] = {}
        self._routes: dict[tuple[Any, ...], _Route] = {}
        self._sweep_above = _MOST_IDLE
        self._desk = _Desk(clock or SystemClock(), rng or random.Random())  # noqa: S311 - jitter is no secret

    def slot(self, request: Request[Any], *, user: str, priority: Priority, max_wait: float | None) -> Slot:
        """Give the slot of a request, to be entered with `async with`.

        Args:
            request: what will be sent; its template, method, query and account decide what it takes.
            user: names the user token, without being it: it appears in snapshots.
            priority: the class.
            max_wait: the longest wait in seconds; 0 does not wait; None waits as long as it takes.

        Raises:
            WouldWaitTooLong: on entering, or while it waits: its limit opens too late.
        """
        return Slot(self._desk, self._route(request, user), priority is Priority.BULK, max_wait)

    def snapshot(self) -> tuple[BucketState, ...]:
        """Tell the state of every bucket."""
        return tuple(self._desk.state(bucket) for bucket in self._buckets.values())

    def _route(self, request: Request[Any], user: str) -> _Route:
        account = request.scope.get("account_id", "")
        total = _ASKS_TOTAL in request.query
        key = (request.method, request.surface, request.template, user, account, total)
        route = self._routes.get(key)
        if route is None:
            if len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            self._sweep()
            route = self._routes[key] = _Route(
                self._buckets_of(request, user, account, total=total), account, request.method == "GET"
            )
        return route

    def _buckets_of(self, request: Request[Any], user: str, account: str, *, total: bool) -> tuple[Bucket[Slot], ...]:
        rows = [row for row in self._limits if row.matches(request.method, request.surface, request.template)]
        own = next((row for row in rows if not row.with_total_count), None)
        besides = [row for row in rows if row.with_total_count and total]
        first = (
            self._bucket(own, request.surface, user, account) if own else self._learned_bucket(request, user, account)
        )
        return (first, *(self._bucket(row, request.surface, user, account) for row in besides))

    def _bucket(self, row: Limit, surface: Surface, user: str, account: str) -> Bucket[Slot]:
        window = partial(Window, row.requests, round(row.period * SECOND), self._headroom, row.documented)
        return self._known_bucket(row.name, surface, _whose(row.scope, user, account), window)

    def _learned_bucket(self, request: Request[Any], user: str, account: str) -> Bucket[Slot]:
        window = partial(Window, None, SECOND, self._headroom)
        name = f"{request.method} {request.template}"
        return self._known_bucket(name, request.surface, _whose(Scope.ACCOUNT, user, account), window)

    def _known_bucket(self, name: str, surface: Surface, scope: str, window: "partial[Window]") -> Bucket[Slot]:
        key = (name, surface, scope)
        if key not in self._buckets:
            self._buckets[key] = Bucket(
                name, scope if surface is not Surface.ADS_SANDBOX else f"sandbox {scope}", window()
            )
        return self._buckets[key]

    def _sweep(self) -> None:
        if len(self._buckets) <= self._sweep_above:
            return
        self._buckets = {key: bucket for key, bucket in self._buckets.items() if not self._desk.is_idle(bucket)}
        self._routes.clear()  # they hold the buckets that were swept
        self._sweep_above = max(_MOST_IDLE, 2 * len(self._buckets))


def _whose(scope: Scope, user: str, account: str) -> str:
    if scope is Scope.ACCOUNT and account:
        return f"account {account}"
    return "app" if scope is Scope.APP else f"user {user}"


class _Desk:
    """Where slots are given out and handed in."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._lines: dict[tuple[Any, ...], Line[Slot]] = {}

    def enter(self, slot: Slot) -> "asyncio.Future[None] | None":
        """Grant at once, or put in line and give what to await."""
        if slot.stage is not _Stage.NEW:
            raise RuntimeError("a slot is entered once")
        now = self._now()
        if self._is_free(slot, now):
            self._grant(slot, now)
            return None
        line = self._line(slot)
        self._check_patience(slot, line, now)
        slot.stage = _Stage.WAITING
        slot.turn = asyncio.get_running_loop().create_future()
        line.join(slot, now + _ticks(slot.max_wait))
        self._move_up(slot.route.buckets, now)
        return slot.turn

    def leave(self, slot: Slot) -> None:
        """Take a slot back, whatever became of it."""
        stage, slot.stage = slot.stage, _Stage.OVER
        if stage is _Stage.OVER or stage is _Stage.NEW:
            return
        now = self._now()
        if stage is _Stage.WAITING:
            self._step_out(slot)
        for bucket in slot.route.buckets:
            if stage is _Stage.GRANTED:
                bucket.window.refund(1, slot.granted_at)
            elif stage is _Stage.BEGAN:
                bucket.window.settle(1, now)
        self._move_up(slot.route.buckets, now)

    def learn(self, slot: Slot, status: int, headers: Mapping[str, str]) -> None:
        """Settle with an answer."""
        if not slot.is_out:
            return
        slot.stage = _Stage.OVER
        now = self._now()
        told = heard(headers, now=now, wall=self._wall, read=slot.route.is_read)
        about = _about(slot.route.buckets, told)
        for bucket in slot.route.buckets:
            bucket.window.settle(1, now, told if bucket in about[:1] else None)
            if status == _UNAVAILABLE:
                bucket.window.troubled(slot.granted_at, now)
            elif status != _TOO_MANY_REQUESTS:
                bucket.window.answered(slot.granted_at)
            elif bucket in about:
                bucket.window.refused(told, slot.granted_at, now, self._rng.random())
        self._move_up(slot.route.buckets, now)

    def lost(self, slot: Slot) -> None:
        """Settle without an answer."""
        if not slot.is_out:
            return
        slot.stage = _Stage.OVER
        now = self._now()
        for bucket in slot.route.buckets:
            bucket.window.settle(1, now)
            bucket.window.troubled(slot.granted_at, now)
        self._move_up(slot.route.buckets, now)

    def is_idle(self, bucket: Bucket[Slot]) -> bool:
        """Whether nothing would be lost by forgetting a bucket."""
        return not bucket.is_waited_for and bucket.window.is_idle(self._now())

    def state(self, bucket: Bucket[Slot]) -> BucketState:
        """Describe a bucket."""
        now, window = self._now(), bucket.window
        return BucketState(
            name=bucket.name,
            scope=bucket.scope,
            limit=window.limit,
            used=window.used(now),
            remaining=window.remaining(now),
            waiting=sum(len(line.waiting) for line in bucket.lines),
            opens_at=self._moment(window.opens_at(1, now), now),
            closed_until=self._moment(window.closed_until, now) if window.closed_until > now else None,
            concurrency=int(window.concurrency.allowed),
        )

    def _is_free(self, slot: Slot, now: int) -> bool:
        for bucket in slot.route.buckets:
            if bucket.is_waited_for or not bucket.window.admits(bucket.cost(bulk=slot.is_bulk), now):
                return False
        return True

    def _grant(self, slot: Slot, now: int) -> None:
        slot.stage = _Stage.GRANTED
        slot.granted_at = now
        for bucket in slot.route.buckets:
            bucket.window.take(1, now)
        if slot.turn is not None:
            slot.turn.set_result(None)

    def _line(self, slot: Slot) -> Line[Slot]:
        key = slot.line_key
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(slot.route.buckets, slot.is_bulk)
        return line

    def _step_out(self, slot: Slot) -> None:
        line = self._lines[slot.line_key]
        line.leave(slot)
        self._drop_if_empty(line, slot)

    def _drop_if_empty(self, line: Line[Slot], slot: Slot) -> None:
        if not line.waiting:
            self._lines.pop(slot.line_key, None)

    def _move_up(self, buckets: Iterable[Bucket[Slot]], now: int) -> None:
        """Grant what may go, and tell those whose wait has become too long, until nothing moves."""
        pending = [bucket for bucket in buckets if bucket.is_watched]
        while pending:
            bucket = pending.pop()
            line = bucket.next_line(now)
            moved = self._serve(line, now) if line else self._turn_away(bucket, now)
            if moved:
                pending.extend(other for other in moved if other.is_watched)
            else:
                self._arm(bucket, now)

    def _serve(self, line: Line[Slot], now: int) -> tuple[Bucket[Slot], ...]:
        slot = line.first()
        if slot.is_cancelled:
            line.leave(slot)
            slot.stage = _Stage.OVER
        else:
            self._grant(line.serve(), now)
        self._drop_if_empty(line, slot)
        return line.buckets

    def _turn_away(self, bucket: Bucket[Slot], now: int) -> "set[Bucket[Slot]]":
        """Fail those who would wait too long; give the buckets that they leave."""
        left: set[Bucket[Slot]] = set()
        if now < bucket.patience and bucket.window.opens_at(1, now) <= bucket.patience:
            return left
        bucket.patience = NEVER
        for line in tuple(bucket.lines):
            opens = line.opens_at(now)
            for slot, deadline in tuple(line.waiting.items()):
                if now < deadline and opens <= deadline:
                    bucket.patience = min(bucket.patience, deadline)
                else:
                    self._refuse(slot, opens, now)
                    left.update(line.buckets)
        return left

    def _refuse(self, slot: Slot, opens: int, now: int) -> None:
        self._step_out(slot)
        slot.stage = _Stage.OVER
        if slot.turn is not None and not slot.turn.done():
            slot.turn.set_exception(self._too_long(slot, opens, now))

    def _check_patience(self, slot: Slot, line: Line[Slot], now: int) -> None:
        opens = line.opens_at(now, ahead=len(line.waiting))
        if opens > now + _ticks(slot.max_wait):
            slot.stage = _Stage.OVER
            self._drop_if_empty(line, slot)
            raise self._too_long(slot, opens, now)

    def _too_long(self, slot: Slot, opens: int, now: int) -> WouldWaitTooLong:
        slowest = max(slot.route.buckets, key=lambda bucket: bucket.window.opens_at(1, now))
        return WouldWaitTooLong(until=self._moment(opens, now), limit=slowest.name, max_wait=slot.max_wait or 0.0)

    def _arm(self, bucket: Bucket[Slot], now: int) -> None:
        """Set the bucket's one timer."""
        wake_at = bucket.look_again_at(now) if bucket.is_waited_for else NEVER
        if wake_at == bucket.wake_at:
            return
        if bucket.timer is not None:
            bucket.timer.cancel()
            bucket.timer = None
        bucket.wake_at = wake_at
        if wake_at < NEVER:
            bucket.timer = self._clock.call_later((wake_at - now) / SECOND, partial(self._wake, bucket))

    def _wake(self, bucket: Bucket[Slot]) -> None:
        bucket.timer, bucket.wake_at = None, NEVER
        self._move_up((bucket,), self._now())

    def _now(self) -> int:
        return int(self._clock.monotonic() * SECOND)

    def _wall(self) -> float:
        return self._clock.now().timestamp()

    def _moment(self, tick: int, now: int) -> datetime:
        return self._clock.now() + timedelta(microseconds=max(0, tick - now))


def _ticks(max_wait: float | None) -> int:
    return NEVER if max_wait is None else round(min(max_wait, _LONGEST_WAIT) * SECOND)


def _about(buckets: tuple[Bucket[Slot], ...], told: Told) -> tuple[Bucket[Slot], ...]:
    """Give the buckets that the headers may be about, the likeliest first.

    Unspecified: which of two limits the headers describe. The one that has just this limit, if any; else all may be
    meant, and rather one whose limit is a guess than one that is documented.
    """
    if len(buckets) == 1:
        return buckets
    same = tuple(bucket for bucket in buckets if bucket.window.limit == told.limit)
    return same or tuple(sorted(buckets, key=lambda bucket: bucket.window.exact))
