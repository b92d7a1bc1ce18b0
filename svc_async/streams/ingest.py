"""Move what a connection delivers to the consumer: bytes → lines → events → a bounded queue."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Literal

import attrs

from svc_async.clock import Clock
from svc_async.engine.transport import OpenStream
from svc_async.errors import InvalidArgument, StreamDropped, StreamOverflow
from svc_async.events.models import Event, UnknownEvent
from svc_async.events.parser import EventParser, estimate_memory
from svc_async.streams.lines import LineSplitter, OverlongLine, RecentKeys, parse_disconnect
from svc_async.streams.states import Checkpoint, MalformedLine, StreamStats

__all__ = ["Buffer", "EventIngest", "Overflow", "QueuedEvent"]


Overflow = Literal["block", "drop_oldest", "error"]


_log = logging.getLogger("svc_async")
_NEARLY_FULL = 0.8
_SMALL = 2**18
"""Bytes of a line that is parsed at once; others are parsed in a thread, so that the event loop goes on meanwhile."""


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


class _End:
    """Marks the end of the queue."""


_END = _End()


class Buffer:
    """A queue of limited size, which takes at least one event, however large.

    Args:
        max_items: the maximum number of events.
        max_bytes: the maximum of their sizes together.
        overflow: what `put` does when the queue is full: `block` waits, `drop_oldest` discards the oldest event,
            `error` raises.
        stats: counts what is discarded.
    """

    def __init__(self, max_items: int, max_bytes: int, overflow: Overflow, stats: StreamStats) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._bytes = 0
        self._overflow = overflow
        self._stats = stats
        self._items: asyncio.Queue[QueuedEvent | _End] = asyncio.Queue()
        self._has_room = asyncio.Event()
        self._is_ended = False
        self._has_warned = False

    def __len__(self) -> int:
        return self._items.qsize() - self._is_ended

    async def put(self, item: QueuedEvent) -> None:
        """Add an item, applying the overflow policy if the queue is full.

        Raises:
            StreamOverflow: the queue is full, and the policy is `error`.
        """
        while len(self) and (len(self) >= self._max_items or self._bytes + item.size > self._max_bytes):
            if self._overflow == "error":
                raise StreamOverflow(queue_size=len(self), queue_bytes=self._bytes)
            if self._overflow == "drop_oldest":
                oldest = self._items.get_nowait()
                self._bytes -= 0 if isinstance(oldest, _End) else oldest.size
                self._stats.dropped += 1
            else:
                self._has_room.clear()
                await self._has_room.wait()
        self._items.put_nowait(item)
        self._bytes += item.size
        share = max(len(self) / self._max_items, self._bytes / self._max_bytes)
        if share >= _NEARLY_FULL and not self._has_warned:
            full = "stream queue is filling up: %d of %d events and %d of %d bytes are waiting"
            _log.warning(full, len(self), self._max_items, self._bytes, self._max_bytes)
        self._has_warned = share >= _NEARLY_FULL

    async def get(self) -> QueuedEvent | None:
        """Remove and return the oldest item, waiting for one; return None after the last."""
        item = await self._items.get()
        if isinstance(item, _End):
            self._items.put_nowait(_END)  # for other waiting consumers
            return None
        self._bytes -= item.size
        self._has_room.set()
        return item

    def end(self) -> None:
        """Declare that no more items will be added."""
        if not self._is_ended:
            self._is_ended = True
            self._items.put_nowait(_END)

    def clear(self) -> None:
        """Discard all items."""
        while len(self):
            self._items.get_nowait()
        self._bytes = 0


@attrs.define(eq=False, kw_only=True)
class EventIngest:
    """Reads connections into one queue and keeps the watermark.

    Attributes:
        watermark: the time up to which no event is missing, apart from pending replays; None before the first
            connection.
        pending: the start times of the gaps whose replay is not complete.
    """

    buffer: Buffer
    recent_keys: RecentKeys
    stats: StreamStats
    clock: Clock
    parser: EventParser
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
        self, connection: OpenStream, *, on_chunk: Callable[[datetime], object], until_quiet: bool = False
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

    async def _read_chunk(self, connection: OpenStream) -> bytes:
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
            try:
                parse = self.parser.parse
                events = parse(line) if len(line) <= _SMALL else await asyncio.to_thread(parse, line)
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
