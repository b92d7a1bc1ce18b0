"""Where an answer has its value, by the reply of its operation."""

import json
from typing import Any

import attrs
import pytest

from svc_async.errors import UnexpectedAnswer
from svc_async.wire.envelope import Answer, Page
from svc_async.wire.reading import Reader, read_as
from svc_async.wire.records import Record
from svc_async.wire.route import Listing, Reply, Request, Route, Surface


@attrs.frozen(kw_only=True)
class Thing(Record):
    id: str
    size: int | None = None


THING = {"id": "7", "size": 1}
BOTH = [Reader(), Reader(keep_unknown=True)]


def answer(body: object, **headers: str) -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(status=200, headers=headers, body=raw)


def make_request(reply: Reply, *, surface: Surface = Surface.BASE, method: str = "POST", **more: Any) -> Request[Any]:
    return Route(method, "/x", Thing, surface=surface, reply=reply, **more)()


def read(request: Request[Any], body: object) -> Any:
    """Read in both ways, which must agree and leave nothing out."""
    misfits: list[str] = []
    fast, closer = (reader.read(request, answer(body), on_misfit=misfits.append) for reader in BOTH)
    assert misfits == []
    assert repr(fast) == repr(closer)
    return fast


def find_problem(request: Request[Any], body: object) -> str:
    """Return why an answer cannot be read, in either way."""
    problems = set()
    for reader in BOTH:
        with pytest.raises(UnexpectedAnswer) as caught:
            reader.read(request, answer(body))
        assert caught.value.__cause__ is caught.value.__context__ is None
        problems.add((str(caught.value), caught.value.repeatable))
    ((problem, repeatable),) = problems
    assert repeatable == ("is not" in problem)
    return problem.removesuffix(" (HTTP 200)").removeprefix("the answer does not fit: ")


# --- one record


@pytest.mark.parametrize("body", [{"data": THING}, {"data": [THING]}, THING, {"data": {"thing": THING}}])
def test_on_the_main_api_the_whole_body_may_be_the_record(body: object) -> None:
    assert read(make_request(Reply.RECORD, wrapper="thing"), body) == Thing(id="7", size=1)


@pytest.mark.parametrize(
    ("surface", "body", "problem"),
    [
        (Surface.BASE, [THING], "it has no `data`"),
        (Surface.BASE, {"data": []}, "it contains 0 records instead of one"),
        (Surface.BASE, {"data": [THING, THING]}, "it contains 2 records instead of one"),
        (Surface.BASE, {}, "Thing.id is missing"),
        (Surface.BASE, {"data": None}, "Thing must be an object"),
        (Surface.BASE, {"data": {"other": THING}}, "Thing.id is missing"),
        (Surface.ADS, THING, "it has no `data`"),
        (Surface.ADS, {"data": {"thing": 5}}, "Thing must be an object"),
        (Surface.ADS, b"[" * 100_000, "the answer is nested too deeply"),
        (Surface.ADS, b"", "the answer is not JSON (no content type, 0 bytes)"),
        (Surface.ADS, b"<a>", "the answer is not JSON (no content type, 3 bytes)"),
    ],
)
def test_a_body_that_holds_no_record_is_refused(surface: Surface, body: object, problem: str) -> None:
    assert find_problem(make_request(Reply.RECORD, surface=surface, wrapper="thing"), body) == problem


@pytest.mark.parametrize(
    ("surface", "method", "problem"),
    [
        (Surface.BASE, "POST", "Thing.id is missing"),
        (Surface.BASE, "GET", "the answer is not JSON (no content type, 2 bytes)"),
        (Surface.ADS, "POST", "the answer is not JSON (no content type, 2 bytes)"),
    ],
)
def test_only_a_command_of_the_main_api_is_done_without_content(surface: Surface, method: str, problem: str) -> None:
    assert find_problem(make_request(Reply.RECORD, surface=surface, method=method), b" \n") == problem


@pytest.mark.parametrize("status", [204, 205])
@pytest.mark.parametrize("reply", [Reply.RECORD, Reply.PAGE])
def test_an_answer_that_has_no_content_by_its_status_is_whole(reply: Reply, status: int) -> None:
    with pytest.raises(UnexpectedAnswer) as caught:
        Reader().read(make_request(reply, surface=Surface.ADS), Answer(status=status, headers={}, body=b""))
    assert (caught.value.sent, caught.value.repeatable) == ("yes", False)


def test_the_media_type_is_in_the_message() -> None:
    with pytest.raises(UnexpectedAnswer):
        Reader(request_id_header="x-id").read(
            make_request(Reply.RECORD), answer(b"<a>", **{"content-type": "text/html", "x-id": "r"})
        )


