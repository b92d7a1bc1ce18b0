"""Which calls are sent again after which failures, against the sandbox."""

from typing import Any

import pytest

from svc_async import ApiError, RateLimited, Session, TransportError, WouldWaitTooLong
from svc_async.ads.posts import Post
from svc_async.errors import Sent
from svc_async.sandbox import Fault, Sandbox


async def create_post(sandbox: Sandbox, session: Session) -> Post:
    return await session.account(sandbox.account_id).posts.create(as_user_id=756201191646691328, text="Hello")


@pytest.mark.parametrize("stage", ["before", "after"])
async def test_a_write_whose_answer_is_lost_is_not_sent_again(sandbox: Sandbox, session: Session, stage: Any) -> None:
    service = session.account(sandbox.account_id).line_item_curated_categories
    seeded = await service.list().collect()
    sandbox.faults.on("POST", "*").once().do(Fault.drop_connection(), stage=stage)
    with pytest.raises(TransportError) as caught:
        await service.create(line_item_id=seeded[0].line_item_id, curated_category_id=seeded[0].curated_category_id)

    assert caught.value.sent is Sent.MAYBE
    assert sandbox.requests.count(method="POST") == 1
    assert len(await service.list().collect()) == len(seeded) + (stage == "after")


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504, 520])
@pytest.mark.parametrize("stage", ["after", pytest.param("before", marks=pytest.mark.long)])
async def test_a_write_that_a_gateway_may_have_answered_is_not_sent_again(
    sandbox: Sandbox, session: Session, status: int, stage: Any
) -> None:
    fault = Fault.http(status, code="FAILED", headers={} if status == 503 else {"retry-after": "1"})
    sandbox.faults.on("POST", "*/post").once().do(fault, stage=stage)
    with pytest.raises(ApiError) as caught:
        await create_post(sandbox, session)

    assert (caught.value.status, caught.value.sent, caught.value.repeatable) == (status, Sent.MAYBE, True)
    assert sandbox.requests.count(method="POST") == 1


@pytest.mark.parametrize(
    "fault", [Fault.http(503, retry_after=1), Fault.http(429), Fault.http(423), Fault.http(400, code="TOO_MANY_JOBS")]
)
async def test_a_write_that_had_no_effect_is_sent_again(sandbox: Sandbox, session: Session, fault: Fault) -> None:
    sandbox.faults.on("POST", "*/post").once().do(fault, stage="before")
    await create_post(sandbox, session)

    assert sandbox.requests.count(method="POST") == 2


async def test_a_delete_whose_answer_is_lost_is_not_sent_again(sandbox: Sandbox, session: Session) -> None:
    service = session.account(sandbox.account_id).line_item_curated_categories
    seeded = await service.list().collect()
    sandbox.faults.on("DELETE", "*").once().do(Fault.drop_connection(), stage="after")
    with pytest.raises(TransportError):
        await service.delete(seeded[0].id)

    assert sandbox.requests.count(method="DELETE") == 1


async def test_a_write_that_was_turned_away_is_sent_again(sandbox: Sandbox, session: Session) -> None:
    sandbox.faults.on("PUT", "*").once().do(Fault.http(503, retry_after=20), stage="before")
    before = sandbox.clock.now()

    assert (await session.accounts.update(sandbox.account_id, name="New")).name == "New"
    assert (sandbox.clock.now() - before).total_seconds() >= 20


async def test_a_write_that_sets_values_is_sent_again_after_any_passing_fault(
    sandbox: Sandbox, session: Session
) -> None:
    sandbox.faults.on("PUT", "*").once().do(Fault.drop_connection(), stage="after")

    assert (await session.accounts.update(sandbox.account_id, name="New")).name == "New"
    assert sandbox.requests.count(method="PUT") == 2


async def test_a_429_that_closes_the_limit_for_too_long_is_the_cause(sandbox: Sandbox, session: Session) -> None:
    sandbox.faults.on("POST", "*/post").once().do(Fault.rate_limited(900))
    with pytest.raises(WouldWaitTooLong) as caught:
        await create_post(sandbox, session)

    assert isinstance(caught.value.__cause__, RateLimited)
    assert (caught.value.sent, sandbox.requests.total) == (Sent.NO, 1)
    with pytest.raises(WouldWaitTooLong) as caught:
        await create_post(sandbox, session)
    assert (caught.value.__cause__, sandbox.requests.total) == (None, 1)
