"""Answers of success in another form, as the caller of a typed method sees them."""

import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import attrs
import pytest

from svc_async import Retries, Session, UnexpectedAnswer
from svc_async.ads.cards import CardComponentMedia
from svc_async.errors import ErrorDetail
from svc_async.monitoring import CallEvent
from tests.support.scripted_server import Answer, ScriptedServer, clock, service

__all__ = ["clock", "service"]

TIMES = {"created_at": "2026-01-02T03:04:05Z", "updated_at": "2026-01-02T03:04:05Z", "deleted": False}
POST = {"id": 7, "id_str": "7", "created_at": "Tue Aug 27 22:22:12 +0000 2019"}
MEDIA = {"type": "SWIPEABLE_MEDIA", "media_keys": ["3_1", "3_2"]}


def make_account(identifier: str, **changes: object) -> dict[str, Any]:
    return {"id": identifier, "name": "n", "timezone": "UTC", "approval_status": "ACCEPTED", **TIMES, **changes}


@pytest.fixture
def events() -> list[CallEvent]:
    return []


@pytest.fixture
async def session(service: ScriptedServer, events: list[CallEvent]) -> AsyncIterator[Session]:
    async with service.session(retries=Retries(first_wait=0.0), on_event=events.append) as session:
        yield session


async def test_a_post_that_was_made_is_never_lost(service: ScriptedServer, session: Session) -> None:
    service.answer_all(Answer({"data": {**POST, "scheduled_at": "soon"}}))
    post = await session.account("a").posts.create(as_user_id=1, text="t")

    assert (post.id, post.created_at and post.created_at.year, post.extra) == (7, 2019, {"scheduled_at": "soon"})
    assert len(service.requests) == 1


async def test_an_answer_of_another_form_is_not_requested_again(service: ScriptedServer, session: Session) -> None:
    service.answer_all(Answer({"data": {"name": "n"}}))
    with pytest.raises(UnexpectedAnswer) as caught:
        await session.account("a").posts.rename("7", name="n")

    assert (caught.value.sent, caught.value.repeatable) == ("yes", False)
    assert caught.value.body == b'{"data": {"name": "n"}}'
    assert "data" not in repr(caught.value)
    assert len(service.requests) == 1


async def test_counts_that_cannot_be_read_are_kept_and_not_requested_again(
    service: ScriptedServer, session: Session
) -> None:
    odd = {"success_count": "1", "total_count": 1}
    service.answer_all(Answer({"data": [odd]}))
    users = [{"email": ["0" * 64]}]
    with pytest.raises(UnexpectedAnswer) as caught:
        await (
            session.account("a")
            .do_not_reach_list("l")
            .users.send([{"operation_type": "Update", "params": {"users": users}}])
        )

    assert (caught.value.sent, caught.value.repeatable) == ("yes", False)
    assert json.loads(caught.value.body) == {"data": [odd]}
    assert len(service.requests) == 1


async def test_what_a_proxy_answers_is_repeated_where_that_is_safe(service: ScriptedServer, session: Session) -> None:
    posts = session.account("a").posts
    service.on("PUT", "/ads/12/accounts/a/posts/7/name", Answer("<html></html>"), Answer({"data": POST}))
    service.on("POST", "/ads/12/accounts/a/post", Answer("<html></html>"))
    assert (await posts.rename("7", name="n")).id == 7
    with pytest.raises(UnexpectedAnswer) as caught:
        await posts.create(as_user_id=1, text="t")

    assert (caught.value.repeatable, caught.value.body) == (True, b"<html></html>")
    assert [request.method for request in service.requests] == ["PUT", "PUT", "POST"]


async def test_a_call_that_is_done_without_content_is_not_repeated(service: ScriptedServer, session: Session) -> None:
    service.answer_all(Answer("", 204))
    with pytest.raises(UnexpectedAnswer) as caught:
        await session.account("a").posts.rename("7", name="n")
    assert (caught.value.sent, caught.value.repeatable, len(service.requests)) == ("yes", False, 1)


async def test_what_is_left_out_is_logged_and_reported(
    service: ScriptedServer, session: Session, events: list[CallEvent], caplog: pytest.LogCaptureFixture
) -> None:
    accounts = [make_account("1"), make_account("2", name=None), make_account("3", business_id={"x": "hush"})]
    service.answer_all(Answer({"data": accounts}))
    page = await anext(aiter(session.accounts.list().pages()))

    assert [account.id for account in page.items] == ["1", "3"]
    assert [each.raw for each in page.unreadable] == [accounts[1]]
    assert events[0].misfits == (
        "data[1] is unreadable: Account.name must be a string",
        "data[2]: Account.business_id must be a string",
    )
    assert (events[0].unreadable, events[0].error, len(service.requests)) == (1, None, 1)
    assert "GET /12/accounts: the answer does not fit: data[1] is unreadable" in caplog.text
    assert "hush" not in caplog.text