# --- the whole body


def test_the_whole_body_is_the_value() -> None:
    request = make_request(Reply.BODY)
    assert read(request, THING) == Thing(id="7", size=1)
    assert find_problem(request, {"data": THING}) == "Thing.id is missing"
    assert find_problem(request, [THING]) == "Thing must be an object"


@pytest.mark.rule("AUTH-08", "AUTH-14d")
@pytest.mark.parametrize("body", [b"id=7&size=1", b'{"id": "7", "size": 1}', b' {"id": "7", "size": "1"}'])
def test_a_form_may_come_as_json(body: bytes) -> None:
    assert read(make_request(Reply.FORM), body) == Thing(id="7", size=1)


@pytest.mark.parametrize("body", [b"id", b"<a>", b"id=7&size", "id=é".encode()])
def test_what_is_not_a_form_may_be_another_s_answer(body: bytes) -> None:
    problem = f"the answer is not form-encoded (no content type, {len(body)} bytes)"
    assert find_problem(make_request(Reply.FORM), body) == problem


def test_a_form_without_a_required_field_is_refused() -> None:
    assert find_problem(make_request(Reply.FORM), b"size=1") == "Thing.id is missing"
    assert find_problem(make_request(Reply.FORM), b'{"size": 1}') == "Thing.id is missing"


# --- what is not documented


@pytest.mark.parametrize(
    ("body", "expected", "problem"),
    [
        ({"data": THING}, Thing(id="7", size=1), None),
        ({"data": [THING]}, Thing(id="7", size=1), None),
        (b"", None, None),
        (b" ", None, None),
        ({"data": {"size": 1}}, None, "the answer does not fit: Thing.id is missing (HTTP 200)"),
        ({}, None, "the answer does not fit: it has no `data` (HTTP 200)"),
        (b"<a>", None, "the answer is not JSON (no content type, 3 bytes) (HTTP 200)"),
    ],
)
def test_an_answer_that_is_not_documented_is_read_if_possible(
    body: object, expected: object, problem: str | None
) -> None:
    request = make_request(Reply.UNSTATED, surface=Surface.ADS)
    for reader in BOTH:
        misfits: list[str] = []
        assert reader.read(request, answer(body), on_misfit=misfits.append) == expected
        assert misfits == ([problem] if problem else [])


# --- pages

PAGE: Request[Page[Thing]] = Listing("/x", Thing)()
META_PAGE: Request[Page[Thing]] = Listing("/x", Thing, surface=Surface.BASE, reply=Reply.META_PAGE)()


@pytest.mark.parametrize(
    ("request_", "body", "count", "cursor", "total"),
    [
        (PAGE, {"data": []}, 0, None, None),
        (PAGE, {"data": [THING], "next_cursor": "c", "total_count": 5}, 1, "c", 5),
        (PAGE, {"data": [{"id": 7}], "next_cursor": 5, "total_count": "5"}, 1, "5", 5),
        (PAGE, {"data": [{"id": 7}], "next_cursor": "", "meta": {"next_token": "t"}}, 1, None, None),
        (META_PAGE, {}, 0, None, None),
        (META_PAGE, {"data": None, "meta": None}, 0, None, None),
        (META_PAGE, {"data": [{"id": 7}], "meta": {}}, 1, None, None),
        (META_PAGE, {"data": [THING], "meta": {"next_token": "t"}}, 1, "t", None),
        (META_PAGE, {"data": [{"id": 7}], "meta": {"next_token": 5}, "next_cursor": "c"}, 1, "5", None),
        (META_PAGE, {"data": [{"id": 7}], "meta": {"next_token": ""}}, 1, None, None),
        (META_PAGE, {"meta": {"result_count": 0}}, 0, None, None),
        (META_PAGE, [THING, THING], 2, None, None),
    ],
)
def test_a_page_has_records_and_where_the_next_one_starts(
    request_: Request[Page[Thing]], body: object, count: int, cursor: str | None, total: int | None
) -> None:
    page = read(request_, body)
    assert [thing.id for thing in page.items] == ["7"] * count
    assert (page.next_cursor, page.total_count, page.unreadable, page.broken_cursor) == (cursor, total, (), None)


@pytest.mark.parametrize(
    ("request_", "body", "problem"),
    [
        (PAGE, {}, "it has no `data`"),
        (PAGE, [THING], "it has no `data`"),
        (PAGE, 5, "it has no `data`"),
        (PAGE, {"data": None}, "`data` must be an array"),
        (META_PAGE, {"data": {}}, "`data` must be an array"),
        (META_PAGE, 5, "it has no `data`"),
    ],
)
def test_a_body_that_holds_no_page_is_refused(request_: Request[Any], body: object, problem: str) -> None:
    assert find_problem(request_, body) == problem


