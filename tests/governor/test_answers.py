"""What the governor learns from answers."""

import pytest

from svc_async.wire.route import Surface
from tests.support.clock import DrivenClock
from tests.support.rate_limits import (
    ACCOUNTS,
    build_request,
    card_list,
    find_bucket,
    hold_slot,
    make_governor,
    rate_limit_headers,
    send,
    users_batch,
)


async def test_503_lowers_the_concurrency_and_success_raises_it(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    await send(governor, users_batch())
    in_flight = []
    for _ in range(12):
        await clock.advance(seconds=0.1)
        in_flight.append(await hold_slot(governor, users_batch()))
    assert find_bucket(governor, "ads.audience_users").concurrency == 100

    for slot in in_flight:
        slot.learn(503, {})
    assert find_bucket(governor, "ads.audience_users").concurrency == 6

    for _ in range(60):
        await clock.run(send(governor, users_batch()))
    assert find_bucket(governor, "ads.audience_users").concurrency > 10


async def test_a_lost_answer_lowers_the_concurrency(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    await send(governor, users_batch())
    in_flight = [await hold_slot(governor, users_batch()) for _ in range(8)]

    in_flight[0].mark_lost()

    assert find_bucket(governor, "ads.audience_users").concurrency == 4


@pytest.mark.parametrize("status", [204, 301, 400, 404, 420])
async def test_other_statuses_open_after_the_probe(clock: DrivenClock, status: int) -> None:
    governor = make_governor(clock)

    await send(governor, users_batch(), status=status)

    assert find_bucket(governor, "ads.audience_users").concurrency == 100


async def test_headers_of_errors_are_read_as_well(clock: DrivenClock) -> None:
    governor = make_governor(clock)

    await send(governor, ACCOUNTS, rate_limit_headers(4, 2, 300), status=404)

    assert (find_bucket(governor).limit, find_bucket(governor).remaining) == (4, 2)


async def test_a_slot_has_the_name_of_the_limit_of_its_endpoint(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    slot = await hold_slot(governor, card_list(total=True))

    assert [slot.limit, "ads.total_count"] == [bucket.name for bucket in governor.snapshot()]


async def test_of_two_buckets_the_headers_describe_one(clock: DrivenClock) -> None:
    governor = make_governor(clock)

    await send(governor, card_list(total=True), rate_limit_headers(200, 7, 40))

    assert [(bucket.limit, bucket.remaining) for bucket in governor.snapshot()] == [(2_000, None), (200, 7)]


async def test_unknown_endpoint_is_learned_from_headers(clock: DrivenClock) -> None:
    governor = make_governor(clock)
    unknown = build_request("GET", "/2/users/me", surface=Surface.BASE)
    await clock.run(*(send(governor, unknown, rate_limit_headers(3, 3 - number, 100)) for number in range(1, 4)))
    assert find_bucket(governor, "GET /2/users/me").limit == 3

    await clock.run(send(governor, unknown))

    assert clock.monotonic() >= 100
