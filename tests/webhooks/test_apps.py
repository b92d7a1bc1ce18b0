"""Deliveries that were signed with several secrets: of one app that changes its secret, or of several apps."""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from svc_async.errors import InvalidArgument
from svc_async.events.models import PostCreated
from svc_async.webhooks import (
    Ack,
    MemoryDedupe,
    Rejected,
    RejectReason,
    SigningKey,
    SqliteDedupe,
    SqliteInbox,
    WebhookReceiver,
    unwrap,
)
from svc_async.webhooks.testing import SignedRequest, build_delivery
from svc_async.webhooks.verification import ADVICE
from tests.support.deliveries import KEY, OAUTH2, OLD, STRANGER, delivery
from tests.support.errors import has
from tests.support.event_samples import activity

FIRST, SECOND = SigningKey("a", key_id="a", app="A"), SigningKey("b", key_id="b", app="B")
ALONE = SigningKey(OLD.secret)
"""The former secret as it was configured before there was another: without an app."""

Seen = list[tuple[str, str]]


def post(key: SigningKey, uuid: str = "1") -> SignedRequest:
    return delivery(uuid, key=key)


async def receive(receiver: WebhookReceiver, *requests: SignedRequest) -> Seen:
    """Return the keys of the events that were handled, each with the id of the key that signed it."""
    seen: Seen = []
    receiver.on("*")(lambda event, context: seen.append((event.key, context.key_id)))
    async with receiver:
        for request in requests:
            assert (await receiver.handle(*request)).status == 200
    return seen


async def test_an_app_does_not_hide_the_event_of_another() -> None:
    receiver = WebhookReceiver(keys=[FIRST, SECOND])
    seen = await receive(receiver, post(FIRST), post(SECOND), post(FIRST), post(SECOND))
    assert seen == [("1", "a"), ("1", "b")]
    assert receiver.stats.duplicates == 2


@pytest.mark.parametrize("forged", ["\x1fB\x1f1", "\x1f\x1f1", "\x1f1", "\x1fB\x1fB\x1f1"])
@pytest.mark.parametrize("signed", [(FIRST, SECOND), (SECOND, FIRST)], ids=["first", "second"])
async def test_no_event_id_claims_the_event_of_another_app(forged: str, signed: Sequence[SigningKey]) -> None:
    attacker, victim = signed
    seen = await receive(WebhookReceiver(keys=[FIRST, SECOND]), post(attacker, forged), post(victim))
    assert seen == [(forged, attacker.key_id), ("1", victim.key_id)]


async def test_the_events_of_two_apps_are_stored_apart_and_restored(tmp_path: Path) -> None:
    def make(drain_deadline: float) -> WebhookReceiver:
        ack = Ack.durable(SqliteInbox(tmp_path / "inbox.db"))
        return WebhookReceiver(keys=[FIRST, SECOND], ack=ack, workers=1, drain_deadline=drain_deadline)

    hanging = make(0)
    hanging.on("*")(lambda *_: asyncio.Event().wait())
    async with hanging:
        for uuid in ("1", "\x1fB\x1f1"):
            for key in (FIRST, SECOND):
                assert (await hanging.handle(*post(key, uuid))).status == 200
    seen = await receive(make(30))
    assert seen == [("1", "a"), ("1", "b"), ("\x1fB\x1f1", "a"), ("\x1fB\x1f1", "b")]
    assert await receive(make(30)) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([ALONE], [KEY, OLD]),
        ([KEY, OLD], [KEY, OLD]),
        ([KEY, OLD], [SigningKey(KEY.secret)]),
        ([KEY], [KEY, OAUTH2]),
        ([KEY, OLD, SECOND], [KEY, SECOND]),
    ],
)
async def test_a_change_of_secrets_makes_no_event_new(
    tmp_path: Path, before: list[SigningKey], after: list[SigningKey]
) -> None:
    handled = 0
    for keys in (before, after):
        receiver = WebhookReceiver(keys=keys, dedupe=SqliteDedupe(tmp_path / "events.db"))
        own = [key for key in keys if key.app != "B"]
        handled += len(await receive(receiver, *(post(key) for key in own)))
    assert handled == 1


