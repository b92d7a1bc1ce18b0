"""The gate of a 429: how long it closes, for whom, and how waiting requests leave afterwards."""

from collections.abc import Mapping
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from svc_async.wire.route import Request, Surface
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
    users_batch,
)


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        (rate_limit_headers(1_500, 0, 40), 40, 42.1),
        (rate_limit_headers(1_500, 0, 40, retry_after="50"), 50, 51.1),
        (rate_limit_headers(1_500, 0, 40, retry_after="5"), 40, 42.1),
        (rate_limit_headers(retry_after="5"), 5, 6.1),
        (rate_limit_headers(1_500, 0, -40), 1, 2.1),
        (rate_limit_headers(1_500, 0, "soon"), 1, 2.1),
        (rate_limit_headers(), 1, 2.1),
    ],
    ids=["reset", "retry-after later", "reset later", "retry-after", "reset in the past", "malformed", "absent"],
)
async def test_the_gate_of_a_429(clock: DrivenClock, headers: Mapping[str, str], least: float, most: float) -> None:
    governor = make_governor(clock)
    await send(governor, users_batch(), headers, status=429)

    await clock.run(send(governor, users_batch()))

    assert least <= clock.monotonic() <= most


async def test_the_gate_of_a_request_ends_when_its_bucket_opens(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    slot = await hold_slot(governor, users_batch())
    assert governor.find_gate(slot) is None

    slot.learn(429, rate_limit_headers(retry_after="5"))
    ends = governor.find_gate(slot)

    assert ends is not None
    assert timedelta(seconds=5) <= ends - EPOCH <= timedelta(seconds=6.1)
    await clock.advance(seconds=7)
    assert governor.find_gate(slot) is None


async def test_429_twice_in_a_row_closes_longer(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    waits = []

    for _ in range(4):
        start = clock.monotonic()
        await clock.run(send(governor, users_batch(), status=429))
        waits.append(clock.monotonic() - start)

    assert waits[0] == 0
    assert 1 <= waits[1] <= 2
    assert 2 <= waits[2] <= 3
    assert 4 <= waits[3] <= 5


def date(seconds: float) -> str:
    return format_datetime(EPOCH + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({**rate_limit_headers(1_500, 0, 340), "date": date(300)}, 41, 42.1),
        ({**rate_limit_headers(1_500, 0, -260), "date": date(-300)}, 41, 42.1),
        ({**rate_limit_headers(1_500, 0, 299), "date": date(300)}, 1, 2.1),
        ({**rate_limit_headers(1_500, 0, 300), "date": date(300)}, 1, 2.1),
        ({**rate_limit_headers(1_500, 0, 340), "date": "today"}, 61, 62.1),
        ({**rate_limit_headers(retry_after=date(330)), "date": date(300)}, 30, 31.1),
        (rate_limit_headers(1_500, 0, 59), 60, 61.1),
        (rate_limit_headers(1_500, 0, 60), 61, 62.1),
        (rate_limit_headers(1_500, 0, 61), 61, 62.1),
        (rate_limit_headers(1_500, 0, 80_000), 61, 62.1),
        (rate_limit_headers(1_500, 0, 80_000, retry_after="90"), 90, 91.1),
        (rate_limit_headers(retry_after="3600"), 3_600, 3_601.1),
        (rate_limit_headers(retry_after="3601"), 3_600, 3_601.1),
        (rate_limit_headers(retry_after="80000"), 3_600, 3_601.1),
    ],
)
async def test_a_known_limit_is_closed_by_the_time_of_the_service_and_for_its_period_at_most(
    clock: DrivenClock, headers: Mapping[str, str], least: float, most: float
) -> None:
    governor = make_governor(clock)
    await send(governor, users_batch(), headers, status=429)

    await clock.run(send(governor, users_batch()))

    assert least <= clock.monotonic() <= most


@pytest.mark.parametrize(
    ("reset", "seconds"), [(900, 901), (3_599, 3_600), (3_600, 3_601), (3_601, 3_601), (80_000, 3_601)]
)
async def test_a_limit_that_nobody_states_is_closed_for_an_hour_at_most(
    clock: DrivenClock, reset: int, seconds: float
) -> None:
    unknown = build_request("GET", "/2/x", surface=Surface.BASE)
    governor = make_governor(clock)
    await send(governor, unknown, rate_limit_headers(None, 0, reset), status=429)

    await clock.run(send(governor, unknown))

    assert seconds <= clock.monotonic() <= seconds + 1.1


async def test_a_remaining_of_zero_closes_a_known_limit_for_its_period_at_most(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    await send(governor, users_batch(), rate_limit_headers(1_500, 0, 80_000))

    await clock.run(send(governor, users_batch()))

    assert clock.monotonic() == 61


@pytest.mark.parametrize(
    ("request_", "limit"), [(ACCOUNTS, 60), (users_batch(), 1_500)], ids=["small limit", "even pace"]
)
async def test_waiters_leave_in_turn_after_a_429(clock: DrivenClock, request_: Request[Any], limit: int) -> None:
    governor = make_governor(clock, ads_reads_global=60)
    await send(governor, request_)
    await send(governor, request_, rate_limit_headers(limit, 0, 30), status=429)
    left: list[tuple[int, float]] = []

    async def leave(number: int) -> None:
        async with request_slot(governor, request_, bulk=True) as slot:
            slot.mark_sent()
            left.append((number, clock.monotonic()))
            await clock.sleep(0.2)
            slot.learn(200, {})

    await clock.run(*(leave(number) for number in range(20)))

    moments = [moment for _, moment in left]
    assert [number for number, _ in left] == list(range(20)), "first in, first out"
    assert moments[0] >= 30
    assert max(moments.count(moment) for moment in moments) <= 8, "1, 2, 4, 8"
    assert moments[0] < moments[1], "one goes ahead"


async def test_a_429_closes_the_bucket_and_not_its_neighbour(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    await send(governor, users_batch("a1"), rate_limit_headers(1_500, 0, 40), status=429)

    await clock.run(send(governor, users_batch("a2")), send(governor, card_list("a1")))

    assert clock.monotonic() == 0


async def test_of_two_buckets_the_one_whose_limit_is_named_is_closed(clock: DrivenClock) -> None:
    governor = make_governor(clock)

    await send(governor, card_list(total=True), rate_limit_headers(200, 0, 40), status=429)

    assert find_bucket(governor, "ads.total_count").closed_until is not None
    assert find_bucket(governor, "ads.reads.account").closed_until is None


async def test_a_429_that_names_no_limit_closes_all_its_buckets(clock: DrivenClock) -> None:
    governor = make_governor(clock)

    await send(governor, card_list(total=True), status=429)

    assert all(bucket.closed_until for bucket in governor.snapshot())
