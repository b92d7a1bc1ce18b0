"""What an earlier process sent within the last period still counts after a restart."""

import random
from collections.abc import Callable
from datetime import timedelta

import pytest

from svc_async.governor.governor import Governor
from svc_async.governor.limits import LIMITS, change_limit
from svc_async.state.limits.store import SharedWindows
from tests.support.clock import EPOCH, DrivenClock
from tests.support.counting_service import (
    CountingService,
    FixedWindows,
    SilentService,
    SlidingWindow,
    WindowCount,
    WindowsFromFirstRequest,
    uneven_latency,
)
from tests.support.model_leases import ModelLeases
from tests.support.rate_limits import ACCOUNTS, build_request, card_list, find_bucket, request_slot, send, users_batch

MINUTE = 60.0
Kind = Callable[[int, float], WindowCount]
KINDS = pytest.mark.parametrize("kind", [FixedWindows, WindowsFromFirstRequest, SlidingWindow])


def make_governor(clock: DrivenClock, limit: int) -> Governor:
    limits = change_limit(LIMITS, "ads.audience_users", requests=limit)
    return Governor(limits=limits, clock=clock, rng=random.Random(5))


async def run_until(
    service: CountingService, governor: Governor, end: float, sent_at: list[float], *, senders: int
) -> None:
    """Send until a moment, and note when each request was sent, as a journal does."""

    async def keep_sending() -> None:
        while service.clock.monotonic() < end:
            async with request_slot(governor, users_batch(), bulk=True) as slot:
                slot.mark_sent()
                sent_at.append(service.clock.monotonic())
                latency = service.latency()
                await service.clock.sleep(latency / 2)
                status, headers = service.count()
                await service.clock.sleep(latency / 2)
                slot.learn(status, headers)

    await service.clock.run(*(keep_sending() for _ in range(senders)))


async def restart_often(service: CountingService, *, limit: int, is_restored: bool) -> None:
    sent_at: list[float] = []
    for restart in range(60):
        governor = make_governor(service.clock, limit)
        if is_restored:
            governor.restore(
                users_batch(), user="ann", sent_at=[EPOCH + timedelta(seconds=moment) for moment in sent_at]
            )
        await run_until(service, governor, (restart + 1) * MINUTE / 20, sent_at, senders=16)


@KINDS
@pytest.mark.parametrize("service_type", [SilentService, pytest.param(CountingService, marks=pytest.mark.long)])
@pytest.mark.parametrize("limit", [30, *(pytest.param(limit, marks=pytest.mark.long) for limit in (90, 600))])
async def test_twenty_restarts_a_window_cost_no_refusal(
    clock: DrivenClock, kind: Kind, service_type: type[CountingService], limit: int
) -> None:
    service = service_type(clock, kind(limit, MINUTE), uneven_latency(3, 0.4))

    await restart_often(service, limit=limit, is_restored=True)

    assert service.refused == 0
    assert len(service.arrived) >= 1.9 * limit


@pytest.mark.long("a control: it removes the protection to see the damage")
async def test_without_it_restarts_are_refused(clock: DrivenClock) -> None:
    service = SilentService(clock, SlidingWindow(90, MINUTE), uneven_latency(3, 0.4))

    await restart_often(service, limit=90, is_restored=False)

    assert service.refused > 0


async def fill(clock: DrivenClock, governor: Governor) -> float:
    """Use up what is left of a small limit; return the seconds until the next request may go."""
    started = clock.monotonic()
    for _ in range(7):
        await clock.run(send(governor, users_batch()))
    return clock.monotonic() - started


@pytest.mark.parametrize(
    ("ages", "seconds"),
    [
        ([0.0] * 7, 65.0),
        ([10.0] * 7, 55.0),
        ([64.0] * 7, 1.0),
        ([65.0] * 7, 0.0),
        ([-300.0] * 7, 65.0),
        ([20.0, 70.0, 10.0, 30.0], 35.0),
    ],
)
async def test_a_request_of_an_earlier_process_leaves_a_little_after_its_period(
    clock: DrivenClock, ages: list[float], seconds: float
) -> None:
    governor = make_governor(clock, 7)
    governor.restore(users_batch(), user="ann", sent_at=[EPOCH - timedelta(seconds=age) for age in ages])

    assert find_bucket(governor, "ads.audience_users").used == sum(age < 65 for age in ages)
    await clock.run(*(send(governor, users_batch()) for _ in range(min(7, 7 - len(ages) + 1 + (ages[0] >= 65)))))
    assert clock.monotonic() == (0.0 if len(ages) < 7 else seconds)


async def test_what_was_sent_in_this_process_stays_counted(clock: DrivenClock) -> None:
    governor = make_governor(clock, 7)
    for _ in range(4):
        await clock.run(send(governor, users_batch()))
    await clock.advance(seconds=20)
    sent_at = [EPOCH + timedelta(seconds=moment) for moment in (-30.0, 10.0, 20.0)]

    governor.restore(users_batch(), user="ann", sent_at=sent_at)

    assert find_bucket(governor, "ads.audience_users").used == 7
    await clock.run(send(governor, users_batch()))
    assert clock.monotonic() == 35.0  # -30 + 60 + 5
    await clock.run(*(send(governor, users_batch()) for _ in range(4)))
    assert clock.monotonic() == 60.0


async def test_only_the_buckets_of_the_request_count_it(clock: DrivenClock) -> None:
    governor = make_governor(clock, 7)
    governor.restore(card_list(total=True), user="ann", sent_at=[EPOCH] * 3)

    assert {(bucket.name, bucket.scope): bucket.used for bucket in governor.snapshot()} == {
        ("ads.reads.account", "account a1"): 3,
        ("ads.total_count", "user ann"): 3,
    }


async def test_a_limit_that_is_not_known_yet_needs_no_times(clock: DrivenClock) -> None:
    governor = Governor(limits=(), clock=clock)
    governor.restore(build_request("GET", "/2/x"), user="ann", sent_at=[EPOCH] * 3)

    await clock.run(send(governor, build_request("GET", "/2/x")))
    assert clock.monotonic() == 0


async def test_a_store_that_outlives_the_process_has_counted_them(clock: DrivenClock) -> None:
    leases = ModelLeases(clock)
    governor = Governor(windows=SharedWindows(leases.open, leases.lease, clock=clock), clock=clock)
    governor.restore(ACCOUNTS, user="ann", sent_at=[EPOCH] * 5)

    assert find_bucket(governor).used == 0
