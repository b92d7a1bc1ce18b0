"""The transport's open streams: the same guarantees as one exchange, for an answer that does not end."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator

import pytest

from svc_async.engine.transport import OpenStream, Timeouts, Transport, WireRequest
from svc_async.errors import Sent, StreamDropped, TimedOut, TransportError, WrongState
from svc_async.sandbox import VirtualClock
from tests.support.stream_server import Script, ServerConnection, StreamServer, hold, refuse_with, send_and_hold


@pytest.fixture
async def transport(clock: VirtualClock) -> AsyncIterator[Transport]:
    transport = Transport.open(user_agent="t", clock=clock, timeouts=Timeouts())
    yield transport
    await transport.close()


def open_stream(transport: Transport, url: str) -> contextlib.AbstractAsyncContextManager[OpenStream]:
    request = WireRequest(method="GET", url=url, headers={"X-A": "1"})
    return transport.stream(request, timeout=25, on_sent=lambda: None)


async def test_bytes_are_returned_as_they_arrive_and_none_at_the_end(
    server: StreamServer, transport: Transport
) -> None:
    turn = asyncio.Event()

    async def speak(connection: ServerConnection) -> None:
        await connection.open()
        for piece in (b"a", b"bc"):
            await connection.send(piece)
            await turn.wait()
            turn.clear()
        await connection.end()

    server.scripts = [speak]

    async with open_stream(transport, f"{server.url}/x?y=%20") as stream:
        assert (stream.answer.status, stream.answer.headers["content-type"]) == (200, "application/json")
        for expected in (b"a", b"bc", b"", b""):
            assert await stream.read_chunk() == expected
            turn.set()

    assert server.connections[0].target == "/x?y=%20"
    assert server.connections[0].headers["x-a"] == "1"


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


async def test_a_connection_is_never_reused(server: StreamServer, transport: Transport) -> None:
    async def end_and_stay(connection: ServerConnection) -> None:
        await connection.open()
        await connection.send(b"a")
        await seen.wait()
        await connection.end()
        await connection.wait_for_hangup()

    seen = asyncio.Event()
    server.scripts = [end_and_stay, send_and_hold(b"b")]
    for expected in (b"a", b"b"):
        async with open_stream(transport, server.url) as stream:
            assert await stream.read_chunk() == expected
            seen.set()
            if expected == b"a":
                assert await stream.read_chunk() == b""
    assert len(server.connections) == 2
    await server.connections[0].closed.wait()


async def test_a_connection_that_is_lost_raises_stream_dropped(server: StreamServer, transport: Transport) -> None:
    server.scripts = [send_and_hold(b"a")]

    async with open_stream(transport, server.url) as stream:
        await stream.read_chunk()
        server.connections[0].abort()
        with pytest.raises(StreamDropped) as caught:
            await stream.read_chunk()

    assert caught.value.sent is Sent.YES
    assert caught.value.repeatable


async def test_a_refusal_is_read_completely(server: StreamServer, transport: Transport) -> None:
    server.scripts = [refuse_with(409, {"title": "x"}, retry_after="7")]

    async with open_stream(transport, server.url) as stream:
        answer = stream.answer

    assert (answer.status, answer.body, answer.headers["retry-after"]) == (409, b'{"title": "x"}', "7")


async def test_redirects_are_not_followed(server: StreamServer, transport: Transport) -> None:
    server.scripts = [refuse_with(302, location=f"{server.url}/else")]

    async with open_stream(transport, server.url) as stream:
        assert stream.answer.status == 302

    assert len(server.connections) == 1


async def test_a_dropped_connection_is_not_retried(server: StreamServer, transport: Transport) -> None:
    async def hang_up(connection: ServerConnection) -> None:
        connection.abort()

    server.scripts = [hang_up]
    with pytest.raises(TransportError) as caught:
        async with open_stream(transport, server.url):
            pass

    assert caught.value.sent is Sent.MAYBE
    assert len(server.connections) == 1


async def test_a_server_that_is_not_there_was_not_sent_to(transport: Transport) -> None:
    with pytest.raises(TransportError) as caught:
        async with open_stream(transport, "http://127.0.0.1:1/?q=private"):
            pass
    assert caught.value.sent is Sent.NO


async def half_a_refusal(connection: ServerConnection) -> None:
    connection.writer.write(b"HTTP/1.1 503 X\r\nContent-Length: 9\r\n\r\n{")
    await connection.wait_for_hangup()


async def silence(connection: ServerConnection) -> None:
    await connection.wait_for_hangup()


@pytest.mark.parametrize("script", [silence, half_a_refusal])
async def test_an_answer_must_begin_and_a_refusal_end_in_time(
    server: StreamServer, transport: Transport, clock: VirtualClock, script: Script
) -> None:
    async def use() -> None:
        async with open_stream(transport, server.url):
            pass

    server.scripts = [script]
    using = asyncio.ensure_future(use())
    connection = await server.wait_for_connection(1)
    for _ in range(20):
        await asyncio.sleep(0)
    await clock.advance(seconds=25)
    with pytest.raises(TimedOut):
        await using
    await connection.closed.wait()


async def test_nothing_limits_a_stream_that_has_begun(
    server: StreamServer, transport: Transport, clock: VirtualClock
) -> None:
    server.scripts = [hold]
    async with open_stream(transport, server.url) as stream:
        reading = asyncio.ensure_future(stream.read_chunk())
        await clock.advance(hours=10)
        await server.connections[0].send(b"a")
        assert await reading == b"a"


async def test_closing_the_transport_drops_its_streams(server: StreamServer, transport: Transport) -> None:
    async with open_stream(transport, server.url) as stream:
        reading = asyncio.ensure_future(stream.read_chunk())
        await asyncio.sleep(0)
        await transport.close()
        with pytest.raises(StreamDropped):
            await reading

    await server.connections[0].closed.wait()
    with pytest.raises(WrongState):
        async with open_stream(transport, server.url):
            pass
