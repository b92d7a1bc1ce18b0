"""A server on a socket that answers with scripted bytes, and what sends requests to it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest

from svc_async.clock import SystemClock
from svc_async.engine.transport import Timeouts, Transport, WireRequest
from svc_async.wire.envelope import Answer
from svc_async.wire.route import Blocks

__all__ = ["OK", "Peer", "SendCounter", "peer", "send", "serve", "transport"]

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Peer:
    """A server that answers with scripted bytes and records what it receives."""

    def __init__(self) -> None:
        self.connections: list[asyncio.StreamWriter] = []
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.url = ""
        self.script: Script = self.answer(OK)

    def answer(self, raw: bytes, *, close: bool = False) -> Script:
        async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(raw)
            await writer.drain()
            if close:
                writer.close()

        return script

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                self.bodies.append(await reader.readexactly(parse_content_length(head)))
                await self.script(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def parse_content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


@contextlib.asynccontextmanager
async def serve(script: Script) -> AsyncIterator[str]:
    """Serve connections with a script and yield the URL; at the end none of them is left."""
    tasks: set[asyncio.Task[None]] = set()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(reader, writer)
        finally:
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(run(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    async with serve(peer.serve) as peer.url:
        yield peer


class SendCounter:
    """Counts the calls of `on_sent`."""

    count = 0

    def __call__(self) -> None:
        self.count += 1


async def send(
    transport: Transport,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | Blocks | None = None,
    proxy: str | None = None,
    on_sent: Callable[[], None] = lambda: None,
) -> Answer:
    """Send one request and return its answer."""
    request = WireRequest(method=method, url=url, headers=headers or {}, body=body, proxy=proxy)
    return await transport.exchange(request, on_sent=on_sent)


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    transport = Transport.open(user_agent="t", clock=SystemClock(), timeouts=Timeouts())
    yield transport
    await transport.close()
