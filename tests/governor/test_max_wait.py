"""`max_wait`: what would wait too long is rejected as soon as that is known."""

import asyncio
from datetime import timedelta

import pytest

from svc_async.errors import WouldWaitTooLong
from tests.support.clock import EPOCH, DrivenClock
from tests.support.rate_limits import (
    ACCOUNTS,
    card_list,
    find_bucket,
    hold_slot,
    make_governor,
    rate_limit_headers,
    send,
    users_batch,
)

QUARTER = 900.0


async def test_a_wait_that_is_known_to_be_too_long_is_rejected_at_once(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    for _ in range(5):
        await send(governor, ACCOUNTS)

    with pytest.raises(WouldWaitTooLong) as caught:
        await send(governor, ACCOUNTS, max_wait=60.0)

    assert caught.value.limit == "ads.reads.global"
    assert caught.value.until == EPOCH + timedelta(seconds=QUARTER)
    assert caught.value.retry_after == QUARTER
    assert clock.monotonic() == 0
    assert find_bucket(governor).waiting == 0


async def test_requests_ahead_in_the_queue_count(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    await send(governor, users_batch())
    queue = [asyncio.ensure_future(send(governor, users_batch())) for _ in range(300)]
    await clock.settle()

    with pytest.raises(WouldWaitTooLong):
        await send(governor, users_batch(), max_wait=5.0)

    await clock.run(send(governor, users_batch(), max_wait=60.0), *queue)


async def test_whole_limits_ahead_in_the_queue_count_a_period_each(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    for _ in range(5):
        await send(governor, ACCOUNTS)
    queue = [asyncio.ensure_future(send(governor, ACCOUNTS)) for _ in range(12)]
    await clock.settle()

    with pytest.raises(WouldWaitTooLong) as caught:
        await send(governor, ACCOUNTS, max_wait=3 * QUARTER - 1)

    assert caught.value.until == EPOCH + timedelta(seconds=3 * QUARTER)
    await clock.run(send(governor, ACCOUNTS, max_wait=3 * QUARTER), *queue)
    assert clock.monotonic() == 3 * QUARTER


async def test_a_gate_that_closes_during_the_wait_ends_it(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    probe = await hold_slot(governor, users_batch())
    patient = asyncio.ensure_future(send(governor, users_batch(), max_wait=None))
    impatient = asyncio.ensure_future(send(governor, users_batch(), max_wait=10.0))
    await clock.settle()

    probe.learn(429, rate_limit_headers(1_500, 0, 40))
    await clock.settle()

    with pytest.raises(WouldWaitTooLong) as caught:
        await impatient
    assert caught.value.until >= EPOCH + timedelta(seconds=40)
    assert clock.monotonic() == 0
    await clock.run(patient)


async def test_the_wait_ends_when_an_answer_does_not_come(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    probe = await hold_slot(governor)
    waiter = asyncio.ensure_future(send(governor, ACCOUNTS, max_wait=4.0))

    await clock.advance(seconds=3.9)
    assert not waiter.done()
    await clock.advance(seconds=0.2)

    with pytest.raises(WouldWaitTooLong) as caught:
        await waiter
    assert caught.value.retry_after == 0
    probe.learn(200, {})


async def test_a_request_without_an_answer_holds_up_others_for_five_seconds(clock: DrivenClock) -> None:
    """The first of a limit, whose answer would open it; the answer of the next opens it as well."""
    governor = make_governor(clock)
    probe = await hold_slot(governor, card_list())
    queue = [asyncio.ensure_future(send(governor, card_list())) for _ in range(8)]

    await clock.advance(seconds=4.999)
    assert not any(waiter.done() for waiter in queue)
    await clock.advance(seconds=0.001)

    assert all(waiter.done() for waiter in queue)
    probe.learn(200, {})


async def test_another_request_goes_every_five_seconds_while_none_is_answered(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    slots = [await hold_slot(governor, card_list())]
    for slot in slots:  # a lost answer leaves one request that may be in flight
        slot.mark_lost()
    granted = list[float]()

    async def hang() -> None:
        slots.append(await hold_slot(governor, card_list()))
        granted.append(clock.monotonic())

    waiting = [asyncio.ensure_future(hang()) for _ in range(4)]
    await clock.advance(seconds=11)
    assert granted == [0, 5, 10]
    for each in (*slots[1:],):
        each.learn(200, {})
    await asyncio.gather(*waiting)


async def test_no_wait_at_all_takes_what_is_free(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    await send(governor, ACCOUNTS, max_wait=0)
    probe = await hold_slot(governor)

    await send(governor, ACCOUNTS, max_wait=0)

    probe.learn(200, {})


async def test_an_endless_wait_may_be_infinite(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    for _ in range(5):
        await send(governor, ACCOUNTS)

    await clock.run(send(governor, ACCOUNTS, max_wait=float("inf")))

    assert clock.monotonic() == QUARTER


async def test_a_rejected_request_leaves_the_queue_to_the_next(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    probe = await hold_slot(governor)
    queue = [asyncio.ensure_future(send(governor, ACCOUNTS, max_wait=wait)) for wait in (3.0, None)]
    await clock.advance(seconds=4.0)
    assert [waiter.done() for waiter in queue] == [True, False]

    probe.learn(200, {})
    await clock.settle()

    assert queue[1].done()
    with pytest.raises(WouldWaitTooLong):
        await queue[0]
