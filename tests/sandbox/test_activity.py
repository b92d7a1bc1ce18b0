"""The activity product: subscriptions, what they let through, and the shape of every event."""

from collections.abc import Awaitable, Callable
from functools import reduce
from operator import getitem
from typing import Any

import pytest

from svc_async import Session
from svc_async.sandbox import Sandbox, SandboxConfig, VirtualClock
from tests.support.contract import EVENT_ENUMS
from tests.support.raw_client import open_raw_client
from tests.support.v2_client import RecordingReceiver, V2Client

SUBSCRIPTIONS = "/2/activity/subscriptions"
DOCUMENTED = [
    "post.create",
    "post.delete",
    "dm.received",
    "dm.sent",
    "dm.read",
    "dm.indicate_typing",
    "spaces.start",
    "spaces.end",
    "profile.update.bio",
    "profile.update.verified",
    "profile.update.affiliate",
    "profile.update.screenname",
]
OLDER = ["profile.update.picture", "profile.update.banner", "profile.update.geo", "profile.update.url"]
ANNA = "756201191646691328"
BRUNO = "913311844217532416"

Subscribe = Callable[..., Awaitable[str]]


@pytest.fixture
async def subscribe_hook(v2: V2Client, hook: RecordingReceiver) -> Subscribe:
    """A function that subscribes, with a webhook behind it."""
    webhook_id = await v2.register(hook)

    async def subscribe(event_type: str, **given: Any) -> str:
        return str(await v2.subscribe(event_type, webhook_id=webhook_id, **given))

    return subscribe


@pytest.mark.rule("ACT-01", "EV-01")
async def test_a_subscription_is_created_listed_changed_and_deleted(v2: V2Client, hook: RecordingReceiver) -> None:
    webhook_id = await v2.register(hook)
    body = {"event_type": "post.create", "filter": {"user_id": ANNA}, "tag": "mine"}
    got = await v2("POST", SUBSCRIPTIONS, json=body)
    subscription_id = got.data["subscription_id"]
    dates = {"created_at": "2026-06-10T12:00:00Z", "updated_at": "2026-06-10T12:00:00Z"}
    assert got.json == {
        "data": {"subscription_id": subscription_id, **body, **dates},
        "meta": {"total_subscriptions": 1},
    }
    assert (got.status, got.rule, got.headers["x-rate-limit-limit"]) == (200, "ACT-01", "500")
    await v2.clock.advance(seconds=5)
    one = f"{SUBSCRIPTIONS}/{subscription_id}"
    changed = await v2("PUT", one, json={"tag": "ours", "webhook_id": webhook_id})
    assert (changed.data["tag"], changed.data["webhook_id"]) == ("ours", webhook_id)
    assert (changed.data["created_at"], changed.data["updated_at"]) == (dates["created_at"], "2026-06-10T12:00:05Z")
    listed = await v2("GET", SUBSCRIPTIONS)
    assert listed.json == {"data": [changed.data], "meta": {"result_count": 1}}
    assert (await v2("DELETE", one)).data == {"deleted": True}
    for method, json_body in (("DELETE", None), ("PUT", {"tag": "x"})):
        again = await v2(method, one, json=json_body)
        assert (again.status, again.failure[0]) == (404, "SubscriptionIdInvalid")


@pytest.mark.parametrize(
    ("config", "path"),
    [
        (SandboxConfig(), ()),
        (SandboxConfig(subscription_answers="array"), (0,)),
        (SandboxConfig(subscription_answers="nested"), ("subscription",)),
    ],
)
async def test_an_answer_has_the_subscription_where_the_setting_says(v2: V2Client, path: tuple[Any, ...]) -> None:
    created = await v2("POST", SUBSCRIPTIONS, json={"event_type": "post.create", "filter": {"user_id": ANNA}})
    subscription_id = reduce(getitem, path, created.json["data"])["subscription_id"]
    changed = await v2("PUT", f"{SUBSCRIPTIONS}/{subscription_id}", json={"tag": "t"})
    assert reduce(getitem, path, changed.json["data"])["tag"] == "t"
    assert [each["tag"] for each in (await v2("GET", SUBSCRIPTIONS)).data] == ["t"]

    async with Session.sandbox(v2.sandbox) as session:
        assert (await session.activity.subscriptions.update(subscription_id, tag="u")).tag == "u"


