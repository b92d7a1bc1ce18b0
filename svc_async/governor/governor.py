"""The governor: every request takes its turn here, so that no limit of the service is exceeded.

Theory of operation.

Each limit of the table (`limits.py`) becomes one *bucket* for every app, user token or ad account that it counts. A
request takes its cost from all its buckets at once, or waits for all of them. A bucket admits a request when its
*window* (`windows.py`) does: the sliding log has room, the even pace has reached it, the service's own `remaining`
covers it and all that is in flight, the gate of a 429 is open, and the concurrency is not used up.

A *slot* lives from `async with governor.slot(...)` to the answer: granted → sent → settled. Left before
`mark_sent()`, the grant is refunded and the next request is woken. Left after it without an answer, it counts as sent.
Every answer is reported to `learn()`, every lost one to `mark_lost()`:

- a bucket of which nothing is known lets one probe through, and opens when that is answered;
- inside a window of the service, `remaining` only falls; a later reset is a new window;
- a 429 closes the bucket until the later of reset and retry-after, plus jitter. Waiting requests stay in the queue and
  leave in turn: one, then two, then four at once. If it says nothing usable, the closure is short and grows, and the
  rate is cut and recovers over a period;
- an overload or a lost answer halves the concurrency, which then grows again with each answer;
- while as many requests are in flight as may be, one more goes whenever none was granted for five seconds: the answers
  of all may be lost, and their timeouts far away.

Waiting requests are queued in flows (`fair_queue.py`) and granted by the scheduler. They are woken by answers, by the
store of the windows, or by one timer for each bucket, and by no task. The state is only touched between awaits, so one
event loop needs no lock. A request that cannot be granted within `max_wait` fails with `WouldWaitTooLong` as soon as
that is certain: when it comes, or when an answer changes what is firm of the limit.

Windows come from a store (`window_store.py`): counts may be local or shared. A governor that was given none takes
that of the first session with a state that opens with it. A governor belongs to one event loop.
"""

import asyncio
import enum
import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

import attrs

from svc_async.clock import Clock, SystemClock, Timer
from svc_async.errors import InvalidArgument, WouldWaitTooLong
from svc_async.governor.fair_queue import Bucket, Flow
from svc_async.governor.limits import LIMITS, BucketTable, Limit, RequestKind
from svc_async.governor.window_store import WindowStore
from svc_async.governor.windows import NEVER, SECOND, RateLimitHeaders
from svc_async.value_rules import CLOCK, SECONDS_OR_INFINITE, ValueRule, instance_of, is_number, or_none
from svc_async.wire.outcome import Effect, Outcome, Repeat, outcome_for_status
from svc_async.wire.route import Request

__all__ = ["BucketState", "Governor", "Priority", "Slot", "Stage"]


class Priority(enum.Enum):
    """The class of a request."""

    INTERACTIVE = "interactive"
    """Somebody waits for it: goes first, and a part of small limits is kept for it."""
    BULK = "bulk"
    """One of many: takes what is left, and at least one turn in ten."""


class Stage(enum.Enum):
    """The state of a slot."""

    NEW = enum.auto()
    WAITING = enum.auto()
    GRANTED = enum.auto()
    SENT = enum.auto()
    OVER = enum.auto()


@attrs.define(eq=False)
class Slot:
    """Permission to send one request; an async context manager, to be used once.

    Attributes:
        was_sent: whether the request was about to be written.
    """

    _owner: "RequestScheduler"
    kind: "RequestKind[Slot]"
    is_bulk: bool
    max_wait: float | None
    stage: Stage = attrs.field(default=Stage.NEW, init=False)
    queued_at: int = attrs.field(default=0, init=False)
    granted_at: int = attrs.field(default=0, init=False)
    turn: "asyncio.Future[None] | None" = attrs.field(default=None, init=False)
    was_sent: bool = attrs.field(default=False, init=False)

    @property
    def waited(self) -> float:
        """The seconds that the request waited for its turn, once the slot is granted."""
        return 0.0 if self.turn is None else (self.granted_at - self.queued_at) / SECOND

    @property
    def limit(self) -> str:
        """The name of the limit of its endpoint."""
        return self.kind.buckets[0].name

    @property
    def is_in_flight(self) -> bool:
        """True while an answer may still come."""
        return self.stage is Stage.GRANTED or self.stage is Stage.SENT

    @property
    def is_cancelled(self) -> bool:
        """True if the request has stopped waiting for its turn."""
        return self.turn is not None and self.turn.done()

    async def __aenter__(self) -> Self:
        turn = self._owner.enter(self)
        if turn is not None:
            try:
                await turn
            except BaseException:
                self._owner.leave(self)
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owner.leave(self)

    def mark_sent(self) -> None:
        """Note that the request is about to be written; until then, leaving refunds the grant."""
        if self.stage is Stage.GRANTED:
            self.stage = Stage.SENT
            self.was_sent = True

    def learn(self, status: int, headers: Mapping[str, str]) -> None:
        """Report the answer, whatever its status.

        Args:
            status: the HTTP status.
            headers: the headers, with names in lower case (or looked up without regard to case).
        """
        self._owner.learn(self, status, headers)

    def mark_lost(self) -> None:
        """Report that no answer came: a timeout or a reset connection."""
        self._owner.settle_lost(self)


