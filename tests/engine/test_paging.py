import asyncio
import json
from collections.abc import Iterable
from contextlib import aclosing
from inspect import isawaitable
from typing import Any

import pytest
from aioresponses import aioresponses

from svc_async import (
    Endpoints,
    InvalidArgument,
    NotFound,
    RateLimited,
    Retries,
    Session,
    UnexpectedAnswer,
    UserCredentials,
)
from svc_async.ads.line_item_curated_categories import LineItemCuratedCategories
from svc_async.errors import ApiError
from svc_async.handles import AccountHandle
from svc_async.sandbox import Fault, Sandbox, SandboxConfig, VirtualClock
from tests.support.errors import has
from tests.support.scripted_server import Answer, ReceivedRequest, ScriptedServer, service
from tests.support.tasks import run_ready_tasks

__all__ = ["service"]

HOW_MANY = 7


@pytest.fixture
def account(session: Session, sandbox: Sandbox) -> AccountHandle:
    return session.account(sandbox.account_id)


@pytest.fixture
async def categories(account: AccountHandle) -> LineItemCuratedCategories:
    """The seed world's categories, filled up to seven."""
    service = account.line_item_curated_categories
    seeded = await service.list().collect()
    for _ in range(HOW_MANY - len(seeded)):
        await service.create(line_item_id=seeded[0].line_item_id, curated_category_id=seeded[0].curated_category_id)
    return service


async def test_a_listing_says_how_it_is_iterated_over(session: Session) -> None:
    pager: Any = session.accounts.list()
    page: Any = await pager
    advice = "use `async for`, or `await pager.collect\\(\\)` for a list$"
    for iterate in (list, iter_once, lambda pager: pager[0]):
        with pytest.raises(TypeError, match=advice):
            iterate(pager)
        with pytest.raises(TypeError, match="its records are in `.items`; `async for` takes those of all pages$"):
            iterate(page)
    with pytest.raises(TypeError, match="^a listing has nothing to close: use `async for` without `async with`$"):
        async with pager:
            """Not reached."""
    assert not isinstance(pager, Iterable)
    assert not isinstance(page, Iterable)


def iter_once(listing: Any) -> None:
    for _ in listing:
        pass


@pytest.mark.rule("GEN-04", "GEN-06", "GEN-07", "LICC-01")
@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000, None])
async def test_items_come_page_after_page(categories: LineItemCuratedCategories, count: int | None) -> None:
    ids = [item.id async for item in categories.list(count=count)]
    assert len(ids) == len(set(ids)) == HOW_MANY


async def test_a_pager_sends_nothing_until_it_is_walked(
    categories: LineItemCuratedCategories, sandbox: Sandbox
) -> None:
    before = len(sandbox.requests)
    categories.list()

    assert len(sandbox.requests) == before


async def test_a_pager_can_be_walked_again(categories: LineItemCuratedCategories) -> None:
    pager = categories.list(count=2)
    assert await pager.collect() == await pager.collect()


async def test_pages_can_be_left_and_taken_up_again(categories: LineItemCuratedCategories) -> None:
    pager = categories.list(count=3)
    saved: str | None = None
    seen: list[str] = []
    async for page in pager.pages():
        seen += [item.id for item in page.items]
        saved = page.next_cursor
        break

    assert saved is not None
    async for page in pager.pages(cursor=saved):
        seen += [item.id for item in page.items]

    assert seen == [item.id async for item in categories.list()]


async def test_one_page_at_a_cursor_costs_one_request(categories: LineItemCuratedCategories, sandbox: Sandbox) -> None:
    pager = categories.list(count=3)
    before = len(sandbox.requests)
    first = await pager.page()
    second = await pager.page(cursor=first.next_cursor)
    await run_ready_tasks()

    assert len(sandbox.requests) == before + 2
    assert [first, second] == [page async for page in pager.pages() if page.next_cursor is not None]
    assert second.answer is not None


@pytest.mark.parametrize("cursor", [5, True, b"c", ["c"], ""], ids=repr)
async def test_a_cursor_is_a_string_that_is_not_empty(session: Session, sandbox: Sandbox, cursor: Any) -> None:
    before = len(sandbox.requests)
    pager = session.accounts.list()
    for ask in (pager.page, pager.pages):
        with pytest.raises(InvalidArgument, check=has(parameter="cursor")):
            await resolve(ask(cursor=cursor))
    assert len(sandbox.requests) == before


async def test_pages_can_be_closed_before_their_end(categories: LineItemCuratedCategories) -> None:
    async with aclosing(categories.list(count=3).pages()) as pages:
        async for page in pages:
            assert page.next_cursor is not None
            break
    assert [page async for page in pages] == []