FOR_ANNA = {"event_type": "post.create", "filter": {"user_id": ANNA}}
REFUSED: list[tuple[Any, str]] = [
    ({"filter": {"user_id": ANNA}}, "event_type"),
    ({"event_type": "post.create"}, "filter"),
    (FOR_ANNA | {"event_type": "post.edited"}, "event_type"),
    (FOR_ANNA | {"event_type": 7}, "event_type"),
    (FOR_ANNA | {"filter": {}}, "filter.user_id"),
    (FOR_ANNA | {"filter": [ANNA]}, "filter"),
    (FOR_ANNA | {"filter": {"user_id": "anna"}}, "filter.user_id"),
    (FOR_ANNA | {"filter": {"user_id": int(ANNA)}}, "filter.user_id"),
    (FOR_ANNA | {"filter": {"user_id": ANNA, "colour": "red"}}, "filter.colour"),
    (FOR_ANNA | {"filter": {"user_id": ANNA, "keyword": ""}}, "filter.keyword"),
    (FOR_ANNA | {"filter": {"user_id": ANNA, "direction": "sent"}}, "filter.direction"),
    (FOR_ANNA | {"event_type": "dm.read", "filter": {"user_id": ANNA, "direction": "inbound"}}, "filter.direction"),
    (FOR_ANNA | {"tag": "a" * 201}, "tag"),
    (FOR_ANNA | {"tag": ""}, "tag"),
    (FOR_ANNA | {"webhook_id": "1"}, "webhook_id"),
    (FOR_ANNA | {"more": 1}, "more"),
]
"""Bodies of subscriptions, each with the parameter that is refused."""


@pytest.mark.rule("ACT-01", "ACT-03", "EV-01", "EV-02")
async def test_what_no_subscription_can_be_is_refused(v2: V2Client, subtests: pytest.Subtests) -> None:
    for body, parameter in REFUSED:
        with subtests.test(parameter, body=body):
            got = await v2("POST", SUBSCRIPTIONS, json=body)
            assert (got.status, got.headers["Content-Type"]) == (400, "application/problem+json")
            assert got.failure[1] == parameter
            assert (await v2("GET", SUBSCRIPTIONS)).data == []
    assert (await v2("POST", SUBSCRIPTIONS, json=[])).status == 400


@pytest.mark.rule("EV-01", "EV-02")
async def test_the_refusal_of_a_type_names_the_types_that_may_be_meant(v2: V2Client, subtests: pytest.Subtests) -> None:
    for event_type, named in [
        ("post.created", "post.create, "),
        ("x", "post.delete, "),
        ("PostCreate", "post.create "),
    ]:
        with subtests.test(event_type):
            got = await v2("POST", SUBSCRIPTIONS, json=FOR_ANNA | {"event_type": event_type})
            assert (got.failure[1], named in got.json["detail"]) == ("event_type", True)


async def test_a_change_needs_something_to_change(v2: V2Client) -> None:
    one = f"{SUBSCRIPTIONS}/{await v2.subscribe('post.create')}"
    for body in ({}, {"event_type": "post.delete"}, {"tag": ""}, {"webhook_id": "1"}):
        assert (await v2("PUT", one, json=body)).status == 400


async def test_one_that_is_there_already_is_refused(v2: V2Client) -> None:
    await v2.subscribe("dm.read", user_id=ANNA)
    body = {"event_type": "dm.read", "filter": {"user_id": ANNA}, "tag": "again"}
    got = await v2("POST", SUBSCRIPTIONS, json=body)
    assert (got.status, got.failure[0]) == (400, "DuplicateSubscription")
    await v2.subscribe("dm.read", user_id=ANNA, direction="sent")