_FIRST_ERROR = int(HTTPStatus.BAD_REQUEST)
_SUCCESS = Outcome(Effect.DONE, Repeat.NEVER)


class RequestScheduler:
    """Decides, for every slot of a governor, when it is granted and what its answer means for its buckets."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        """Start with nothing waiting.

        Args:
            clock: the time.
            rng: the source of the jitter.
        """
        self._clock = clock
        self._rng = rng
        self._flows: dict[tuple[Any, ...], Flow[Slot]] = {}
        self._timers: dict[Bucket[Slot], Timer] = {}

    def now(self) -> int:
        """Return the current tick."""
        return int(self._clock.monotonic() * SECOND)

    def to_datetime(self, tick: int, now: int) -> datetime:
        """Return the time of day of a tick; the current time for one that has passed."""
        return self._clock.now() + timedelta(microseconds=max(0, tick - now))

    def to_ticks(self, times: Iterable[datetime]) -> Sequence[int]:
        """Return the ticks of times of day that have passed; the current tick for one that has not."""
        now, today = self.now(), self._clock.now()
        return [now - max(0, round((today - time) / timedelta(microseconds=1))) for time in times]

    def enter(self, slot: Slot) -> "asyncio.Future[None] | None":
        """Grant at once, or add the slot to its flow and return what to await.

        Raises:
            WouldWaitTooLong: the slot cannot be granted within its `max_wait`.
        """
        if slot.stage is not Stage.NEW:
            raise RuntimeError("a slot is entered once")
        now = self.now()
        if _is_free(slot, now):
            self._grant(slot, now)
            return None
        key = _flow_key(slot)
        if (flow := self._flows.get(key)) is None:
            flow = self._flows[key] = Flow(slot.kind.buckets, slot.is_bulk)
        place = len(flow.waiting)
        if flow.firm_opens_at(now, ahead=place) > now + _to_ticks(slot.max_wait):
            slot.stage = Stage.OVER
            self._drop_if_empty(flow, slot)
            raise self._too_long(slot, flow, place, now)
        slot.stage, slot.queued_at = Stage.WAITING, now
        slot.turn = asyncio.get_running_loop().create_future()
        flow.join(slot, now + _to_ticks(slot.max_wait))
        self._advance(slot.kind.buckets, now)
        return slot.turn

    def leave(self, slot: Slot) -> None:
        """Take a slot back, whatever became of it."""
        stage, slot.stage = slot.stage, Stage.OVER
        if stage is Stage.OVER:
            return
        now = self.now()
        if stage is Stage.WAITING:
            self._remove(slot)
        for bucket in slot.kind.buckets:
            if stage is Stage.GRANTED:
                bucket.window.refund(1, slot.granted_at)
            elif stage is Stage.SENT:
                bucket.window.settle(1, now)
        self._advance(slot.kind.buckets, now)

    def learn(self, slot: Slot, status: int, headers: Mapping[str, str]) -> None:
        """Settle a slot with an answer."""
        if not slot.is_in_flight:
            return
        slot.stage = Stage.OVER
        now = self.now()
        outcome = outcome_for_status(status, headers=headers) if status >= _FIRST_ERROR else _SUCCESS
        is_429 = _closes_gate(outcome)
        parsed = RateLimitHeaders.parse(
            headers, now=now, wall=self._clock.now, is_read=slot.kind.is_read, is_429=is_429
        )
        described = _find_described(slot.kind.buckets, parsed)
        for bucket in slot.kind.buckets:
            bucket.window.settle(1, now, parsed if bucket in described[:1] else None)
            if outcome.overload:
                bucket.window.on_overload(slot.granted_at, now)
            elif not is_429:
                bucket.window.on_success(slot.granted_at)
            elif bucket in described:
                bucket.window.on_rate_limited(parsed, slot.granted_at, now, self._rng.random())
            if outcome is _SUCCESS and parsed.is_silent:
                bucket.window.retire_guess(now)
        self._advance(slot.kind.buckets, now)

    def settle_lost(self, slot: Slot) -> None:
        """Settle a slot without an answer."""
        if not slot.is_in_flight:
            return
        slot.stage = Stage.OVER
        now = self.now()
        for bucket in slot.kind.buckets:
            bucket.window.settle(1, now)
            bucket.window.on_overload(slot.granted_at, now)
        self._advance(slot.kind.buckets, now)

    def recheck(self, bucket: Bucket[Slot]) -> None:
        """Look again at a bucket whose window was changed by its store."""
        if bucket.needs_attention:
            self._advance((bucket,), self.now())

    def find_gate(self, slot: Slot) -> datetime | None:
        """Return until when a 429 keeps the buckets of a slot closed; None if it does not."""
        now = self.now()
        closed_until = max(bucket.window.state(now).closed_until for bucket in slot.kind.buckets)
        return self.to_datetime(closed_until, now) if closed_until > now else None

    def is_idle(self, bucket: Bucket[Slot]) -> bool:
        """Return whether nothing would be lost by forgetting a bucket."""
        return not bucket.has_waiters and bucket.window.is_idle(self.now())

    def _grant(self, slot: Slot, now: int) -> None:
        slot.stage = Stage.GRANTED
        slot.granted_at = now
        for bucket in slot.kind.buckets:
            bucket.window.take(1, now)
        if slot.turn is not None:
            slot.turn.set_result(None)

    def _remove(self, slot: Slot) -> None:
        flow = self._flows[_flow_key(slot)]
        flow.leave(slot)
        self._drop_if_empty(flow, slot)

    def _drop_if_empty(self, flow: Flow[Slot], slot: Slot) -> None:
        if not flow.waiting:
            self._flows.pop(_flow_key(slot), None)

    def _advance(self, buckets: Iterable[Bucket[Slot]], now: int) -> None:
        """Grant what may go and reject what would wait too long, until nothing moves."""
        pending = [bucket for bucket in buckets if bucket.needs_attention]
        while pending:
            bucket = pending.pop()
            flow = bucket.next_flow(now)
            moved = self._serve(flow, now) if flow else self._reject_late(bucket, now)
            if moved:
                pending.extend(other for other in moved if other.needs_attention)
            else:
                self._await_change(bucket, now)

    def _serve(self, flow: Flow[Slot], now: int) -> tuple[Bucket[Slot], ...]:
        slot = flow.first()
        if slot.is_cancelled:
            flow.leave(slot)
            slot.stage = Stage.OVER
        else:
            self._grant(flow.serve(), now)
        self._drop_if_empty(flow, slot)
        return flow.buckets

    def _reject_late(self, bucket: Bucket[Slot], now: int) -> Iterable[Bucket[Slot]]:
        """Reject the requests that would wait too long; return the buckets that they leave."""
        left: dict[Bucket[Slot], None] = {}  # a set's order would depend on addresses in memory
        for flow, late in bucket.find_late(now):
            left.update(dict.fromkeys(flow.buckets))
            for place, slot in late:
                self._end_wait(slot, flow, place, now)
        return left

    def _end_wait(self, slot: Slot, flow: Flow[Slot], place: int, now: int) -> None:
        """Reject a request that waits too long; if its time is over and only a guessed limit keeps it, let it go."""
        is_over = flow.waiting[slot] <= now
        self._remove(slot)
        is_due = is_over and not slot.is_cancelled
        if is_due and all(bucket.window.admits_beyond_guess(1, now) for bucket in slot.kind.buckets):
            self._grant(slot, now)
            return
        slot.stage = Stage.OVER
        if slot.turn is not None and not slot.turn.done():
            slot.turn.set_exception(self._too_long(slot, flow, place, now))

    def _too_long(self, slot: Slot, flow: Flow[Slot], place: int, now: int) -> WouldWaitTooLong:
        opens, bucket = flow.find_firm_turn(now, ahead=place)
        if opens <= now:  # so an answer decides, or the turns of other processes
            opens, bucket = flow.find_shared_turn(now)
        return WouldWaitTooLong(
            until=self.to_datetime(opens, now),
            limit=bucket.name,
            max_wait=slot.max_wait or 0.0,
            retry_after=max(0, opens - now) / SECOND,
        )

    def _await_change(self, bucket: Bucket[Slot], now: int) -> None:
        """Set the bucket's one timer, and let its window prepare for the requests that wait."""
        wake_at = NEVER
        if bucket.has_waiters:
            bucket.window.request_capacity(bucket.count_waiting, now)
            wake_at = bucket.next_check_at(now)
        if wake_at == bucket.wake_at:
            return
        timer = self._timers.pop(bucket, None)
        if timer is not None:
            timer.cancel()
        bucket.wake_at = wake_at
        if wake_at < NEVER:
            self._timers[bucket] = self._clock.call_later((wake_at - now) / SECOND, partial(self._wake, bucket))

    def _wake(self, bucket: Bucket[Slot]) -> None:
        del self._timers[bucket]
        bucket.wake_at = NEVER
        self._advance((bucket,), self.now())


