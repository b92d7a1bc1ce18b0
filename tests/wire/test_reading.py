import copy
import json
import pickle
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, ClassVar, get_args, get_origin

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.ads.accounts import Account, ApprovalStatus
from svc_async.ads.cards import Card
from svc_async.ads.custom_audiences import BatchCounts, TargetedAudienceEntry, TargetedAudienceLineItem
from svc_async.ads.poll_cards import PollCard
from svc_async.ads.posts import Post
from svc_async.errors import UnexpectedAnswer
from svc_async.events.models import Event, EventPost, MatchedPost, PostCreated
from svc_async.platform.filtered_stream import StreamRule
from svc_async.wire.envelope import Answer, Page
from svc_async.wire.reading import Reader, read_as
from svc_async.wire.records import Record
from svc_async.wire.route import Listing, Reply, Request, Route
from tests.support.kinds import find_kinds

GET = Route("GET", "/12/accounts/{account_id}", Account)(account_id="a")
LIST = Listing("/12/accounts", Account)()
POST_ROUTE = Route("PUT", "/12/accounts/{account_id}/posts/{post_id}/name", Post)

ACCOUNT: dict[str, Any] = {
    "id": "18ce54d4x5t",
    "name": "Ärger & Co",
    "business_name": None,
    "business_id": None,
    "timezone": "Europe/Vienna",
    "timezone_switch_at": None,
    "approval_status": "ACCEPTED",
    "created_at": "2026-01-02T03:04:05Z",
    "updated_at": "2026-01-02T03:04:05Z",
    "deleted": False,
}

POLL = {"id": "p", "created_at": "2026-01-02T03:04:05Z", "updated_at": "2026-01-02T03:04:05Z", "deleted": False}


def answer(body: object, status: int = 200) -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(status=status, headers={"content-type": "application/json"}, body=raw)


def read_both_ways(request: Request[Any], body: object) -> Any:
    """Read in both ways; they must agree."""
    fast = Reader().read(request, answer(body))
    tolerant = Reader(keep_unknown=True).read(request, answer(body))
    assert fast == tolerant
    assert repr(fast) == repr(tolerant)  # a text equals the member of an enum
    return fast


@pytest.mark.rule("GEN-03", "GEN-11", "GEN-12", "GEN-12b", "ACC-07", "ACC-09")
def test_a_record_is_read_with_all_its_fields() -> None:
    account = read_both_ways(GET, {"request": {"params": {}}, "data": ACCOUNT})
    assert account == Account(
        id="18ce54d4x5t",
        name="Ärger & Co",
        timezone="Europe/Vienna",
        approval_status=ApprovalStatus.ACCEPTED,
        created_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        updated_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        deleted=False,
    )


@pytest.mark.rule("ACC-03")
def test_a_record_in_an_array_of_one_is_the_record() -> None:
    assert read_both_ways(GET, {"data": [ACCOUNT]}).id == "18ce54d4x5t"


@pytest.mark.parametrize("records", [[], [ACCOUNT, ACCOUNT]])
def test_an_array_of_none_or_several_is_not_a_record(records: object) -> None:
    with pytest.raises(UnexpectedAnswer):
        Reader().read(GET, answer({"data": records}))


@pytest.mark.rule("GEN-04", "GEN-04b", "GEN-07")
def test_a_page_is_read_with_cursor_and_total() -> None:
    page = read_both_ways(LIST, {"request": {}, "next_cursor": "c", "total_count": 7, "data": [ACCOUNT]})
    assert (page.items[0].name, page.next_cursor, page.total_count) == ("Ärger & Co", "c", 7)


def test_a_page_without_cursor_is_one_page() -> None:
    assert read_both_ways(LIST, {"data": []}) == Page(items=[], next_cursor=None, total_count=None)


def test_unknown_enum_values_are_always_kept() -> None:
    account = read_both_ways(GET, {"data": ACCOUNT | {"approval_status": "UNDER_REVIEW"}})

    assert account.approval_status == "UNDER_REVIEW"
    assert isinstance(account.approval_status, ApprovalStatus)


def test_unknown_fields_are_dropped_or_kept_as_the_session_wishes() -> None:
    body = {"data": ACCOUNT | {"salt": 1, "extra": {"x": 2}}}

    assert Reader().read(GET, answer({"data": ACCOUNT | {"salt": 1}})).extra == {}
    assert Reader(keep_unknown=True).read(GET, answer(body)).extra == {"salt": 1, "extra": {"x": 2}}


