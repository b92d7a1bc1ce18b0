"""Keeps a stream connected.

    connect      asking for what the time without a connection has missed
    read         until it ends, breaks off, falls silent or says that it disconnects
    back off     as the lane of that failure says, and again; a failure that no repeat changes ends the stream

The moment until which nothing is missing moves on only once a connection has lived for the minimum age: until then,
a failure asks again for all that the failed connection was to bring. What is too old for a new connection comes by a
side connection: beside it, or before it where the service allows one connection only.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta

import attrs

from svc_async.clock import Clock
from svc_async.errors import ApiError, BadRequest, Forbidden, StreamDropped, StreamOverflow, SvcError
from svc_async.streams.ingest import Connection, Inlet
from svc_async.streams.reconnect_policy import Lanes, Reconnects
from svc_async.streams.recovery import BACKFILL_REACH, NO_REACH, Cover, Gap, backfill, gaps, replay
from svc_async.streams.states import StateChange, StreamState
from svc_async.wire.params import Param

__all__ = ["Observers", "Reader", "Source"]

_log = logging.getLogger("svc_async")

_MOST_REPLAYS = 5
"""Attempts at one gap."""


@attrs.frozen(kw_only=True)
class Source:
    """Where a stream comes from.

    Attributes:
        connect: opens a connection with these parameters, for as long as the block lasts.
        connections: how many may be open at once.
    """

    connect: Callable[[Mapping[str, Param]], AbstractAsyncContextManager[Connection]]
    connections: int


@attrs.frozen(kw_only=True)
class Observers:
    """Who is told of a stream's life."""

    on_state: Callable[[StateChange], object] | None = None
    on_gap: Callable[[Gap], object] | None = None