def _is_free(slot: Slot, now: int) -> bool:
    for bucket in slot.kind.buckets:
        if bucket.has_waiters or not bucket.window.admits(bucket.cost(bulk=slot.is_bulk), now):
            return False
    return True


def _flow_key(slot: Slot) -> tuple[Any, ...]:
    return slot.kind.buckets, slot.kind.account, slot.is_bulk


def _to_ticks(max_wait: float | None) -> int:
    return NEVER if max_wait is None else round(min(max_wait * SECOND, NEVER))


def _closes_gate(outcome: Outcome) -> bool:
    """Return whether an answer was refused for its rate.

    Not after a 420, which no wait makes repeatable: only streams receive it, and they back off by themselves.
    """
    return outcome.throttled and outcome.repeat is not Repeat.NEVER


def _find_described(buckets: tuple[Bucket[Slot], ...], headers: RateLimitHeaders) -> tuple[Bucket[Slot], ...]:
    """Return the buckets that the headers may describe, the likeliest first.

    Unspecified: which of two limits the headers describe. It is the one with just this limit, if any; otherwise all
    may be meant, and rather one whose limit is a guess than one that is documented.
    """
    if len(buckets) == 1:
        return buckets
    same = tuple(bucket for bucket in buckets if bucket.window.limit == headers.limit)
    return same or tuple(sorted(buckets, key=lambda bucket: bucket.window.documented))