def test_unknown_fields_of_nested_records_are_kept() -> None:
    listing = Listing("/x", TargetedAudienceEntry)()
    body = {"data": [{"campaign_id": "c", "campaign_name": "n", "line_items": [{"id": "l", "servable": True, "z": 3}]}]}
    page = Reader(keep_unknown=True).read(listing, answer(body))

    assert page.items[0].line_items[0].extra == {"z": 3}


@pytest.mark.rule("TGT-02")
def test_records_that_hold_records_are_equal_and_hashable() -> None:
    items = [{"id": "l", "name": "n", "servable": False}]
    body = {"data": [{"campaign_id": "c", "campaign_name": "n", "line_items": items}]}
    page = read_both_ways(Listing("/x", TargetedAudienceEntry)(), body)
    item = TargetedAudienceLineItem(id="l", name="n", servable=False)

    assert set(page.items) == {TargetedAudienceEntry(campaign_id="c", campaign_name="n", line_items=(item,))}


RECORD_KINDS, EVENT_KINDS = find_kinds(Record), find_kinds(Event)
JSON_VALUES: dict[Any, Any] = {
    str: "a",
    int: 7,
    float: 0.5,
    bool: True,
    datetime: "2026-01-02T03:04:05Z",
    Any: {"a": [7]},
}


def write_value(kind: Any) -> Any:
    """Return a value that fits a type, as the service would send it."""
    if kind in JSON_VALUES:
        return JSON_VALUES[kind]
    if isinstance(kind, type) and attrs.has(kind):
        return {
            field.name: write_value(field.type)
            if field.default is attrs.NOTHING or field.name != "type"
            else field.default.value
            for field in attrs.fields(attrs.resolve_types(kind, include_extras=False))
            if field.init and field.name != "_extra"
        }
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind)).value
    if get_origin(kind) is Mapping:
        return {"a": [7]}
    element = write_value(get_args(kind)[0])  # of a union the first: the others are None and mappings
    return [element] if get_origin(kind) is tuple else element


def test_records_and_events_of_all_kinds_are_found() -> None:
    assert {Account, Card, EventPost, StreamRule} <= {*RECORD_KINDS}
    assert {PostCreated, MatchedPost} <= {*EVENT_KINDS}


@pytest.mark.parametrize("kind", RECORD_KINDS)
def test_a_record_of_any_kind_is_hashed_like_its_equal(kind: Any) -> None:
    first, second = (read_both_ways(Route("GET", "/x", kind)(), {"data": write_value(kind)}) for _ in range(2))
    assert first.extra == {}
    assert {first} == {second}


@pytest.mark.parametrize("kind", EVENT_KINDS)
def test_an_event_of_any_kind_is_hashed_like_its_equal(kind: Any) -> None:
    first, second = (read_as(kind, write_value(kind)) for _ in range(2))
    assert {first} == {second}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"id": 123}, {"id": "123"}),
        ({"created_at": "2026-01-02T03:04:05"}, {}),
        ({"created_at": "2026-01-02T04:04:05+01:00"}, {}),
        ({"created_at": "2026-01-02T03:04:05.000Z"}, {}),
        ({"created_at": "2026-01-02T03:04:05", "updated_at": "2026-01-02T03:04:05"}, {}),
    ],
)
def test_answers_that_are_not_to_the_letter_are_read_all_the_same(
    change: dict[str, Any], expected: dict[str, Any]
) -> None:
    straight = read_both_ways(GET, {"data": ACCOUNT})
    assert read_both_ways(GET, {"data": ACCOUNT | change}) == attrs.evolve(straight, **expected)


def test_numbers_that_come_as_strings_are_numbers_and_are_written_as_strings() -> None:
    poll = read_both_ways(Route("GET", "/x", PollCard)(), {"data": {**POLL, "content_duration_seconds": "8"}})
    assert (poll.content_duration_seconds, poll.extra) == (8.0, {"content_duration_seconds": "8"})
    assert poll.to_dict()["content_duration_seconds"] == "8"


@pytest.mark.parametrize("count", ["4", 4.0, True, None, "x"])
def test_counts_that_decide_what_is_done_are_integers_or_unexpected(count: object) -> None:
    with pytest.raises(UnexpectedAnswer):
        Reader().read(Route("POST", "/x", BatchCounts)(), answer({"data": {"success_count": count, "total_count": 4}}))


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"name": None}, "name"),
        ({"deleted": None}, "deleted"),
        ({"deleted": "false"}, "deleted"),
        ({"id": True}, "id"),
        ({"created_at": "yesterday"}, "created_at"),
        ({"created_at": 5}, "created_at"),
        ({"approval_status": None}, "approval_status"),
    ],
)
def test_a_misfit_names_the_field_and_never_its_value(change: dict[str, Any], where: str) -> None:
    with pytest.raises(UnexpectedAnswer, match=rf"Account\.{where} ") as caught:
        Reader().read(GET, answer({"data": ACCOUNT | change}))

    assert "yesterday" not in str(caught.value)
    assert "Ärger" not in str(caught.value)


