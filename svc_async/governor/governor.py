"""The governor: every request takes its turn here, so that no limit of the service is exceeded.

Theory of operation.

Each limit of the table (`limits.py`) becomes one *bucket* for every app, user token or ad account that it counts
(`buckets.py`). A request takes its cost from all its buckets at once, or waits for all of them. A bucket admits a
request when its *window* (`windows.py`) does: the sliding log has room, the even pace has reached it, the service's own
`remaining` covers it and all that is in flight, the gate of a 429 is open, and the concurrency is not used up.

A *slot* (`slot.py`) lives from `async with governor.slot(...)` to the answer: granted → sent → settled. Left before
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

Waiting requests are queued in flows (`fair_queue.py`) and granted by the scheduler (`scheduler.py`). A request that
cannot be granted within `max_wait` fails with `WouldWaitTooLong` as soon as that is certain: when it comes, or when an
answer changes what is firm of the limit.

Windows come from a store (`window_store.py`): counts may be local or shared. A governor that was given none takes
that of the first session with a state that opens with it. A governor belongs to one event loop.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

import attrs

from svc_async.clock import Clock, SystemClock
from svc_async.errors import InvalidArgument
from svc_async.governor.fair_queue import Bucket
from svc_async.governor.limits import LIMITS, BucketTable, Limit
from svc_async.governor.scheduler import Priority, RequestScheduler, Slot
from svc_async.governor.window_store import LocalWindows, WindowStore
from svc_async.value_rules import CLOCK, SECONDS_OR_INFINITE, ValueRule, has_members, instance_of, is_number, or_none
from svc_async.wire.route import Request

__all__ = ["BucketState", "Governor"]


def _are_limits(value: object) -> bool:
    return isinstance(value, Sequence) and all(isinstance(each, Limit) for each in value)


_RULES: Mapping[str, ValueRule] = {
    "headroom": ValueRule(lambda value: is_number(value) and 0 < value <= 1, "above 0 and at most 1"),
    "max_wait": or_none(SECONDS_OR_INFINITE, "no limit"),
    "limits": ValueRule(_are_limits, "a sequence of Limit, such as LIMITS"),
    "windows": or_none(has_members("a store of windows, such as state.windows()", "open", "close")),
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
        self.windows = LocalWindows() if windows is None else windows
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
