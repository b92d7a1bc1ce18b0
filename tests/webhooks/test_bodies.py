"""What is read of a delivery, and how much is held at a time."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from svc_async.sandbox import VirtualClock
from svc_async.webhooks import Ack, WebhookReceiver
from svc_async.webhooks.testing import build_delivery
from svc_async.wire.hmac_sha256 import sign
from tests.support.deliveries import KEY, STRANGER, delivery
from tests.support.event_stores import SlowStore
from tests.support.tasks import run_ready_tasks

SIGNED = delivery().headers
GUESSED = {KEY.header: sign(STRANGER, b"")}


async def unread() -> AsyncIterator[bytes]:
    raise AssertionError
    yield b""


async def send_in_parts(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def send_and_hang(part: bytes) -> AsyncIterator[bytes]:
    yield part
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ({}, 401, "signature_missing"),
        ({KEY.header: "sha256=no"}, 401, "signature_malformed"),
        ({KEY.header: GUESSED[KEY.header], KEY.header.upper(): "x"}, 400, "signature_repeated"),
        ({**GUESSED, "Content-Encoding": "gzip"}, 415, "body_encoded"),
        ({**GUESSED, "Content-Length": "101"}, 413, "body_too_large"),
        ({**GUESSED, "Content-Length": "9" * 5_000}, 400, "body_broken"),
        ({**GUESSED, "Content-Length": "many"}, 400, "body_broken"),
    ],
)
async def test_a_delivery_that_its_head_gives_away_is_not_read(
    headers: Mapping[str, str], status: int, reason: str
) -> None:
    async with WebhookReceiver(keys=[KEY], max_body=100) as receiver:
        answer = await receiver.receive("POST", "", headers, unread())
    assert (answer.status, answer.body) == (status, reason.encode())
    assert (receiver.stats.received, receiver.stats.rejected) == (1, {reason: 1})


async def test_nothing_is_read_unless_the_receiver_runs() -> None:
    answer = await WebhookReceiver(keys=[KEY]).receive("POST", "", GUESSED, unread())
    assert (answer.status, answer.body) == (503, b"not_running")


@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD"])
async def test_only_deliveries_are_read(method: str) -> None:
    receiver = WebhookReceiver(keys=[KEY])
    assert (await receiver.receive(method, "crc_token=a", SIGNED, unread())).status == (200 if method == "GET" else 405)


@pytest.mark.parametrize("length", [None, "100"])
async def test_a_body_of_the_largest_size_is_read_in_any_parts(length: str | None) -> None:
    request = build_delivery(b'{"a":"' + b"x" * 92 + b'"}', KEY)
    headers = {**request.headers, **({"content-length": length} if length else {})}
    assert len(request.body) == 100
    async with WebhookReceiver(keys=[KEY], max_body=100, max_bytes=100) as receiver:
        for parts in ((request.body,), (request.body[:1], b"", request.body[1:])):
            assert (await receiver.receive("POST", "", headers, send_in_parts(*parts))).status == 200
        one_more = await receiver.receive("POST", "", request.headers, send_in_parts(request.body, b" "))
        assert (one_more.status, one_more.body) == (413, b"body_too_large")
        assert (await receiver.receive("POST", "", headers, send_in_parts(request.body))).status == 200


@pytest.mark.parametrize(("setting", "held"), [({"max_bodies": 2}, 2), ({"max_body": 10, "max_bytes": 29}, 2)])
async def test_bodies_are_held_up_to_a_number_and_a_size(setting: dict[str, int], held: int) -> None:
    clock = VirtualClock()
    async with WebhookReceiver(keys=[KEY], clock=clock, retry_after=17, **setting) as receiver:  # type: ignore[arg-type]  # each is a whole number
        holding = [
            asyncio.create_task(receiver.receive("POST", "", GUESSED, send_and_hang(b"x" * 10))) for _ in range(held)
        ]
        await run_ready_tasks()
        answer = await receiver.receive("POST", "", GUESSED, send_in_parts(b"x" * 10))
        assert (answer.status, answer.body) == (503, b"too_many_bodies")
        assert answer.headers["retry-after"] == "17"
        await clock.advance(seconds=5)
        assert [(await each).status for each in holding] == [408] * held
        assert (await receiver.receive("POST", "", GUESSED, send_in_parts(b"x" * 10))).status == 401
    assert receiver.stats.rejected == {"too_many_bodies": 1, "body_too_slow": held, "signature_wrong": 1}


async def test_bodies_of_exactly_the_size_in_total_are_held() -> None:
    clock = VirtualClock()
    async with WebhookReceiver(keys=[KEY], clock=clock, max_body=10, max_bytes=30) as receiver:
        holding = [asyncio.create_task(receiver.receive("POST", "", GUESSED, send_and_hang(b"x" * 10))) for _ in "ab"]
        await run_ready_tasks()
        assert (await receiver.receive("POST", "", GUESSED, send_in_parts(b"x" * 10))).status == 401
        await clock.advance(seconds=5)
        await asyncio.wait(holding)


async def test_a_body_is_held_until_its_delivery_is_answered() -> None:
    store, request = SlowStore(), delivery()
    async with WebhookReceiver(keys=[KEY], dedupe=store, max_bodies=1, ack=Ack.inline()) as receiver:
        answering = asyncio.create_task(receiver.receive("POST", "", request.headers, send_in_parts(request.body)))
        await run_ready_tasks()
        assert (await receiver.receive("POST", "", SIGNED, unread())).status == 503
        store.go.set()
        assert (await answering).status == 200
        assert (await receiver.receive("POST", "", request.headers, send_in_parts(request.body))).status == 200


async def test_a_caller_that_goes_away_leaves_its_place() -> None:
    async with WebhookReceiver(keys=[KEY], max_bodies=1, max_body=10, max_bytes=10) as receiver:
        for _ in range(2):
            reading = asyncio.create_task(receiver.receive("POST", "", GUESSED, send_and_hang(b"x" * 10)))
            await run_ready_tasks()
            assert not reading.done()
            reading.cancel()
            await asyncio.wait({reading})
        assert (await receiver.receive("POST", "", GUESSED, send_in_parts(b"x" * 10))).status == 401


@pytest.mark.parametrize("seconds", [4.5, 5])
async def test_a_body_has_a_deadline(seconds: float) -> None:
    clock = VirtualClock()
    async with WebhookReceiver(keys=[KEY], clock=clock) as receiver:
        answering = asyncio.create_task(receiver.receive("POST", "", SIGNED, send_and_hang(b"{")))
        await clock.advance(seconds=seconds)
        assert answering.done() == (seconds == 5)
        await clock.advance(seconds=5)
        assert (await answering).body == b"body_too_slow"
