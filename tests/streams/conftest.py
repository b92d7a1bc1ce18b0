"""A service that misbehaves as it is told, and streams that are pointed at it, on a clock that stands still."""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import attrs
import pytest

from svc_async import BearerToken, Endpoints, Session
from svc_async.engine.pipeline import Pipeline
from svc_async.sandbox import VirtualClock
from svc_async.streams.reader import Source
from svc_async.streams.states import StateChange, StreamState
from svc_async.streams.stream import EventStream, StreamSettings
from svc_async.wire.route import Reply, Route, Surface

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def line(number: int, **fields: Any) -> bytes:
    """An event of the activity product, as a line."""
    event = {
        "event_uuid": f"-{number}",
        "event_type": "post.delete",
        "filter": {"user_id": "7"},
        "payload": {"id": str(number), "author_id": "7"},
        **fields,
    }
    return json.dumps({"data": event}).encode() + b"\r\n"


@attrs.define(eq=False)
class Visit:
    """One connection of a client, with its request read."""

    head: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    over: asyncio.Event = attrs.field(factory=asyncio.Event)

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

    def cut(self) -> None:
        self.writer.transport.abort()

    async def refuse(self, status: int, body: Any = None, **headers: str) -> None:
        written = json.dumps(body or {"title": "No", "detail": "no", "status": status}).encode()
        fields = {"Content-Length": str(len(written)), "Connection": "close"}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.writer.write(f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + written)
        await self.writer.drain()

    async def hung_up(self) -> None:
        """Wait until the client has closed the connection."""
        with contextlib.suppress(ConnectionError):
            await self.reader.read()


Script = Callable[[Visit], Awaitable[None]]


async def hold(visit: Visit, *pieces: bytes) -> None:
    """Open, send, and stay until the client hangs up."""
    await visit.open()
    await visit.send(*pieces)
    await visit.hung_up()


async def close_at_once(visit: Visit, *pieces: bytes) -> None:
    await visit.open()
    await visit.send(*pieces)
    await visit.end()


def holding(*pieces: bytes) -> Script:
    return partial(_with, hold, pieces)


def closing(*pieces: bytes) -> Script:
    return partial(_with, close_at_once, pieces)


async def _with(script: Callable[..., Awaitable[None]], pieces: tuple[bytes, ...], visit: Visit) -> None:
    await script(visit, *pieces)


def refusing(status: int, body: Any = None, **headers: str) -> Script:
    async def refuse(visit: Visit) -> None:
        await visit.refuse(status, body, **headers)

    return refuse


CROWDED: Mapping[str, Any] = {
    "title": "ConnectionException",
    "detail": "This stream is currently at the maximum allowed connection limit.",
    "connection_issue": "TooManyConnections",
}


class Adversary:
    """A server that plays one script for each connection; the last one is played again and again."""

    def __init__(self) -> None:
        self.scripts: list[Script] = [hold]
        self.visits: list[Visit] = []
        self.open_now = 0
        self.url = ""
        self._changed = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit: Visit | None = None
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            visit = Visit(head.decode(), reader, writer)
            script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
            await self._note(visit)
            await script(visit)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            if visit is not None:
                visit.over.set()
                self.open_now -= 1

    async def _note(self, visit: Visit) -> None:
        self.open_now += 1
        async with self._changed:
            self.visits.append(visit)
            self._changed.notify_all()

    async def visit(self, number: int) -> Visit:
        """Wait for a connection, counted from 1."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.visits) >= number)
        return self.visits[number - 1]


class Steps:
    """What a stream tells of its life, to be awaited."""

    def __init__(self) -> None:
        self.all: list[StateChange] = []
        self._queue: asyncio.Queue[StateChange] = asyncio.Queue()

    def __call__(self, change: StateChange) -> None:
        self.all.append(change)
        self._queue.put_nowait(change)

    async def next(self, state: StreamState) -> StateChange:
        while (change := await self._queue.get()).state is not state:
            pass
        return change

    @property
    def waits(self) -> list[float]:
        return [change.wait for change in self.all if change.wait is not None]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def adversary() -> AsyncIterator[Adversary]:
    adversary = Adversary()
    server = await asyncio.start_server(adversary.serve, "127.0.0.1", 0, limit=2**24)
    adversary.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield adversary
    server.close()


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
async def pipeline(adversary: Adversary, clock: VirtualClock) -> AsyncIterator[Pipeline]:
    endpoints = Endpoints(base_url=adversary.url, ads_url=adversary.url)
    async with Session(BearerToken("t"), endpoints=endpoints, clock=clock) as session:
        yield session._pipeline


Follow = Callable[..., EventStream]


@pytest.fixture
def follow(pipeline: Pipeline, clock: VirtualClock, steps: Steps) -> Follow:
    """Makes a stream that is read from the adversary."""
    endpoint: Route[Any] = Route("GET", "/2/activity/stream", None, surface=Surface.BASE, reply=Reply.BODY)

    def follow(*, connections: int = 2, **settings: Any) -> EventStream:
        source = Source(connect=lambda params: pipeline.stream(endpoint(**params), timeout=25), connections=connections)
        return EventStream(source, StreamSettings(**{"on_state": steps, **settings}), clock=clock, rng=random.Random(7))

    return follow