@pytest.mark.parametrize(("count", "end"), [(2, ""), (3, ""), (4, "; and 1 more"), (1_203, "; and 1,200 more")])
async def test_the_log_names_three_misfits_and_counts_the_rest(
    service: ScriptedServer, session: Session, caplog: pytest.LogCaptureFixture, count: int, end: str
) -> None:
    service.answer_all(Answer({"data": [make_account(str(number), name=None) for number in range(count)]}))
    await session.accounts.list().collect()

    named = "; ".join(f"data[{number}] is unreadable: Account.name must be a string" for number in range(count)[:3])
    assert [record.message for record in caplog.records if record.name == "svc_async"] == [
        f"GET /12/accounts: the answer does not fit: {named}{end}"
    ]


@attrs.define
class Model:
    """A model of a caller that notes the thread in which it is built."""

    name: str
    thread: int = attrs.field(factory=threading.get_ident)


@pytest.mark.parametrize(("size", "is_apart"), [(100_000, False), (300_000, True)])
async def test_a_large_answer_is_read_while_the_event_loop_goes_on(
    service: ScriptedServer, session: Session, size: int, *, is_apart: bool
) -> None:
    service.answer_all(Answer({"data": [{"name": "x" * size}]}))
    (model,) = await session.iterate("/12/things", into=Model).collect()
    assert (model.thread != threading.get_ident()) is is_apart


async def test_a_good_answer_reports_nothing(
    service: ScriptedServer, session: Session, events: list[CallEvent], caplog: pytest.LogCaptureFixture
) -> None:
    service.answer_all(Answer({"data": [make_account("1")]}))
    await session.accounts.list().collect()
    assert (events[0].misfits, events[0].unreadable, caplog.text) == ((), 0, "")


async def test_iterating_gives_the_records_that_can_be_read(service: ScriptedServer, session: Session) -> None:
    service.answer_all(Answer({"data": [make_account("1", deleted=None), make_account("2")]}))
    pager = session.accounts.list()
    first = await pager.first()

    assert first is not None
    assert first.id == "2"
    assert [account.id async for account in pager] == [account.id for account in await pager.collect()] == ["2"]


async def test_the_first_of_unreadable_records_is_not_none(service: ScriptedServer, session: Session) -> None:
    service.answer_all(Answer({"data": [make_account("1", deleted=None)]}))
    with pytest.raises(UnexpectedAnswer) as caught:
        await session.accounts.list().first()
    assert json.loads(caught.value.body) == {"data": [make_account("1", deleted=None)]}


async def test_a_listing_whose_cursor_does_not_fit_is_not_at_its_end(service: ScriptedServer, session: Session) -> None:
    service.answer_all(Answer({"data": [make_account("1")], "next_cursor": {"x": 1}}))
    accounts = aiter(session.accounts.list())
    assert (await anext(accounts)).id == "1"
    with pytest.raises(UnexpectedAnswer) as caught:
        await anext(accounts)
    assert len(service.requests) == 1
    assert b"next_cursor" in caught.value.body


async def test_a_strict_session_raises_for_what_it_would_leave_out(service: ScriptedServer) -> None:
    service.answer_all(Answer({"data": [make_account("1"), make_account("2", business_name=5.5)]}))
    async with service.session(strict_reading=True) as session:
        with pytest.raises(UnexpectedAnswer):
            await session.accounts.list().collect()


async def test_a_component_without_its_media_does_not_hide_the_cards(service: ScriptedServer, session: Session) -> None:
    broken = {"type": "SWIPEABLE_MEDIA"}
    cards = [{"id": str(number), **TIMES, "components": [each]} for number, each in enumerate([MEDIA, broken, MEDIA])]
    service.answer_all(Answer({"data": cards}))
    found = await session.account("a").cards.list().collect()

    assert [card.id for card in found] == ["0", "1", "2"]
    assert found[1].components == (broken,)
    assert len(service.requests) == 1


async def test_the_description_of_a_medium_is_read_and_not_sent_back(service: ScriptedServer, session: Session) -> None:
    description = {"3_1": {"type": "IMAGE", "url": "https://example.test/1.png", "width": 800, "height": 418}}
    component = {"type": "MEDIA", "media_key": "3_1", "media_metadata": description}
    service.answer_all(Answer({"data": {"id": "c", **TIMES, "components": [component]}}))
    card = await session.account("a").cards.get("c")
    (media,) = card.components

    assert isinstance(media, CardComponentMedia)
    assert media.media_metadata == description
    assert card.to_dict()["components"] == [component]
    await session.account("a").cards.update(
        "c",
        components=[
            media,
            {"type": "DETAILS", "title": "t", "destination": {"type": "WEBSITE", "url": "https://example.test"}},
        ],
    )
    assert service.requests[-1].json["components"][0] == {"type": "MEDIA", "media_key": "3_1"}


@pytest.mark.parametrize(
    ("surface", "reported"), [("base", [ErrorDetail(code="Not Found Error", message="Gone.")]), ("ads", [])]
)
async def test_only_the_main_api_reports_errors_beside_data(
    service: ScriptedServer, session: Session, events: list[CallEvent], surface: str, reported: list[ErrorDetail]
) -> None:
    service.answer_all(Answer({"data": [{"id": "1"}], "errors": [{"title": "Not Found Error", "detail": "Gone."}]}))
    await session.request("GET", "/2/things", surface=surface)

    assert [*events[0].errors] == reported
