"""Keep a stream connected.

    connect      requesting the events that were missed without a connection
    read         until the connection ends, is dropped, stalls or is closed by the service with a message
    back off     as the rule for that reason says, and connect again; a final error ends the stream

The watermark advances only once a connection has lived for the minimum age: until then, a failure requests again all
that the failed connection was to deliver. What is too old for a backfill is requested by a replay on a second
connection: beside the live one, or before it where the service allows one connection only.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta

import attrs

from svc_async.clock import Clock
from svc_async.engine.transport import OpenStream
from svc_async.errors import ApiError, BadRequest, Forbidden, StreamDropped, StreamOverflow, SvcError
from svc_async.monitoring import StreamGapEvent, StreamStateEvent, Subscribers
from svc_async.streams.ingest import EventIngest
from svc_async.streams.reconnect_policy import ReconnectPolicy, Reconnects
from svc_async.streams.recovery import (
    BACKFILL_REACH,
    NO_REACH,
    Gap,
    GapRecovery,
    build_backfill_params,
    build_replay_params,
    find_gaps,
    is_refused_authentication,
)
from svc_async.streams.states import StateChange, StreamState
from svc_async.wire.params import Param

__all__ = ["ReconnectingReader", "StreamObservers", "StreamSource"]

_log = logging.getLogger("svc_async")

_NOT_AUTHENTICATED = (
    "authentication failed when missed events were requested: %s; check the app's key and secret, or give a "
    "bearer token that you have: SVC_BEARER_TOKEN, BearerToken"
)
_MAX_REPLAYS = 5
"""Attempts to recover one gap."""


@attrs.frozen(kw_only=True)
class StreamSource:
    """Where a stream comes from.

    Attributes:
        connect: opens a connection with these parameters, for the duration of the block.
        max_connections: how many may be open at once.
    """

    connect: Callable[[Mapping[str, Param]], AbstractAsyncContextManager[OpenStream]]
    max_connections: int


@attrs.frozen(kw_only=True)
class StreamObservers:
    """The callbacks for the events in a stream's life.

    Attributes:
        on_state: called on every state change.
        on_gap: called for every gap.
        path: the path of the stream, for the subscribers.
        subscribers: what receives the events of the session.
    """

    on_state: Callable[[StateChange], object] | None = None
    on_gap: Callable[[Gap], object] | None = None
    path: str = ""
    subscribers: Subscribers = attrs.field(factory=Subscribers)


@attrs.define(eq=False, kw_only=True)
class ReconnectingReader:
    """Reads one stream until it is cancelled or reconnecting cannot help.

    Attributes:
        reach: how far back missed events can be requested.
        opened: set once a connection has been opened.
    """

    source: StreamSource
    ingest: EventIngest
    observers: StreamObservers
    reconnects: Reconnects
    clock: Clock
    rng: random.Random
    reach: timedelta
    state: StreamState = attrs.field(default=StreamState.CONNECTING, init=False)
    opened: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    _opened_at: float | None = attrs.field(default=None, init=False)
    _is_requesting_backfill: bool = attrs.field(default=False, init=False)
    _recovery_error: SvcError | None = attrs.field(default=None, init=False)
    _replay_lock: asyncio.Lock = attrs.field(factory=asyncio.Lock, init=False)

    async def run(self) -> None:
        """Connect, read and back off, without end.

        Raises:
            ExceptionGroup: contains the error that reconnecting cannot help against.
        """
        policy = ReconnectPolicy(self.reconnects)
        async with asyncio.TaskGroup() as replays:
            while True:
                try:
                    await self._connect_and_read(replays)
                except SvcError as error:
                    await self._back_off(error, policy)

    def change_state(self, state: StreamState, error: SvcError | None = None, wait: float | None = None) -> None:
        """Enter a state and notify the observer."""
        self.state = state
        if self.observers.on_state is not None:
            self.observers.on_state(StateChange(state=state, error=error, wait=wait))
        if self.observers.subscribers.functions:
            path = self.observers.path
            self.observers.subscribers.notify(StreamStateEvent(path=path, state=state.value, error=error, wait=wait))

    async def _connect_and_read(self, replays: asyncio.TaskGroup) -> None:
        """Connect and read; the end of a connection is an error as well."""
        self.change_state(StreamState.CONNECTING)
        gaps = self._find_gaps(self.reach)
        if self.source.max_connections == 1 and gaps and gaps[-1].recovery is GapRecovery.REPLAY:
            await self._replay_gap(gaps[-1])
            gaps = gaps[:-1] + self._find_gaps(min(self.reach, BACKFILL_REACH))
        can_recover = gaps and gaps[-1].recovery is not GapRecovery.NONE
        params = build_backfill_params(gaps[-1]) if can_recover else {}
        self._is_requesting_backfill = bool(params)
        async with self.source.connect(params) as connection:
            self._is_requesting_backfill = False
            self._opened_at = self.clock.monotonic()
            self.ingest.stats.connects += 1
            self.ingest.watermark = self.ingest.watermark or self.clock.now()
            self.change_state(StreamState.OPEN)
            self.opened.set()
            for gap in gaps:
                if gap.recovery is GapRecovery.REPLAY:
                    replays.create_task(self._replay_gap(gap))
                else:
                    self._report_gap(gap)
            await self.ingest.read(connection, on_chunk=self._advance_watermark)
        raise StreamDropped("the stream ended")

    def _find_gaps(self, reach: timedelta) -> tuple[Gap, ...]:
        start = self.ingest.watermark
        return () if start is None else find_gaps(start, self.clock.now(), reach=reach)

    def _advance_watermark(self, arrived_at: datetime) -> None:
        if self._connection_age() >= self.reconnects.min_age:
            self.ingest.watermark = arrived_at

    def _connection_age(self) -> float:
        return 0.0 if self._opened_at is None else self.clock.monotonic() - self._opened_at

    async def _back_off(self, error: SvcError, policy: ReconnectPolicy) -> None:
        age = self._connection_age()
        self.ingest.stats.refusals += self._opened_at is None
        self._opened_at = None
        if self._is_requesting_backfill and self._judge_refusal(error):
            return
        delay = self._next_delay(error, policy, age)
        if delay is None:
            raise error
        self.change_state(StreamState.BACKOFF, error, delay)
        await self.clock.sleep(delay)

    def _next_delay(self, error: SvcError, policy: ReconnectPolicy, age: float) -> float | None:
        retry_at = error.retry_at if isinstance(error, ApiError) else None
        retry_after = (retry_at - self.clock.now()).total_seconds() if retry_at else 0.0
        reason = policy.classify(error, age=age)
        return policy.next_delay(reason, age=age, retry_after=retry_after, sample=self.rng.random())

    async def _replay_gap(self, gap: Gap) -> None:
        """Recover a gap by replays, one gap at a time, and report the result."""
        self.ingest.pending.append(gap.start)
        self.ingest.watermark = gap.end
        policy, failures = ReconnectPolicy(self.reconnects), 0
        async with self._replay_lock:
            while (error := await self._replay_once(gap)) is not None:
                failures += 1
                delay = self._next_delay(error, policy, age=0.0)
                if delay is None or failures == _MAX_REPLAYS:
                    break
                await self.clock.sleep(delay)
        self.ingest.pending.remove(gap.start)
        self._report_gap(attrs.evolve(gap, recovery=GapRecovery.NONE, error=error) if error else gap)

    async def _replay_once(self, gap: Gap) -> SvcError | None:
        try:
            async with self.source.connect(build_replay_params(gap)) as connection:
                self.ingest.stats.connects += 1
                self.opened.set()
                await self.ingest.read(connection, on_chunk=lambda _: None, until_quiet=True)
        except StreamOverflow:
            raise
        except SvcError as error:
            self.ingest.stats.refusals += not isinstance(error, StreamDropped)
            self._judge_refusal(error)
            return error
        return None

    def _judge_refusal(self, error: SvcError) -> bool:
        """Return whether the service refuses to recover missed events, which then are no longer requested."""
        if is_refused_authentication(error):
            _log.warning(_NOT_AUTHENTICATED, error)
            return False
        if not isinstance(error, BadRequest | Forbidden):
            return False
        if self.reach:  # a service that refuses these unspecified parameters once always does
            self.reach, self._recovery_error = NO_REACH, error
            _log.warning("the service refused to recover missed events, which are no longer requested: %s", error)
        return True

    def _report_gap(self, gap: Gap) -> None:
        if gap.recovery is GapRecovery.NONE:
            self.ingest.stats.lost += 1
            gap = attrs.evolve(gap, error=gap.error or self._recovery_error)
        if self.observers.on_gap is not None:
            self.observers.on_gap(gap)
        if self.observers.subscribers.functions:
            seconds = (gap.end - gap.start).total_seconds()
            self.observers.subscribers.notify(
                StreamGapEvent(path=self.observers.path, seconds=seconds, recovery=gap.recovery.value)
            )
