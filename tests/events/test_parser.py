import hashlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_async.errors import InvalidArgument
from svc_async.events.models import (
    AccountActivity,
    ActivityEvent,
    DirectMessage,
    Event,
    EventDirection,
    EventType,
    MatchedPost,
    PostCreated,
    PostDeleted,
    ProfileUpdated,
    ReplayJobState,
    ReplayJobStatus,
    SpaceEvent,
    UnknownEvent,
)
from svc_async.events.parser import EventParser
from tests.support.contract import ENUMS, EVENT_ENUMS
from tests.support.errors import has
from tests.support.event_samples import PAYLOADS, activity, encode_body

KINDS = {"post.create": PostCreated, "post.delete": PostDeleted}
KINDS_BY_FAMILY = {"dm": DirectMessage, "spaces": SpaceEvent, "profile": ProfileUpdated}


def parse_one(raw: bytes) -> Event:
    (event,) = EventParser().parse(raw)
    return event


@pytest.mark.rule("EV-01", "WH-60")
@pytest.mark.parametrize("event_type", ENUMS["EventType"]["values"])
def test_every_documented_type_is_a_typed_event(event_type: str) -> None:
    event = parse_one(encode_body(activity(event_type, tag="mine", includes={"users": []})))
    assert type(event) is KINDS.get(event_type, KINDS_BY_FAMILY.get(event_type.partition(".")[0]))
    assert isinstance(event, ActivityEvent)
    assert event.event_type == event_type
    assert EventType(event.event_type).is_known
    assert (event.key, event.event_uuid, event.user_id, event.tag) == ("-42", "-42", "7", "mine")
    assert event.includes == {"users": []}
    assert event.raw == activity(event_type, tag="mine", includes={"users": []})


def test_the_enum_has_the_documented_types_and_no_others() -> None:
    documented = ENUMS["EventType"]["values"]
    assert [*EventType][: len(documented)] == documented
    assert {*EventType} == {*documented, *EVENT_ENUMS["ActivityEventType"]["values"]}
    assert [*EventDirection] == ENUMS["EventDirection"]["values"]


@pytest.mark.rule("EV-04")
def test_a_post_is_created_and_deleted() -> None:
    created, deleted = parse_one(encode_body(activity("post.create"))), parse_one(encode_body(activity("post.delete")))
    assert isinstance(created, PostCreated)
    assert (created.post.id, created.post.author_id, created.post.text) == ("11", "7", "good morning")
    assert created.post.created_at == datetime(2026, 6, 10, 12, tzinfo=UTC)
    assert isinstance(deleted, PostDeleted)
    assert (deleted.post.id, deleted.post.author_id, deleted.user_id) == ("11", "7", "7")


def test_payloads_are_parsed_into_fields() -> None:
    message, space, profile = (
        parse_one(encode_body(activity(name))) for name in ("dm.received", "spaces.end", "profile.update.screenname")
    )
    assert isinstance(message, DirectMessage)
    assert message.direct_message_events == ({"id": "5", "text": "hush"},)
    assert message.users == {"7": {"name": "Ann"}}
    assert isinstance(space, SpaceEvent)
    assert (space.broadcast_id, space.user) == ("1B", {"data": {"id": "7"}})
    assert isinstance(profile, ProfileUpdated)
    assert (profile.before, profile.after) == ("ann", "anna")


@pytest.mark.rule("ACT-03")
@pytest.mark.parametrize("direction", ENUMS["EventDirection"]["values"])
def test_the_direction_of_a_direct_message(direction: str) -> None:
    event = parse_one(encode_body(activity("dm.sent", filter={"user_id": 7, "keyword": "k", "direction": direction})))
    assert isinstance(event, DirectMessage)
    assert (event.filter.user_id, event.filter.keyword, event.filter.direction) == ("7", "k", direction)
    assert isinstance(event.filter.direction, EventDirection)


