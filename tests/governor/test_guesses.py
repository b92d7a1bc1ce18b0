"""A guessed limit sets the pace until the service has answered, and never refuses a request."""

import asyncio
import random

import pytest

from svc_async.errors import WouldWaitTooLong
from svc_async.governor.governor import Governor
from svc_async.governor.limits import LIMITS, change_limit
from tests.support.clock import DrivenClock
from tests.support.errors import has
from tests.support.rate_limits import (
    ACCOUNTS,
    card_list,
    find_bucket,
    hold_slot,
    rate_limit_headers,
    request_slot,
    send,
    users_batch,
)

QUARTER = 900.0


@pytest.fixture
def governor(clock: DrivenClock) -> Governor:
    return Governor(clock=clock, rng=random.Random(5))


async def lose(governor: Governor, times: int) -> None:
    """Send requests that get no answer."""
    for _ in range(times):
        (await hold_slot(governor)).mark_lost()


async def test_answers_without_headers_retire_a_guess(clock: DrivenClock, governor: Governor) -> None:
    assert [limit.requests for limit in LIMITS if limit.name == "ads.reads.global"] == [5]

    for _ in range(50):
        await send(governor, ACCOUNTS, max_wait=0)

    assert clock.monotonic() == 0
    assert find_bucket(governor).limit is None


@pytest.mark.parametrize("limit", [3, 50])
async def test_headers_correct_a_guess_and_may_refuse(clock: DrivenClock, governor: Governor, limit: int) -> None:
    for remaining in reversed(range(limit)):
        await send(governor, ACCOUNTS, rate_limit_headers(limit, remaining, 100), max_wait=0)

    assert find_bucket(governor).limit == limit
    with pytest.raises(WouldWaitTooLong):
        await send(governor, ACCOUNTS, max_wait=60.0)
    await send(governor, card_list("other"))
    assert clock.monotonic() == 0


async def test_a_limit_from_headers_is_not_retired(governor: Governor) -> None:
    await send(governor, ACCOUNTS, rate_limit_headers(50, 40, 100))
    await send(governor, ACCOUNTS)

    assert find_bucket(governor).limit == 50


@pytest.mark.parametrize("status", [400, 404, 500, 503])
async def test_a_refusal_without_headers_retires_no_guess(governor: Governor, status: int) -> None:
    await send(governor, ACCOUNTS, status=status)

    assert find_bucket(governor).limit == 5


async def test_a_documented_limit_is_not_retired_and_may_refuse(clock: DrivenClock) -> None:
    governor = Governor(limits=change_limit(LIMITS, "ads.audience_users", requests=5, period=QUARTER), clock=clock)
    for _ in range(5):
        await send(governor, users_batch())

    assert find_bucket(governor, "ads.audience_users").limit == 5
    with pytest.raises(WouldWaitTooLong):
        await send(governor, users_batch(), max_wait=60.0)


async def test_a_limit_that_the_caller_changes_counts_as_documented(clock: DrivenClock) -> None:
    governor = Governor(limits=change_limit(LIMITS, "ads.reads.global", requests=2), clock=clock)
    for _ in range(2):
        await send(governor, ACCOUNTS)

    with pytest.raises(WouldWaitTooLong):
        await send(governor, ACCOUNTS, max_wait=60.0)


async def test_before_the_first_answer_a_guess_paces_those_who_wait_and_lets_go_those_who_do_not(
    clock: DrivenClock, governor: Governor
) -> None:
    await lose(governor, 5)
    patient = asyncio.ensure_future(send(governor, ACCOUNTS, max_wait=None))
    await send(governor, ACCOUNTS, max_wait=0, status=404)
    assert clock.monotonic() == 0

    await clock.run(send(governor, ACCOUNTS, max_wait=60.0, status=404))
    assert clock.monotonic() == 60
    assert not patient.done()

    await clock.run(patient)
    assert clock.monotonic() == QUARTER


async def test_an_answer_lets_those_go_who_wait_for_a_guess(clock: DrivenClock, governor: Governor) -> None:
    await lose(governor, 5)
    waiting = [asyncio.ensure_future(send(governor, ACCOUNTS, max_wait=None)) for _ in range(3)]
    await send(governor, ACCOUNTS, max_wait=0)
    await clock.settle()

    assert all(waiter.done() for waiter in waiting)
    assert clock.monotonic() == 0


async def test_a_request_in_flight_still_ends_the_patience_of_others(clock: DrivenClock, governor: Governor) -> None:
    probe = await hold_slot(governor)
    with pytest.raises(WouldWaitTooLong):
        await clock.run(send(governor, ACCOUNTS, max_wait=4.0))

    probe.learn(200, {})


async def test_a_429_without_headers_brings_a_guess_back_for_one_period(clock: DrivenClock, governor: Governor) -> None:
    await send(governor, ACCOUNTS)
    assert find_bucket(governor).limit is None
    await send(governor, ACCOUNTS, status=429)
    assert find_bucket(governor).limit == 5

    await clock.advance(seconds=QUARTER - 1)
    await send(governor, ACCOUNTS)
    assert find_bucket(governor).limit == 5

    await clock.advance(seconds=1)
    await send(governor, ACCOUNTS)
    assert find_bucket(governor).limit is None


async def test_a_closure_that_was_guessed_refuses_nobody(clock: DrivenClock, governor: Governor) -> None:
    for _ in range(8):
        await clock.run(send(governor, ACCOUNTS, max_wait=None, status=429))
    closed_until = find_bucket(governor).closed_until
    started = clock.monotonic()
    assert closed_until is not None
    assert (closed_until - clock.now()).total_seconds() > 20

    await clock.run(send(governor, ACCOUNTS, max_wait=20.0))

    assert clock.monotonic() - started == 20


async def test_a_closure_that_an_answer_stated_may_refuse(clock: DrivenClock, governor: Governor) -> None:
    await send(governor, ACCOUNTS, rate_limit_headers(retry_after="100"), status=429)

    with pytest.raises(WouldWaitTooLong):
        await send(governor, ACCOUNTS, max_wait=60.0)
    assert clock.monotonic() == 0


async def test_of_two_limits_the_documented_one_may_refuse(clock: DrivenClock, governor: Governor) -> None:
    for _ in range(200):
        await clock.run(send(governor, card_list(total=True)))
    assert clock.monotonic() == 0

    with pytest.raises(WouldWaitTooLong, check=has(limit="ads.total_count")):
        await send(governor, card_list(total=True), max_wait=60.0)


async def test_a_cancelled_request_is_not_let_go(clock: DrivenClock, governor: Governor) -> None:
    await lose(governor, 5)
    slot = request_slot(governor, ACCOUNTS, max_wait=10.0)
    waiting = asyncio.ensure_future(slot.__aenter__())
    await clock.settle()
    waiting.cancel()
    await clock.advance(seconds=11)

    assert waiting.cancelled()
    assert find_bucket(governor).used == 5


async def test_the_counts_of_a_limit_that_is_not_known_do_not_grow(clock: DrivenClock) -> None:
    governor = Governor(clock=clock, limits=())
    for _ in range(100):
        await send(governor, ACCOUNTS)
        await clock.advance(seconds=1)

    assert find_bucket(governor, "GET /12/accounts").used <= 1
    (bucket,) = governor._buckets
    assert len(bucket.window.granted) + len(bucket.window.answered) <= 4  # type: ignore[attr-defined]  # a local window
