"""No number of connections, bodies or events takes more memory and time than the receiver is allowed."""

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from svc_async.webhooks import WebhookReceiver
from svc_async.webhooks.testing import build_delivery
from svc_async.wire.hmac_sha256 import sign
from tests.support.bounded_process import MIB, check_linear, measure_peak, measure_peaks
from tests.support.deliveries import KEY, STRANGER
from tests.support.event_samples import activity
from tests.support.receivers import PATH, SERVERS

CONNECTIONS = 300
HELD = 8 * MIB
BOUND = 128 * MIB
"""What is held, and 0.3 MiB for each connection in the server's own buffers."""
PART = memoryview(b"x" * (MIB - 1))
"""A body of 1 MiB without its last byte, so that the server waits for more."""


async def flood(server: str, *, signed: bool, framing: str) -> Counter[str]:
    """Return the statuses that so many connections at a time are answered with."""
    receiver = WebhookReceiver(keys=[KEY], max_bytes=HELD, read_deadline=0.5)
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\n{framing}\r\n"
    if signed:
        head += f"{KEY.header}: {sign(STRANGER, b'')}\r\n"
    prefix = b"100000\r\n" if "chunked" in framing else b""
    async with SERVERS[server](receiver) as port:
        answers = await asyncio.gather(*(send(port, f"{head}\r\n".encode() + prefix) for _ in range(CONNECTIONS)))
    return Counter(answers)


async def send(port: int, head: bytes) -> str:
    """Send a request that does not end, and return the status of its answer."""
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.setblocking(False)
        await loop.sock_connect(connection, ("127.0.0.1", port))
        sending = asyncio.create_task(send_body(connection, head))
        answer = await loop.sock_recv(connection, 100)
        sending.cancel()
        await asyncio.wait({sending})
    return answer.split()[1].decode()


async def send_body(connection: socket.socket, head: bytes) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, head)
    await loop.sock_sendall(connection, PART)


async def flood_twice(server: str, framing: str) -> list[Counter[str]]:
    return [await flood(server, signed=signed, framing=framing) for signed in (False, True)]


@pytest.mark.parametrize("framing", [f"Content-Length: {MIB}", "Transfer-Encoding: chunked"], ids=["length", "chunked"])
@pytest.mark.parametrize("server", SERVERS)
def test_bodies_are_not_read_without_a_signature_and_held_up_to_a_size_with_one(server: str, framing: str) -> None:
    peak = measure_peak(flood_twice, server, framing)
    unsigned, signed = peak.value
    assert unsigned == {"401": CONNECTIONS}
    assert sum(signed.values()) == CONNECTIONS
    assert set(signed) <= {"408", "503"}
    assert peak.bytes < BOUND


def deliver_events(size: int) -> Callable[[], Awaitable[None]]:
    request = build_delivery({"data": [activity("post.create", uuid=str(number)) for number in range(size)]}, KEY)

    async def work() -> None:
        async with WebhookReceiver(keys=[KEY], max_body=2**30, max_bytes=2**30) as receiver:
            assert (await receiver.handle(*request)).status == 200

    return work


BODIES: dict[str, tuple[str, set[int]]] = {
    "many events": ('"data":[' + '{"event_type":"x"},' * 9_999 + '{"event_type":"x"}]', {200, 503}),
    "too many events": ('"data":[' + '{"event_type":""},' * 10_000 + '{"event_type":""}]', {413}),
    "many values": ('"data":{"event_type":"x","payload":[' + "[]," * 330_000 + "0]}", {200, 503}),
}


async def deliver_without_end(name: str) -> list[int]:
    """Return the statuses of deliveries whose events are not handled meanwhile."""
    statuses = set()
    async with WebhookReceiver(keys=[KEY], drain_deadline=0) as receiver:
        receiver.on("*")(wait_forever)
        for number in range(12):
            body = f'{{"number":{number},{BODIES[name][0]}}}'
            answer = await receiver.handle(*build_delivery(body.encode(), KEY))
            statuses.add(answer.status)
    return sorted(statuses)


async def wait_forever(_: object, __: object) -> None:
    await asyncio.Event().wait()


def test_events_that_wait_take_bounded_memory_whatever_they_hold() -> None:
    peaks = measure_peaks(deliver_without_end, {name: [name] for name in BODIES})
    expected = {name: statuses for name, (_, statuses) in BODIES.items()}
    assert {name: set(peak.value) for name, peak in peaks.items()} == expected
    assert {name: peak.bytes for name, peak in peaks.items() if peak.bytes > BOUND} == {}


def check_url(size: int) -> Callable[[], Awaitable[None]]:
    receiver, query = WebhookReceiver(keys=[KEY]), "crc=%61&" * size + "crc_token=a"

    async def work() -> None:
        assert (await receiver.handle("GET", query, [("x", "y")] * size, b"")).status == 200

    return work


@pytest.mark.parametrize("case", [deliver_events, check_url])
def test_the_work_is_linear(case: Callable[[int], Callable[[], object]]) -> None:
    check_linear(case)
