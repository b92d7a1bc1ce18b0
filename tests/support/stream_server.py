"""A streaming service that follows a script for each connection, and helpers for tests that follow its streams."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import attrs

from svc_async.sandbox import VirtualClock
from svc_async.streams.states import StateChange, StreamState
from svc_async.streams.stream import EventStream
from tests.support.tasks import wait_until

__all__ = [
    "HEAD",
    "HEARTBEAT",
    "ROUNDING",
    "TOO_MANY_CONNECTIONS",
    "Follow",
    "Script",
    "ServerConnection",
    "StateLog",
    "StreamServer",
    "event_line",
    "hold",
    "refuse_with",
    "run_stream_server",
    "send_and_close",
    "send_and_hold",
    "skip_backoff",
    "take_keys",
    "wait_for_heartbeats",
]

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
HEARTBEAT = b"\r\n"
TOO_MANY_CONNECTIONS: Mapping[str, Any] = {
    "title": "ConnectionException",
    "detail": "This stream is currently at the maximum allowed connection limit.",
    "connection_issue": "TooManyConnections",
}
ROUNDING = 0.001
"""Seconds; sums of floats round."""


def event_line(number: int, **fields: Any) -> bytes:
    """Return an event of the activity product as a line."""
    event = {
        "event_uuid": f"-{number}",
        "event_type": "post.delete",
        "filter": {"user_id": "7"},
        "payload": {"id": str(number), "author_id": "7"},
        **fields,
    }
    return json.dumps({"data": event}).encode() + b"\r\n"


@attrs.define(eq=False)
class ServerConnection:
    """One connection of a client, with its request read."""

    head: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    closed: asyncio.Event = attrs.field(factory=asyncio.Event)

    @property
    def method(self) -> str:
        return self.head.split(" ")[0]

    @property
    def target(self) -> str:
        return self.head.split(" ")[1]

    @property
    def headers(self) -> dict[str, str]:
        fields = (field.partition(": ") for field in self.head.split("\r\n")[1:])
        return {name.lower(): value for name, _, value in fields}

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def params(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query))

    async def open(self) -> None:
        self.writer.write(HEAD)
        await self.writer.drain()

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await self.writer.drain()

    async def end(self) -> None:
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    def abort(self) -> None:
        self.writer.transport.abort()

    async def refuse(self, status: int, body: object = None, **headers: str) -> None:
        """Answer without a stream, by default with an error."""
        content = json.dumps(body or {"title": "No", "detail": "no", "status": status}).encode()
        fields = {"Content-Length": str(len(content)), "Connection": "close"}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.writer.write(f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + content)
        await self.writer.drain()

    async def wait_for_hangup(self) -> None:
        """Wait until the client has closed the connection."""
        with contextlib.suppress(ConnectionError):
            await self.reader.read()


Script = Callable[[ServerConnection], Awaitable[None]]

Follow = Callable[..., EventStream]
"""Makes a stream with settings of the test's own."""


async def hold(connection: ServerConnection) -> None:
    """Open the stream and stay until the client hangs up."""
    await connection.open()
    await connection.wait_for_hangup()


def send_and_hold(*pieces: bytes) -> Script:
    """Return a script that sends pieces and stays until the client hangs up."""

    async def script(connection: ServerConnection) -> None:
        await connection.open()
        await connection.send(*pieces)
        await connection.wait_for_hangup()

    return script


def send_and_close(*pieces: bytes) -> Script:
    """Return a script that sends pieces and ends the stream."""

    async def script(connection: ServerConnection) -> None:
        await connection.open()
        await connection.send(*pieces)
        await connection.end()

    return script


def refuse_with(status: int, body: object = None, **headers: str) -> Script:
    """Return a script that answers with an error."""

    async def script(connection: ServerConnection) -> None:
        await connection.refuse(status, body, **headers)

    return script


class StreamServer:
    """A server that runs one script for each connection, and repeats the last one.

    Attributes:
        subscriptions: what a request for the subscriptions of the app is answered with; None refuses it.
    """

    def __init__(self) -> None:
        self.subscriptions: list[Mapping[str, Any]] | None = [{"subscription_id": "1", "event_type": "post.delete"}]
        self.scripts: list[Script] = [hold]
        self.connections: list[ServerConnection] = []
        self.open_connections = 0
        self.url = ""
        self._changed = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection: ServerConnection | None = None
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET /2/activity/subscriptions?"):
                await self._list_subscriptions(ServerConnection(head.decode(), reader, writer))
                return
            connection = ServerConnection(head.decode(), reader, writer)
            script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
            await self._record(connection)
            await script(connection)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            if connection is not None:
                connection.closed.set()
                self.open_connections -= 1

    async def _list_subscriptions(self, connection: ServerConnection) -> None:
        if self.subscriptions is None:
            await connection.refuse(403)
            return
        await connection.refuse(200, {"data": self.subscriptions, "meta": {"result_count": len(self.subscriptions)}})

    async def _record(self, connection: ServerConnection) -> None:
        self.open_connections += 1
        async with self._changed:
            self.connections.append(connection)
            self._changed.notify_all()

    async def wait_for_connection(self, number: int) -> ServerConnection:
        """Wait for a connection, counted from 1."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.connections) >= number)
        return self.connections[number - 1]


@asynccontextmanager
async def run_stream_server() -> AsyncIterator[StreamServer]:
    """Run a server on a free port of the loopback interface."""
    stream_server = StreamServer()
    listener = await asyncio.start_server(stream_server.serve, "127.0.0.1", 0, limit=2**24)
    stream_server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    yield stream_server
    listener.close()


class StateLog:
    """The state changes of a stream, which a test can await."""

    def __init__(self) -> None:
        self.changes: list[StateChange] = []
        self._queue: asyncio.Queue[StateChange] = asyncio.Queue()

    def __call__(self, change: StateChange) -> None:
        self.changes.append(change)
        self._queue.put_nowait(change)

    async def wait_for(self, state: StreamState) -> StateChange:
        while (change := await self._queue.get()).state is not state:
            pass
        return change

    @property
    def waits(self) -> list[float]:
        return [change.wait for change in self.changes if change.wait is not None]


async def take_keys(stream: EventStream, number: int) -> list[str]:
    """Take events and return their keys."""
    return [(await anext(stream)).key for _ in range(number)]


async def skip_backoff(states: StateLog, clock: VirtualClock) -> float:
    """Wait for a backoff, let its time pass and return its length."""
    change = await states.wait_for(StreamState.BACKOFF)
    assert change.wait is not None
    await clock.advance(seconds=change.wait + ROUNDING)
    return change.wait


async def wait_for_heartbeats(stream: EventStream, number: int) -> None:
    await wait_until(lambda: stream.stats.heartbeats >= number)