@pytest.mark.rule("EV-02")
@pytest.mark.parametrize(
    ("old", "new"),
    [("PostCreate", "post.create"), ("DmIndicateTyping", "dm.indicate_typing"), ("SpacesEnd", "spaces.end")],
)
def test_a_pascal_case_name_is_parsed_as_the_name_that_replaced_it(old: str, new: str) -> None:
    event = parse_one(encode_body({**activity(new), "event_type": old}))
    assert event.event_type == new
    assert isinstance(event, ActivityEvent)
    assert event.raw["event_type"] == old


@pytest.mark.rule("EV-02")
@pytest.mark.parametrize("name", ENUMS["EventType"]["values"])
def test_every_type_had_a_pascal_case_name(name: str) -> None:
    old = "".join(word.capitalize() for word in name.replace("_", ".").split("."))
    assert parse_one(encode_body({**activity(name), "event_type": old})).event_type == name


def test_other_spellings_of_old_names_are_a_setting() -> None:
    parser = EventParser(old_names={"TweetMade": "post.create"})
    (event,) = parser.parse(encode_body({**activity("post.create"), "event_type": "TweetMade"}))

    assert isinstance(event, PostCreated)


@pytest.mark.rule("EV-03")
@pytest.mark.parametrize("what", ENUMS["OlderProfileEvent"]["values"])
def test_older_profile_events_are_profile_updates_whatever_their_name(what: str) -> None:
    payload = {"before": "a", "after": "b"}
    for name in (f"profile.update.{what}", f"Profile{what.title()}Update"):
        event = parse_one(encode_body(activity(name, payload=payload)))
        assert isinstance(event, ProfileUpdated)
        assert event.after == "b"


@pytest.mark.rule("EVT-01", "EVT-02", "EVT-03", "EVT-04")
@pytest.mark.parametrize("name", ["post.edit", "post", "", "dm.reaction", "NewThing"])
def test_an_event_of_an_unknown_type_is_kept_completely(name: str) -> None:
    event = parse_one(encode_body(activity(name, tag="mine", includes={"users": []})))
    assert type(event) is UnknownEvent
    assert (event.event_type, event.key, event.problem, event.misfits) == (name, "-42", None, ())
    assert (event.event_uuid, event.user_id, event.filter.user_id, event.tag) == ("-42", "7", "7", "mine")
    assert (event.payload, event.includes) == ({"some": "thing"}, {"users": []})


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (activity("post.create", payload=None), "EventPost must be an object"),
        (activity("post.create", payload=["x"]), "EventPost must be an object"),
        (activity("post.create", payload={}), "EventPost.id is missing"),
        (activity("post.create", payload={"text": "secret"}), "EventPost.id is missing"),
        (activity("dm.sent", payload={"direct_message_events": ["secret"]}), "direct_message_events does not fit"),
        (activity("spaces.start", payload={"user": {}}), "broadcast_id is missing"),
        ({**activity("post.create"), "event_type": None}, "event_type must be a string"),
    ],
)
def test_an_event_that_does_not_fit_keeps_its_type_and_all_that_came(
    data: Any, names: str, caplog: pytest.LogCaptureFixture
) -> None:
    event = parse_one(encode_body({**data, "tag": "mine", "includes": {"posts": []}}))
    assert type(event) is UnknownEvent
    assert event.event_type == (data["event_type"] or "unknown")
    assert event.problem is not None
    assert names in event.problem
    assert names in caplog.text
    assert "secret" not in event.problem + caplog.text
    assert (event.event_uuid, event.user_id, event.tag, event.payload) == ("-42", "7", "mine", data["payload"])
    assert (event.key, event.includes) == ("-42", {"posts": []})


@pytest.mark.parametrize(
    ("data", "misfit"),
    [
        (
            activity("post.create", payload={"id": "1", "created_at": "secret"}),
            "EventPost.created_at must be a datetime",
        ),
        (activity("post.create", filter="secret"), "EventFilter must be an object"),
        (activity("post.create", tag=["secret"]), "ActivityEnvelope.tag must be a string"),
        (activity("dm.read", payload={"direct_message_events": "secret"}), "direct_message_events does not fit"),
    ],
)
def test_an_optional_field_that_does_not_fit_does_not_cost_the_event(
    data: Any, misfit: str, caplog: pytest.LogCaptureFixture
) -> None:
    event = parse_one(encode_body(data))
    assert isinstance(event, PostCreated | DirectMessage)
    assert (event.event_type, event.problem, event.payload, event.raw) == (
        data["event_type"],
        None,
        data["payload"],
        data,
    )
    assert [misfit in each for each in event.misfits] == [True]
    assert misfit in caplog.text
    assert "secret" not in caplog.text


