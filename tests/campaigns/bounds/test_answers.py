"""A small compressed answer takes a bounded amount of memory and work."""

import asyncio
import gzip
from collections.abc import Callable

import pytest

from svc_async.clock import SystemClock
from svc_async.engine.transport import Timeouts, Transport, WireRequest
from svc_async.errors import UnexpectedAnswer
from tests.support.bounded_process import MIB, check_linear, measure_peak
from tests.support.raw_peer import send, serve

BOMB = 250 * MIB
BLOCK = gzip.compress(b"x" * 10 * MIB)
"""10 kB; members of one gzip file follow each other."""


async def ask(size: int, status: int, *, is_stream: bool) -> str:
    """Receive an answer of this size, compressed, and return what became of it."""
    packed = BLOCK * (size // (10 * MIB)) or gzip.compress(b"x" * size)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status} X\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n"
        writer.write(head.encode() + packed)
        await writer.drain()
        await reader.read()

    transport = Transport.open(user_agent="t", clock=SystemClock(), timeouts=Timeouts())
    async with serve(answer) as url:
        try:
            if is_stream:
                async with transport.stream(WireRequest(method="GET", url=url), on_sent=lambda: None) as stream:
                    while await stream.read_chunk():
                        pass
                return "read"
            return str(len((await send(transport, "GET", url)).body))
        except UnexpectedAnswer as error:
            return str(error)
        finally:
            await transport.close()


async def ask_for_success() -> str:
    return await ask(BOMB, 200, is_stream=False)


async def ask_for_refusal() -> str:
    return await ask(BOMB, 400, is_stream=False)


async def ask_for_stream() -> str:
    return await ask(BOMB // 2, 200, is_stream=True)


@pytest.mark.parametrize(
    ("case", "bound", "result"),
    [
        (ask_for_success, 96 * MIB, "the answer has more than max_answer_bytes=67,108,864 bytes (HTTP 200)"),
        (ask_for_refusal, 24 * MIB, "0"),
        (ask_for_stream, 24 * MIB, "read"),
    ],
)
def test_an_answer_that_grows_a_thousandfold_takes_no_more_than_its_bound(
    case: Callable[[], object], bound: int, result: str
) -> None:
    peak = measure_peak(case)

    assert peak.value == result
    assert peak.bytes < bound


def read_compressed(size: int) -> Callable[[], object]:
    return lambda: asyncio.run(ask(size * 64, 200, is_stream=False))


def test_the_work_for_an_answer_is_linear() -> None:
    check_linear(read_compressed)
