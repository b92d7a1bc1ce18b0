"""How much of an answer is read, compressed or not."""

import contextlib
import gzip
import zlib

import pytest

from svc_async import ApiError, InvalidArgument, Retries, Session, UnexpectedAnswer
from svc_async.clock import SystemClock
from svc_async.engine.transport import MAX_ANSWER_BYTES, Timeouts, Transport, WireRequest
from svc_async.errors import Sent
from svc_async.sandbox import Fault, Sandbox
from svc_async.wire.outcome import Effect, outcome_of
from tests.support.errors import has
from tests.support.raw_peer import OK, Peer, send

MIB = 2**20


def write_answer(body: bytes, *, status: int = 200, encoding: str = "") -> bytes:
    packed = gzip.compress(body) if encoding == "gzip" else zlib.compress(body) if encoding else body
    coding = f"Content-Encoding: {encoding}\r\n" if encoding else ""
    return f"HTTP/1.1 {status} X\r\n{coding}Content-Length: {len(packed)}\r\n\r\n".encode() + packed


def open_transport(max_answer_bytes: int) -> Transport:
    return Transport.open(user_agent="t", clock=SystemClock(), timeouts=Timeouts(), max_answer_bytes=max_answer_bytes)


def test_an_answer_may_have_64_mebibytes_by_default() -> None:
    assert MAX_ANSWER_BYTES == 64 * MIB


@pytest.mark.parametrize("encoding", ["", "gzip", "deflate"])
async def test_an_answer_may_have_as_many_bytes_as_the_setting_says(peer: Peer, encoding: str) -> None:
    transport = open_transport(3 * MIB)
    peer.script = peer.answer(write_answer(b"x" * 3 * MIB, encoding=encoding))

    assert len((await send(transport, "GET", peer.url)).body) == 3 * MIB
    await transport.close()


@pytest.mark.parametrize("encoding", ["", "gzip", "deflate"])
async def test_a_larger_answer_is_an_error_that_says_whether_the_call_was_sent(peer: Peer, encoding: str) -> None:
    transport = open_transport(3 * MIB)
    peer.script = peer.answer(write_answer(b"x" * (3 * MIB + 1), encoding=encoding))
    with pytest.raises(UnexpectedAnswer) as caught:
        await send(transport, "POST", peer.url, body=b"{}")

    assert (caught.value.sent, caught.value.repeatable) == (Sent.YES, False)
    assert caught.value.body == b"x" * MIB
    assert outcome_of(caught.value).effect is Effect.MAYBE
    await transport.close()


@pytest.mark.parametrize("encoding", ["", "gzip", pytest.param("deflate", marks=pytest.mark.long)])
@pytest.mark.parametrize("status", [200, pytest.param(400, marks=pytest.mark.long)])
async def test_the_rest_of_a_large_answer_is_left_with_its_connection(peer: Peer, encoding: str, status: int) -> None:
    transport = open_transport(MIB)
    peer.script = peer.answer(write_answer(b"x" * 4 * MIB, status=status, encoding=encoding))
    with contextlib.suppress(UnexpectedAnswer):
        await send(transport, "GET", peer.url)
    peer.script = peer.answer(OK)

    assert (await send(transport, "GET", peer.url)).body == b"{}"
    assert len(peer.connections) == 2
    await transport.close()


@pytest.mark.parametrize("encoding", ["", "gzip"])
@pytest.mark.parametrize(("size", "read"), [(MIB, MIB), (MIB + 1, 0)])
async def test_of_a_refusal_one_mebibyte_is_read(
    peer: Peer, transport: Transport, encoding: str, size: int, read: int
) -> None:
    peer.script = peer.answer(write_answer(b" " * size, status=400, encoding=encoding))
    answer = await send(transport, "GET", peer.url)

    assert (answer.status, len(answer.body)) == (400, read)
    async with transport.stream(WireRequest(method="GET", url=peer.url), on_sent=lambda: None) as stream:
        assert (stream.answer.status, len(stream.answer.body)) == (400, read)


async def test_a_smaller_bound_holds_for_refusals_too(peer: Peer) -> None:
    transport = open_transport(10)
    peer.script = peer.answer(write_answer(b" " * 11, status=400))

    assert (await send(transport, "GET", peer.url)).body == b""
    await transport.close()


@pytest.mark.parametrize("size", [4 * MIB, pytest.param(64 * MIB, marks=pytest.mark.long)])
async def test_a_compressed_stream_is_handed_over_in_blocks(peer: Peer, transport: Transport, size: int) -> None:
    peer.script = peer.answer(write_answer(b"x" * size, encoding="gzip"))
    blocks: list[int] = []
    async with transport.stream(WireRequest(method="GET", url=peer.url), on_sent=lambda: None) as stream:
        while chunk := await stream.read_chunk():
            blocks.append(len(chunk))

    assert sum(blocks) == size
    assert max(blocks) <= MIB


async def test_the_bound_is_a_setting_of_the_session(sandbox: Sandbox) -> None:
    page = b'{"data":[],"next_cursor":null}'
    sandbox.faults.on("GET", "*/accounts").do(Fault.http(200, body=page))
    async with Session.sandbox(sandbox, max_answer_bytes=len(page)) as session:
        assert await session.accounts.list().collect() == []
    async with Session.sandbox(sandbox, max_answer_bytes=len(page) - 1) as session:
        with pytest.raises(UnexpectedAnswer):
            await session.accounts.list().collect()

    assert sandbox.requests.count("*/accounts") == 2


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_bound_that_makes_no_sense_is_refused(wrong: int) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="max_answer_bytes")):
        Session.sandbox(max_answer_bytes=wrong)


async def test_a_refusal_without_a_readable_body_keeps_its_status(sandbox: Sandbox) -> None:
    sandbox.faults.on("GET", "*/accounts").do(Fault.http(400, body=b'{"errors":[{"code":"A"}]}' + b" " * MIB))
    async with Session.sandbox(sandbox, retries=Retries.none()) as session:
        with pytest.raises(ApiError) as caught:
            await session.accounts.list().collect()

    assert (caught.value.status, caught.value.errors) == (400, ())