async def resolve(result: Any) -> None:
    if isawaitable(result):
        await result


async def test_an_empty_page_is_not_the_end(clock: VirtualClock) -> None:
    config = SandboxConfig(empty_page_before_last=True)
    async with Sandbox(clock=clock, config=config) as sandbox, Session.sandbox(sandbox) as session:
        service = session.account(sandbox.account_id).line_item_curated_categories
        pages = [page async for page in service.list(count=1).pages()]
        assert any(not page.items for page in pages[:-1])
        assert len(await service.list(count=1).collect()) == sum(len(page.items) for page in pages) > 1


async def test_the_first_costs_one_request(categories: LineItemCuratedCategories, sandbox: Sandbox) -> None:
    before = len(sandbox.requests)
    first = await categories.list(count=2).first()

    assert first == (await categories.list().collect())[0]
    assert len(sandbox.requests) == before + 2


async def test_the_first_of_nothing_is_none(session: Session) -> None:
    assert await session.accounts.list(q="nobody is called so").first() is None


@pytest.mark.parametrize(("limit", "requests"), [(0, 0), (1, 1), (2, 1), (3, 2), (99, 4), (None, 4)])
async def test_collect_asks_for_no_more_pages_than_its_limit_needs(
    categories: LineItemCuratedCategories, sandbox: Sandbox, limit: int | None, requests: int
) -> None:
    before = len(sandbox.requests)
    found = await categories.list(count=2).collect(limit=limit)

    assert len(found) == min(HOW_MANY, HOW_MANY if limit is None else limit)
    assert len(sandbox.requests) - before == requests


async def test_a_negative_limit_is_refused(categories: LineItemCuratedCategories) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="limit")):
        await categories.list().collect(limit=-1)


@pytest.mark.rule("GEN-04b", "GEN-09", "GEN-10")
async def test_the_total_is_asked_for_without_a_cursor(categories: LineItemCuratedCategories, sandbox: Sandbox) -> None:
    assert await categories.list(count=2).total_count() == HOW_MANY
    query = sandbox.requests[-1].query

    assert "with_total_count=true" in query
    assert "cursor" not in query


@pytest.mark.rule("GEN-14b", "LICC-05")
async def test_the_next_page_is_stable_while_records_come_and_go(categories: LineItemCuratedCategories) -> None:
    seen: list[str] = []
    async for item in categories.list(count=2):
        seen.append(item.id)
        if len(seen) == 2:
            await categories.delete(item.id)

    assert len(seen) == len(set(seen)) == HOW_MANY


async def test_leaving_early_cancels_the_page_that_was_asked_for_ahead(
    categories: LineItemCuratedCategories, sandbox: Sandbox
) -> None:
    sandbox.faults.on("GET", "*/line_item_curated_categories").nth(2).do(Fault.hang())
    before = len(sandbox.requests)
    pages = categories.list(count=1).pages()
    await anext(pages)
    await sandbox.requests.wait(count=before + 2)  # the next page is asked for while this one is read
    (fetching,) = [task for task in asyncio.all_tasks() if "Pager._fetch" in repr(task.get_coro())]
    await pages.aclose()
    await asyncio.wait([fetching])

    assert fetching.cancelled()


async def test_a_failure_in_the_middle_is_raised_after_the_items_before_it(
    sandbox: Sandbox, categories: LineItemCuratedCategories
) -> None:
    sandbox.faults.on("GET", "*/line_item_curated_categories").nth(2).do(Fault.http(404))
    items = aiter(categories.list(count=3))
    for _ in range(3):
        await anext(items)
    with pytest.raises(NotFound):
        await anext(items)


@pytest.mark.rule("GEN-17", "LIM-07")
async def test_two_hundred_and_one_ids_are_refused_before_a_request_is_spent(
    session: Session, sandbox: Sandbox
) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="account_ids")):
        session.accounts.list(account_ids=[str(number) for number in range(201)])

    assert len(sandbox.requests) == 0
    assert await session.accounts.list(account_ids=[str(number) for number in range(200)]).collect() == []


async def test_a_string_is_not_a_sequence_of_ids(session: Session) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="account_ids")):
        session.accounts.list(account_ids="18ce54d4x5t")


@pytest.mark.rule("GEN-06", "ACC-01b")
@pytest.mark.parametrize("count", [0, 1001, -1, True, "5"])
async def test_a_count_out_of_bounds_is_refused_before_a_request_is_spent(session: Session, count: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="count")):
        session.accounts.list(count=count)


