"""Streams: open connections, the events sent on them, and injected faults.

A connection writes one JSON object a line, terminated by CRLF, and a blank line whenever 20 seconds passed without a
line (ASM-54). It uses the sandbox's clock and knows no HTTP: it receives the functions `write` and `abort`.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any, Literal

import attrs
import msgspec

from svc_async.sandbox.background import BackgroundTasks
from svc_async.sandbox.clock import Timer
from svc_async.sandbox.config import SandboxConfig
from svc_async.sandbox.kinds import WrongArgument, check_bounds, check_kind

__all__ = ["Connection", "Hub", "StreamRefused", "Write"]

_END_OF_LINE = b"\r\n"
_GARBAGE = b'{"data": {"event_uuid": \x00 not JSON'
_RECORDED = timedelta(hours=24)  # ASM-58
_HEARTBEAT = 20.0  # Unspecified: seconds of silence until a blank line (ASM-54)
_BUFFER = 1_000  # Unspecified: queued lines after which a slow reader is dropped (ASM-59)
_ERROR_STATUSES = range(400, 600)

Write = Callable[[bytes], Awaitable[None]]
Reason = Literal["TooManyConnections"] | int


class StreamRefused(Exception):
    """A stream cannot be opened.

    Attributes:
        reason: the name of the error, or the status of a refusal that a test asked for.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


@attrs.define(kw_only=True, eq=False)
class Connection:
    """One open stream.

    Attributes:
        sent: lines so far, blank ones included.
    """

    number: int
    opened_at: datetime
    hub: "Hub" = attrs.field(repr=False)
    sent: int = attrs.field(default=0, init=False)
    _outbox: asyncio.Queue[bytes | None] = attrs.field(factory=asyncio.Queue[bytes | None], init=False)
    _flowing: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    _stall: ExitStack = attrs.field(factory=ExitStack, init=False)
    _heartbeat: Timer | None = attrs.field(default=None, init=False)
    _abort: Callable[[], None] | None = attrs.field(default=None, init=False)
    _left: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._flowing.set()

    async def run(self, recorded: Iterable[bytes], write: Write, abort: Callable[[], None], *, live: bool) -> None:
        """Write until the stream ends or the client disconnects.

        Args:
            recorded: lines of the past, which are sent first.
            write: sends bytes to the client.
            abort: cuts the connection.
            live: whether the stream continues after them.
        """
        self._abort = abort
        try:
            for line in recorded:
                await self._write(write, line)
            if live:
                await self._write_live(write)
        except ConnectionError:
            return  # the client has disconnected
        finally:
            self.leave()

    @property
    def queued(self) -> int:
        """The lines that wait to be written."""
        return self._outbox.qsize()

    @property
    def stalled(self) -> bool:
        """Whether a test has stopped it."""
        return not self._flowing.is_set()

    def put(self, line: bytes) -> None:
        """Queue a line; drop a client that does not read fast enough (ASM-59)."""
        if self._outbox.qsize() >= _BUFFER:
            self.drop()
        else:
            self._outbox.put_nowait(line)

    def stall(self) -> None:
        """Stop writing, heartbeats included; a clock that jumps then moves to the client's timeout."""
        if not self.stalled:
            self._flowing.clear()
            self._stall.enter_context(self.hub.background.clock.expect_timeout())

    def resume(self) -> None:
        """Continue with the lines queued meanwhile."""
        self._flowing.set()
        self._stall.close()

    def end(self) -> None:
        """Close the stream after the queued lines."""
        self.resume()
        self._outbox.put_nowait(None)

    def drop(self) -> None:
        """Cut the connection."""
        if self._abort is not None:
            self._abort()
        self.leave()

    def leave(self) -> None:
        """Release the connection; queued lines are lost."""
        self._left = True
        self.hub.free(self)
        if self._heartbeat is not None:
            self.hub.background.cancel(self._heartbeat)
        self.end()

    async def _write_live(self, write: Write) -> None:
        while not self._left:
            self._schedule_heartbeat()
            line = await self._outbox.get()
            await self._flowing.wait()
            if line is None:
                return
            await self._write(write, line)

    async def _write(self, write: Write, line: bytes) -> None:
        size = self.hub.piece or len(line)
        for start in range(0, len(line), size):
            await write(line[start : start + size])
        self.sent += 1

    def _schedule_heartbeat(self) -> None:
        if self._heartbeat is not None:
            self.hub.background.cancel(self._heartbeat)
        self._heartbeat = self.hub.background.call_later(_HEARTBEAT, self._send_heartbeat, moves_time=False)

    def _send_heartbeat(self) -> None:
        if self._flowing.is_set():
            self.put(_END_OF_LINE)
        else:
            self._schedule_heartbeat()


