"""Subscriptions: what is sent, and how answers are read."""

from typing import Any

import pytest

from svc_async import BearerToken, InvalidArgument
from svc_async.platform.activity import EventDirection, EventFilter, EventType, Subscription
from svc_async.session import Session
from tests.support.errors import has
from tests.support.scripted_server import Answer, ScriptedServer

ALL = "/2/activity/subscriptions"
RECORD = {
    "subscription_id": "9",
    "event_type": "dm.received",
    "filter": {"user_id": "7", "direction": "received"},
    "tag": "mine",
    "webhook_id": "1",
    "created_at": "2026-06-01T00:00:00.000Z",
    "updated_at": "2026-06-01T00:00:00.000Z",
}


def make_session(service: ScriptedServer, **settings: Any) -> Session:
    return service.session(BearerToken("mine"), **settings)


@pytest.mark.rule("ACT-01", "ACT-02", "ACT-03", "EV-04")
@pytest.mark.parametrize(
    ("given", "filtered"),
    [
        ({"event_type": EventType.POST_CREATE, "user_id": "7"}, {"user_id": "7"}),
        ({"event_type": "post.create", "keyword": "harbour"}, {"keyword": "harbour"}),
        (
            {"event_type": "dm.received", "user_id": "7", "direction": EventDirection.RECEIVED},
            {"user_id": "7", "direction": "received"},
        ),
        ({"event_type": "chat.new", "user_id": "7", "direction": "sent"}, {"user_id": "7", "direction": "sent"}),
    ],
)
async def test_a_subscription_has_its_filter(
    service: ScriptedServer, given: dict[str, str], filtered: dict[str, str]
) -> None:
    service.on("POST", ALL, Answer({"data": RECORD, "meta": {"total_subscriptions": 1}}))

    async with make_session(service) as session:
        await session.activity.subscriptions.create(**given, tag="mine", webhook_id="1")

    (seen,) = service.requests

    assert seen.json == {"event_type": given["event_type"], "filter": filtered, "tag": "mine", "webhook_id": "1"}
    assert seen.authorization == "Bearer mine"


@pytest.mark.parametrize("body", [{"data": RECORD}, {"data": [RECORD]}, {"data": {"subscription": RECORD}}, RECORD])
async def test_a_subscription_comes_in_several_shapes(service: ScriptedServer, body: dict[str, Any]) -> None:
    service.on("POST", ALL, Answer({**body, "meta": {"total_subscriptions": 1}}))

    async with make_session(service) as session:
        found = await session.activity.subscriptions.create(event_type="dm.received", user_id="7")

    assert (found.subscription_id, found.event_type, found.tag) == ("9", EventType.DM_RECEIVED, "mine")
    assert found.filter == EventFilter(user_id="7", direction=EventDirection.RECEIVED)


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"event_type": "", "user_id": "7"}, "event_type"),
        ({"event_type": "PostCreate", "user_id": "7"}, "event_type"),
        ({"event_type": "post.create"}, "user_id"),
        ({"event_type": "dm.sent", "user_id": "7", "direction": "inbound"}, "direction"),
        ({"event_type": "post.create", "user_id": "7", "direction": "sent"}, "direction"),
        ({"event_type": "post.create", "user_id": "7", "tag": ""}, "tag"),
        ({"event_type": "post.create", "user_id": "7", "tag": "x" * 201}, "tag"),
        ({"event_type": None, "user_id": "7"}, "event_type"),
        ({"event_type": ["post.create"], "user_id": "7"}, "event_type"),
        ({"event_type": "post.create", "user_id": 5}, "user_id"),
        ({"event_type": "post.create", "keyword": 5}, "keyword"),
        ({"event_type": "post.create", "keyword": "x", "webhook_id": 5}, "webhook_id"),
    ],
)
@pytest.mark.rule("ACT-03", "EV-02")
async def test_what_breaks_a_rule_is_not_sent(service: ScriptedServer, given: dict[str, Any], parameter: str) -> None:
    async with make_session(service) as session:
        with pytest.raises(InvalidArgument, check=has(parameter=parameter)):
            await session.activity.subscriptions.create(**given)

    assert service.requests == []
    service.on("POST", ALL, Answer({"data": RECORD}))

    async with make_session(service, validate=False) as session:
        await session.activity.subscriptions.create(**given)


@pytest.mark.parametrize(
    ("given", "rule_ids"), [({"event_type": "PostCreate"}, ("EV-02",)), ({"direction": "sent"}, ("ACT-03",))]
)
async def test_an_error_names_the_rule_that_is_broken(
    service: ScriptedServer, given: dict[str, str], rule_ids: tuple[str, ...]
) -> None:
    async with make_session(service) as session:
        with pytest.raises(InvalidArgument) as caught:
            await session.activity.subscriptions.create(
                event_type=given.get("event_type", "post.create"), user_id="7", direction=given.get("direction")
            )

    assert caught.value.rule_ids == rule_ids


async def test_subscriptions_are_listed_page_by_page_until_no_token_is_left(service: ScriptedServer) -> None:
    def answer(number: str, **meta: str) -> Answer:
        return Answer({"data": [{**RECORD, "subscription_id": number}], "meta": {"result_count": 1, **meta}})

    service.on("GET", ALL, answer("1", next_token="b"), Answer({"meta": {"next_token": "c"}}), answer("2"))

    async with make_session(service) as session:
        found = await session.activity.subscriptions.list(max_results=1).collect()
        assert [each.subscription_id for each in found] == ["1", "2"]
        assert [seen.query for seen in service.requests] == [
            {"max_results": "1"},
            {"max_results": "1", "pagination_token": "b"},
            {"max_results": "1", "pagination_token": "c"},
        ]
        pages = session.activity.subscriptions.list().pages(cursor="c")
        assert [page.next_cursor async for page in pages] == [None]

    assert service.requests[-1].query == {"pagination_token": "c"}


@pytest.mark.parametrize("max_results", [0, 1001])
async def test_a_page_holds_1_to_1000(service: ScriptedServer, max_results: int) -> None:
    async with make_session(service) as session:
        with pytest.raises(InvalidArgument, check=has(parameter="max_results")):
            session.activity.subscriptions.list(max_results=max_results)


async def test_a_subscription_is_changed_and_deleted(service: ScriptedServer) -> None:
    service.on("PUT", f"{ALL}/9", Answer({"data": RECORD}))
    service.on("DELETE", f"{ALL}/9", Answer({"data": {"deleted": True}}))

    async with make_session(service) as session:
        assert isinstance(await session.activity.subscriptions.update("9", tag="mine"), Subscription)
        assert (await session.activity.subscriptions.delete("9")).deleted
        with pytest.raises(InvalidArgument, check=has(parameter="tag")):
            await session.activity.subscriptions.update("9")
        with pytest.raises(InvalidArgument, check=has(parameter="webhook_id")):
            await session.activity.subscriptions.update("9", webhook_id=5)  # type: ignore[arg-type]  # which is refused

    assert service.requests[0].json == {"tag": "mine"}
    assert len(service.requests) == 2


@pytest.mark.rule("EV-03")
async def test_an_unlisted_type_is_kept(service: ScriptedServer) -> None:
    service.on("GET", ALL, Answer({"data": [{**RECORD, "event_type": "profile.update.banner"}], "meta": {}}))

    async with make_session(service) as session:
        found = await session.activity.subscriptions.list().first()

    assert found is not None
    assert (found.event_type, found.event_type.is_known) == ("profile.update.banner", False)