def test_a_missing_field_is_named() -> None:
    body = {name: value for name, value in ACCOUNT.items() if name != "timezone"}
    with pytest.raises(UnexpectedAnswer):
        Reader().read(GET, answer({"data": body}))


@pytest.mark.parametrize("body", [b"", b"<html></html>", b'{"data": {', b"\xff", b'{"data": \xc3}'])
def test_what_is_not_json_is_unexpected_and_may_be_another_s_answer(body: bytes) -> None:
    with pytest.raises(UnexpectedAnswer) as caught:
        Reader().read(GET, answer(body))

    assert caught.value.repeatable
    assert caught.value.body == body
    assert caught.value.sent == "yes"


@pytest.mark.parametrize("reader", [Reader(), Reader(keep_unknown=True)])
def test_a_character_that_is_not_utf_8_costs_no_record(reader: Reader) -> None:
    other = {**ACCOUNT, "name": "M\u00fcller", "business_name": "\u00c4rger"}
    body = json.dumps({"data": [{**ACCOUNT, "name": "n"}, other]}, ensure_ascii=False).encode("latin-1")
    first, second = reader.read(LIST, answer(body)).items
    assert (first.name, first.extra) == ("n", {})
    assert (second.name, second.business_name) == ("M\ufffdller", "\ufffdrger")
    assert second.extra["name"].encode("utf-8", "surrogateescape") == "M\u00fcller".encode("latin-1")


@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b"5", b'{"errors":[]}'])
def test_json_without_data_is_unexpected(body: bytes) -> None:
    with pytest.raises(UnexpectedAnswer):
        Reader().read(GET, answer(body))


def test_a_call_without_a_model_gives_the_whole_body_as_plain_values() -> None:
    request: Request[Any] = Route("GET", "/x", None, reply=Reply.BODY)()

    assert Reader().read(request, answer({"data": [1], "x": None})) == {"data": [1], "x": None}
    assert Reader().read(request, answer(b"", status=204)) is None
    assert Reader().read(request, answer(b" \r\n", status=204)) is None


@attrs.frozen(kw_only=True)
class Share(Record):
    ratio: float


@pytest.mark.parametrize(("ratio", "expected"), [(0.5, 0.5), (2, 2.0), ("0.25", 0.25)])
def test_a_fraction_is_read_from_any_number(ratio: object, expected: float) -> None:
    assert read_both_ways(Route("GET", "/x", Share)(), {"data": {"ratio": ratio}}).ratio == expected


@pytest.mark.parametrize("ratio", [None, True, "half", []])
def test_what_is_no_number_is_no_fraction(ratio: object) -> None:
    with pytest.raises(UnexpectedAnswer):
        Reader().read(Route("GET", "/x", Share)(), answer({"data": {"ratio": ratio}}))


def test_a_message_names_three_misfits_and_no_more() -> None:
    wrong = dict.fromkeys(["id", "name", "timezone", "created_at", "deleted"])
    with pytest.raises(UnexpectedAnswer) as caught:
        Reader().read(GET, answer({"data": ACCOUNT | wrong}))

    assert str(caught.value).count("Account.") == 3


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
MOMENT = st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.isoformat())
RECORDS = st.fixed_dictionaries(
    {
        "id": TEXT,
        "name": TEXT,
        "business_name": st.none() | TEXT,
        "timezone": TEXT,
        "timezone_switch_at": st.none() | MOMENT,
        "approval_status": st.sampled_from(["ACCEPTED", "NEW"]),
        "created_at": MOMENT,
        "updated_at": MOMENT,
        "deleted": st.booleans(),
    },
    optional={"industry_type": st.sampled_from(["RETAIL", "NEW"]), "unknown": TEXT | st.integers()},
)


@pytest.mark.usefixtures("examples")
@given(st.lists(RECORDS, max_size=3), st.none() | TEXT)
def test_both_readings_agree(records: list[dict[str, Any]], cursor: str | None) -> None:
    assert len(read_both_ways(LIST, {"data": records, "next_cursor": cursor}).items) == len(records)