@pytest.mark.parametrize("config", [SandboxConfig(rate_limits=False)])
@pytest.mark.long("1,000 subscriptions are made")
async def test_there_is_room_for_1000_subscriptions_of_which_a_page_has_100(v2: V2Client) -> None:
    for number in range(1_000):
        await v2.subscribe("post.create", user_id=str(number))
    body = {"event_type": "post.create", "filter": {"user_id": "1000"}}
    got = await v2("POST", SUBSCRIPTIONS, json=body)
    assert (got.status, got.failure[0]) == (400, "SubscriptionLimitExceeded")
    assert len((await v2("GET", SUBSCRIPTIONS)).data) == 100


async def test_lists_are_cut_into_pages(v2: V2Client) -> None:
    made = [await v2.subscribe("post.create", user_id=str(number)) for number in range(105)]
    first = await v2("GET", SUBSCRIPTIONS)
    assert len(first.data) == 100
    found: list[str] = []
    query: dict[str, Any] = {"max_results": 40}
    while query:
        got = await v2("GET", SUBSCRIPTIONS, query)
        found += [subscription["subscription_id"] for subscription in got.data]
        if "pagination_token" not in query:
            await v2("DELETE", f"{SUBSCRIPTIONS}/{made[3]}")
        token = got.json["meta"].get("next_token")
        query = {"max_results": 40, "pagination_token": token} if token else {}
    assert found == made
    for wrong in ({"max_results": 0}, {"max_results": 1001}, {"pagination_token": "7"}, {"pagination_token": "nx"}):
        assert (await v2("GET", SUBSCRIPTIONS, wrong)).status == 400


SHAPES: dict[str, Any] = {
    "post": {
        "id",
        "text",
        "author_id",
        "created_at",
        "conversation_id",
        "lang",
        "reply_settings",
        "possibly_sensitive",
        "edit_history_post_ids",
        "public_metrics",
    },
    "post.delete": {"id", "author_id"},
    "dm": {"direct_message_events", "users"},
    "spaces": {"user", "broadcast_id", "event_type"},
    "profile": {"before", "after"},
}


@pytest.mark.parametrize("event_type", [*DOCUMENTED, *OLDER])
@pytest.mark.rule("EV-01", "EV-03", "WH-40", "WH-60")
async def test_every_type_of_event_has_its_payload(
    v2: V2Client, hook: RecordingReceiver, subscribe_hook: Subscribe, event_type: str
) -> None:
    await subscribe_hook(event_type, user_id=BRUNO, tag="b")
    await v2.sandbox.trigger(event_type, user_id=BRUNO)
    await v2.sandbox.trigger(event_type, user_id=ANNA)
    (event,) = hook.events
    data = event["data"]
    uuid, payload, includes = data.pop("event_uuid"), data.pop("payload"), data.pop("includes", None)
    assert data == {"filter": {"user_id": BRUNO}, "event_type": event_type, "tag": "b"}
    assert -(2**63) <= int(uuid) < 2**63
    assert payload.keys() == SHAPES.get(event_type, SHAPES[event_type.partition(".")[0]])
    if event_type.startswith("profile."):
        (before,), (after,) = payload["before"].items(), payload["after"].items()
        assert before[0] == after[0]
        assert before[1] != after[1]
        assert before[1] is not None
    if event_type.startswith("post."):
        assert payload["author_id"] == BRUNO
    assert (includes is not None) == (event_type == "post.create")


