"""Events that are public facts beyond the specification, built from the contract's rows."""

from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

from svc_async.events import public
from svc_async.events.models import ActivityEvent, EventPost, ProfileUpdated
from svc_async.events.parser import EventParser
from tests.support.contract import EVENT_RECORDS
from tests.support.event_records import PAYLOADS, build_payload
from tests.support.event_samples import activity, encode_body

MODELS = {
    "EventBroadcast": public.Broadcast,
    "EventBroadcastChat": public.BroadcastComment,
    "EventChat": public.ChatMessage,
    "EventLike": public.Like,
    "EventNews": public.News,
    "EventOauthRevoke": public.Revocation,
    "EventPost": EventPost,
    "EventUser": public.EventUser,
}


def parse(event_type: str, **more: Any) -> Any:
    (event,) = EventParser().parse(encode_body(activity(event_type, **{"payload": build_payload(event_type), **more})))
    return event


@pytest.mark.rule("EVT-01", "EVT-04", "EVT-12")
@pytest.mark.parametrize("event_type", PAYLOADS)
def test_the_payload_of_every_public_type_fits_its_event(event_type: str) -> None:
    event = parse(event_type)
    assert type(event) is not ActivityEvent
    assert (event.problem, event.misfits) == (None, ())
    assert event.event_type == event_type
    if event_type.startswith("profile.update."):
        assert isinstance(event, ProfileUpdated)
        assert (event.before, event.after) == ("x", "x")


@pytest.mark.parametrize("record", MODELS)
def test_a_record_has_the_fields_of_the_contract(record: str) -> None:
    named = {row["name"] for row in EVENT_RECORDS[record]["field"] if not row["name"].endswith("_str")}
    fields = {field.name for field in attrs.fields(MODELS[record])} - {"_extra"}
    assert fields - {"headline"} == named  # the headline of news has another name in the machine-readable description


@pytest.mark.rule("EVT-05", "EVT-06", "EVT-08b")
def test_a_repost_refers_to_the_original() -> None:
    event = parse("post.repost.create")
    assert isinstance(event, public.PostMentioned)
    assert event.post.referenced_posts == ({"type": "replied_to", "id": "x"},)
    assert parse("post.delete").post.author_id == "x"


@pytest.mark.rule("EVT-11")
@pytest.mark.parametrize("wrapped", [True, False])
def test_users_may_be_wrapped(wrapped: bool) -> None:
    users = {"source": {"id": "1", "username": "ann"}, "target": {"id": "2"}}
    payload = {name: {"data": user} if wrapped else user for name, user in users.items()}
    event = parse("follow.follow", payload=payload)
    assert isinstance(event, public.UserEvent)
    assert (event.source.id, event.source.username, event.target.id) == ("1", "ann", "2")
    assert event.payload == payload


@pytest.mark.rule("EVT-14", "EVT-16", "EVT-17")
def test_payloads_are_typed() -> None:
    ended = parse("broadcast.end").broadcast
    assert (ended.broadcast_state, ended.duration_ms, ended.user.id) == ("Running", 7, "x")
    assert isinstance(ended.broadcast_state, public.BroadcastState)
    assert parse("chat.received").chat.encoded_event == "x"
    assert parse("chat.conversation.join").chat.id == "x"
    assert parse("news.new", filter={"keyword": "books"}).news.category == "x"
    assert parse("broadcast.chat").comment.author.id == "x"
    assert parse("like.create").like.liked_post_id == "x"


@pytest.mark.rule("EVT-15")
def test_a_revocation_concerns_the_user_who_withdrew_the_access() -> None:
    event = parse(
        "oauth.revoke", filter={}, payload={"user_id": "5", "app_id": "6", "date_time": "2026-01-02T03:04:05+00:00"}
    )
    assert isinstance(event, public.AccessRevoked)
    assert (event.user_id, event.filter.user_id) == ("5", None)
    assert event.revocation.date_time == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_another_name_of_a_type_is_parsed_as_its_current_name() -> None:
    (event,) = EventParser().parse(encode_body(activity("chat.conversation_join", payload={})))
    assert event.event_type == "chat.conversation.join"


def test_a_repr_contains_nothing_that_people_wrote() -> None:
    for event_type in PAYLOADS:
        payload = {"text": "secret", "message": "secret", "title": "secret", "name": "secret"}
        whole = {**build_payload(event_type), **payload}
        event = parse(event_type, payload=whole)
        if event_type != "news.new":  # its name is a headline
            assert "secret" not in repr(event)
