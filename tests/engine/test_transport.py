import asyncio
import ssl
import traceback
from typing import Any, cast
from weakref import WeakKeyDictionary

import aiohttp
import attrs
import pytest
import trustme

from svc_async.clock import SystemClock
from svc_async.engine.failures import ConnectionUnusable
from svc_async.engine.transport import Exchange, Timeouts, Transport
from svc_async.errors import InvalidArgument, Sent, TimedOut, TransportError, UnexpectedAnswer, WrongState
from svc_async.sandbox import VirtualClock
from svc_async.wire.route import Blocks
from tests.support.errors import has
from tests.support.raw_peer import OK, Peer, SendCounter, send


async def test_an_answer_comes_back_as_it_was_sent(peer: Peer, transport: Transport) -> None:
    sent = SendCounter()
    answer = await send(transport, "GET", f"{peer.url}/a?b=%20", headers={"X-A": "1"}, on_sent=sent)

    assert (answer.status, answer.body) == (200, b"{}")
    assert answer.headers["content-length"] == "2"
    assert sent.count == 1
    head = peer.heads[0]

    assert head.startswith(b"GET /a?b=%20 HTTP/1.1\r\n")
    assert b"X-A: 1\r\n" in head


@pytest.mark.parametrize("path", ["/a%2Fb", "/%C3%A9", "/a?x=%27%24%2C%3A%2B~%25", "/a?x=%2520&y="])
async def test_a_url_goes_to_the_wire_as_it_was_quoted(peer: Peer, transport: Transport, path: str) -> None:
    await send(transport, "GET", peer.url + path, headers={}, on_sent=SendCounter())
    assert peer.heads[0].split(b" ")[1].decode() == path


async def test_a_body_in_blocks_is_sent_with_its_length_and_not_chunked(peer: Peer, transport: Transport) -> None:
    blocks = Blocks([b"[" + b"1," * 70_000, b"2" * 70_000, b"]"], 210_002)
    await send(transport, "POST", peer.url, headers={}, body=blocks, on_sent=SendCounter())
    await send(transport, "POST", peer.url, headers={}, body=blocks, on_sent=SendCounter())

    assert peer.bodies == [b"".join(blocks.blocks)] * 2
    assert b"content-length: 210002\r\n" in peer.heads[0].lower()
    assert b"chunked" not in peer.heads[0].lower()


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
async def test_a_dropped_kept_alive_connection_is_not_used_to_send_again(
    peer: Peer, transport: Transport, method: str
) -> None:
    await send(transport, "GET", peer.url, headers={}, on_sent=SendCounter())
    peer.script = peer.answer(b"", close=True)
    sent = SendCounter()
    with pytest.raises(TransportError) as caught:
        await send(transport, method, peer.url, headers={}, on_sent=sent)

    assert caught.value.sent is Sent.MAYBE
    assert sent.count == 1
    assert len(peer.heads) == 2


