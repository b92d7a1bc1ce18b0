"""An answer is never thrown away, however one field of a record of the contract is damaged."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from svc_async import Governor, Retries, Session, UnexpectedAnswer
from svc_async.engine.paging import Pager
from svc_async.wire.envelope import Page, Unreadable
from svc_async.wire.records import Record
from tests.support.client_calls import CALLS, bind, read_parameters
from tests.support.contract import OPERATIONS, RECORDS, build_answer, build_arguments
from tests.support.damages import damage, find_damage, is_reached, list_required
from tests.support.scripted_server import Answer, ScriptedServer, clock, service

__all__ = ["clock", "service"]

READ = [name for name, row in CALLS.items() if row["response"]["record"] in RECORDS]
LISTED = [name for name in READ if OPERATIONS[name]["response"]["shape"] in {"list", "array"}]
SINGLE = [name for name in READ if OPERATIONS[name]["response"]["shape"] in {"single", "array_of_one"}]
ONE_OF_EACH = sorted({OPERATIONS[name]["response"]["record"]: name for name in SINGLE}.values())
SHORT = {"product_catalogs.delete", "keyword_insights.search", "product_catalogs.list", "placements.list"}
"""Calls whose records can be damaged in few ways."""


def mark_long(operations: Sequence[str]) -> list[Any]:
    return [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in operations]


@pytest.fixture
async def session(service: ScriptedServer) -> AsyncIterator[Session]:
    governor = Governor(limits=(), clock=service.clock)
    async with governor, service.session(retries=Retries(first_wait=0.0), governor=governor) as session:
        yield session


async def make_call(session: Session, operation: str) -> Any:
    """Make a call and return its record, or its first page."""
    values = build_arguments(operation)
    accepted = read_parameters(operation, session)
    call = bind(operation, session)(**{name: value for name, value in values.items() if name in accepted})
    if isinstance(call, Pager):
        return await anext(aiter(call.pages()))
    return await call


@pytest.mark.parametrize("operation", mark_long(ONE_OF_EACH))
async def test_a_single_record_is_read_or_its_answer_is_in_the_error(
    operation: str, service: ScriptedServer, session: Session
) -> None:
    payload, (good,) = build_answer(OPERATIONS[operation])
    service.answer_all(Answer(payload))
    required = list_required(type(await make_call(session, operation)))
    for damaged in damage(good):
        service.requests.clear()
        body = json.dumps({"request": {}, "data": damaged})
        service.answer_all(Answer(body))
        try:
            record = await make_call(session, operation)
        except UnexpectedAnswer as error:
            assert find_damage(damaged, good) in required
            assert find_damage(damaged, good) in str(error)
            assert (error.body, error.sent, error.repeatable) == (body.encode(), "yes", False)
        else:
            assert isinstance(record, Record)
            assert is_reached(record.to_dict(), damaged), find_damage(damaged, good)
        assert len(service.requests) == 1


@pytest.mark.parametrize("operation", mark_long(LISTED))
async def test_a_page_gives_all_records_or_says_which_it_could_not_read(
    operation: str, service: ScriptedServer, session: Session
) -> None:
    _, (good,) = build_answer(OPERATIONS[operation])
    damaged = [*damage(good)]
    service.answer_all(Answer({"request": {}, "data": [good, *damaged, good], "next_cursor": None}))
    page = await make_call(session, operation)

    assert isinstance(page, Page)
    assert len(service.requests) == 1
    assert page.items[0] == page.items[-1]
    items, unreadable = iter(page.items[1:-1]), iter(page.unreadable)
    required = list_required(type(page.items[0]))
    next_item, next_unreadable = next(items, None), next(unreadable, None)
    for sent in damaged:
        if isinstance(next_unreadable, Unreadable) and next_unreadable.raw == sent:
            assert find_damage(sent, good) in required
            assert find_damage(sent, good) in next_unreadable.problem
            next_unreadable = next(unreadable, None)
        else:
            assert isinstance(next_item, Record)
            assert is_reached(next_item.to_dict(), sent), find_damage(sent, good)
            next_item = next(items, None)
    assert next_item is next_unreadable is None


@pytest.mark.parametrize("operation", mark_long(SINGLE))
async def test_no_call_is_repeated_for_an_answer_of_another_form(
    operation: str, service: ScriptedServer, session: Session
) -> None:
    service.answer_all(Answer({"data": "other"}))
    with pytest.raises(UnexpectedAnswer) as caught:
        await make_call(session, operation)
    assert (caught.value.body, caught.value.sent, len(service.requests)) == (b'{"data": "other"}', "yes", 1)


async def test_an_answer_that_is_nested_too_deeply_is_in_the_error(service: ScriptedServer, session: Session) -> None:
    body = '{"data": ' + "[" * 20_000 + "]" * 20_000 + "}"
    service.answer_all(Answer(body))
    with pytest.raises(UnexpectedAnswer) as caught:
        await session.account("a").cards.get("c")
    assert (caught.value.body, len(service.requests)) == (body.encode(), 1)
