"""The transport's open streams: the same guarantees as one exchange, for an answer that does not end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from svc_async.engine.transport import OpenStream, Timeouts, Transport
from svc_async.errors import InvalidArgument, Sent, StreamDropped, TimedOut, TransportError
from svc_async.sandbox import VirtualClock
from tests.streams.conftest import Adversary, Visit, hold, holding, refusing


@pytest.fixture
async def transport(clock: VirtualClock) -> AsyncIterator[Transport]:
    transport = Transport.open(user_agent="t", clock=clock, timeouts=Timeouts())
    yield transport
    await transport.close()


def opened(transport: Transport, url: str) -> contextlib.AbstractAsyncContextManager[OpenStream]:
    return transport.stream("GET", url, headers={"X-A": "1"}, timeout=25, on_sent=lambda: None)


async def test_bytes_are_given_as_they_come_and_none_at_the_end(adversary: Adversary, transport: Transport) -> None:
    turn = asyncio.Event()

    async def speak(visit: Visit) -> None:
        await visit.open()
        for piece in (b"a", b"bc"):
            await visit.send(piece)
            await turn.wait()
            turn.clear()
        await visit.end()

    adversary.scripts = [speak]
    async with opened(transport, f"{adversary.url}/x?y=%20") as stream:
        assert (stream.answer.status, stream.answer.headers["content-type"]) == (200, "application/json")
        for expected in (b"a", b"bc", b"", b""):
            assert await stream.chunk() == expected
            turn.set()
    assert adversary.visits[0].target == "/x?y=%20"
    assert adversary.visits[0].headers["x-a"] == "1"


async def test_leaving_the_block_hangs_up(adversary: Adversary, transport: Transport) -> None:
    adversary.scripts = [holding(b"a")]
    async with opened(transport, adversary.url) as stream:
        await stream.chunk()
        assert adversary.open_now == 1
    await adversary.visits[0].over.wait()
    assert not transport._streams


async def test_a_connection_is_never_used_again(adversary: Adversary, transport: Transport) -> None:
    async def end_and_stay(visit: Visit) -> None:
        await visit.open()
        await visit.send(b"a")
        await seen.wait()
        await visit.end()
        await visit.hung_up()

    seen = asyncio.Event()
    adversary.scripts = [end_and_stay, holding(b"b")]
    for expected in (b"a", b"b"):
        async with opened(transport, adversary.url) as stream:
            assert await stream.chunk() == expected
            seen.set()
            if expected == b"a":
                assert await stream.chunk() == b""
    assert len(adversary.visits) == 2
    await adversary.visits[0].over.wait()


async def test_a_stream_that_breaks_off_says_so(adversary: Adversary, transport: Transport) -> None:
    adversary.scripts = [holding(b"a")]
    async with opened(transport, adversary.url) as stream:
        await stream.chunk()
        adversary.visits[0].cut()
        with pytest.raises(StreamDropped, match="^the stream broke off$") as caught:
            await stream.chunk()
    assert caught.value.sent is Sent.YES
    assert caught.value.repeatable


async def test_a_refusal_is_read_whole(adversary: Adversary, transport: Transport) -> None:
    adversary.scripts = [refusing(409, {"title": "x"}, retry_after="7")]
    async with opened(transport, adversary.url) as stream:
        answer = stream.answer
    assert (answer.status, answer.body, answer.headers["retry-after"]) == (409, b'{"title": "x"}', "7")


async def test_redirects_are_not_followed(adversary: Adversary, transport: Transport) -> None:
    adversary.scripts = [refusing(302, location=f"{adversary.url}/else")]
    async with opened(transport, adversary.url) as stream:
        assert stream.answer.status == 302
    assert len(adversary.visits) == 1


async def test_a_dropped_connection_is_not_tried_again(adversary: Adversary, transport: Transport) -> None:
    async def hang_up(visit: Visit) -> None:
        visit.cut()

    adversary.scripts = [hang_up]
    with pytest.raises(TransportError) as caught:
        async with opened(transport, adversary.url):
            pass
    assert caught.value.sent is Sent.MAYBE
    assert len(adversary.visits) == 1


async def test_a_server_that_is_not_there_was_not_sent_to(transport: Transport) -> None:
    with pytest.raises(TransportError, match="the connection was refused") as caught:
        async with opened(transport, "http://127.0.0.1:1/?q=private"):
            pass
    assert caught.value.sent is Sent.NO


async def half_a_refusal(visit: Visit) -> None:
    visit.writer.write(b"HTTP/1.1 503 X\r\nContent-Length: 9\r\n\r\n{")
    await visit.hung_up()


async def silence(visit: Visit) -> None:
    await visit.hung_up()


@pytest.mark.parametrize("script", [silence, half_a_refusal])
async def test_an_answer_must_begin_and_a_refusal_end_in_time(
    adversary: Adversary, transport: Transport, clock: VirtualClock, script: object
) -> None:
    async def use() -> None:
        async with opened(transport, adversary.url):
            pass

    adversary.scripts = [script]  # type: ignore[list-item]
    using = asyncio.ensure_future(use())
    visit = await adversary.visit(1)
    for _ in range(20):
        await asyncio.sleep(0)
    await clock.advance(seconds=25)
    with pytest.raises(TimedOut):
        await using
    await visit.over.wait()


async def test_nothing_limits_a_stream_that_has_begun(
    adversary: Adversary, transport: Transport, clock: VirtualClock
) -> None:
    adversary.scripts = [hold]
    async with opened(transport, adversary.url) as stream:
        reading = asyncio.ensure_future(stream.chunk())
        await clock.advance(hours=10)
        await adversary.visits[0].send(b"a")
        assert await reading == b"a"


async def test_closing_the_transport_breaks_its_streams_off(adversary: Adversary, transport: Transport) -> None:
    async with opened(transport, adversary.url) as stream:
        reading = asyncio.ensure_future(stream.chunk())
        await asyncio.sleep(0)
        await transport.close()
        with pytest.raises(StreamDropped):
            await reading
    await adversary.visits[0].over.wait()
    with pytest.raises(InvalidArgument, match="^session must be open"):
        async with opened(transport, adversary.url):
            pass
