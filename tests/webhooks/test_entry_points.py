"""What the service sees: the same through `handle`, through aiohttp and through an ASGI server."""

import asyncio
import base64
import gzip
import hashlib
import hmac
import json
from typing import Any

import pytest

from svc_async.events.models import Event, PostCreated, UnknownEvent
from svc_async.webhooks import Ack, DeliveryContext, SigningKey, WebhookReceiver
from svc_async.webhooks.testing import build_crc, build_delivery
from svc_async.wire.hmac_sha256 import SIGNATURE_HEADER, sign
from tests.support.deliveries import KEY, OAUTH2, OLD, STRANGER, delivery
from tests.support.event_samples import activity
from tests.support.receivers import EntryPoint


def compute_answer(secret: str, token: str) -> str:
    return "sha256=" + base64.b64encode(hmac.new(secret.encode(), token.encode(), hashlib.sha256).digest()).decode()


@pytest.mark.rule("WH-34", "WH-35", "WH-36")
async def test_a_crc_check_is_answered_with_the_keyed_hash_of_its_token(entry_point: EntryPoint) -> None:
    async with entry_point(WebhookReceiver(keys=[KEY, OLD])) as send:
        answer = await send("GET", "nonce=x&crc_token=a%2Bb%2F-_%3D", {}, b"")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.body) == {"response_token": compute_answer("consumer-secret", "a+b/-_=")}


async def test_a_crc_check_may_have_a_key_of_its_own(entry_point: EntryPoint) -> None:
    async with entry_point(WebhookReceiver(keys=[OAUTH2, KEY], crc_key=KEY)) as send:
        answer = await send(*build_crc("abc"))
    assert json.loads(answer.body) == {"response_token": compute_answer("consumer-secret", "abc")}


async def test_a_forged_event_sent_as_a_crc_token_is_not_signed(entry_point: EntryPoint) -> None:
    seen: list[Event] = []
    receiver = WebhookReceiver(keys=[KEY])
    receiver.on("*")(lambda event, _: seen.append(event))
    forged = json.dumps({"data": activity("post.create")}, separators=(",", ":"))
    async with entry_point(receiver) as send:
        quoted = "".join(f"%{byte:02X}" for byte in forged.encode())
        asked = await send("GET", f"crc_token={quoted}", {}, b"")
        assert (asked.status, asked.body) == (400, b"crc_token_refused")
        unguarded = {SIGNATURE_HEADER: compute_answer("consumer-secret", forged)}
        assert (await send("POST", "", unguarded, forged.encode())).status == 200  # such an answer would do
        # What the endpoint does sign is no delivery.
        token = "1234567890"
        signed = json.loads((await send(*build_crc(token))).body)["response_token"]
        assert (await send("POST", "", {SIGNATURE_HEADER: signed}, token.encode())).status == 400
    assert [event.key for event in seen] == ["-42"]


@pytest.mark.parametrize(
    "query", ["", "crc_token=", "nonce=1", "crc_token=a&crc_token=b", "crc_token=a%20b", f"crc_token={'a' * 257}"]
)
async def test_other_queries_are_no_crc_checks(entry_point: EntryPoint, query: str) -> None:
    receiver = WebhookReceiver(keys=[KEY])
    async with entry_point(receiver) as send:
        assert (await send("GET", query, {}, b"")).status == 400
    assert receiver.stats.rejected == {"crc_token_refused": 1}


async def test_a_crc_check_is_answered_when_the_queue_is_full_and_handlers_hang(entry_point: EntryPoint) -> None:
    receiver = WebhookReceiver(keys=[KEY], workers=1, ack=Ack.enqueue(maxsize=1), drain_deadline=0)
    receiver.on("*")(lambda *_: asyncio.Event().wait())
    async with entry_point(receiver) as send:
        assert (await send(*delivery("1"))).status == 200
        assert (await send(*delivery("2"))).status == 503
        assert (await send(*build_crc())).status == 200


