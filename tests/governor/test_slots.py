"""Slots: granted, refunded, sent, settled, cancelled."""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from svc_async.errors import InvalidArgument
from svc_async.governor.governor import BucketState, Governor, Priority, Slot
from svc_async.governor.limits import Limit, Scope
from svc_async.governor.window_store import WindowSpec, WindowStore
from svc_async.governor.windows import Window
from svc_async.wire.route import Request
from tests.support.clock import EPOCH, DrivenClock
from tests.support.errors import has
from tests.support.rate_limits import (
    ACCOUNTS,
    card_list,
    find_bucket,
    hold_slot,
    line_item_list,
    make_governor,
    rate_limit_headers,
    request_slot,
    send,
    users_batch,
)

QUARTER = 900.0


class KeptWindows(WindowStore):
    """Local windows that a test can look at."""

    def __init__(self) -> None:
        self.windows: list[Window] = []

    def window(self, spec: WindowSpec, on_change: Callable[[], object]) -> Window:
        window = super().window(spec, on_change)
        assert isinstance(window, Window)
        self.windows.append(window)
        return window


async def test_uncontended_slot_makes_no_task_no_timer_and_no_pause(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    entering = request_slot(governor, ACCOUNTS).__aenter__()

    with pytest.raises(StopIteration):
        entering.send(None)

    assert clock.pending_timers == 0


async def test_a_slot_is_entered_once(clock: DrivenClock) -> None:
    slot = request_slot(make_governor(clock), ACCOUNTS)
    async with slot:
        pass

    with pytest.raises(RuntimeError, match="once"):
        await slot.__aenter__()


async def test_small_limit_bursts_then_waits_for_the_window(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    for _ in range(5):
        await send(governor, ACCOUNTS)

    await clock.run(send(governor, ACCOUNTS))

    assert clock.monotonic() == QUARTER


async def test_a_slot_knows_how_long_it_waited(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    waited = []
    for _ in range(6):
        slot = request_slot(governor, ACCOUNTS)
        await clock.run(use(slot))
        waited.append(slot.waited)

    assert waited == [0, 0, 0, 0, 0, QUARTER]


async def use(slot: Slot) -> None:
    async with slot:
        slot.mark_sent()
        slot.learn(200, {})


async def test_one_probe_goes_first_and_its_answer_opens(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    probe = await hold_slot(governor)
    waiters = [asyncio.ensure_future(send(governor, ACCOUNTS)) for _ in range(4)]
    await clock.settle()
    assert find_bucket(governor).waiting == 4

    probe.learn(200, {})
    await clock.run(*waiters)

    assert clock.monotonic() == 0


async def test_left_before_it_was_sent_the_grant_is_refunded(clock: DrivenClock) -> None:
    governor = make_governor(clock)

    for _ in range(20):
        async with request_slot(governor, ACCOUNTS):
            pass

    assert find_bucket(governor).used == 0


async def test_failure_before_it_was_sent_wakes_the_next(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    first = request_slot(governor, ACCOUNTS)
    await first.__aenter__()
    second = asyncio.ensure_future(send(governor, ACCOUNTS))
    await clock.settle()
    assert not second.done()

    await first.__aexit__(ValueError, ValueError(), None)
    await clock.settle()

    assert second.done()
    await second


async def test_left_after_it_was_sent_without_an_answer_it_counts(clock: DrivenClock) -> None:
    governor = make_governor(clock)

    async with request_slot(governor, ACCOUNTS) as slot:
        slot.mark_sent()

    assert find_bucket(governor).used == 1


async def test_a_cancelled_waiter_does_not_hang_the_others(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    for _ in range(5):
        await send(governor, ACCOUNTS)
    done: list[int] = []
    waiters = [
        asyncio.ensure_future(send(governor, ACCOUNTS, on_answer=partial(done.append, number))) for number in range(6)
    ]
    await clock.settle()

    waiters[0].cancel()
    waiters[3].cancel()
    await clock.run(asyncio.gather(*waiters, return_exceptions=True))

    assert done == [1, 2, 4, 5]
    assert find_bucket(governor).waiting == 0
    assert clock.pending_timers == 0


@pytest.mark.parametrize("is_granted_first", [True, False], ids=["granted, then cancelled", "cancelled, then granted"])
async def test_cancelled_in_the_tick_of_the_grant_it_passes_the_grant_on(
    clock: DrivenClock, is_granted_first: bool
) -> None:
    governor = make_governor(clock)
    probe = await hold_slot(governor)
    done: list[int] = []
    first, second = (
        asyncio.ensure_future(send(governor, ACCOUNTS, on_answer=partial(done.append, number))) for number in range(2)
    )
    await clock.settle()

    # A lost answer lets one probe go; the first waiter cannot run in between.
    steps: list[Callable[[], object]] = [probe.mark_lost, first.cancel]
    for step in steps if is_granted_first else reversed(steps):
        step()
    await clock.settle()

    assert first.cancelled()
    assert done == [1]
    await second


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 8))])
async def test_cancellation_fuzz_loses_no_slot_and_doubles_none(clock: DrivenClock, seed: int) -> None:
    rng = random.Random(seed)
    windows = KeptWindows()
    governor = Governor(clock=clock, rng=random.Random(5), windows=windows)
    sent = 0
    victims: list[asyncio.Task[None]] = []

    async def work(request: Request[Any], *, bulk: bool) -> None:
        nonlocal sent
        async with request_slot(governor, request, bulk=bulk) as slot:
            if rng.random() < 0.3:
                rng.choice(victims).cancel()  # in the very tick of a grant
            if rng.random() < 0.1:
                raise ValueError  # signing failed
            slot.mark_sent()
            sent += 1
            await clock.sleep(rng.choice((0.0, 0.1, 1.0)))
            if rng.random() < 0.1:
                slot.mark_lost()
            else:
                slot.learn(rng.choice((200, 200, 200, 503, 429)), {})

    kinds = [ACCOUNTS, card_list(total=True), card_list(), line_item_list(total=True), users_batch()]
    victims += [asyncio.ensure_future(work(rng.choice(kinds), bulk=rng.random() < 0.5)) for _ in range(120)]
    (ends,) = await clock.run(asyncio.gather(*victims, return_exceptions=True))

    assert {type(end) for end in ends} <= {type(None), asyncio.CancelledError, ValueError}
    assert sent > 40
    assert all(bucket.waiting == 0 for bucket in governor.snapshot())
    assert governor._scheduler._flows == {}
    assert clock.pending_timers == 0
    assert windows.windows
    assert all(window.in_flight == 0 for window in windows.windows)


async def test_an_answer_is_learned_once(clock: DrivenClock) -> None:
    governor = make_governor(clock)

    async with request_slot(governor, ACCOUNTS) as slot:
        slot.mark_sent()
        slot.learn(200, {})
        slot.learn(429, {})
        slot.mark_lost()

    assert find_bucket(governor).used == 1
    assert find_bucket(governor).closed_until is None


async def test_snapshot_shows_every_bucket(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    for _ in range(5):
        await send(governor, ACCOUNTS)
    waiter = asyncio.ensure_future(send(governor, ACCOUNTS, rate_limit_headers(5, 4, 900)))
    await clock.settle()

    assert governor.snapshot() == (
        BucketState(
            name="ads.reads.global",
            scope="user ann",
            limit=5,
            used=5,
            remaining=None,
            waiting=1,
            opens_at=EPOCH + timedelta(seconds=QUARTER),
            closed_until=None,
            concurrency=100,
            turn_at=EPOCH + timedelta(seconds=QUARTER),
        ),
    )

    await clock.run(waiter)
    assert find_bucket(governor).waiting == 0
    assert find_bucket(governor).turn_at is None


async def test_snapshot_shows_when_bulk_may_go_that_leaves_a_reserve(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    sent = [asyncio.ensure_future(send(governor, ACCOUNTS, bulk=True)) for _ in range(5)]
    await clock.settle()

    bucket = find_bucket(governor)
    assert (bucket.used, bucket.waiting) == (4, 1)
    assert (bucket.opens_at, bucket.turn_at) == (EPOCH, EPOCH + timedelta(seconds=QUARTER))
    for each in sent:
        each.cancel()


async def test_many_accounts_do_not_pile_up(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    for number in range(1_001):
        await send(governor, users_batch(f"a{number}"))
    assert len(governor.snapshot()) == 1_001

    await clock.advance(hours=1)
    await send(governor, users_batch("another"))
    await send(governor, users_batch("a5"))

    assert [bucket.scope for bucket in governor.snapshot()] == ["account another", "account a5"]


@pytest.mark.parametrize("headroom", [0.01, 1])
def test_headroom_may_be_the_whole(headroom: float) -> None:
    assert Governor(headroom=headroom).max_wait == 60.0


@pytest.mark.parametrize("headroom", [0, -0.1, 1.01])
def test_headroom_is_a_share(headroom: float) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="headroom")) as caught:
        Governor(headroom=headroom)
    assert caught.value.parameter == "headroom"


def test_priorities_have_names() -> None:
    assert [priority.value for priority in Priority] == ["interactive", "bulk"]


async def test_a_governor_works_on_the_machines_clock() -> None:
    limits = (Limit("all", 6_000, 1.0, Scope.APP, frozenset({"GET"}), ".*"),)
    governor = Governor(limits=limits)

    await asyncio.gather(*(send(governor, ACCOUNTS) for _ in range(200)))

    assert governor.snapshot()[0].waiting == 0
