"""Those who wait are judged by their places, once more of the limit is certain than when they came."""

import asyncio
import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from svc_async.errors import WouldWaitTooLong
from svc_async.governor.governor import Governor
from svc_async.governor.windows import Window
from svc_async.wire.route import Request
from tests.support.clock import EPOCH, DrivenClock
from tests.support.rate_limits import (
    card_list,
    find_bucket,
    hold_slot,
    make_governor,
    rate_limit_headers,
    send,
    users_batch,
)

QUARTER = 900.0
STEP = QUARTER / (2_000 * 0.97)
"""From one read to the next; 19 of them run ahead."""


@pytest.fixture
def governor(clock: DrivenClock) -> Governor:
    """One that only guesses the limit of reads."""
    return Governor(clock=clock, rng=random.Random(5))


async def queue_up(
    clock: DrivenClock, governor: Governor, waits: Iterable[float | None], request: Request[Any] | None = None
) -> "Sequence[asyncio.Future[None]]":
    waiting = [asyncio.ensure_future(send(governor, request or card_list(), max_wait=wait)) for wait in waits]
    await clock.settle()
    return waiting


def find_turns(waiting: "Sequence[asyncio.Future[None]]") -> list[float]:
    """Return the turns of those that were rejected, in seconds."""
    errors = [waiter.exception() for waiter in waiting if waiter.done()]
    return [(error.until - EPOCH).total_seconds() for error in errors if isinstance(error, WouldWaitTooLong)]


async def test_the_answer_that_states_the_limit_rejects_those_whose_turn_is_too_late(
    clock: DrivenClock, governor: Governor
) -> None:
    probe = await hold_slot(governor, card_list())
    waiting = await queue_up(clock, governor, [60.0] * 300)
    assert find_turns(waiting) == [], "a guess refuses nobody"

    probe.learn(200, rate_limit_headers(2_000, 1_999, QUARTER))
    await clock.settle()

    stay = int(60 / STEP) + 19
    assert all(waiter.done() for waiter in waiting[stay:])
    assert find_turns(waiting) == pytest.approx([(place - 18) * STEP for place in range(stay, 300)], abs=0.001)
    assert find_turns(waiting)[0] > 60
    assert clock.monotonic() == 0
    await clock.run(*waiting[:stay])
    assert 60 - STEP < clock.monotonic() <= 60


async def test_those_who_wait_without_end_stay_and_keep_their_places(clock: DrivenClock, governor: Governor) -> None:
    probe = await hold_slot(governor, card_list())
    waiting = await queue_up(clock, governor, [None] * 200 + [60.0] * 3)

    probe.learn(200, rate_limit_headers(2_000, 1_999, QUARTER))
    await clock.settle()

    assert find_turns(waiting[200:]) == pytest.approx([(place - 18) * STEP for place in (200, 201, 202)], abs=0.001)
    assert find_turns(waiting[:200]) == []
    await clock.run(*waiting[:200])


async def test_those_who_are_rejected_make_room_for_the_others(clock: DrivenClock, governor: Governor) -> None:
    probe = await hold_slot(governor, card_list())
    waiting = await queue_up(clock, governor, [1.0] * 100 + [60.0] * 100)

    probe.learn(200, rate_limit_headers(2_000, 1_999, QUARTER))
    await clock.settle()

    assert len(find_turns(waiting[:100])) == 100 - 19 - 2
    await clock.run(*waiting[100:])


async def test_a_gate_that_closes_spreads_those_who_wait_behind_it(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    probe = await hold_slot(governor, users_batch())
    waiting = await queue_up(clock, governor, [42.0] * 100, users_batch())

    probe.learn(429, rate_limit_headers(1_500, 0, 40))
    await clock.settle()

    turns = find_turns(waiting)
    assert 0 < len(turns) < 100, "some go after the gate and its jitter"
    assert turns[0] > 42
    assert turns == sorted(set(turns))
    await clock.run(*waiting[: 100 - len(turns)])


async def test_a_new_window_of_the_service_with_little_left_rejects_the_others(
    clock: DrivenClock, governor: Governor
) -> None:
    await send(governor, card_list(), rate_limit_headers(2_000, 1_990, 100))
    await clock.advance(seconds=200)
    probe = await hold_slot(governor, card_list())
    waiting = await queue_up(clock, governor, [60.0] * 60)
    assert find_bucket(governor, "ads.reads.account").waiting == 41

    probe.learn(200, rate_limit_headers(2_000, 10, 800))
    await clock.settle()

    assert len(find_turns(waiting)) == 31
    assert find_turns(waiting)[0] > 800
    await clock.run(*waiting[:29])


@pytest.fixture
def look_ups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The costs that were looked up."""
    costs: list[int] = []
    look_up = Window.firm_opens_at

    def note(window: Window, cost: int, now: int) -> int:
        costs.append(cost)
        return look_up(window, cost, now)

    monkeypatch.setattr(Window, "firm_opens_at", note)
    return costs


async def test_an_answer_that_changes_nothing_looks_up_no_places(clock: DrivenClock, look_ups: list[int]) -> None:
    governor = make_governor(clock)
    headers = rate_limit_headers(1_500, 1_400, 60)
    await send(governor, users_batch(), headers)
    held = await hold_slot(governor, users_batch())
    waiting = await queue_up(clock, governor, [60.0] * 300, users_batch())
    look_ups.clear()

    held.learn(200, headers)

    assert look_ups == []
    await clock.run(*waiting)


async def test_most_of_those_who_stay_are_judged_together(clock: DrivenClock, look_ups: list[int]) -> None:
    governor = make_governor(clock)
    probe = await hold_slot(governor, users_batch())
    waiting = await queue_up(clock, governor, [30 + 0.1 * number for number in range(512)], users_batch())
    look_ups.clear()

    probe.learn(200, rate_limit_headers(1_500, 1_499, 60))

    assert len(look_ups) <= 20
    await clock.run(*waiting)


async def test_a_deadline_that_is_over_looks_up_the_places_of_no_others(
    clock: DrivenClock, look_ups: list[int]
) -> None:
    governor = make_governor(clock)
    probe = await hold_slot(governor, users_batch())
    waiting = await queue_up(clock, governor, [1 + 0.001 * number for number in range(200)], users_batch())
    look_ups.clear()

    await clock.advance(seconds=2)

    assert len(find_turns(waiting)) == 200
    assert len(look_ups) <= 5 * 200
    probe.learn(200, {})