@pytest.mark.rule("WH-41", "WH-40c")
async def test_a_delivery_is_answered_with_200_and_handled(entry_point: EntryPoint) -> None:
    seen: list[tuple[Event, DeliveryContext]] = []
    receiver = WebhookReceiver(keys=[KEY])

    @receiver.on("post.create")
    async def created(event: PostCreated, context: DeliveryContext) -> None:
        seen.append((event, context))

    request = delivery("-5")
    async with entry_point(receiver) as send:
        answer = await send(*request)
        assert (answer.status, answer.body) == (200, b"")
    ((event, context),) = seen
    assert isinstance(event, PostCreated)
    assert (event.key, event.post.text) == ("-5", "good morning")
    assert (context.key_id, context.body, context.restored) == ("now", request.body, False)


@pytest.mark.rule("WH-60")
async def test_what_is_not_known_is_accepted_too(entry_point: EntryPoint) -> None:
    seen: list[Event] = []
    receiver = WebhookReceiver(keys=[KEY])
    receiver.on("*")(lambda event, _: seen.append(event))
    async with entry_point(receiver) as send:
        bodies: list[dict[str, Any]] = [{"data": activity("post.edit", uuid="1")}, {"to": "come"}, {"data": []}]
        for body in bodies:
            assert (await send(*build_delivery(body, KEY))).status == 200
    assert [type(event) for event in seen] == [UnknownEvent] * 3


@pytest.mark.rule("WH-40c")
@pytest.mark.parametrize("key", [KEY, OLD, OAUTH2])
async def test_any_key_may_have_signed_under_its_own_header(entry_point: EntryPoint, key: SigningKey) -> None:
    receiver = WebhookReceiver(keys=[KEY, OLD, OAUTH2])
    async with entry_point(receiver) as send:
        assert (await send(*delivery(key=key))).status == 200
        assert (await send(*delivery(key=SigningKey(key.secret, header=key.header.upper())))).status == 200
    assert receiver.stats.verified == {key.key_id: 2}


async def test_one_good_signature_is_enough(entry_point: EntryPoint) -> None:
    request = delivery()
    async with entry_point(WebhookReceiver(keys=[KEY, OAUTH2])) as send:
        both = {**request.headers, OAUTH2.header: sign(STRANGER, request.body)}
        assert (await send("POST", "", both, request.body)).status == 200


BODY = delivery().body


@pytest.mark.rule("WH-40c")
@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ([], 401, "signature_missing"),
        ([(OAUTH2.header, sign(KEY, BODY))], 401, "signature_missing"),
        ([(KEY.header, sign(STRANGER, BODY))], 401, "signature_wrong"),
        ([(KEY.header, sign(KEY, BODY + b" "))], 401, "signature_wrong"),
        (
            [(KEY.header, "sha256=" + hmac.new(b"consumer-secret", BODY, hashlib.sha256).hexdigest())],
            401,
            "signature_malformed",
        ),
        ([(KEY.header, "")], 401, "signature_malformed"),
        ([(KEY.header, "sha256=\u00e9\u00e9")], 401, "signature_malformed"),
        ([(KEY.header, sign(KEY, BODY)), (KEY.header, sign(KEY, BODY))], 400, "signature_repeated"),
        ([(KEY.header, sign(KEY, BODY)), (KEY.header.upper(), "x")], 400, "signature_repeated"),
    ],
)
async def test_nothing_is_accepted_without_a_good_signature(
    entry_point: EntryPoint, headers: list[tuple[str, str]], status: int, reason: str
) -> None:
    seen: list[Event] = []
    receiver = WebhookReceiver(keys=[KEY])
    receiver.on("*")(lambda event, _: seen.append(event))
    async with entry_point(receiver) as send:
        answer = await send("POST", "", headers, BODY)
    assert (answer.status, answer.body) == (status, reason.encode())
    assert receiver.stats.rejected == {reason: 1}
    assert seen == []


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"null", b"{", b"\xff\xfe", b"[" * 50_000])
async def test_what_is_signed_and_no_object_is_no_delivery(entry_point: EntryPoint, body: bytes) -> None:
    async with entry_point(WebhookReceiver(keys=[KEY])) as send:
        answer = await send(*build_delivery(body, KEY))
    assert (answer.status, answer.body) == (400, b"not_a_json_object")