def test_a_lone_surrogate_does_not_cost_an_event() -> None:
    event = parse_one(encode_body(activity("post.create", uuid="\ud83d", payload={"id": "1", "text": "cut \ud83d"})))
    assert isinstance(event, PostCreated)
    assert (event.key, event.post.text, event.post.extra) == ("\ufffd", "cut \ufffd", {"text": "cut \ud83d"})


def test_several_events_in_one_body() -> None:
    events = EventParser().parse(
        encode_body([activity("post.create", uuid="1"), activity("post.edit", uuid="2"), activity("dm.read")])
    )
    assert [event.key for event in events] == ["1", "2", "-42"]
    assert [type(event) for event in events] == [PostCreated, UnknownEvent, DirectMessage]


def test_an_event_may_come_without_data_around_it() -> None:
    event = parse_one(json.dumps(activity("post.create")).encode())
    assert isinstance(event, PostCreated)
    assert (event.raw, event.post.id) == (activity("post.create"), "11")


@pytest.mark.parametrize(
    ("other", "raw", "problem"),
    [
        ({"payload": {"id": "1"}}, {"payload": {"id": "1"}}, "event_type is missing"),
        ("x", {"data": "x"}, "must be an object"),
        (None, {"data": None}, "must be an object"),
        ([activity("post.create")], {"data": [activity("post.create")]}, "must be an object"),
    ],
)
def test_what_is_no_event_hides_no_other_of_the_body(other: object, raw: object, problem: str) -> None:
    odd, good = EventParser().parse(encode_body([other, activity("post.create")]))
    assert isinstance(good, PostCreated)
    assert isinstance(odd, UnknownEvent)
    assert (odd.event_type, odd.raw, odd.problem) == ("unknown", raw, problem)
    assert odd.key != good.key


def test_a_character_that_is_not_utf_8_does_not_cost_an_event() -> None:
    event = parse_one(
        encode_body(activity("post.create", payload={"id": "1", "text": "M?ller"})).replace(b"?", b"\xfc")
    )
    assert isinstance(event, PostCreated)
    assert (event.post.text, event.post.extra) == ("M\ufffdller", {"text": "M\udcfcller"})


def test_without_a_uuid_the_digest_of_the_body_is_the_key() -> None:
    raw = encode_body(activity("post.create", uuid=None))
    digest = hashlib.sha256(raw).hexdigest()
    assert parse_one(raw).key == digest
    several = encode_body([activity("post.create", uuid=None), activity("post.create", uuid=None)])
    digest = hashlib.sha256(several).hexdigest()
    assert [event.key for event in EventParser().parse(several)] == [f"{digest}:0", f"{digest}:1"]


def test_a_uuid_is_an_opaque_string() -> None:
    assert parse_one(encode_body(activity("post.create", uuid="-007"))).key == "-007"
    assert parse_one(encode_body({**activity("post.create"), "event_uuid": -7})).key == "-7"


@pytest.mark.parametrize("inside", [True, False])
def test_a_replayed_event_is_marked(inside: bool) -> None:
    meta = {"meta": {"replay": True}}
    assert parse_one(
        encode_body({**activity("post.create"), **(meta if inside else {})}, **({} if inside else meta))
    ).replayed
    assert not parse_one(encode_body(activity("post.create"), meta={"replay": "true"})).replayed


def test_the_end_of_a_replay_job() -> None:
    status = {"webhook_id": "3", "job_state": "Complete", "job_state_description": "done", "job_id": 12}
    event = parse_one(json.dumps({"replay_job_status": status}).encode())

    assert isinstance(event, ReplayJobStatus)
    assert (event.job_id, event.webhook_id, event.job_state) == ("12", "3", ReplayJobState.COMPLETE)
    assert isinstance(event.job_state, ReplayJobState)
    assert event.event_type == "replay_job_status"