def read_post(**fields: object) -> Post:
    post: Post = read_both_ways(Route("POST", "/x", Post)(), {"data": {"id": 7, **fields}})
    return post


@pytest.mark.rule("POST-14")
def test_posts_are_dated_in_another_form() -> None:
    post = read_post(created_at="Tue Aug 27 22:22:12 +0000 2019")
    assert (post.created_at, post.extra) == (datetime(2019, 8, 27, 22, 22, 12, tzinfo=UTC), {})


@pytest.mark.parametrize("date", ["Tue Foo 27 22:22:12 +0000 2019", "Tue Aug 32 22:22:12 +0000 2019", 1_566_944_532])
def test_what_does_not_fit_is_none_and_stands_in_extra(date: object) -> None:
    told: list[str] = []
    read = Reader().read(
        Route("POST", "/x", Post)(), answer({"data": {"id": 7, "created_at": date}}), on_misfit=told.append
    )
    assert (read.id, read.created_at, read.extra) == (7, None, {"created_at": date})
    assert told == ["Post.created_at must be a datetime"]


def test_what_came_survives_copies() -> None:
    post = read_post(created_at="yesterday")
    copies = [
        attrs.evolve(post, id=8),
        copy.copy(post),
        copy.deepcopy(post),
        pickle.loads(pickle.dumps(post)),
        pickle.loads(pickle.dumps(attrs.evolve(post))),
    ]
    assert [each.extra for each in copies] == [{"created_at": "yesterday"}] * len(copies)
    assert read_post().extra == attrs.evolve(read_post(), id=8).extra == {}
    assert read_post() == read_post(created_at="yesterday")


def test_what_came_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        read_post(created_at="yesterday").extra["created_at"] = None  # type: ignore[index]  # that is the point


def test_a_record_is_written_as_it_came() -> None:
    post = read_post(created_at="yesterday", text="cut \ud83d off", user={"id": 1}, nullcast=None)
    assert post.text == "cut \ufffd off"
    written = json.loads(post.to_json())
    assert written == post.to_dict()
    came = {"id": 7, "created_at": "yesterday", "text": "cut \ud83d off", "user": {"id": 1}, "nullcast": None}
    assert came.items() <= written.items()
    assert json.loads(read_post(created_at="2026-01-02T03:04:05.678Z").to_json())["created_at"] == (
        "2026-01-02T03:04:05.678000Z"
    )


COUNTERS = {"retweet_count": 3, "favorite_count": 0, "favorited": False, "lang": "de", "place": None}


@pytest.mark.parametrize(
    "reply", [{"data": {"id": 7, **COUNTERS}}, {"data": [{"id": 7, "user": {"id": 1}, **COUNTERS}]}]
)
def test_counters_and_flags_of_a_post_are_kept_in_any_session(reply: object) -> None:
    post = Reader().read(POST_ROUTE(account_id="a", post_id="7"), answer(reply))
    assert dict(post.extra) == COUNTERS
    assert COUNTERS.items() <= post.to_dict().items()
    event_post = read_as(EventPost, {"id": "7", "source": "web", "public_metrics": {"like_count": 1}})
    assert dict(event_post.extra) == {"source": "web"}
    assert Reader().read(GET, answer({"data": {**ACCOUNT, "unknown": 1}})).extra == {}


@pytest.mark.parametrize("reader", [Reader(), Reader(keep_unknown=True)])
def test_a_page_tells_which_records_it_could_not_read(reader: Reader) -> None:
    bad, told = ACCOUNT | {"name": None, "deleted": "no"}, list[str]()
    page = reader.read(LIST, answer({"data": [ACCOUNT, bad, 5, ACCOUNT | {"id": 9}]}), on_misfit=told.append)

    assert [account.id for account in page.items] == ["18ce54d4x5t", "9"]
    assert [each.raw for each in page.unreadable] == [bad, 5]
    assert re.findall(r"Account\.\w+", page.unreadable[0].problem) == ["Account.name", "Account.deleted"]
    assert [re.findall(r"data\[\d\]|Account(?:\.\w+)?", each) for each in told] == [
        ["data[1]", "Account.name", "Account.deleted"],
        ["data[2]", "Account"],
    ]
    assert "Ärger" not in repr(page.unreadable)


@attrs.define(slots=False)
class Counted:
    """A model of a caller that counts how often it is built."""

    id: int
    built: ClassVar[int] = 0

    def __attrs_post_init__(self) -> None:
        type(self).built += 1


COUNTED = Request[Any](method="GET", surface=LIST.surface, template="/", path="/", reply=Reply.PAGE, into=Counted)