@attrs.define(kw_only=True, eq=False)
class Hub:
    """One stream product: its open connections, and the events of the past 24 hours.

    Attributes:
        limit: concurrent connections.
        piece: bytes that are written at once; None writes whole lines.
    """

    background: BackgroundTasks = attrs.field(repr=False)
    config: SandboxConfig = attrs.field(repr=False)
    limit: int
    piece: int | None = None
    _open: list[Connection] = attrs.field(factory=list[Connection], init=False)
    _opened: int = attrs.field(default=0, init=False)
    _recorded: deque[tuple[datetime, bytes]] = attrs.field(
        default=attrs.Factory(lambda hub: deque(maxlen=hub.config.events_kept), takes_self=True), init=False
    )
    _refusals: list[Reason] = attrs.field(factory=list[Reason], init=False)
    _changed: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._open))

    def admit(self) -> Connection:
        """Open a stream.

        Raises:
            StreamRefused: too many are open, or a test asked for it.
        """
        if self._refusals:
            raise StreamRefused(self._refusals.pop(0))
        if len(self._open) >= self.limit:
            raise StreamRefused("TooManyConnections")
        self._opened += 1
        connection = Connection(number=self._opened, opened_at=self.background.clock.now(), hub=self)
        self._open.append(connection)
        self._changed.set()
        return connection

    def free(self, connection: Connection) -> None:
        """Remove a connection, once."""
        if connection in self._open:
            self._open.remove(connection)
            self._changed.set()

    async def wait(self, count: int) -> None:
        """Wait until exactly `count` streams are open."""
        while len(self._open) != count:
            self._changed.clear()
            await self._changed.wait()

    def publish(self, event: Mapping[str, Any]) -> None:
        """Send an event on all connections, and record it for recovery."""
        now = self.background.clock.now()
        line = msgspec.json.encode(event) + _END_OF_LINE
        self._recorded.append((now, line))
        while self._recorded[0][0] < now - _RECORDED:
            self._recorded.popleft()
        for connection in self:
            connection.put(line)

    def list_recorded(self, since: datetime, until: datetime) -> list[bytes]:
        """Return the lines of a span of the past 24 hours, oldest first."""
        return [line for time, line in self._recorded if since <= time <= until]

    def stall(self) -> None:
        """Stop writing to all open streams, heartbeats included, until `resume()`."""
        for connection in self:
            connection.stall()

    def resume(self) -> None:
        """Continue all open streams with the lines queued meanwhile."""
        for connection in self:
            connection.resume()

    def drop(self) -> None:
        """Cut all open streams without notice."""
        for connection in self:
            connection.drop()

    def disconnect(self, title: str = "operational-disconnect") -> None:
        """Send all open streams a disconnect message, and end them (ASM-59)."""
        error = {
            "title": title,
            "disconnect_type": "UpstreamOperationalDisconnect",
            "detail": "This stream has been disconnected for operational reasons.",
        }
        for connection in self:
            connection.put(msgspec.json.encode({"errors": [error]}) + _END_OF_LINE)
            connection.end()

    def refuse(self, reason: Reason = "TooManyConnections", *, times: int = 1) -> None:
        """Refuse the next connections: as too many, or with a status.

        Raises:
            ValueError: the status is not an error's, or the number is not at least 1.
        """
        if reason != "TooManyConnections" and not (type(reason) is int and reason in _ERROR_STATUSES):
            raise WrongArgument("reason", "must be 'TooManyConnections' or the status of an error, from 400 to 599")
        check_bounds("times", int, times, least=1)
        self._refusals.extend(itertools.repeat(reason, times))

    def split_bytes(self, size: int | None) -> None:
        """Write at most `size` bytes at once from now on; None writes whole lines again.

        Raises:
            ValueError: the size is not a whole number of at least 1.
        """
        if size is not None:
            check_bounds("size", int, size, least=1)
        self.piece = size

    def garbage(self, line: bytes = _GARBAGE) -> None:
        """Send a line that is not JSON.

        Raises:
            ValueError: the line is not bytes.
        """
        check_kind("line", bytes, line)
        for connection in self:
            connection.put(line + _END_OF_LINE)

    def repeat_last(self) -> None:
        """Send the last event again."""
        if self._recorded:
            for connection in self:
                connection.put(self._recorded[-1][1])

    def close(self) -> None:
        """Drop all connections; the sandbox closes."""
        self._refusals.clear()
        self.drop()