async def test_a_refused_connection_was_certainly_not_sent(transport: Transport) -> None:
    server = await asyncio.start_server(lambda _, __: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    sent = SendCounter()
    with pytest.raises(TransportError, check=has(sent=Sent.NO)) as caught:
        await send(transport, "POST", f"http://127.0.0.1:{port}", headers={}, on_sent=sent)

    assert caught.value.sent is Sent.NO
    assert caught.value.repeatable
    assert sent.count == 0


async def test_a_reset_before_an_answer_may_have_been_sent(peer: Peer, transport: Transport) -> None:
    async def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    peer.script = reset
    with pytest.raises(TransportError) as caught:
        await send(transport, "POST", peer.url, headers={}, body=b"{}", on_sent=SendCounter())

    assert caught.value.sent is Sent.MAYBE


async def test_redirects_are_not_followed(peer: Peer, transport: Transport) -> None:
    peer.script = peer.answer(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
    answer = await send(transport, "GET", peer.url, headers={"Authorization": "secret"}, on_sent=SendCounter())

    assert answer.status == 302
    assert len(peer.heads) == 1


async def test_cookies_are_not_kept(peer: Peer, transport: Transport) -> None:
    peer.script = peer.answer(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 2\r\n\r\n{}")
    url = peer.url.replace("127.0.0.1", "localhost")  # cookies of bare addresses are not kept in any case
    for _ in range(2):
        await send(transport, "GET", url, headers={}, on_sent=SendCounter())

    assert b"cookie" not in peer.heads[1].lower()


async def test_a_success_that_breaks_off_is_unexpected(peer: Peer, transport: Transport) -> None:
    peer.script = peer.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", close=True)
    with pytest.raises(UnexpectedAnswer) as caught:
        await send(transport, "GET", peer.url, headers={}, on_sent=SendCounter())

    assert (caught.value.status, caught.value.body) == (200, b"{")


async def test_a_refusal_that_breaks_off_is_still_a_refusal(peer: Peer, transport: Transport) -> None:
    peer.script = peer.answer(b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 50\r\n\r\n{", close=True)
    answer = await send(transport, "GET", peer.url, headers={}, on_sent=SendCounter())

    assert (answer.status, answer.body, answer.headers["retry-after"]) == (503, b"", "7")


async def test_what_is_not_http_is_a_transport_error(peer: Peer, transport: Transport) -> None:
    peer.script = peer.answer(b"\x00\x01 not http at all\r\n\r\n", close=True)
    with pytest.raises(TransportError) as caught:
        await send(transport, "GET", peer.url, headers={}, on_sent=SendCounter())

    assert caught.value.sent is Sent.MAYBE


async def test_a_call_that_takes_too_long_ends_on_the_injected_clock(peer: Peer) -> None:
    clock = VirtualClock()
    arrived = asyncio.Event()

    async def silence(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        arrived.set()
        await reader.read()

    peer.script = silence
    transport = Transport.open(user_agent="t", clock=clock, timeouts=Timeouts(total=30))
    call = asyncio.ensure_future(send(transport, "GET", peer.url, headers={}, on_sent=SendCounter()))
    await arrived.wait()
    await clock.advance(seconds=29)

    assert not call.done()
    await clock.advance(seconds=1)
    with pytest.raises(TimedOut) as caught:
        await call

    assert caught.value.sent is Sent.MAYBE
    await transport.close()


async def test_cancelling_a_call_is_not_turned_into_an_error(peer: Peer, transport: Transport) -> None:
    arrived = asyncio.Event()

    async def silence(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        arrived.set()
        await reader.read()

    peer.script = silence
    call = asyncio.ensure_future(send(transport, "GET", peer.url, headers={}, on_sent=SendCounter()))
    await arrived.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_proxy_is_asked_for_the_whole_url(peer: Peer, transport: Transport) -> None:
    answer = await send(
        transport, "GET", "http://ads.example.test/x?y=%20", headers={}, proxy=peer.url, on_sent=SendCounter()
    )

    assert answer.status == 200
    assert peer.heads[0].startswith(b"GET http://ads.example.test/x?y=%20 HTTP/1.1\r\n")


async def test_a_proxy_that_is_not_there_was_not_sent_to(transport: Transport) -> None:
    with pytest.raises(TransportError) as caught:
        await send(
            transport, "GET", "http://ads.example.test/", headers={}, proxy="http://127.0.0.1:1", on_sent=SendCounter()
        )

    assert caught.value.sent is Sent.NO


async def test_tls_takes_the_given_context_and_no_certificate_is_taken_on_trust() -> None:
    authority = trustme.CA()
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(served)
    peer = Peer()
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0, ssl=served)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    transport = Transport.open(user_agent="t", clock=SystemClock(), timeouts=Timeouts(), connector=trusting)

    assert (await send(transport, "GET", url, headers={}, on_sent=SendCounter())).status == 200
    await transport.close()

    doubtful = Transport.open(user_agent="t", clock=SystemClock(), timeouts=Timeouts())
    with pytest.raises(TransportError, check=has(sent=Sent.NO)) as caught:
        await send(doubtful, "GET", url, headers={}, on_sent=SendCounter())

    assert caught.value.sent is Sent.NO
    assert isinstance(caught.value.__cause__, ssl.SSLError)
    assert "CERTIFICATE_VERIFY_FAILED" in str(caught.value.__cause__)
    await doubtful.close()
    server.close()


async def test_a_connector_of_the_callers_stays_open(peer: Peer) -> None:
    connector = aiohttp.TCPConnector(limit=1)
    transport = Transport.open(user_agent="t", clock=SystemClock(), timeouts=Timeouts(), connector=connector)
    await send(transport, "GET", peer.url, headers={}, on_sent=SendCounter())
    await transport.close()

    assert not connector.closed
    await connector.close()


async def test_two_hundred_calls_do_not_open_two_hundred_connections(peer: Peer, transport: Transport) -> None:
    peers: set[object] = set()

    async def record(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.add(writer.get_extra_info("peername"))
        writer.write(OK)

    peer.script = record
    calls = (send(transport, "GET", peer.url, headers={}, on_sent=SendCounter()) for _ in range(200))
    await asyncio.gather(*calls)

    assert len(peer.heads) == 200
    assert len(peers) <= 100


@pytest.mark.parametrize("wrong", [{"total": 0}, {"total": -1}, {"connect": 0}, {"connect": -1, "total": None}])
def test_timeouts_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=next(iter(wrong)))):
        Timeouts(**wrong)


@pytest.mark.parametrize("timeouts", [{}, {"total": 0.5}, {"connect": 0.5}, {"total": None}])
def test_timeouts_may_be_short_or_absent(timeouts: dict[str, Any]) -> None:
    assert attrs.asdict(Timeouts(**timeouts)) == {"total": 60.0, "connect": 10.0} | timeouts


async def test_only_a_connection_of_the_pool_is_replaced_by_another() -> None:
    calls: list[bool] = []

    async def handle(_: aiohttp.ClientRequest) -> aiohttp.ClientResponse:
        calls.append(not calls)
        raise ConnectionUnusable(is_used=calls[-1])

    exchange = Exchange(SendCounter(), WeakKeyDictionary())
    with pytest.raises(ConnectionUnusable):
        await exchange(cast(aiohttp.ClientRequest, None), handle)

    assert calls == [True, False]


def test_aiohttp_can_show_a_body_in_blocks() -> None:
    def show(*blocks: bytes) -> str:
        payload = Exchange(SendCounter(), WeakKeyDictionary()).payload(Blocks(blocks, sum(map(len, blocks))))
        assert payload is not None
        return payload.decode()

    assert show(b"\xc3", b"\xa9!") == "é!"
    with pytest.raises(UnicodeDecodeError):
        show(b"\xff")


def format_traceback(error: BaseException) -> str:
    """What a traceback tells in words, without the lines of code."""
    return "".join(line for line in traceback.format_exception(error) if not line.startswith("  "))


async def test_no_traceback_holds_a_value_of_the_query(peer: Peer, transport: Transport) -> None:
    peer.script = peer.answer(b"\x00\x01 not http at all\r\n\r\n", close=True)
    with pytest.raises(TransportError) as caught:
        await send(transport, "GET", f"{peer.url}/?q=private", headers={}, on_sent=SendCounter())

    assert "private" not in format_traceback(caught.value)


async def test_no_traceback_holds_the_password_of_a_proxy(peer: Peer, transport: Transport) -> None:
    peer.script = peer.answer(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
    proxy = peer.url.replace("//", "//user:hush@")
    with pytest.raises(TransportError, check=has(sent=Sent.NO)) as caught:
        await send(transport, "GET", "https://ads.example.test/", headers={}, proxy=proxy, on_sent=SendCounter())

    assert caught.value.sent is Sent.NO
    assert peer.heads[0].startswith(b"CONNECT ads.example.test:443 ")
    assert b"Proxy-Authorization: Basic " in peer.heads[0]
    assert "hush" not in format_traceback(caught.value)


async def test_a_closed_transport_says_so(transport: Transport) -> None:
    await transport.close()
    with pytest.raises(WrongState):
        await send(transport, "GET", "http://127.0.0.1:1/", headers={}, on_sent=SendCounter())


async def test_no_timeout_but_ours_ends_a_call() -> None:
    transport = Transport.open(user_agent="t", clock=SystemClock(), timeouts=Timeouts(connect=3))

    assert transport._client.timeout == aiohttp.ClientTimeout(total=None, sock_connect=3)
    await transport.close()


async def test_a_request_says_who_sends_it_and_what_it_takes(peer: Peer, transport: Transport) -> None:
    await send(transport, "GET", peer.url, headers={}, on_sent=SendCounter())

    assert b"\r\nUser-Agent: t\r\n" in peer.heads[0]
    assert b"\r\nAccept: application/json\r\n" in peer.heads[0]