@pytest.mark.rule("WH-60")
@pytest.mark.parametrize("events", [{"follow_events": [{"type": "follow"}]}, {"replay_event": {"state": "x"}}])
def test_events_of_the_older_account_activity_product(events: dict[str, Any]) -> None:
    value = {"for_user_id": 7, **events, "users": {}}
    event = parse_one(json.dumps(value).encode())

    assert isinstance(event, AccountActivity)
    assert (event.for_user_id, event.user_id, event.event_type) == ("7", "7", "account_activity")
    assert event.events == events
    assert event.raw == value


@pytest.mark.rule("FS-01", "FS-04", "WH-60")
def test_a_post_that_matches_a_rule_keeps_its_edit_history() -> None:
    post = {**PAYLOADS["post.create"], "edit_history_ids": ["10", "11"]}
    event = parse_one(encode_body(post, matching_rules=[{"id": 1, "tag": "boats"}]))

    assert isinstance(event, MatchedPost)
    assert (event.post.id, event.user_id) == ("11", "7")
    assert [(rule.id, rule.tag) for rule in event.matching_rules] == [("1", "boats")]
    assert event.raw["data"]["edit_history_ids"] == ["10", "11"]


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"data": []},
        {"data": [1]},
        {"data": {}},
        {"for_user_id": "7"},
        {"data": {"data": activity("post.create")}},
    ],
)
def test_every_other_object_is_an_unknown_event(value: Any) -> None:
    event = parse_one(json.dumps(value).encode())
    assert type(event) is UnknownEvent
    assert event.event_type == "unknown"
    assert event.raw == value


@pytest.mark.parametrize(
    ("value", "event_type"),
    [
        ({"for_user_id": None, "x_events": []}, "account_activity"),
        ({"replay_job_status": []}, "replay_job_status"),
        ({"data": {"id": "1"}, "matching_rules": "all"}, "filtered_stream.post"),
        ({"data": None, "matching_rules": []}, "filtered_stream.post"),
    ],
)
def test_an_event_of_another_product_that_does_not_fit_keeps_its_type(value: Any, event_type: str) -> None:
    event = parse_one(json.dumps(value).encode())
    assert type(event) is UnknownEvent
    assert (event.event_type, event.raw) == (event_type, value)
    assert event.problem


@pytest.mark.parametrize("raw", [b"", b"[]", b"7", b'"x"', b"null", b"{", b'{"a":1}{}', b"\xff", b"[" * 100_000])
def test_a_body_that_is_not_an_object_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="body")):
        EventParser().parse(raw)


@pytest.mark.parametrize("body", [None, "{}", {}, 5, [b"{}"]])
def test_a_body_that_is_not_bytes_is_refused(body: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="body")):
        EventParser().parse(body)


def test_a_repr_contains_nothing_that_people_wrote() -> None:
    written = "secret"
    for name in [*PAYLOADS, "post.edit"]:
        payload = json.loads(json.dumps(PAYLOADS.get(name, {})).replace("hush", written).replace("ann", written))
        payload |= {"text": written, "before": written, "after": written}
        assert written not in repr(parse_one(encode_body(activity(name, payload=payload))))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from([*EventType, "post.edit"]) | values
envelopes = st.fixed_dictionaries(
    {},
    optional={
        "event_type": names,
        "event_uuid": values,
        "filter": values | st.fixed_dictionaries({"user_id": values, "direction": values}),
        "payload": values | st.sampled_from([*PAYLOADS.values()]),
        "meta": values,
        "id": values,
    },
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "data": envelopes | st.lists(envelopes, max_size=3) | values,
        "matching_rules": values,
        "for_user_id": values,
        "x_events": values,
        "replay_job_status": values,
        "meta": values,
    },
)


@settings(max_examples=20)
@given(bodies)
def test_every_object_is_parsed_into_events(value: Any) -> None:
    events = EventParser().parse(json.dumps(value).encode())
    assert events
    assert all(event.key for event in events)
    assert [*events] == [*EventParser().parse(json.dumps(value).encode())]
