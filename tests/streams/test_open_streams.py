"""How an open stream of the transport ends, against a server of streams; see `tests/engine/test_open_streams.py`."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator

import pytest

from svc_async.engine.transport import OpenStream, Timeouts, Transport, WireRequest
from svc_async.errors import Sent, StreamDropped, TimedOut
from svc_async.sandbox import VirtualClock
from tests.support.stream_server import ServerConnection, StreamServer, refuse_with, send_and_hold


@pytest.fixture
async def transport(clock: VirtualClock) -> AsyncIterator[Transport]:
    transport = Transport.open(user_agent="t", clock=clock, timeouts=Timeouts())
    yield transport
    await transport.close()


def open_stream(transport: Transport, url: str) -> contextlib.AbstractAsyncContextManager[OpenStream]:
    request = WireRequest(method="GET", url=url, headers={"X-A": "1"})
    return transport.stream(request, timeout=25, on_sent=lambda: None)


async def test_leaving_the_block_closes_the_connection(server: StreamServer, transport: Transport) -> None:
    server.scripts = [send_and_hold(b"a")]

    async with open_stream(transport, server.url) as stream:
        await stream.read_chunk()
        assert server.open_connections == 1

    await server.connections[0].closed.wait()
    left = weakref.ref(stream)
    del stream
    gc.collect()

    assert left() is None  # the transport does not keep it


async def test_a_connection_that_is_lost_raises_stream_dropped(server: StreamServer, transport: Transport) -> None:
    server.scripts = [send_and_hold(b"a")]

    async with open_stream(transport, server.url) as stream:
        await stream.read_chunk()
        server.connections[0].abort()
        with pytest.raises(StreamDropped) as caught:
            await stream.read_chunk()

    assert caught.value.sent is Sent.YES
    assert caught.value.repeatable


async def test_redirects_are_not_followed(server: StreamServer, transport: Transport) -> None:
    server.scripts = [refuse_with(302, location=f"{server.url}/else")]

    async with open_stream(transport, server.url) as stream:
        assert stream.answer.status == 302

    assert len(server.connections) == 1


async def half_a_refusal(connection: ServerConnection) -> None:
    connection.writer.write(b"HTTP/1.1 503 X\r\nContent-Length: 9\r\n\r\n{")
    await connection.wait_for_hangup()


async def test_a_refusal_ends_in_time(server: StreamServer, transport: Transport, clock: VirtualClock) -> None:
    async def use() -> None:
        async with open_stream(transport, server.url):
            pass

    server.scripts = [half_a_refusal]
    using = asyncio.ensure_future(use())
    connection = await server.wait_for_connection(1)
    for _ in range(20):
        await asyncio.sleep(0)
    await clock.advance(seconds=25)
    with pytest.raises(TimedOut):
        await using
    await connection.closed.wait()
