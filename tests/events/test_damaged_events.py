"""An event is never thrown away, however one field of its envelope or payload is damaged."""

import json
from typing import Any

import pytest

from svc_async.events.models import ActivityEvent, UnknownEvent
from svc_async.events.parser import EventParser
from svc_async.events.router import EventRouter
from svc_async.webhooks import SigningKey, WebhookReceiver
from svc_async.webhooks.testing import build_delivery
from tests.support.damages import damage
from tests.support.event_records import PAYLOADS, build_payload

TYPES = sorted({record: event_type for event_type, record in PAYLOADS.items()}.values())
"""One type of each payload."""
SHORT = {"dm.indicate_typing", "dm.sent", "post.delete", "profile.update.affiliate_badge"}
"""Types whose events can be damaged in few ways."""
MARKED = [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in TYPES]
ENVELOPE = {
    "event_uuid": "-42",
    "filter": {"user_id": "7", "keyword": "k", "direction": "sent"},
    "tag": "t",
    "includes": {},
}


def build_events(event_type: str) -> list[dict[str, Any]]:
    """Return events of a type with one damaged field each; the first is whole."""
    event = {**ENVELOPE, "event_type": event_type, "payload": build_payload(event_type)}
    return [event, *(each for each in damage(event) if each.get("event_type") == event_type)]


@pytest.mark.parametrize("event_type", MARKED)
def test_whatever_comes_keeps_its_type_and_can_be_reached(event_type: str) -> None:
    whole, *damaged = build_events(event_type)
    for sent in damaged:
        (event,) = EventParser().parse(json.dumps({"data": sent}).encode())
        assert isinstance(event, ActivityEvent)
        assert event.event_type == event_type
        assert (event.raw, event.payload) == (sent, sent.get("payload"))
        assert isinstance(event, UnknownEvent) == (event.problem is not None)
        if sent.get("payload") == whole["payload"]:
            assert event.problem is None


@pytest.mark.parametrize("event_type", MARKED)
async def test_a_handler_of_its_type_or_of_misfits_hears_of_it(event_type: str) -> None:
    router, heard = EventRouter(), list[Any]()
    router.on(event_type)(lambda event, _: heard.append((event.problem is None, event.raw)))
    router.on("misfit")(lambda event, _: heard.append((event.problem is None, event.raw)))
    damaged = build_events(event_type)
    for event in EventParser().parse(json.dumps({"data": damaged}).encode()):
        assert await router.dispatch(event) == 1
    assert [raw for _, raw in heard] == damaged
    assert heard[0][0]


async def test_a_receiver_calls_the_handler_of_misfits() -> None:
    key = SigningKey("consumer-secret")
    receiver = WebhookReceiver(keys=[key])
    heard: list[Any] = []
    receiver.on("post.create")(lambda event, _: heard.append(("post.create", event.payload)))
    receiver.on("misfit")(lambda event, _: heard.append(("misfit", event.payload)))
    async with receiver:
        for number, payload in enumerate([{}, {"id": "1"}, None]):
            data = {"event_uuid": str(number), "event_type": "post.create", "payload": payload}
            status, _, _ = await receiver.handle(*build_delivery({"data": data}, key))
            assert status == 200
    assert sorted(heard, key=str) == sorted([("misfit", {}), ("post.create", {"id": "1"}), ("misfit", None)], key=str)