_RULES: Mapping[str, ValueRule] = {
    "headroom": ValueRule(lambda value: is_number(value) and 0 < value <= 1, "above 0 and at most 1"),
    "max_wait": or_none(SECONDS_OR_INFINITE, "no limit"),
    "limits": ValueRule(
        lambda value: isinstance(value, Sequence) and all(isinstance(each, Limit) for each in value),
        "a sequence of Limit, such as LIMITS",
    ),
    "windows": or_none(instance_of(WindowStore, "a store of windows, such as state.windows()")),
    "clock": or_none(CLOCK),
    "rng": or_none(instance_of(random.Random, "random.Random(...)")),
}

_COUNTS_ELSEWHERE: Final = (
    "must count in the state of this session, and counts elsewhere already: give all its sessions one "
    "`state = SharedState.open()`, as in Session.from_env(governor=governor, state=state), or this one "
    "a new Governor(...)"
)


@attrs.frozen(kw_only=True)
class BucketState:
    """One bucket at the time of a snapshot.

    Attributes:
        name: the limit's name; for an unknown endpoint, its method and path template.
        scope: whose requests are counted.
        limit: requests per period; None if it is not known yet.
        used: what the service may count now.
        remaining: what the service reported as remaining, if that is still valid.
        waiting: requests in the queue.
        opens_at: when the next request may go, as far as time alone decides.
        closed_until: the end of a closure after a 429, if there is one.
        concurrency: how many requests may be in flight.
        is_degraded: a shared count cannot be reached, and this process keeps to its share of the limit.
        turn_at: when the next of the waiting requests may go, as far as time alone decides; None if none waits. It may
            be later than `opens_at`, since bulk leaves a part of some limits to interactive requests.
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
    is_degraded: bool = False
    turn_at: datetime | None = None


class Governor:
    """Grants requests in turn, within the limits of the service.

    Sessions of one event loop may share one: they then share the limits, too. Entering it (`async with`) opens the
    store of its windows. Sessions with a state do that by themselves, and with the default store it is optional.

    Attributes:
        id: identifies it among the governors of all processes, so that a job need not report what it has counted.
        windows: where requests are counted.
        clock: the time.
    """

    def __init__(
        self,
        *,
        limits: Sequence[Limit] = LIMITS,
        headroom: float = 0.97,
        max_wait: float | None = 60.0,
        windows: WindowStore | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Start with nothing known.

        Args:
            limits: the known limits; `limits.change_limit` returns the default table with one of them changed.
            headroom: the share of a limit that is used, for limits of at least 100 a minute; above 0, at most 1.
            max_wait: how long interactive calls wait in seconds; None waits as long as it takes.
            windows: where requests are counted; by default, in the state of the first session that opens with it and
                has one, else in this process.
            clock: the time.
            rng: the source of the jitter.

        Raises:
            InvalidArgument: names the setting that breaks its rule.
        """
        given = (headroom, max_wait, limits, windows, clock, rng)
        for (name, rule), value in zip(_RULES.items(), given, strict=True):
            rule.check(name, value)
        self.max_wait = max_wait
        self.id = uuid4().hex
        self.clock = clock or SystemClock()
        self.windows = WindowStore() if windows is None else windows
        self._has_store = windows is not None
        self._entered: list[WindowStore] = []
        self._scheduler = RequestScheduler(self.clock, rng or random.Random())  # noqa: S311 - jitter is no secret
        self._buckets: BucketTable[Slot] = BucketTable(
            limits,
            headroom=headroom,
            windows=self.windows,
            is_idle=self._scheduler.is_idle,
            on_change=self._scheduler.recheck,
        )

    async def __aenter__(self) -> Self:
        windows = self.windows
        await windows.open()
        self._entered.append(windows)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._entered:
            await self._entered.pop().close()

    def use_windows(self, windows: WindowStore) -> None:
        """Choose where requests are counted; a session that has a state calls this when it opens.

        Args:
            windows: the store.

        Raises:
            InvalidArgument: it was given another store, or has counted a request.
        """
        if self._has_store or any(self._buckets):
            raise InvalidArgument("governor", _COUNTS_ELSEWHERE)
        self.windows = self._buckets.windows = windows
        self._has_store = True

    def slot(self, request: Request[Any], *, user: str, priority: Priority, max_wait: float | None) -> Slot:
        """Return the slot of a request, to be entered with `async with`.

        Args:
            request: what will be sent; its template, method, query and account decide what it takes.
            user: names the user token, without being it: it appears in snapshots.
            priority: the class.
            max_wait: the longest wait in seconds; 0 does not wait; None waits as long as it takes.

        Raises:
            WouldWaitTooLong: on entering, or while it waits: its limit opens too late.
        """
        kind = self._buckets.classify(request, user)
        return Slot(self._scheduler, kind, priority is Priority.BULK, max_wait)

    def restore(self, request: Request[Any], *, user: str, sent_at: Iterable[datetime]) -> None:
        """Count requests that an earlier process sent, so that a restart does not exceed the limit.

        Call it before the first request is sent. What was sent longer ago than the period of its limit counts no more;
        a time in the future, which only a clock that was set back can produce, counts as now. A store of windows that
        outlives the process has counted them, and ignores this.

        Args:
            request: one like those that were sent; its template, method, query and account decide what they took.
            user: as for `slot`.
            sent_at: when each of them was sent, in any order.
        """
        ticks = self._scheduler.to_ticks(sent_at)
        for bucket in self._buckets.classify(request, user).buckets:
            bucket.window.restore(ticks)

    def find_pace(self, request: Request[Any]) -> float | None:
        """Return how many requests like this one a second the table of limits admits; None if it has no limit."""
        return self._buckets.find_pace(request)

    def find_gate(self, slot: Slot) -> datetime | None:
        """Return until when no request like that of a slot is granted, after a 429; None if nothing keeps it."""
        return self._scheduler.find_gate(slot)

    def snapshot(self) -> tuple[BucketState, ...]:
        """Return the state of every bucket."""
        return tuple(map(self._describe, self._buckets))

    def _describe(self, bucket: Bucket[Slot]) -> BucketState:
        now = self._scheduler.now()
        state, demand, turn = bucket.window.state(now), bucket.count_waiting(), bucket.find_turn(now)
        return BucketState(
            name=bucket.name,
            scope=bucket.scope,
            limit=state.limit,
            used=state.used,
            remaining=state.remaining,
            waiting=demand.interactive + demand.bulk,
            opens_at=self._scheduler.to_datetime(state.opens_at, now),
            closed_until=self._scheduler.to_datetime(state.closed_until, now) if state.closed_until > now else None,
            concurrency=state.concurrency,
            is_degraded=state.is_degraded,
            turn_at=None if turn is None else self._scheduler.to_datetime(turn, now),
        )
