"""The stream that the user enters, iterates and leaves."""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from math import inf
from types import TracebackType
from typing import Any, Literal, Self, get_args

import attrs

from svc_async.clock import Clock
from svc_async.engine.pipeline import Pipeline
from svc_async.engine.transport import OpenStream
from svc_async.errors import Hint, InvalidArgument, SvcError
from svc_async.events.models import Event
from svc_async.events.parser import EventParser
from svc_async.events.router import EventRouter
from svc_async.monitoring import StreamLagEvent, Subscribers
from svc_async.streams.ingest import Buffer, EventIngest, Overflow, QueuedEvent
from svc_async.streams.lines import RecentKeys
from svc_async.streams.reader import ReconnectingReader, StreamObservers, StreamSource
from svc_async.streams.reconnect_policy import Reconnects
from svc_async.streams.recovery import NO_REACH, REPLAY_REACH, Gap
from svc_async.streams.states import Checkpoint, MalformedLine, StateChange, StreamState, StreamStats
from svc_async.value_rules import COUNT, FLAG, PLAIN_FUNCTION, POSITIVE_SECONDS, instance_of, one_of, or_none
from svc_async.wire.params import Param
from svc_async.wire.route import Route

__all__ = ["QUEUE_BYTES", "RECENT_KEYS", "EventStream", "Recover", "StreamSettings"]

Recover = Literal["auto", "off"]

QUEUE_BYTES = 64 * 2**20
"""The default of `queue_bytes`: about 10,000 posts."""
_LAG_INTERVAL = 1.0
"""Seconds between two reports of the lag."""
RECENT_KEYS = 100_000
"""How many events are remembered to recognise one that comes again: more than a backfill of a busy stream holds."""


_OBSERVER = or_none(PLAIN_FUNCTION)
_ROUTER = instance_of(EventRouter, "an EventRouter")


@attrs.frozen(kw_only=True)
class StreamSettings:
    """The settings of a stream.

    Attributes:
        recover: `auto` requests the events that were missed while no connection was open.
        since: the checkpoint of an earlier stream to resume from.
        dedupe: suppress events that arrived before.
        queue_size: the maximum number of events that wait to be taken.
        queue_bytes: the maximum of the memory that they take, estimated from their lines; a larger event waits alone.
        overflow: what happens to an event that arrives while the queue is full.
        stall_timeout: seconds without data after which a connection is considered dead.
        max_line_bytes: the longest line that is read.
        reconnects: when the stream reconnects.
        on_state: called on every state change.
        on_gap: called for every period without a connection, with how it was recovered.
        on_malformed: called with every line that is not an event, instead of logging it.
    """

    recover: Recover = attrs.field(default="auto", validator=one_of(get_args(Recover)))
    since: Checkpoint | None = attrs.field(default=None, validator=or_none(instance_of(Checkpoint, "a Checkpoint")))
    dedupe: bool = attrs.field(default=True, validator=FLAG)
    queue_size: int = attrs.field(default=10_000, validator=COUNT)
    queue_bytes: int = attrs.field(default=QUEUE_BYTES, validator=COUNT)
    overflow: Overflow = attrs.field(default="block", validator=one_of(get_args(Overflow)))
    # Unspecified: a heartbeat comes at least every 20 seconds (contract UNS-stream-protocol); this leaves a margin.
    stall_timeout: float = attrs.field(default=25.0, validator=POSITIVE_SECONDS)
    max_line_bytes: int = attrs.field(default=8 * 2**20, validator=COUNT)
    reconnects: Reconnects = attrs.field(factory=Reconnects, validator=instance_of(Reconnects, "Reconnects(...)"))
    on_state: Callable[[StateChange], object] | None = attrs.field(default=None, validator=_OBSERVER)
    on_gap: Callable[[Gap], object] | None = attrs.field(default=None, validator=_OBSERVER)
    on_malformed: Callable[[MalformedLine], object] | None = attrs.field(default=None, validator=_OBSERVER)


