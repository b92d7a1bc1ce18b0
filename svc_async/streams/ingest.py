"""Move what a connection delivers into the queue: bytes → lines → events → queue."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

import attrs

from svc_async.clock import Clock
from svc_async.errors import InvalidArgument, StreamDropped
from svc_async.events.models import Event, UnknownEvent
from svc_async.events.parser import estimate_memory, parse_events
from svc_async.streams.buffer import Buffer
from svc_async.streams.disconnects import parse_disconnect
from svc_async.streams.line_splitter import LineSplitter, OverlongLine
from svc_async.streams.recent_keys import RecentKeys
from svc_async.streams.states import Checkpoint, MalformedLine, StreamStats

__all__ = ["Connection", "EventIngest", "QueuedEvent"]

_log = logging.getLogger("svc_async")


class Connection(Protocol):
    """An open stream."""

    async def read_chunk(self) -> bytes:
        """Wait for bytes and return all that have arrived; an empty result is the end."""
        ...


@attrs.frozen
class QueuedEvent:
    """An event in the queue, with the checkpoint that holds once it is taken and the time it was read.

    Attributes:
        size: an estimate of the bytes of memory that it takes.
    """

    event: Event
    checkpoint: Checkpoint
    read_at: float
    size: int


@attrs.define(eq=False, kw_only=True)
class EventIngest:
    """Reads connections into one queue and keeps the watermark.

    Attributes:
        watermark: the time up to which no event is missing, apart from pending replays; None before the first
            connection.
        pending: the start times of the gaps whose replay is not complete.
    """

    buffer: Buffer[QueuedEvent]
    recent_keys: RecentKeys
    stats: StreamStats
    clock: Clock
    stall_timeout: float
    max_line_bytes: int
    on_malformed: Callable[[MalformedLine], object] | None
    watermark: datetime | None
    pending: list[datetime] = attrs.field(factory=list[datetime], init=False)

    @property
    def complete_until(self) -> datetime:
        """The time up to which no event is missing."""
        return min([self.watermark or self.clock.now(), *self.pending])

    async def read(
        self, connection: Connection, *, on_chunk: Callable[[datetime], object], until_quiet: bool = False
    ) -> None:
        """Read a connection until it ends.

        Args:
            connection: what to read.
            on_chunk: called with the time at which a chunk arrived, once its events are in the queue.
            until_quiet: also stop when nothing but heartbeats has arrived for the stall timeout.

        Raises:
            StreamDropped: the connection was dropped, stalled, or closed by the service with a message.
            StreamOverflow: the queue is full, and the overflow policy is `error`.
        """
        splitter = LineSplitter(self.max_line_bytes)
        last_content_at = self.clock.monotonic()
        try:
            while chunk := await self._read_chunk(connection):
                arrived_at, time = self.clock.now(), self.clock.monotonic()
                if not chunk.isspace():
                    last_content_at = time
                elif until_quiet and time - last_content_at >= self.stall_timeout:
                    break
                for line in splitter.feed(chunk):
                    await self._process_line(line)
                on_chunk(arrived_at)
        finally:
            self.stats.partial_lines += splitter.finish() > 0

    async def _read_chunk(self, connection: Connection) -> bytes:
        try:
            async with self.clock.timeout(self.stall_timeout):
                return await connection.read_chunk()
        except TimeoutError:
            self.stats.stalls += 1
            raise StreamDropped(f"the stream stalled: nothing received for {self.stall_timeout:g} s") from None

    async def _process_line(self, line: bytes | OverlongLine) -> None:
        if isinstance(line, OverlongLine):
            self._report_malformed(None, line.size, f"longer than {self.max_line_bytes} bytes")
        elif not line.strip():
            self.stats.heartbeats += 1
        else:
            await self._parse_line(line)

    async def _parse_line(self, line: bytes) -> None:
        try:
            events = parse_events(line)
        except InvalidArgument as error:
            self._report_malformed(line, len(line), error.rule)
            return
        size = estimate_memory(line) // len(events)
        for event in events:
            await self._enqueue(event, size)

    async def _enqueue(self, event: Event, size: int) -> None:
        if isinstance(event, UnknownEvent) and (error := parse_disconnect(event.raw)) is not None:
            raise error
        if not self.recent_keys.add(event.key):
            self.stats.duplicates += 1
            return
        checkpoint = Checkpoint(at=self.complete_until, key=event.key)
        await self.buffer.put(QueuedEvent(event, checkpoint, self.clock.monotonic(), size))
        self.stats.events += 1
        self.stats.misfits += event.problem is not None

    def _report_malformed(self, line: bytes | None, size: int, reason: str) -> None:
        self.stats.malformed += 1
        if self.on_malformed is None:
            _log.warning("skipped a malformed line of %d bytes in a stream: %s", size, reason)
        else:
            self.on_malformed(MalformedLine(line=line, size=size, reason=reason))