@pytest.mark.rule("EVT-04")
async def test_what_rests_on_a_public_fact_says_so(
    v2: V2Client, hook: RecordingReceiver, subscribe_hook: Subscribe, subtests: pytest.Subtests
) -> None:
    for event_type in EVENT_ENUMS["ActivityEventType"]["values"]:
        with subtests.test(event_type):
            is_public = event_type not in [*DOCUMENTED, *OLDER]
            await subscribe_hook(event_type, user_id=v2.sandbox.user_id)
            answered = v2.sandbox.requests[-1]
            assert (answered.rule, answered.basis) == (("EVT-04", "public") if is_public else ("ACT-01", "spec"))
            delivered = len(hook.headers)
            await v2.sandbox.trigger(event_type)
            (headers,) = hook.headers[delivered:]
            assert headers.get("x-sandbox-basis") == ("public" if is_public else None)


@pytest.mark.rule("EV-04")
async def test_posts_are_subscribed_to_by_user(
    v2: V2Client, hook: RecordingReceiver, subscribe_hook: Subscribe
) -> None:
    await subscribe_hook("post.create", user_id=ANNA)
    await subscribe_hook("post.delete", user_id=BRUNO)
    for event_type in ("post.create", "post.delete"):
        for user_id in (ANNA, BRUNO):
            await v2.sandbox.trigger(event_type, user_id=user_id)
    seen = [(event["data"]["event_type"], event["data"]["payload"]["author_id"]) for event in hook.events]
    assert seen == [("post.create", ANNA), ("post.delete", BRUNO)]


@pytest.mark.rule("ACT-02")
async def test_a_keyword_is_a_word_of_the_text_in_any_case(
    v2: V2Client, hook: RecordingReceiver, subscribe_hook: Subscribe
) -> None:
    await subscribe_hook("post.create", user_id=ANNA, keyword="Tide tables")
    for text in ("New TIDE tables are in", "tables of the tide", "tide tablesets", "the tide, tables!"):
        await v2.sandbox.trigger("post.create", payload={"text": text})
    await v2.sandbox.trigger("post.create", keyword="tide tables")
    await v2.sandbox.trigger("post.create", user_id=BRUNO, keyword="tide tables")
    texts = [event["data"]["payload"]["text"] for event in hook.events]
    assert texts[:2] == ["New TIDE tables are in", "the tide, tables!"]
    assert "tide tables" in texts[2]
    assert len(texts) == 3


async def test_a_keyword_needs_no_user(v2: V2Client, hook: RecordingReceiver, subscribe_hook: Subscribe) -> None:
    await subscribe_hook("post.create", keyword="books")
    await v2.sandbox.trigger("post.create", user_id=BRUNO, payload={"text": "Old books"})
    assert hook.events[0]["data"]["filter"] == {"keyword": "books"}


@pytest.mark.parametrize(
    ("direction", "seen"), [("sent", ["sent"]), ("received", ["received"]), (None, ["sent", "received"])]
)
@pytest.mark.rule("ACT-03")
async def test_a_direction_is_one_side_of_a_message_and_none_is_both(
    v2: V2Client, hook: RecordingReceiver, subscribe_hook: Subscribe, direction: str | None, seen: list[str]
) -> None:
    await subscribe_hook("dm.read", user_id=ANNA, **({"direction": direction} if direction else {}))
    for way in ("sent", "received"):
        await v2.sandbox.trigger("dm.read", direction=way)
    messages = [event["data"]["payload"]["direct_message_events"][0] for event in hook.events]
    assert ["sent" if message["sender_id"] == ANNA else "received" for message in messages] == seen


async def test_what_reaches_two_subscriptions_is_two_events(
    v2: V2Client, hook: RecordingReceiver, subscribe_hook: Subscribe
) -> None:
    await subscribe_hook("post.create", user_id=ANNA)
    await subscribe_hook("post.create", user_id=ANNA, keyword="books")
    await v2.sandbox.trigger("post.create")
    assert len({event["data"]["event_uuid"] for event in hook.events}) == 2


