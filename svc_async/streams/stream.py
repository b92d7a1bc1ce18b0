"""The stream as its user sees it: entered, iterated, left."""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Literal, Self, get_args

import attrs

from svc_async.clock import Clock
from svc_async.engine.pipeline import Pipeline
from svc_async.errors import InvalidArgument, SvcError
from svc_async.events.models import Event
from svc_async.events.router import EventRouter
from svc_async.streams.buffer import Buffer, Overflow
from svc_async.streams.ingest import Connection, Inlet, Waiting
from svc_async.streams.reader import Observers, Reader, Source
from svc_async.streams.recent_keys import Seen
from svc_async.streams.reconnect_policy import Reconnects
from svc_async.streams.recovery import NO_REACH, REPLAY_REACH, Gap
from svc_async.streams.states import Checkpoint, Malformed, StateChange, StreamState, StreamStats
from svc_async.wire.params import Param
from svc_async.wire.route import Route

__all__ = ["EventStream", "Recover", "StreamSettings"]

Recover = Literal["auto", "off"]

_SEEN = 100_000
"""Keys that are remembered: more than a connection's backfill holds of a busy stream."""


def _positive(_: object, field: "attrs.Attribute[Any]", value: float) -> None:
    if value <= 0:
        raise InvalidArgument(field.name, "must be greater than 0")


@attrs.frozen(kw_only=True)
class StreamSettings:
    """How a stream behaves.

    Attributes:
        recover: `auto` asks the service for what was missed while no connection was open.
        since: where an earlier stream was left.
        dedupe: hide events that came before.
        queue_size: events that may wait to be taken.
        overflow: what becomes of an event that finds the queue full.
        stall_timeout: seconds of silence after which a connection counts as dead.
        max_line_bytes: the longest line that is read.
        reconnects: how the stream comes back.
        on_state: told of every step of the stream's life.
        on_gap: told of every time without a connection, and how it is made good.
        on_malformed: given every line that is no event, instead of the log.
    """

    recover: Recover = "auto"
    since: Checkpoint | None = None
    dedupe: bool = True
    queue_size: int = attrs.field(default=10_000, validator=_positive)
    overflow: Overflow = "block"
    # Unspecified: a heartbeat comes at least every 20 seconds (contract UNS-stream-protocol); this leaves it a margin.
    stall_timeout: float = attrs.field(default=25.0, validator=_positive)
    max_line_bytes: int = attrs.field(default=8 * 2**20, validator=_positive)
    reconnects: Reconnects = attrs.field(factory=Reconnects)
    on_state: Callable[[StateChange], object] | None = None
    on_gap: Callable[[Gap], object] | None = None
    on_malformed: Callable[[Malformed], object] | None = None

    def __attrs_post_init__(self) -> None:
        if self.recover not in get_args(Recover):
            raise InvalidArgument("recover", f"must be one of {', '.join(get_args(Recover))}")
        if self.overflow not in get_args(Overflow):
            raise InvalidArgument("overflow", f"must be one of {', '.join(get_args(Overflow))}")


