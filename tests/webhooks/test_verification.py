"""What each rejection is answered with, and which requests are verified."""

from collections.abc import Mapping

import attrs
import pytest

from svc_async.webhooks import Ack, RejectReason, SigningKey, WebhookReceiver
from svc_async.webhooks.settings import ReceiverOptions, ReceiverSettings
from svc_async.webhooks.testing import build_crc, build_delivery
from svc_async.webhooks.verification import ADVICE, parse_fields, reject
from svc_async.wire.hmac_sha256 import sign
from tests.support.deliveries import KEY, OAUTH2, STRANGER, delivery

STATUSES: Mapping[str, int] = {
    "method_not_allowed": 405,
    "crc_token_refused": 400,
    "body_encoded": 415,
    "body_too_large": 413,
    "too_many_bodies": 503,
    "body_too_slow": 408,
    "body_broken": 400,
    "body_already_read": 400,
    "not_found": 404,
    "signature_repeated": 400,
    "signature_missing": 401,
    "signature_malformed": 401,
    "signature_wrong": 401,
    "not_a_json_object": 400,
    "too_many_events": 413,
    "handler_failed": 500,
    "queue_full": 503,
    "accept_failed": 503,
    "claimed_elsewhere": 503,
    "deadline_passed": 503,
    "not_running": 503,
}


@pytest.mark.parametrize("reason", RejectReason)
def test_a_rejection_has_a_status_and_says_when_to_come_again(reason: RejectReason) -> None:
    answer = reject(reason, retry_after=17)
    assert (answer.status, answer.body) == (STATUSES[reason.value], reason.value.encode())
    expected = {"content-type": "text/plain; charset=utf-8"}
    if reason is RejectReason.METHOD:
        expected["allow"] = "GET, POST"
    if answer.status == 503:
        expected["retry-after"] = "17"
    assert answer.headers == expected


def test_every_reason_has_a_status_and_advice() -> None:
    assert {reason.value for reason in RejectReason} == STATUSES.keys()
    assert set(ADVICE) == set(RejectReason)


def test_settings_have_these_defaults() -> None:
    defaults = {
        each.name: each.default
        for each in attrs.fields(ReceiverSettings)
        if each.name in ReceiverOptions.__optional_keys__ and isinstance(each.default, int | float | str)
    }
    assert defaults == {
        "workers": 8,
        "crc_signature": "ignore",
        "max_body": 1024 * 1024,
        "max_bodies": 1_000,
        "max_bytes": 64 * 1024 * 1024,
        "read_deadline": 5.0,
        "retry_after": 30,
        "drain_deadline": 30.0,
    }
    assert (Ack().on_deadline, Ack().waits, Ack.inline().on_deadline) == ("refuse", False, "refuse")


def test_the_smallest_settings_are_accepted() -> None:
    ack = Ack(maxsize=1, max_bytes=1, deadline=0.001)
    smallest = {"workers": 1, "max_body": 1, "max_bodies": 1, "max_bytes": 1, "retry_after": 1}
    WebhookReceiver(keys=[KEY], ack=ack, read_deadline=0, drain_deadline=0, **smallest)  # type: ignore[arg-type]  # each is a whole number


@pytest.mark.parametrize("encoding", ["", "identity", " Identity "])
async def test_a_body_that_is_not_encoded_may_say_so(encoding: str) -> None:
    method, query, headers, body = delivery()
    async with WebhookReceiver(keys=[KEY]) as receiver:
        assert (await receiver.handle(method, query, {**headers, "Content-Encoding": encoding}, body)).status == 200
        encoded = await receiver.handle(method, query, {**headers, "Content-Encoding": "identity, gzip"}, body)
    assert encoded.body == b"body_encoded"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (["sha256=x", sign(STRANGER, delivery().body)], b"signature_wrong"),
        (["sha256=x", "y"], b"signature_malformed"),
    ],
)
async def test_the_best_of_two_bad_signatures_names_the_reason(values: list[str], reason: bytes) -> None:
    headers = dict(zip((KEY.header, OAUTH2.header), values, strict=True))
    async with WebhookReceiver(keys=[KEY, OAUTH2]) as receiver:
        assert (await receiver.handle("POST", "", headers, delivery().body)).body == reason


@pytest.mark.parametrize(("query", "status"), [("crc_token=a", 200), ("crc_token=%20", 400)])
async def test_a_crc_check_counts_once(query: str, status: int) -> None:
    receiver = WebhookReceiver(keys=[KEY])
    assert (await receiver.handle("GET", query, {}, b"")).status == status
    assert (receiver.stats.received, receiver.stats.crc_answered) == (1, int(status == 200))
    assert (receiver.health().last_crc_ok is not None) == (status == 200)


async def test_the_first_key_answers_crc_checks_unless_another_is_chosen() -> None:
    answers = [
        (await WebhookReceiver(keys=[KEY, OAUTH2], crc_key=crc_key).handle(*build_crc("a"))).body
        for crc_key in (None, KEY, OAUTH2)
    ]
    assert answers[0] == answers[1] == b'{"response_token":"%s"}' % sign(KEY, b"a").encode()
    assert answers[2] == b'{"response_token":"%s"}' % sign(OAUTH2, b"a").encode()


def test_header_fields_are_parsed_from_a_mapping_and_from_pairs() -> None:
    assert parse_fields({"A": "B"}) == [("a", "B")]
    assert parse_fields([(b"A", b"\xe9"), ("C", "D"), ("C", "E")]) == [("a", "\xe9"), ("c", "D"), ("c", "E")]


# --- requests for tests


def test_a_delivery_is_built_from_an_object_or_from_bytes() -> None:
    for event in ({"data": {"text": "\u00e9"}}, '{"data":{"text":"\u00e9"}}'.encode()):
        method, query, headers, body = build_delivery(event, KEY)
        assert (method, query) == ("POST", "")
        assert body == b'{"data":{"text":"\xc3\xa9"}}'
        assert headers == {"content-type": "application/json", KEY.header: sign(KEY, body)}


def test_a_crc_check_is_built_with_a_signature_of_its_query_on_request() -> None:
    assert build_crc() == ("GET", "crc_token=token", {}, b"")
    key = SigningKey("other", header="x-other")
    assert build_crc("a", key=key) == ("GET", "crc_token=a", {"x-other": sign(key, b"crc_token=a")}, b"")