async def test_a_subscription_without_a_webhook_or_with_a_deleted_one_delivers_nothing(
    v2: V2Client, hook: RecordingReceiver
) -> None:
    webhook_id = await v2.register(hook)
    await v2.subscribe("post.create")
    await v2.subscribe("post.delete", webhook_id=webhook_id)
    await v2("DELETE", f"/2/webhooks/{webhook_id}")
    for event_type in ("post.create", "post.delete"):
        await v2.sandbox.trigger(event_type)
    assert hook.events == []
    assert len((await v2("GET", SUBSCRIPTIONS)).data) == 2


@pytest.mark.rule("EV-02")
async def test_older_names_are_accepted_until_the_day_they_changed(hook: RecordingReceiver) -> None:
    clock = VirtualClock("2026-03-17T23:00:00Z")
    async with Sandbox(clock=clock) as sandbox, open_raw_client(sandbox) as raw:
        v2 = V2Client(raw)
        webhook_id = await v2.register(hook)
        await v2.subscribe("ProfileBioUpdate", webhook_id=webhook_id)
        await v2.subscribe("post.create", webhook_id=webhook_id)
        for _ in range(2):
            await sandbox.trigger("profile.update.bio")
            await sandbox.trigger("post.create")
            await clock.advance(hours=1)
        names = [event["data"]["event_type"] for event in hook.events]
        assert names == ["ProfileBioUpdate", "post.create", "profile.update.bio", "post.create"]
        body = {"event_type": "ProfileUrlUpdate", "filter": {"user_id": ANNA}}
        got = await v2("POST", SUBSCRIPTIONS, json=body)
        assert (got.status, got.rule) == (400, "EV-02")


@pytest.mark.parametrize(("nullcast", "events"), [("false", 1), ("true", 0)])
async def test_a_post_of_the_advertising_api_is_an_event_unless_it_is_a_nullcast(
    v2: V2Client, hook: RecordingReceiver, subscribe_hook: Subscribe, nullcast: str, events: int
) -> None:
    await subscribe_hook("post.create", user_id=ANNA)
    query = {"as_user_id": ANNA, "text": "Hello harbour", "nullcast": nullcast}
    got = await v2.raw("POST", f"{v2.raw.account}/post", query)
    await v2.clock.settle()
    assert len(hook.events) == events
    for event in hook.events:
        payload = event["data"]["payload"]
        assert (payload["id"], payload["text"], payload["author_id"]) == (got.data["id_str"], "Hello harbour", ANNA)


async def test_events_are_triggered_over_http_too(
    v2: V2Client, hook: RecordingReceiver, subscribe_hook: Subscribe
) -> None:
    await subscribe_hook("post.create", user_id=BRUNO)
    body = {"event_type": "post.create", "user_id": BRUNO, "set": {"text": "Set", "public_metrics.like_count": 7}}
    got = await v2("POST", "/_sandbox/events", json=body)
    assert got.status == 200
    payload = hook.events[0]["data"]["payload"]
    assert payload == got.json["payload"]
    assert (payload["text"], payload["public_metrics"]["like_count"]) == ("Set", 7)
    await v2("POST", "/_sandbox/events", json={"event_type": "post.create", "user_id": BRUNO, "payload": {"new": [1]}})
    assert hook.events[1]["data"]["payload"]["new"] == [1]


async def test_an_invalid_trigger_is_refused(v2: V2Client, subtests: pytest.Subtests) -> None:
    for body in [
        {},
        {"event_type": "post.created"},
        {"event_type": 7},
        {"event_type": "post.create", "user_id": 7},
        {"event_type": "post.create", "direction": "up"},
        {"event_type": "post.create", "payload": []},
        {"event_type": "post.create", "colour": "red"},
        {"event_type": "post.create", "set": {"txet": "x"}},
        {"event_type": "post.create", "set": {"text.more": "x"}},
        {"event_type": "post.create", "set": {"edit_history_post_ids.1": "x"}},
        {"event_type": "post.create", "set": {"": "x"}},
    ]:
        with subtests.test(body=body):
            assert (await v2("POST", "/_sandbox/events", json=body)).status == 400
