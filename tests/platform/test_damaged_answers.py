"""No answer of the main API is thrown away, however one of its fields is damaged."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import attrs
import pytest

from svc_async import BearerToken, Governor, Retries, Session, UnexpectedAnswer
from svc_async.sandbox import VirtualClock
from svc_async.wire.envelope import Page
from svc_async.wire.records import Record
from tests.support.damages import damage, find_damage, is_reached, list_required
from tests.support.scripted_server import Answer, ScriptedServer

MOMENT = "2026-01-02T03:04:05.000Z"
URL = "https://a.example.test"
WEBHOOK = {"id": "1", "url": URL, "valid": True, "created_at": MOMENT}
SUBSCRIPTION = {
    "subscription_id": "1",
    "event_type": "dm.received",
    "filter": {"user_id": "7", "keyword": "k", "direction": "sent"},
    "tag": "t",
    "webhook_id": "1",
    "created_at": MOMENT,
    "updated_at": MOMENT,
}
RULE = {"id": "1", "value": "cat", "tag": "pets"}
CHANGES = {
    "data": [RULE],
    "meta": {"sent": MOMENT, "summary": {"created": 1, "not_created": 1, "valid": 1, "invalid": 1}},
    "errors": [{"value": "dog", "title": "DuplicateRule", "id": "5"}],
}

Call = Callable[[Session], Awaitable[Any]]


def replay(session: Session) -> Awaitable[Any]:
    end = VirtualClock().now() - timedelta(hours=1)
    return session.webhooks.replay("1", from_date=end - timedelta(hours=1), to_date=end)


SINGLE: dict[str, tuple[Call, dict[str, Any]]] = {
    "webhooks.create": (lambda session: session.webhooks.create(URL), WEBHOOK),
    "webhooks.validate": (lambda session: session.webhooks.validate("1"), {"valid": True, "attempted": True}),
    "webhooks.delete": (lambda session: session.webhooks.delete("1"), {"deleted": True}),
    "webhooks.replay": (replay, {"job_id": "1", "created_at": MOMENT}),
    "subscriptions.create": (
        lambda session: session.activity.subscriptions.create(event_type="dm.received", user_id="7"),
        SUBSCRIPTION,
    ),
    "subscriptions.update": (lambda session: session.activity.subscriptions.update("1", tag="t"), SUBSCRIPTION),
    "subscriptions.delete": (lambda session: session.activity.subscriptions.delete("1"), {"deleted": True}),
}
LISTED: dict[str, tuple[Call, dict[str, Any]]] = {
    "webhooks.list": (lambda session: session.webhooks.list(), WEBHOOK),
    "subscriptions.list": (lambda session: session.activity.subscriptions.list(), SUBSCRIPTION),
    "rules.list": (lambda session: session.filtered_stream.rules.list(), RULE),
}
LONG = {"webhooks.create", "subscriptions.create", "subscriptions.update", "subscriptions.list"}
"""Calls whose records can be damaged in many ways."""
ENVELOPES: list[Callable[[Any], Any]] = [
    lambda record: record,
    lambda record: {"data": record},
    lambda record: {"data": [record]},
    lambda record: {"data": {"subscription": record}},
]


@pytest.fixture
async def session(service: ScriptedServer) -> AsyncIterator[Session]:
    governor = Governor(limits=(), clock=service.clock)
    retries = Retries(first_wait=0.0)
    async with governor, service.session(BearerToken("mine"), retries=retries, governor=governor) as session:
        yield session


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in SINGLE]
)
async def test_a_single_record_is_read_or_its_answer_is_in_the_error(
    name: str, service: ScriptedServer, session: Session
) -> None:
    call, good = SINGLE[name]
    service.answer_all(Answer({"data": good}))
    required = list_required(type(await call(session)))
    envelopes = ENVELOPES if name.startswith("subscriptions.") and len(good) > 1 else ENVELOPES[:3]
    for number, damaged in enumerate(damage(good)):
        body = json.dumps(envelopes[number % len(envelopes)](damaged))
        service.requests.clear()
        service.answer_all(Answer(body))
        try:
            record = await call(session)
        except UnexpectedAnswer as error:
            assert find_damage(damaged, good) in required
            assert (error.body, error.sent, error.repeatable) == (body.encode(), "yes", False)
        else:
            assert isinstance(record, Record)
            assert is_reached(record.to_dict(), damaged), find_damage(damaged, good)
        assert len(service.requests) == 1


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in LISTED]
)
async def test_a_page_gives_all_records_or_says_which_it_could_not_read(
    name: str, service: ScriptedServer, session: Session
) -> None:
    call, good = LISTED[name]
    damaged = [*damage(good)]
    service.answer_all(Answer({"data": [good, *damaged, good], "meta": {"result_count": 1}}))
    page = await call(session)

    assert isinstance(page, Page)
    assert len(service.requests) == 1
    assert len(page.items) + len(page.unreadable) == len(damaged) + 2
    required = list_required(type(page.items[0]))
    found = [*(item.to_dict() for item in page.items[1:-1]), *(each.raw for each in page.unreadable)]
    for sent in damaged:
        assert any(is_reached(each, sent) for each in found), find_damage(sent, good)
    assert {find_damage(each.raw, good) for each in page.unreadable} == required


@pytest.mark.long("an answer is damaged in hundreds of ways")
@pytest.mark.parametrize("verb", ["add", "delete"])
async def test_changed_rules_are_read_or_the_answer_is_in_the_error(
    verb: str, service: ScriptedServer, session: Session
) -> None:
    rules = session.filtered_stream.rules
    for damaged in damage(CHANGES):
        body = json.dumps(damaged)
        service.requests.clear()
        service.answer_all(Answer(body))
        try:
            changed = await (rules.add(["cat", "dog"]) if verb == "add" else rules.delete(["1", "5"]))
        except UnexpectedAnswer as error:
            assert find_damage(damaged, CHANGES) == "data"
            assert (error.body, error.sent, error.repeatable) == (body.encode(), "yes", False)
        else:
            counts = set(attrs.asdict(changed.summary, filter=attrs.filters.exclude("_extra")).values())
            assert counts <= {1, None} or find_damage(damaged, CHANGES) == "meta"
        assert len(service.requests) == 1
