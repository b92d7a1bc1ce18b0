"""The tick at which a wait is too long, and what happens to a slot that was never granted."""

import asyncio
import random
from datetime import timedelta

import pytest

from svc_async.errors import WouldWaitTooLong
from svc_async.governor.governor import Governor, Stage
from svc_async.governor.limits import Limit, Scope
from tests.support.clock import EPOCH, DrivenClock
from tests.support.rate_limits import (
    ACCOUNTS,
    build_request,
    card_list,
    find_bucket,
    hold_slot,
    make_governor,
    rate_limit_headers,
    request_slot,
    send,
)

GET = frozenset({"GET"})


def make_limited(clock: DrivenClock, period: float, *, requests: int = 1) -> Governor:
    row = Limit("all", requests, period, Scope.APP, GET, ".*", documented=True)
    return Governor(limits=(row,), clock=clock, rng=random.Random(5))


@pytest.mark.parametrize(("max_wait", "goes"), [(100.0, True), (99.999_999, False), (0, False)])
async def test_a_wait_of_just_max_wait_is_not_too_long(clock: DrivenClock, max_wait: float, goes: bool) -> None:
    governor = make_limited(clock, 100.0)
    await send(governor, ACCOUNTS)

    if goes:
        await clock.run(send(governor, ACCOUNTS, max_wait=max_wait))
        assert clock.monotonic() == 100
    else:
        with pytest.raises(WouldWaitTooLong) as caught:
            await send(governor, ACCOUNTS, max_wait=max_wait)
        assert caught.value.until == EPOCH + timedelta(seconds=100)
        assert clock.monotonic() == 0


async def test_those_ahead_count_one_by_one(clock: DrivenClock) -> None:
    governor = make_limited(clock, 100.0, requests=2)
    await send(governor, ACCOUNTS)
    await clock.advance(seconds=10)
    await send(governor, ACCOUNTS)
    first = asyncio.ensure_future(send(governor, ACCOUNTS, max_wait=90.0))
    await clock.settle()

    with pytest.raises(WouldWaitTooLong) as caught:
        await send(governor, ACCOUNTS, max_wait=99.0)
    assert caught.value.until == EPOCH + timedelta(seconds=110)
    await clock.run(send(governor, ACCOUNTS, max_wait=100.0), first)
    assert clock.monotonic() == 110


@pytest.mark.parametrize("max_wait", [float("inf"), 1e300, None])
async def test_an_endless_wait_waits_for_decades(clock: DrivenClock, max_wait: float | None) -> None:
    governor = make_limited(clock, 2e9)
    await send(governor, ACCOUNTS)

    await clock.run(send(governor, ACCOUNTS, max_wait=max_wait))

    assert clock.monotonic() == 2e9


async def test_the_error_names_the_limit_that_opens_last(clock: DrivenClock) -> None:
    rows = (
        Limit("short", 1, 10.0, Scope.APP, GET, ".*", documented=True),
        Limit("long", 1, 90.0, Scope.APP, GET, ".*", with_total_count=True, documented=True),
    )
    governor = Governor(limits=rows, clock=clock, rng=random.Random(5))
    request = build_request("GET", "/12/x", query=[("with_total_count", "true")])
    await send(governor, request)

    with pytest.raises(WouldWaitTooLong) as caught:
        await send(governor, request, max_wait=5.0)

    assert (caught.value.limit, caught.value.until) == ("long", EPOCH + timedelta(seconds=90))


async def test_a_slot_that_was_rejected_is_over_and_cannot_be_entered_again(clock: DrivenClock) -> None:
    governor = make_limited(clock, 100.0)
    await send(governor, ACCOUNTS)
    slot = request_slot(governor, ACCOUNTS, max_wait=1.0)
    with pytest.raises(WouldWaitTooLong):
        await slot.__aenter__()

    assert slot.stage is Stage.OVER
    with pytest.raises(RuntimeError, match="once"):
        await slot.__aenter__()
    assert governor._scheduler._flows == {}


async def test_each_deadline_in_a_queue_is_kept(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    probe = await hold_slot(governor)
    queue = [asyncio.ensure_future(send(governor, ACCOUNTS, max_wait=wait)) for wait in (3.0, 1.0, 2.0, None)]
    ended = []

    for seconds in (0.999, 0.001, 0.999, 0.001, 0.999, 0.001):
        await clock.advance(seconds=seconds)
        ended.append([waiter.done() for waiter in queue])

    assert ended == [
        [False, False, False, False],
        [False, True, False, False],
        [False, True, False, False],
        [False, True, True, False],
        [False, True, True, False],
        [True, True, True, False],
    ]
    assert clock.pending_timers == 1, "only the answer can help now, or five seconds without one"
    probe.learn(200, {})
    await clock.run(queue[3])
    assert [type(waiter.exception()) for waiter in queue[:3]] == [WouldWaitTooLong] * 3


async def test_a_request_that_one_of_its_limits_rejects_leaves_the_other(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    probe = await hold_slot(governor, card_list())
    heavy = asyncio.ensure_future(send(governor, card_list(total=True), max_wait=10.0))
    await clock.settle()
    assert clock.pending_timers == 2

    probe.learn(429, rate_limit_headers(2_000, 0, 40))
    await clock.settle()

    with pytest.raises(WouldWaitTooLong):
        await heavy
    assert clock.pending_timers == 0


async def test_a_slot_stands_for_one_request_from_the_grant_to_the_answer(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    slot = request_slot(governor, ACCOUNTS)
    stages: list[tuple[Stage, bool]] = []

    def look() -> None:
        stages.append((slot.stage, slot.is_in_flight))

    slot.mark_sent()
    slot.learn(200, {})  # it was not granted
    look()
    async with slot:
        look()
        slot.mark_sent()
        look()
        slot.learn(200, rate_limit_headers(5, 4, 60))
        look()
        slot.mark_sent()
        look()
    await slot.__aexit__(None, None, None)
    look()

    new, granted, sent, over = Stage.NEW, Stage.GRANTED, Stage.SENT, Stage.OVER
    assert [stage for stage, _ in stages] == [new, granted, sent, over, over, over]
    assert [is_in_flight for _, is_in_flight in stages] == [False, True, True, False, False, False]
    assert (find_bucket(governor).remaining, find_bucket(governor).used) == (4, 1)


async def test_an_answer_may_come_before_it_was_noted_that_the_request_was_sent(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    async with request_slot(governor, ACCOUNTS) as slot:
        slot.learn(200, {})
    async with request_slot(governor, ACCOUNTS) as slot:
        slot.mark_lost()

    assert find_bucket(governor).used == 2


async def test_a_wait_that_was_cancelled_leaves_nothing(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    probe = await hold_slot(governor)
    slot = request_slot(governor, ACCOUNTS, max_wait=100.0)
    waiter = asyncio.ensure_future(slot.__aenter__())
    await clock.settle()
    assert (slot.stage, find_bucket(governor).waiting, clock.pending_timers) == (Stage.WAITING, 1, 1)

    waiter.cancel()
    await clock.settle()

    assert (slot.stage, find_bucket(governor).waiting, clock.pending_timers) == (Stage.OVER, 0, 0)
    assert governor._scheduler._flows == {}
    probe.learn(200, {})
