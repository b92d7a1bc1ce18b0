"""Bursts, crashes and noise. Nothing here looks at the wall clock."""

import asyncio
import json
import random
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import svc_async
from svc_async.events.models import Event
from svc_async.webhooks import Ack, DeliveryContext, SqliteDedupe, SqliteInbox, WebhookReceiver
from svc_async.webhooks.testing import SignedRequest, build_delivery
from svc_async.wire.hmac_sha256 import sign
from tests.support.deliveries import KEY, OAUTH2, delivery
from tests.support.event_samples import activity
from tests.support.receivers import PATH, SERVERS, Server, exchange_raw

ROOT = Path(svc_async.__file__).parents[1]


def make_burst(rng: random.Random, count: int) -> list[SignedRequest]:
    """Return deliveries of which every fifth repeats another one."""
    uuids = [str(number) for number in range(count * 4 // 5)]
    uuids += rng.sample(uuids, count - len(uuids))
    rng.shuffle(uuids)
    return [delivery(uuid, user=str(int(uuid) % 50)) for uuid in uuids]


async def deliver_all(
    receiver: WebhookReceiver, requests: list[SignedRequest], rng: random.Random
) -> list[SignedRequest]:
    """Send groups of deliveries, and return those that were not accepted."""
    refused: list[SignedRequest] = []
    while requests:
        group, requests = requests[:40], requests[40:]
        answers = await asyncio.gather(*(receiver.handle(*request) for request in group))
        assert {answer.status for answer in answers} <= {200, 503}
        refused += [request for request, answer in zip(group, answers, strict=True) if answer.status != 200]
        for _ in range(rng.randrange(20)):
            await asyncio.sleep(0)
    return refused


@pytest.mark.parametrize("count", [200, *(pytest.param(count, marks=pytest.mark.long) for count in (500, 5_000))])
async def test_of_a_burst_each_event_is_handled_once_or_reported(count: int) -> None:
    rng = random.Random(7)
    handled: Counter[str] = Counter()
    reported: Counter[str] = Counter()
    receiver = WebhookReceiver(
        keys=[KEY], ack=Ack.enqueue(maxsize=25), dead_letter=lambda event, _: reported.update([event.key])
    )

    @receiver.on("*")
    async def handler(event: Event, _: DeliveryContext) -> None:
        for _turn in range(rng.randrange(3)):
            await asyncio.sleep(0)
        if rng.random() < 0.02:
            raise LookupError
        handled[event.key] += 1

    rounds = 0
    async with receiver:
        requests = make_burst(rng, count)
        while requests:
            rounds += 1
            requests = await deliver_all(receiver, requests, rng)
    assert set(handled.values()) == {1}
    assert handled.keys() | reported.keys() == {str(number) for number in range(count * 4 // 5)}
    assert receiver.stats.rejected["queue_full"] > 0
    assert receiver.stats.duplicates > 0
    assert sum(reported.values()) == receiver.stats.failed
    assert rounds > 1


@pytest.mark.parametrize(
    ("drain_deadline", "count"),
    [
        (0, 40),
        pytest.param(30, 40, marks=pytest.mark.long),
        pytest.param(0, 100, marks=pytest.mark.long),
        pytest.param(30, 100, marks=pytest.mark.long),
        pytest.param(0, 2_000, marks=pytest.mark.long),
        pytest.param(30, 1_000, marks=pytest.mark.long),
    ],
)
async def test_of_a_burst_over_restarts_each_event_is_handled_once(
    tmp_path: Path, drain_deadline: float, count: int
) -> None:
    rng = random.Random(11)
    handled: Counter[str] = Counter()

    async def handler(event: Event, _: DeliveryContext) -> None:
        for _turn in range(rng.randrange(100)):  # often more than pass between the last answer and the end
            await asyncio.sleep(0)
        handled[event.key] += 1

    def started() -> WebhookReceiver:
        receiver = WebhookReceiver(
            keys=[KEY],
            ack=Ack.durable(SqliteInbox(tmp_path / "inbox.db"), maxsize=min(30, count // 20)),
            dedupe=SqliteDedupe(tmp_path / "events.db"),
            drain_deadline=drain_deadline,
            workers=40,
        )
        receiver.on("*")(handler)
        return receiver

    requests = make_burst(rng, count)
    left, restored, full = list[SignedRequest](), 0, 0
    for start in range(0, count, count // 5):
        async with started() as receiver:
            left = await deliver_all(receiver, left + requests[start : start + count // 5], rng)
        restored += receiver.stats.restored
        full += receiver.stats.rejected.get("queue_full", 0)
    while left:
        async with started() as receiver:
            left = await deliver_all(receiver, left, rng)
        restored += receiver.stats.restored
    while count_stored(tmp_path):
        async with started() as receiver:
            await deliver_all(receiver, requests[:1], rng)  # which tells that the application serves
    assert handled == Counter({str(number): 1 for number in range(count * 4 // 5)})
    assert full > 0
    assert (restored > 0) == (drain_deadline == 0)


def count_stored(folder: Path) -> int:
    connection = sqlite3.connect(folder / "inbox.db")
    try:
        (count,) = connection.execute("SELECT count(*) FROM svc_inbox").fetchone()
    finally:
        connection.close()
    return int(count)


CRASHES = """
import asyncio, os, sys
from svc_async.webhooks import Ack, SqliteDedupe, SqliteInbox, WebhookReceiver
from tests.support.deliveries import KEY, delivery

async def main():
    durable = Ack.durable(SqliteInbox("inbox.db")) if sys.argv[1] == "durable" else Ack.enqueue()
    receiver = WebhookReceiver(keys=[KEY], ack=durable, dedupe=SqliteDedupe("events.db"))
    answered = asyncio.Event()

    @receiver.on("*")
    async def handler(event, _):
        await answered.wait()
        os._exit(9)

    async with receiver:
        print((await receiver.handle(*delivery())).status, flush=True)
        answered.set()

asyncio.run(main())
"""


@pytest.mark.long("it ends a process")
@pytest.mark.parametrize(("mode", "handled_by_itself"), [("durable", 1), ("enqueue", 0)])
async def test_a_crash_between_claim_and_commit_loses_no_event_for_good(
    tmp_path: Path, mode: str, handled_by_itself: int
) -> None:
    crashed = subprocess.run(  # noqa: ASYNC221 - nothing else runs
        [sys.executable, "-c", CRASHES, mode],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (crashed.returncode, crashed.stdout) == (9, "200\n"), crashed.stderr
    inbox = SqliteInbox(tmp_path / "inbox.db")
    seen: list[str] = []
    receiver = WebhookReceiver(
        keys=[KEY],
        ack=Ack.durable(inbox) if mode == "durable" else Ack.enqueue(),
        dedupe=SqliteDedupe(tmp_path / "events.db"),
    )
    receiver.on("*")(lambda event, _: seen.append(event.key))
    async with receiver:
        pass
    assert len(seen) == handled_by_itself
    async with receiver:  # a repeated delivery, or a replay
        assert (await receiver.handle(*delivery())).status == 200
    assert seen == ["1"]


# --- noise

texts = st.text(max_size=30) | st.binary(max_size=30).map(lambda raw: raw.decode("latin-1"))
names = st.sampled_from([KEY.header, KEY.header.upper(), OAUTH2.header, "content-type"]) | texts
fields = st.lists(st.tuples(names, texts | st.just("sha256=" + "A" * 43 + "=")), max_size=4) | st.dictionaries(
    names, texts, max_size=4
)
signed = st.builds(
    build_delivery,
    st.binary(max_size=40) | st.just(b'{"data":{}}') | st.just(json.dumps({"data": activity("dm.read")}).encode()),
    st.just(KEY),
)
requests_of_any_kind = st.builds(
    SignedRequest,
    st.sampled_from(["GET", "POST", "PUT", "HEAD"]) | texts,
    texts | st.sampled_from(["crc_token=a", "crc_token=%7B", "crc_token=\ud800", "crc_token=a&crc_token=b"]),
    fields,
    st.binary(max_size=60),
)


@settings(max_examples=25)
@given(st.lists(requests_of_any_kind | signed, max_size=6))
@pytest.mark.long("tries hundreds of examples")
async def test_no_request_raises_and_none_is_accepted_without_a_good_signature(requests: list[SignedRequest]) -> None:
    seen: list[bytes] = []
    receiver = WebhookReceiver(keys=[KEY, OAUTH2], dead_letter=lambda *_: pytest.fail("a dead letter"))
    receiver.on("*")(lambda _, context: seen.append(context.body))
    accepted: list[bytes] = []
    async with receiver:
        for request in requests:
            status, headers, body = await receiver.handle(*request)
            assert status in {200, 400, 401, 405}
            assert all(isinstance(part, str) for pair in headers.items() for part in pair)
            assert isinstance(body, bytes)
            if status == 200 and request.method == "POST":
                assert is_well_signed(request)
                accepted.append(request.body)
    assert set(seen) == set(accepted)


def is_well_signed(request: SignedRequest) -> bool:
    pairs: Any = request.headers.items() if isinstance(request.headers, dict) else request.headers
    return any(
        name.lower() == key.header and value == sign(key, request.body)
        for name, value in pairs
        for key in (KEY, OAUTH2)
    )


HEAD = f"POST {PATH} HTTP/1.1\r\nHost: x\r\n".encode()


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS.keys())
@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n",
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
        b"GET\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
        HEAD + b"Content-Length: 100\r\n\r\nabc",
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        HEAD + b"x-svc-webhooks-signature: \xff\xfe\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
        f"GET {PATH}?crc_token=%FF%00 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode(),
        f"GET {PATH}?crc_token=\xff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode("latin-1"),
    ],
)
async def test_broken_requests_break_nothing(
    server: Server, request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = WebhookReceiver(keys=[KEY])
    async with server(receiver) as port:
        answer = await exchange_raw(port, request_bytes, then_end=True)
        # Which version a server says that could not read the head is its own business.
        assert answer == b"" or re.match(rb"HTTP/1\.[01] 4\d\d ", answer)
    assert receiver.stats.handled == 0
    assert not [each for each in caplog.records if each.name.startswith("svc_async") and each.levelname != "WARNING"]