async def test_another_app_beside_it_makes_no_event_new() -> None:
    dedupe = MemoryDedupe()
    assert await receive(WebhookReceiver(keys=[SigningKey("a")], dedupe=dedupe), post(FIRST)) == [("1", "key-1")]
    both = WebhookReceiver(keys=[FIRST, SECOND], dedupe=dedupe)
    assert await receive(both, post(FIRST), post(SECOND)) == [("1", "b")]


@pytest.mark.parametrize(
    "keys",
    [
        [FIRST, SigningKey("c")],
        [SigningKey("c"), FIRST],
        [SigningKey("c")] * 2,
        [FIRST, SigningKey("c", key_id="a", app="C")],
    ],
)
def test_several_keys_name_their_apps_and_share_no_id(keys: list[SigningKey]) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="keys")):
        WebhookReceiver(keys=keys)


@pytest.mark.parametrize("app", ["", "a\x1fb", "a\n", 7])
def test_the_name_of_an_app_is_printable(app: object) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="app")):
        SigningKey("secret", app=app)  # type: ignore[arg-type]  # what a caller without types passes


# --- unwrap


def test_the_events_of_a_delivery_are_given_to_code_that_handles_them_itself() -> None:
    receiver = WebhookReceiver(keys=[KEY, OAUTH2])
    several = {"data": [activity("post.create", uuid=uuid) for uuid in ("1", "2")]}
    for key in (KEY, OAUTH2):
        request = build_delivery(several, key)
        for _ in range(2):
            events = receiver.unwrap(request.body, request.headers)
            assert [(type(event), event.key) for event in events] == [(PostCreated, "1"), (PostCreated, "2")]
    assert receiver.unwrap(request.body, [(name.encode(), value.encode()) for name, value in request.headers.items()])
    assert receiver.stats.received == 0


@pytest.mark.parametrize(
    ("request_", "reason", "status"),
    [
        (delivery()._replace(headers={}), RejectReason.SIGNATURE_MISSING, 401),
        (delivery(key=STRANGER), RejectReason.SIGNATURE_WRONG, 401),
        (delivery()._replace(body=delivery().body + b" "), RejectReason.SIGNATURE_WRONG, 401),
        (delivery()._replace(headers={KEY.header: "sha256="}), RejectReason.SIGNATURE_MALFORMED, 401),
        (build_delivery(b"[]", KEY), RejectReason.NOT_AN_OBJECT, 400),
        (build_delivery(b"x" * 1_000, KEY), RejectReason.TOO_LARGE, 413),
    ],
)
def test_what_is_no_verified_delivery_is_an_error(request_: SignedRequest, reason: RejectReason, status: int) -> None:
    receiver = WebhookReceiver(keys=[KEY], max_body=999)
    for verify in (receiver.unwrap, partial(unwrap, keys=[KEY], max_body=999)):
        with pytest.raises(Rejected) as caught:
            verify(request_.body, request_.headers)
        assert (caught.value.reason, caught.value.status) == (reason, status)
        problem, next_step = f"the request is rejected: {reason.value}", ADVICE[reason].next_step
        assert str(caught.value) == f"{problem}; {next_step}"


def test_a_delivery_is_verified_with_any_of_several_keys_without_a_receiver() -> None:
    former = SigningKey("former-secret")
    for key in (KEY, former):
        request = build_delivery({"data": activity("post.create", uuid="1")}, key)
        (event,) = unwrap(request.body, request.headers, keys=(each for each in (KEY, former)))
        assert (type(event), event.key) == (PostCreated, "1")


@pytest.mark.parametrize(
    ("body", "keys", "parameter"),
    [
        (b"{}", [], "keys"),
        (b"{}", ["secret"], "keys[0]"),
        ("{}", [KEY], "body"),
        ({}, [KEY], "body"),
    ],
)
def test_a_delivery_cannot_be_verified_without_keys_and_bytes(body: Any, keys: Any, parameter: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=parameter)) as caught:
        unwrap(body, {}, keys=keys)
    assert "secret" not in str(caught.value)