class EventStream:
    """A stream of events: an async context manager, and inside it an async iterator.

    Entering waits until the stream is open for the first time. Leaving closes the connection and drops what was not
    taken. An error that no repeat helps against is raised once all that came before it has been taken.

    Args:
        source: where it comes from.
        settings: how it behaves.
        clock: the time.
        rng: where the jitter comes from.
    """

    def __init__(
        self, source: Source, settings: StreamSettings, *, clock: Clock, rng: random.Random | None = None
    ) -> None:
        self._clock = clock
        self._stats = StreamStats()
        self._buffer: Buffer[Waiting] = Buffer(settings.queue_size, settings.overflow, on_drop=self._count_drop)
        self._last = settings.since
        self._is_left = False
        inlet = Inlet(
            buffer=self._buffer,
            seen=_seen(settings),
            stats=self._stats,
            clock=clock,
            stall_timeout=settings.stall_timeout,
            max_line_bytes=settings.max_line_bytes,
            on_malformed=settings.on_malformed,
            safe_at=settings.since.at if settings.since else None,
        )
        self._reader = Reader(
            source=source,
            inlet=inlet,
            observers=Observers(on_state=settings.on_state, on_gap=settings.on_gap),
            reconnects=settings.reconnects,
            clock=clock,
            rng=rng or random.Random(),  # noqa: S311 - spreads load, guards nothing
            reach=REPLAY_REACH if settings.recover == "auto" else NO_REACH,
        )
        self._task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    @classmethod
    def over(
        cls, pipeline: Pipeline, endpoint: Route[Any], *, connections: int, settings: StreamSettings
    ) -> "EventStream":
        """Follow an endpoint.

        Args:
            pipeline: opens its connections.
            endpoint: the stream.
            connections: how many the service lets an app have open at once.
            settings: how the stream behaves.
        """

        def connect(params: Mapping[str, Param]) -> AbstractAsyncContextManager[Connection]:
            return pipeline.stream(endpoint(**params), timeout=settings.stall_timeout)

        return cls(Source(connect=connect, connections=connections), settings, clock=pipeline.clock)

    @property
    def state(self) -> StreamState:
        """Where the stream stands."""
        return self._reader.state

    @property
    def stats(self) -> StreamStats:
        """What has been counted so far."""
        return attrs.evolve(self._stats, waiting=len(self._buffer))

    @property
    def checkpoint(self) -> Checkpoint | None:
        """How far the stream has been taken, the event taken last included; None before it was open."""
        if self._last is None or self._is_left or len(self._buffer):
            return self._last
        return attrs.evolve(self._last, at=self._reader.inlet.complete_until)

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise InvalidArgument("stream", "must be entered once")
        self._task = asyncio.create_task(self._read())
        try:
            await self._reader.opened.wait()
        except BaseException:
            await self.aclose()
            raise
        if self._failure is not None and not self._stats.connects:
            raise self._failure
        self._last = self._last or Checkpoint(at=self._reader.inlet.complete_until)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        if self._task is None:
            raise InvalidArgument("stream", "must be open: use it inside `async with`")
        return self

    async def __anext__(self) -> Event:
        waiting = await self._buffer.get()
        if waiting is None:
            if self._failure is not None:
                raise self._failure
            raise StopAsyncIteration
        self._last = waiting.checkpoint
        self._stats.lag = self._clock.monotonic() - waiting.read_at
        return waiting.event

    async def run(self, router: EventRouter) -> None:
        """Give every event to the handlers that are registered for its type, one event after another.

        Args:
            router: the handlers, which a webhook receiver may share; they are given the event and this stream.

        Raises:
            SvcError: the stream ended.
        """
        async for event in self:
            await router.dispatch(event, self)

    async def aclose(self) -> None:
        """Close the connection and drop what was not taken; whoever waits for an event learns that there is none."""
        self._last, self._is_left = self.checkpoint, True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._buffer.clear()
            if not self._task.cancelled():
                self._task.result()

    async def _read(self) -> None:
        try:
            await self._reader.run()
        except* Exception as group:  # noqa: BLE001 - the caller's: raised where the events are taken
            self._failure = _only(group)
        finally:
            self._buffer.end()
            self._reader.opened.set()
            self._reader.tell(StreamState.CLOSED, self._failure if isinstance(self._failure, SvcError) else None)

    def _count_drop(self) -> None:
        self._stats.dropped += 1


def _seen(settings: StreamSettings) -> Seen:
    seen = Seen(_SEEN if settings.dedupe else 0)
    if settings.since is not None and settings.since.key is not None:
        seen.add(settings.since.key)
    return seen


def _only(error: BaseException) -> BaseException:
    """Give the first error of a group of groups."""
    return _only(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
