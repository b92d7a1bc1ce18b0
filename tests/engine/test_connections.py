"""An answer is never taken for the answer to another request, whatever arrives on a connection of the pool."""

import asyncio
import os
import select
import socket
import sys
from contextlib import ExitStack

import pytest

from svc_async.engine.transport import Transport
from svc_async.errors import Sent, TransportError
from svc_async.wire.route import Blocks
from tests.support.raw_peer import OK, Peer, SendCounter, send, serve

FOREIGN = b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"foreign"'
TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


async def let_bytes_arrive() -> None:
    """Let the event loop read what is in the sockets of this process."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("stray", [FOREIGN, TIMED_OUT, b"\x00", FOREIGN * 3], ids=lambda stray: repr(stray[:12]))
@pytest.mark.parametrize("is_read", [True, False])
async def test_a_connection_with_bytes_that_nobody_asked_for_is_not_used_again(
    peer: Peer, transport: Transport, stray: bytes, is_read: bool
) -> None:
    await send(transport, "GET", peer.url)
    peer.connections[0].write(stray)
    await peer.connections[0].drain()
    if is_read:  # by the event loop of the client; otherwise they wait in the socket
        await let_bytes_arrive()
    sent = SendCounter()

    answer = await send(transport, "POST", peer.url, body=b"{}", on_sent=sent)

    assert (answer.status, answer.body) == (200, b"{}")
    assert (sent.count, len(peer.connections), peer.bodies) == (1, 2, [b"", b"{}"])


@pytest.mark.parametrize("count", [1, 7, 12, 17, 37])
async def test_an_answer_that_nobody_asked_for_is_not_believed_if_it_comes_in_two_parts(
    peer: Peer, transport: Transport, count: int
) -> None:
    async def complete(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(FOREIGN[count:] + OK)

    await send(transport, "GET", peer.url)
    peer.connections[0].write(FOREIGN[:count])
    await let_bytes_arrive()
    peer.script = complete
    with pytest.raises(TransportError) as caught:
        await send(transport, "POST", peer.url, body=b"{}")

    assert caught.value.sent is Sent.MAYBE


@pytest.mark.parametrize("arrives", [b"", FOREIGN])
async def test_a_system_without_poll_sees_what_has_arrived_as_well(
    peer: Peer, transport: Transport, monkeypatch: pytest.MonkeyPatch, arrives: bytes
) -> None:
    monkeypatch.delattr(select, "poll", raising=False)  # as on Windows
    await send(transport, "GET", peer.url)
    peer.connections[0].write(arrives)
    await peer.connections[0].drain()
    answer = await send(transport, "POST", peer.url, body=b"{}")

    assert (answer.status, answer.body) == (200, b"{}")
    assert len(peer.connections) == (2 if arrives else 1)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows numbers sockets otherwise")
async def test_a_process_may_have_more_open_files_than_select_can_watch(peer: Peer, transport: Transport) -> None:
    with ExitStack() as stack:
        for _ in range(1_100):  # select() fails from 1,024 on
            stack.callback(os.close, os.dup(0))
        for _ in range(2):
            assert (await send(transport, "GET", peer.url)).status == 200

    assert len(peer.connections) == 1


async def test_every_connection_of_the_pool_may_be_unusable(peer: Peer, transport: Transport) -> None:
    together = asyncio.Barrier(8)

    async def answer_together(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await together.wait()
        writer.write(OK)

    peer.script = answer_together
    await asyncio.gather(*(send(transport, "GET", peer.url) for _ in range(8)))
    for connection in peer.connections:
        connection.write(TIMED_OUT)
        connection.close()
    peer.script = peer.answer(OK)
    await let_bytes_arrive()

    assert (await send(transport, "GET", peer.url)).status == 200
    assert len(peer.connections) == 9


@pytest.mark.parametrize("is_read", [True, False])
async def test_a_connection_that_the_service_closed_is_not_written_to(
    peer: Peer, transport: Transport, is_read: bool
) -> None:
    await send(transport, "GET", peer.url)
    peer.connections[0].get_extra_info("socket").shutdown(socket.SHUT_WR)
    if is_read:
        await let_bytes_arrive()

    assert (await send(transport, "POST", peer.url, body=b"{}")).status == 200
    assert peer.bodies == [b"", b"{}"]


async def test_bytes_behind_an_answer_do_not_shift_the_answers_that_follow(peer: Peer, transport: Transport) -> None:
    peer.script = peer.answer(OK + FOREIGN)
    answers = [await send(transport, "GET", peer.url) for _ in range(4)]

    assert [answer.body for answer in answers] == [b"{}"] * 4
    assert len(peer.connections) == 4


async def test_a_connection_is_used_again_if_nothing_happened_on_it(peer: Peer, transport: Transport) -> None:
    for _ in range(4):
        await send(transport, "POST", peer.url, body=b"{}")
        await let_bytes_arrive()

    assert len(peer.connections) == 1


@pytest.mark.parametrize("blocks", [1, 64])
async def test_a_success_that_begins_before_the_request_is_written_is_not_believed(
    transport: Transport, blocks: int
) -> None:
    async def answer_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(FOREIGN)
        await asyncio.Event().wait()

    async with serve(answer_early) as url:
        with pytest.raises(TransportError) as caught:
            await send(transport, "POST", url, body=Blocks([b"x" * (2**24 // blocks)] * blocks, 2**24))

    assert caught.value.sent is Sent.MAYBE


async def test_a_refusal_may_begin_before_the_request_is_written(transport: Transport) -> None:
    async def refuse_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await asyncio.Event().wait()

    async with serve(refuse_early) as url:
        assert (await send(transport, "POST", url, body=b"x" * 2**24)).status == 413