@pytest.mark.rule("WH-40c")
@pytest.mark.parametrize("is_signed_before", [True, False])
async def test_a_compressed_body_is_refused_whatever_the_server_makes_of_it(
    entry_point: EntryPoint, *, is_signed_before: bool
) -> None:
    compressed = gzip.compress(BODY)
    fields = {KEY.header: sign(KEY, BODY if is_signed_before else compressed), "Content-Encoding": "gzip"}
    receiver = WebhookReceiver(keys=[KEY])
    async with entry_point(receiver) as send:
        answer = await send("POST", "", fields, compressed)
        assert (
            await send("POST", "", {KEY.header: sign(KEY, BODY), "Content-Encoding": "Identity"}, BODY)
        ).status == 200
    assert (answer.status, answer.body) == (415, b"body_encoded")
    assert receiver.stats.verified == {KEY.key_id: 1}


async def test_a_body_has_a_largest_size(entry_point: EntryPoint) -> None:
    fits, larger = (build_delivery(b'{"a":"' + b"x" * size + b'"}', KEY) for size in (92, 93))
    receiver = WebhookReceiver(keys=[KEY], max_body=100)
    async with entry_point(receiver) as send:
        assert (await send(*fits)).status == 200
        answer = await send(*larger)
    assert (answer.status, answer.body) == (413, b"body_too_large")
    assert receiver.stats.rejected == {"body_too_large": 1}


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_only_two_methods_are_served(entry_point: EntryPoint, method: str) -> None:
    async with entry_point(WebhookReceiver(keys=[KEY])) as send:
        answer = await send(method, "crc_token=a", {}, b"")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, POST")


async def test_a_full_queue_asks_to_come_again(entry_point: EntryPoint) -> None:
    receiver = WebhookReceiver(keys=[KEY], workers=1, ack=Ack.enqueue(maxsize=2), retry_after=17)
    go, seen = asyncio.Event(), list[str]()

    @receiver.on("*")
    async def slow(event: Event, _: DeliveryContext) -> None:
        await go.wait()
        seen.append(event.key)

    async with entry_point(receiver) as send:
        answers = [await send(*delivery(str(number))) for number in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 503]
        assert answers[2].headers["retry-after"] == "17"
        assert (await send(*delivery("1"))).status == 200  # a duplicate needs no place
        go.set()
    assert seen == ["0", "1"]


async def test_the_same_event_is_handled_once(entry_point: EntryPoint) -> None:
    seen: list[str] = []
    receiver = WebhookReceiver(keys=[KEY])
    receiver.on("*")(lambda event, _: seen.append(event.key))
    async with entry_point(receiver) as send:
        statuses = [(await send(*delivery(uuid))).status for uuid in ("1", "2", "1", "1", "2")]
        several = {"data": [activity("post.create", uuid=uuid) for uuid in ("2", "3", "3", "4")]}
        statuses.append((await send(*build_delivery(several, KEY))).status)
    assert statuses == [200] * 6
    assert sorted(seen) == ["1", "2", "3", "4"]
    assert receiver.stats.duplicates == 5


async def test_a_server_that_goes_down_finishes_what_it_accepted(entry_point: EntryPoint) -> None:
    seen: list[str] = []
    receiver = WebhookReceiver(keys=[KEY], workers=2)

    @receiver.on("*")
    async def slow(event: Event, _: DeliveryContext) -> None:
        for _turn in range(20):
            await asyncio.sleep(0)
        seen.append(event.key)

    async with entry_point(receiver) as send:
        for number in range(10):
            assert (await send(*delivery(str(number), user=str(number)))).status == 200
    assert sorted(seen, key=int) == [str(number) for number in range(10)]
    assert not receiver.is_running
