"""Lets in what a connection brings: bytes → lines → events → queue."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

import attrs

from svc_async.clock import Clock
from svc_async.errors import InvalidArgument, StreamDropped
from svc_async.events.models import Event, UnknownEvent
from svc_async.events.parser import read_events
from svc_async.streams.buffer import Buffer
from svc_async.streams.disconnects import notice
from svc_async.streams.line_splitter import LineSplitter, Overlong
from svc_async.streams.recent_keys import Seen
from svc_async.streams.states import Checkpoint, Malformed, StreamStats

__all__ = ["Connection", "Inlet", "Waiting"]

_log = logging.getLogger("svc_async")


class Connection(Protocol):
    """An open stream."""

    async def chunk(self) -> bytes:
        """Wait for bytes and give all that have come; no bytes mean the end."""
        ...


@attrs.frozen
class Waiting:
    """An event in the queue, what its taker will have taken, and when it was read."""

    event: Event
    checkpoint: Checkpoint
    read_at: float


@attrs.define(eq=False, kw_only=True)
class Inlet:
    """Reads connections into one queue, and knows until when nothing is missing from it.

    Attributes:
        safe_at: until when nothing is missing but what is pending; None before the first connection.
        pending: the beginnings of what side connections still have to bring.
    """

    buffer: Buffer[Waiting]
    seen: Seen
    stats: StreamStats
    clock: Clock
    stall_timeout: float
    max_line_bytes: int
    on_malformed: Callable[[Malformed], object] | None
    safe_at: datetime | None
    pending: list[datetime] = attrs.field(factory=list[datetime], init=False)

    @property
    def complete_until(self) -> datetime:
        """The moment until which nothing is missing."""
        return min([self.safe_at or self.clock.now(), *self.pending])

    async def read(
        self, connection: Connection, *, on_chunk: Callable[[datetime], object], until_quiet: bool = False
    ) -> None:
        """Read until the connection ends.

        Args:
            connection: what to read.
            on_chunk: told when a chunk came, once all that it held is in the queue.
            until_quiet: nothing but heartbeats for as long as the stall timeout is an end, too.

        Raises:
            StreamDropped: it broke off, fell silent, or the service said that it disconnects.
            StreamOverflow: the queue is full, and that is an error.
        """
        splitter = LineSplitter(self.max_line_bytes)
        spoke_at = self.clock.monotonic()
        try:
            while chunk := await self._chunk(connection):
                came_at, time = self.clock.now(), self.clock.monotonic()
                if not chunk.isspace():
                    spoke_at = time
                elif until_quiet and time - spoke_at >= self.stall_timeout:
                    break
                for line in splitter.feed(chunk):
                    await self._take(line)
                on_chunk(came_at)
        finally:
            self.stats.partial_lines += splitter.finish() > 0

    async def _chunk(self, connection: Connection) -> bytes:
        try:
            async with self.clock.timeout(self.stall_timeout):
                return await connection.chunk()
        except TimeoutError:
            self.stats.stalls += 1
            raise StreamDropped(f"the stream fell silent: nothing in {self.stall_timeout:g} s") from None

    async def _take(self, line: bytes | Overlong) -> None:
        if isinstance(line, Overlong):
            self._refuse(None, line.size, f"it has more than {self.max_line_bytes} bytes")
        elif not line.strip():
            self.stats.heartbeats += 1
        else:
            await self._read_line(line)

    async def _read_line(self, line: bytes) -> None:
        try:
            events = read_events(line)
        except InvalidArgument:
            self._refuse(line, len(line), "it is not a JSON object")
            return
        for event in events:
            await self._let_in(event)

    async def _let_in(self, event: Event) -> None:
        if isinstance(event, UnknownEvent) and (said := notice(event.raw)) is not None:
            raise said
        if not self.seen.add(event.key):
            self.stats.duplicates += 1
            return
        checkpoint = Checkpoint(at=self.complete_until, key=event.key)
        await self.buffer.put(Waiting(event, checkpoint, self.clock.monotonic()))
        self.stats.events += 1

    def _refuse(self, line: bytes | None, size: int, reason: str) -> None:
        self.stats.malformed += 1
        if self.on_malformed is None:
            _log.warning("a line of %d bytes in a stream is no event: %s", size, reason)
        else:
            self.on_malformed(Malformed(line=line, size=size, reason=reason))