class EventStream:
    """A stream of events: an async context manager, and inside it an async iterator.

    Entering waits until the stream is open for the first time. Leaving closes the connection and discards the events
    that were not taken. An error that reconnecting cannot help against is raised after all events before it were taken.

    Args:
        source: opens its connections.
        settings: the settings.
        clock: the time.
        rng: the source of the jitter.
        path: the path as the reference prints it, for the subscribers.
        parser: parses its lines.
        subscribers: what receives the events of the session.
    """

    def __init__(
        self,
        source: StreamSource,
        settings: StreamSettings,
        *,
        clock: Clock,
        rng: random.Random | None = None,
        path: str = "",
        parser: EventParser | None = None,
        subscribers: Subscribers | None = None,
    ) -> None:
        self._clock = clock
        self._path = path
        self._subscribers = subscribers or Subscribers()
        self._lag_due = -inf
        self._stats = StreamStats()
        self._buffer = Buffer(settings.queue_size, settings.queue_bytes, settings.overflow, self._stats)
        self._checkpoint = settings.since
        self._is_handling = False
        self._is_left = False
        keys = RecentKeys(RECENT_KEYS if settings.dedupe else 0)
        if settings.since is not None and settings.since.key is not None:
            keys.add(settings.since.key)
        ingest = EventIngest(
            buffer=self._buffer,
            recent_keys=keys,
            stats=self._stats,
            clock=clock,
            parser=parser or EventParser(),
            stall_timeout=settings.stall_timeout,
            max_line_bytes=settings.max_line_bytes,
            on_malformed=settings.on_malformed,
            watermark=settings.since.at if settings.since else None,
        )
        self._reader = ReconnectingReader(
            source=source,
            ingest=ingest,
            observers=StreamObservers(
                on_state=settings.on_state, on_gap=settings.on_gap, path=path, subscribers=self._subscribers
            ),
            reconnects=settings.reconnects,
            clock=clock,
            rng=rng or random.Random(),  # noqa: S311 - spreads load, guards nothing
            reach=REPLAY_REACH if settings.recover == "auto" else NO_REACH,
        )
        self._task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    @classmethod
    def from_route(
        cls, pipeline: Pipeline, route: Route[Any], *, max_connections: int, settings: StreamSettings
    ) -> "EventStream":
        """Return a stream of the events of a route.

        Args:
            pipeline: opens its connections.
            route: the stream.
            max_connections: how many connections the service lets an app have open at once.
            settings: the settings.
        """

        def connect(params: Mapping[str, Param]) -> AbstractAsyncContextManager[OpenStream]:
            return pipeline.stream(route(**params), timeout=settings.stall_timeout)

        return cls(
            StreamSource(connect=connect, max_connections=max_connections),
            settings,
            clock=pipeline.clock,
            path=route.path,
            parser=EventParser(dialect=pipeline.dialect),
            subscribers=pipeline.subscribers,
        )

    @property
    def state(self) -> StreamState:
        """The state of the connection."""
        return self._reader.state

    @property
    def stats(self) -> StreamStats:
        """The counters so far."""
        return attrs.evolve(self._stats, waiting=len(self._buffer))

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The point up to which events were taken, the last one included; None before the stream was open.

        `run` takes an event when its handlers have returned: one of which a handler raises or is cancelled comes again.
        """
        if self._checkpoint is None or self._is_handling or self._is_left or len(self._buffer):
            return self._checkpoint
        return attrs.evolve(self._checkpoint, at=self._reader.ingest.complete_until)

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
        self._checkpoint = self._checkpoint or Checkpoint(at=self._reader.ingest.complete_until)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        self._check_entered()
        return self

    async def __anext__(self) -> Event:
        queued = await self._take()
        if queued is None:
            raise StopAsyncIteration
        self._set_checkpoint(queued.checkpoint)
        return queued.event

    async def run(self, router: EventRouter) -> None:
        """Dispatch every event to the handlers that are registered for its type, one event after another.

        Args:
            router: the handlers, which a webhook receiver may share; they are called with the event and this stream.

        Raises:
            InvalidArgument: `router` is no `EventRouter`, or the stream was not entered.
            SvcError: the stream ended.
            Exception: whatever a handler raised. It ends this call; the stream stays open, so a further call continues
                with the next event. Until that is handled, the checkpoint is before the event that failed.
        """
        _ROUTER.check("router", router)
        while (queued := await self._take()) is not None:
            if not self._is_handling:
                before = self._checkpoint.key if self._checkpoint else None
                self._checkpoint, self._is_handling = attrs.evolve(queued.checkpoint, key=before), True
            await router.dispatch(queued.event, self)
            self._set_checkpoint(queued.checkpoint)

    async def aclose(self) -> None:
        """Close the connection and discard the events that were not taken; waiting iterations stop.

        Before the stream is entered there is nothing to close, and it can still be entered.
        """
        if self._task is None:
            return
        self._checkpoint, self._is_left = self.checkpoint, True
        self._task.cancel()
        await asyncio.wait([self._task])
        self._buffer.clear()
        if not self._task.cancelled():
            self._task.result()

    async def _take(self) -> QueuedEvent | None:
        """Return the next event, or None if the stream was left."""
        self._check_entered()
        queued = await self._buffer.get()
        if queued is None:
            if self._failure is not None:
                raise self._failure
            return None
        now = self._clock.monotonic()
        self._stats.lag = now - queued.read_at
        if now >= self._lag_due and self._subscribers.functions:
            self._lag_due = now + _LAG_INTERVAL
            lag = StreamLagEvent(path=self._path, lag=self._stats.lag, waiting=len(self._buffer))
            self._subscribers.notify(lag)
        return queued

    def _set_checkpoint(self, checkpoint: Checkpoint) -> None:
        self._checkpoint, self._is_handling = checkpoint, False

    def _check_entered(self) -> None:
        if self._task is None:
            raise InvalidArgument("stream", "must be open", hint=Hint.OPEN_IT)

    async def _read(self) -> None:
        try:
            await self._reader.run()
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - belongs to the caller: raised where the events are taken
            self._failure = _find_first_error(error)
        finally:
            self._report_end()
            self._buffer.end()
            self._reader.opened.set()

    def _report_end(self) -> None:
        error = self._failure if isinstance(self._failure, SvcError) else None
        try:
            self._reader.change_state(StreamState.CLOSED, error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as problem:  # noqa: BLE001 - of `on_state`: raised like the others, unless one came before
            self._failure = self._failure or problem


def _find_first_error(error: BaseException) -> BaseException:
    """Return the first error in nested exception groups."""
    return _find_first_error(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
