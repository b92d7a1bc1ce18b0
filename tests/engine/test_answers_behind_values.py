"""The answer behind the value of a call, whatever makes the call."""

import asyncio
import contextlib
import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from svc_async import InvalidArgument, NotFound, Session, TransportError, WrongState
from svc_async.ads.accounts import Account
from svc_async.batch.report import Receipt
from svc_async.errors import Sent
from svc_async.sandbox import Fault, Sandbox, VirtualClock
from tests.support.errors import has

READ = ("GET", "*/accounts/*")


async def test_an_account_comes_with_its_answer(sandbox: Sandbox) -> None:
    async with Session.sandbox(sandbox, request_id_header="date") as session:
        account, answer = await session.with_answer(session.accounts.get(sandbox.account_id))

    assert answer.status == 200
    assert answer.headers["Content-Type"] == answer.headers["content-type"]
    assert json.loads(answer.body)["data"]["id"] == account.id == sandbox.account_id
    assert answer.request_id == answer.headers["date"]
    assert (answer.attempts, answer.waited) == (1, 0)
    assert account.id not in repr(answer)


async def test_the_answer_counts_attempts_and_waits(session: Session, sandbox: Sandbox, clock: VirtualClock) -> None:
    before = clock.monotonic()
    sandbox.faults.on(*READ).times(2).do(Fault.http(503))
    _, answer = await session.with_answer(session.accounts.get(sandbox.account_id))

    assert answer.attempts == 3
    assert 0 < answer.waited <= answer.seconds <= clock.monotonic() - before


async def test_the_wait_at_the_rate_limit_counts(session: Session, sandbox: Sandbox) -> None:
    sandbox.faults.on(*READ).once().do(Fault.rate_limited(reset=30))
    _, answer = await session.with_answer(session.accounts.get(sandbox.account_id))
    assert answer.waited > 20


@pytest.mark.parametrize("way", ["first", "request", "total", "collect"])
async def test_every_kind_of_call_has_an_answer(session: Session, sandbox: Sandbox, way: str) -> None:
    accounts = session.accounts.list()
    ways: dict[str, Any] = {
        "first": accounts.first,
        "request": lambda: session.request("GET", f"/12/accounts/{sandbox.account_id}"),
        "total": session.account(sandbox.account_id).line_item_curated_categories.list().total_count,
        "collect": accounts.collect,
    }
    _, answer = await session.with_answer(ways[way]())
    assert "data" in json.loads(answer.body)


async def test_of_several_calls_it_is_the_last_answer(session: Session, sandbox: Sandbox) -> None:
    async def two_calls() -> str:
        await session.accounts.list().collect()
        return (await session.accounts.get(sandbox.account_id)).id

    account_id, answer = await session.with_answer(two_calls())
    assert json.loads(answer.body)["data"]["id"] == account_id

    (inner, answer_within), outer = await session.with_answer(session.with_answer(two_calls()))
    assert inner == account_id
    assert answer_within == outer


async def test_calls_at_the_same_time_have_their_own_answers(session: Session, sandbox: Sandbox) -> None:
    line_items = session.account(sandbox.account_id).line_item_curated_categories
    pairs = await asyncio.gather(*(session.with_answer(line_items.list(count=n).first()) for n in range(1, 9)))
    assert [json.loads(answer.body)["request"]["params"]["count"] for _, answer in pairs] == [*range(1, 9)]


async def test_a_call_of_another_session_is_not_counted_and_may_have_had_an_effect(
    session: Session, sandbox: Sandbox
) -> None:
    async with Session.sandbox(sandbox) as other:
        with pytest.raises(WrongState) as caught:
            await session.with_answer(other.accounts.create())
    assert sandbox.requests.count(method="POST") == 1
    assert (caught.value.sent, caught.value.repeatable) == (Sent.MAYBE, False)
    _, answer = await session.with_answer(session.but(timeout=5).accounts.get(sandbox.account_id))
    assert answer.status == 200


async def test_an_awaitable_without_an_answer_may_have_had_an_effect(session: Session, sandbox: Sandbox) -> None:
    async def write_and_ignore_the_failure() -> None:
        with contextlib.suppress(TransportError):
            await session.accounts.create()

    sandbox.faults.on("POST", "*").once().do(Fault.drop_connection())
    with pytest.raises(WrongState) as caught:
        await session.with_answer(write_and_ignore_the_failure())
    assert (caught.value.sent, caught.value.repeatable) == (Sent.MAYBE, False)


async def test_a_task_that_may_have_begun_is_refused(session: Session, sandbox: Sandbox) -> None:
    task = asyncio.ensure_future(session.accounts.get(sandbox.account_id))
    with pytest.raises(InvalidArgument, check=has(parameter="awaitable")):
        await session.with_answer(task)
    assert isinstance(await task, Account)


async def test_the_error_of_a_refused_call_is_raised(session: Session) -> None:
    made = await session.accounts.create()
    await session.accounts.delete(made.id)
    with pytest.raises(NotFound) as caught:
        await session.with_answer(session.accounts.get(made.id))
    assert caught.value.status == 404


async def test_pages_carry_their_answers(session: Session, sandbox: Sandbox) -> None:
    categories = session.account(sandbox.account_id).line_item_curated_categories
    pages = [page async for page in categories.list(count=1).pages()]

    assert len(pages) > 1
    for page in pages:
        assert page.answer is not None
        assert [each["id"] for each in json.loads(page.answer.body)["data"]] == [item.id for item in page.items]


async def test_receipts_carry_their_answers(session: Session, sandbox: Sandbox) -> None:
    users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
    async with users.stream([{"email": f"person{number}@example.test"} for number in range(3)]) as receipts:
        answers = [receipt.answer async for receipt in receipts]

    assert answers
    for answer in answers:
        assert answer is not None
        assert json.loads(answer.body)["data"]["success_count"] == 3


@pytest.mark.parametrize("duplicate", [lambda value: pickle.loads(pickle.dumps(value)), copy.deepcopy, copy.copy])
async def test_what_carries_an_answer_can_be_pickled_and_copied(
    session: Session, sandbox: Sandbox, duplicate: Callable[[Any], Any]
) -> None:
    page, answer = await session.with_answer(session.accounts.list())
    users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
    receipts: list[Receipt] = []
    await users.upload([{"email": "a@example.com"}], on_receipt=receipts.append)

    assert duplicate(answer) == answer
    assert duplicate(answer).headers["CONTENT-TYPE"] == answer.headers["content-type"]
    assert duplicate(page) == page
    assert duplicate(page).answer == answer
    receipt = duplicate(receipts[0])
    assert (receipt.rows, [*receipt.positions], [*receipt.settled]) == (1, [0], [0])
    assert receipt.answer == receipts[0].answer