@pytest.mark.parametrize("form", [lambda records: {"data": records}, lambda records: {"meta": {}, "data": records}])
@pytest.mark.parametrize("reply", [Reply.PAGE, Reply.META_PAGE])
@pytest.mark.parametrize(("asked", "most"), [({}, 10_000), ({"count": 200}, 10_000), ({"count": 10_500}, 10_500)])
def test_a_page_has_no_more_records_than_were_asked_for(
    form: Callable[[object], object], reply: Reply, asked: dict[str, int], most: int
) -> None:
    request = attrs.evolve(COUNTED, reply=reply).with_params(**asked)
    assert len(Reader().read(request, answer(form([{"id": 1}] * most))).items) == most

    for record in ({"id": 1}, {}, 0):
        Counted.built = 0
        with pytest.raises(UnexpectedAnswer) as caught:
            Reader().read(request, answer(form([record] * (most + 1))))
        assert (Counted.built, caught.value.repeatable) == (0, False)


def test_after_a_thousand_unreadable_records_no_other_is_built() -> None:
    records = [*[{"id": "?"}] * 1_000, {"id": 5}, {"id": 6}]
    Counted.built = 0
    page = Reader().read(COUNTED, answer({"data": records}))

    assert (page.items, Counted.built) == ([], 0)
    assert [each.raw for each in page.unreadable] == records
    assert [account.id for account in Reader().read(COUNTED, answer({"data": records[1:]})).items] == [5, 6]


@pytest.mark.parametrize("value", ["[]", "{}", "0", '""'])
@pytest.mark.parametrize(
    "request_", [GET, LIST, attrs.evolve(GET, reply=Reply.BODY, into=None), attrs.evolve(GET, reply=Reply.FORM)]
)
def test_an_answer_of_a_million_values_is_not_read(request_: Request[Any], value: str) -> None:
    body = f'{{"x":[{",".join([value] * 1_000_001)}]}}'.encode()
    with pytest.raises(UnexpectedAnswer) as caught:
        Reader().read(request_, answer(body))
    assert not caught.value.repeatable
    assert "1,000,000 values" in str(caught.value)


def test_a_form_of_many_fields_is_not_read() -> None:
    form: Any = attrs.evolve(GET, reply=Reply.FORM, into=dict)
    assert len(Reader().read(form, answer("&".join(f"a{number}=1" for number in range(100)).encode()))) == 100
    with pytest.raises(UnexpectedAnswer):
        Reader().read(form, answer("&".join(f"a{number}=1" for number in range(101)).encode()))


def test_a_strict_reading_leaves_nothing_out() -> None:
    strict = Reader(strict=True)
    assert strict.read(GET, answer({"data": ACCOUNT | {"id": 9}})).id == "9"
    cases: list[tuple[Request[Any], dict[str, Any]]] = [
        (GET, {"data": ACCOUNT | {"business_name": 5.5}}),
        (LIST, {"data": [ACCOUNT, ACCOUNT | {"name": None}]}),
        (LIST, {"data": [ACCOUNT | {"business_name": []}]}),
        (LIST, {"data": [], "total_count": "many"}),
        (LIST, {"data": [], "next_cursor": {}}),
    ]
    for request, body in cases:
        with pytest.raises(UnexpectedAnswer) as caught:
            strict.read(request, answer(body))
        assert json.loads(caught.value.body) == body


@pytest.mark.parametrize(("total", "expected"), [("7", 7), (7, 7), ([], None), (None, None)])
def test_a_total_that_does_not_fit_is_none(total: object, expected: object) -> None:
    assert Reader().read(LIST, answer({"data": [ACCOUNT | {"id": 1}], "total_count": total})).total_count == expected


@pytest.mark.parametrize(("cursor", "expected"), [(5, "5"), ("", None), (None, None)])
def test_a_cursor_that_is_a_number_is_a_cursor(cursor: object, expected: object) -> None:
    page = Reader().read(LIST, answer({"data": [ACCOUNT], "next_cursor": cursor}))
    assert (page.next_cursor, page.broken_cursor) == (expected, None)


@pytest.mark.usefixtures("examples")
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXT,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["data", "id", "name", "next_cursor"]), inner, max_size=3)
        ),
    )
)
def test_any_json_gives_a_record_or_one_typed_error(body: object) -> None:
    requests: list[Request[Any]] = [GET, LIST]
    for request in requests:
        for reader in (Reader(), Reader(keep_unknown=True)):
            try:
                reader.read(request, answer(body))
            except UnexpectedAnswer as error:
                assert error.status == 200