@pytest.mark.parametrize(
    ("request_", "more", "name"),
    [
        (PAGE, {"next_cursor": []}, "next_cursor"),
        (PAGE, {"next_cursor": False}, "next_cursor"),
        (META_PAGE, {"meta": {"next_token": {}}}, "next_token"),
        (META_PAGE, {"meta": "token"}, "next_token"),
        (META_PAGE, {"meta": []}, "next_token"),
    ],
)
def test_a_page_whose_cursor_does_not_fit_says_that_more_may_follow(
    request_: Request[Any], more: dict[str, object], name: str
) -> None:
    for reader in BOTH:
        misfits: list[str] = []
        page = reader.read(request_, answer({"data": [THING], **more}), on_misfit=misfits.append)
        assert (page.items, page.next_cursor) == ([Thing(id="7", size=1)], None)
        assert str(page.broken_cursor).startswith(f"`{name}` must be a string")
        assert len(misfits) == 1
        with pytest.raises(UnexpectedAnswer):
            attrs.evolve(reader, strict=True).read(request_, answer({"data": [THING], **more}))


def test_what_is_left_out_of_a_record_of_a_page_is_told_with_its_place() -> None:
    for reader in BOTH:
        misfits: list[str] = []
        page = reader.read(PAGE, answer({"data": [THING, {"id": "8", "size": "L"}]}), on_misfit=misfits.append)
        assert [thing.extra for thing in page.items] == [{}, {"size": "L"}]
        assert misfits == ["data[1]: Thing.size must be an integer"]


def test_a_page_of_plain_values_is_left_as_it_came() -> None:
    listing: Request[Any] = Listing("/x", None)()  # type: ignore[arg-type]  # what `session.request` does
    assert read(listing, {"data": [1, {"a": None}], "next_cursor": 5}).items == [1, {"a": None}]


def test_a_string_with_half_a_character_is_mended_and_kept() -> None:
    for body in (b'{"data": [{"id": "a\\ud83d"}]}', b'{"data": [{"id": "a\\uD83D"}]}'):
        page = read(PAGE, body)
        assert [(thing.id, thing.extra) for thing in page.items] == [("a\ufffd", {"id": "a\ud83d"})]


# --- answers that decide


def test_a_page_that_decides_what_is_done_has_only_readable_records() -> None:
    listing: Request[Any] = Listing("/x", Thing, decides=True)()
    body = {"data": [THING, {"size": 1}]}
    assert find_problem(listing, body) == "data[1]: Thing.id is missing"
    assert len(Reader().read(PAGE, answer(body)).unreadable) == 1


@pytest.mark.parametrize(
    ("body", "decides", "is_refused"),
    [
        (b'{"data": {"id": "7", "id": "8"}}', True, True),
        (b'{"data": {"id": "7"}, "x": [{"a": {"b": 1, "b": 1}}]}', True, True),
        (b'{"data": {"id": "7"}}', True, False),
        (b'{"data": {"id": "7", "id": "8"}}', False, False),
    ],
)
def test_an_answer_that_decides_what_is_done_has_each_name_once(body: bytes, decides: bool, is_refused: bool) -> None:
    request = make_request(Reply.RECORD, surface=Surface.ADS, decides=decides)
    if is_refused:
        assert find_problem(request, body) == "a name occurs twice in an object"
    else:
        assert read(request, body).id in {"7", "8"}


# --- records


@attrs.frozen(kw_only=True)
class Box(Record):
    things: tuple[Thing, ...] = ()
    by_name: dict[str, Thing] | None = None


def test_a_record_is_plain_again_with_all_that_it_holds() -> None:
    came = {"things": [THING, {"id": "8", "size": None}], "by_name": {"a": {"id": 9, "size": "L"}}}
    box = read_as(Box, came)
    assert (box.to_dict(), json.loads(box.to_json())) == (came, came)


def test_a_value_inside_a_record_is_read_or_refused() -> None:
    assert read_as(Thing, THING) == Thing(id="7", size=1)
    with pytest.raises(UnexpectedAnswer):
        read_as(Thing, {})


def test_no_record_shares_what_did_not_fit() -> None:
    assert Thing(id="1").extra == {}
    with pytest.raises(TypeError):
        Thing(id="1").extra["x"] = 1  # type: ignore[index]  # that is the point
    assert Thing(id="1", extra={"a": 1}) == Thing(id="1")