@attrs.define(eq=False, kw_only=True)
class Reader:
    """Reads one stream until it is cancelled or no repeat helps.

    Attributes:
        reach: how far back the service can be asked for what was missed.
        opened: set once a connection has been opened.
    """

    source: Source
    inlet: Inlet
    observers: Observers
    reconnects: Reconnects
    clock: Clock
    rng: random.Random
    reach: timedelta
    state: StreamState = attrs.field(default=StreamState.CONNECTING, init=False)
    opened: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    _opened_at: float | None = attrs.field(default=None, init=False)
    _asks_for_missed: bool = attrs.field(default=False, init=False)
    _why_not: SvcError | None = attrs.field(default=None, init=False)
    _one_side: asyncio.Lock = attrs.field(factory=asyncio.Lock, init=False)

    async def run(self) -> None:
        """Connect, read and back off, for ever.

        Raises:
            ExceptionGroup: holds the error that no repeat helps against.
        """
        lanes = Lanes(self.reconnects)
        async with asyncio.TaskGroup() as sides:
            while True:
                try:
                    await self._listen(sides)
                except SvcError as error:
                    await self._back_off(error, lanes)

    def tell(self, state: StreamState, error: SvcError | None = None, wait: float | None = None) -> None:
        """Come to a state."""
        self.state = state
        if self.observers.on_state is not None:
            self.observers.on_state(StateChange(state=state, error=error, wait=wait))

    async def _listen(self, sides: asyncio.TaskGroup) -> None:
        """Connect and read; the end of a connection is an error, too."""
        self.tell(StreamState.CONNECTING)
        missed = self._missed(self.reach)
        if self.source.connections == 1 and missed and missed[-1].cover is Cover.REPLAY:
            await self._make_good(missed[-1])
            missed = missed[:-1] + self._missed(min(self.reach, BACKFILL_REACH))
        params = backfill(missed[-1]) if missed and missed[-1].cover is not Cover.NONE else {}
        self._asks_for_missed = bool(params)
        async with self.source.connect(params) as connection:
            self._asks_for_missed = False
            self._note_opening()
            for gap in missed:
                self._see_to(gap, sides)
            await self.inlet.read(connection, on_chunk=self._settle)
        raise StreamDropped("the stream ended")

    def _missed(self, reach: timedelta) -> tuple[Gap, ...]:
        start = self.inlet.safe_at
        return () if start is None else gaps(start, self.clock.now(), reach=reach)

    def _note_opening(self) -> None:
        self._opened_at = self.clock.monotonic()
        self.inlet.stats.connects += 1
        self.inlet.safe_at = self.inlet.safe_at or self.clock.now()
        self.tell(StreamState.OPEN)
        self.opened.set()

    def _see_to(self, gap: Gap, sides: asyncio.TaskGroup) -> None:
        if gap.cover is Cover.REPLAY:
            sides.create_task(self._make_good(gap))
        else:
            self._tell_gap(gap)

    def _settle(self, came_at: datetime) -> None:
        if self._age() >= self.reconnects.min_age:
            self.inlet.safe_at = came_at

    def _age(self) -> float:
        return 0.0 if self._opened_at is None else self.clock.monotonic() - self._opened_at

    async def _back_off(self, error: SvcError, lanes: Lanes) -> None:
        age = self._age()
        self.inlet.stats.refusals += self._opened_at is None
        self._opened_at = None
        if self._asks_for_missed and isinstance(error, BadRequest | Forbidden):
            self._stop_asking(error)
            return
        wait = self._wait(error, lanes, age)
        if wait is None:
            raise error
        self.tell(StreamState.BACKOFF, error, wait)
        await self._pause(wait)

    def _wait(self, error: SvcError, lanes: Lanes, age: float) -> float | None:
        retry_at = error.retry_at if isinstance(error, ApiError) else None
        asked = (retry_at - self.clock.now()).total_seconds() if retry_at else 0.0
        return lanes.wait(lanes.outcome(error, age=age), age=age, asked=asked, chance=self.rng.random())

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            await self.clock.sleep(seconds)
        else:
            await asyncio.sleep(0)

    async def _make_good(self, gap: Gap) -> None:
        """Bring a gap by side connections, one gap at a time."""
        self.inlet.pending.append(gap.start)
        self.inlet.safe_at = gap.end
        async with self._one_side:
            error = await self._replay(gap)
        self.inlet.pending.remove(gap.start)
        self._tell_gap(attrs.evolve(gap, cover=Cover.NONE, error=error) if error else gap)

    async def _replay(self, gap: Gap) -> SvcError | None:
        """Bring a gap, or give what it failed for in the end."""
        lanes, failures = Lanes(self.reconnects), 0
        while (error := await self._side(gap)) is not None:
            failures += 1
            wait = self._wait(error, lanes, age=0.0)
            if wait is None or failures == _MOST_REPLAYS:
                break
            await self._pause(wait)
        return error

    async def _side(self, gap: Gap) -> SvcError | None:
        try:
            async with self.source.connect(replay(gap)) as connection:
                self.inlet.stats.connects += 1
                self.opened.set()
                await self.inlet.read(connection, on_chunk=lambda _: None, until_quiet=True)
        except StreamOverflow:
            raise
        except SvcError as error:
            self.inlet.stats.refusals += not isinstance(error, StreamDropped)
            if isinstance(error, BadRequest | Forbidden):
                self._stop_asking(error)
            return error
        return None

    def _stop_asking(self, error: SvcError) -> None:
        """Unspecified parameters may be refused, and then always: go on without what they would bring."""
        if not self.reach:
            return
        self.reach, self._why_not = NO_REACH, error
        _log.warning("the service does not make good what a stream missed, so it is not asked any more: %s", error)

    def _tell_gap(self, gap: Gap) -> None:
        if gap.cover is Cover.NONE:
            self.inlet.stats.lost += 1
            gap = attrs.evolve(gap, error=gap.error or self._why_not)
        if self.observers.on_gap is not None:
            self.observers.on_gap(gap)