async def test_a_session_that_does_not_validate_lets_the_service_refuse(sandbox: Sandbox) -> None:
    async with Session.sandbox(sandbox, validate=False) as session:
        with pytest.raises(ApiError, check=lambda error: error.has_code("INVALID_PARAMETER")):
            await session.accounts.list(count=1001).first()


CREDENTIALS = UserCredentials(consumer_key="k", consumer_secret="s", token="t", token_secret="u")
HOSTS = Endpoints(base_url="https://base.example.test", ads_url="https://ads.example.test")


@pytest.mark.parametrize(
    ("start", "following", "seen"),
    [
        (None, {"": "c", "c": "c"}, ["", "c"]),
        (None, {"": "a", "a": "b", "b": "a"}, ["", "a", "b"]),
        (None, {"": "a", "a": "b", "b": "c", "c": "d", "d": "b"}, ["", "a", "b", "c", "d"]),
        ("a", {"a": "b", "b": "a"}, ["a", "b"]),
        ("a", {"a": "a"}, ["a"]),
    ],
)
async def test_a_listing_that_goes_round_in_a_circle_ends_in_an_error_after_its_records(
    service: ScriptedServer, start: str | None, following: dict[str, str], seen: list[str]
) -> None:
    def answer(request: ReceivedRequest) -> Answer:
        cursor = request.query.get("cursor", "")
        return Answer({"data": [{"at": cursor}], "next_cursor": following[cursor]})

    service.answer_all(answer)
    async with service.session() as session:
        records: list[str] = []

        async def walk() -> None:
            async for page in session.iterate("/12/things").pages(cursor=start):
                records.extend(record["at"] for record in page.items)

        with pytest.raises(UnexpectedAnswer) as caught:
            await walk()
        assert (records, len(service.requests)) == (seen, len(seen))
        assert json.loads(caught.value.body)["data"] == [{"at": seen[-1]}]
        if start is None:
            with pytest.raises(UnexpectedAnswer):
                await session.iterate("/12/things").collect()
            assert await session.iterate("/12/things").collect(limit=len(seen)) == [{"at": each} for each in seen]


async def test_a_total_that_is_not_given_is_an_error() -> None:
    with aioresponses() as service:
        service.get("https://ads.example.test/12/accounts?with_total_count=true", payload={"data": []})
        async with Session(CREDENTIALS, endpoints=HOSTS) as session:
            with pytest.raises(UnexpectedAnswer) as caught:
                await session.accounts.list().total_count()
    assert caught.value.body == b'{"data": []}'


async def test_a_429_in_the_middle_of_a_listing_is_waited_out(
    sandbox: Sandbox, categories: LineItemCuratedCategories
) -> None:
    sandbox.faults.on("GET", "*/line_item_curated_categories").nth(2).do(Fault.rate_limited(reset=40))
    assert len(await categories.list(count=2).collect()) == HOW_MANY


async def test_without_repeats_a_429_is_raised_with_its_reset(sandbox: Sandbox, session: Session) -> None:
    sandbox.faults.on("GET", "*/accounts").once().do(Fault.rate_limited(reset=40))
    with pytest.raises(RateLimited) as caught:
        await session.but(retries=Retries.none()).accounts.list().first()

    assert caught.value.retry_at is not None


async def test_an_awaited_pager_is_its_first_page(categories: LineItemCuratedCategories, sandbox: Sandbox) -> None:
    pager, before = categories.list(count=2), len(sandbox.requests)
    page = await pager
    assert [item.id for item in page.items] == [item.id for item in await pager.collect(limit=2)]
    assert page.next_cursor
    assert sandbox.requests[before].path.endswith("/line_item_curated_categories")


async def test_first_pages_are_gathered(session: Session) -> None:
    pages = await asyncio.gather(session.accounts.list(), session.accounts.list())
    assert [account.id for account in pages[0].items] == [account.id for account in pages[1].items] != []


async def test_services_handles_and_pagers_are_kept_in_sets(session: Session, account: AccountHandle) -> None:
    audience = account.custom_audience("a1")
    objects = {
        session.accounts,
        session.webhooks,
        account,
        account.cards,
        audience,
        audience.users,
        audience.targeted(),
    }
    assert account in objects
    assert len(objects) == 7


async def test_a_pager_shows_what_it_lists_and_no_parameters(session: Session) -> None:
    assert repr(session.accounts.list(q="secret")) == "<CountedPager of Account: GET /12/accounts>"
    assert repr(session.iterate("/12/accounts")) == "<Pager of records: GET /12/accounts>"
