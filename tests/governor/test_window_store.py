"""The seam between scheduler and counts; tests/state has more of the store that shares its windows."""

import asyncio
import random
from itertools import pairwise

from svc_async.governor.governor import Governor
from svc_async.governor.limits import LIMITS, change_limit
from svc_async.governor.window_store import WindowStore
from svc_async.state.limits.store import SharedWindows
from tests.support.clock import DrivenClock
from tests.support.counting_service import CountingService, FixedWindows, uneven_latency
from tests.support.model_leases import ModelLeases
from tests.support.rate_limits import find_bucket, rate_limit_headers, request_slot, send, users_batch

MINUTE = 60.0
LIMIT = 120


def make_governors(clock: DrivenClock, leases: ModelLeases) -> list[Governor]:
    limits = change_limit(LIMITS, "ads.audience_users", requests=LIMIT)
    return [
        Governor(
            limits=limits,
            clock=clock,
            rng=random.Random(seed),
            windows=SharedWindows(leases.open, leases.lease, clock=clock),
        )
        for seed in range(2)
    ]


async def keep_sending(service: CountingService, governor: Governor, until: float) -> int:
    sent = 0
    while service.clock.monotonic() < until:
        sent += await service.answer(governor, users_batch(), bulk=True) == 200
    return sent


class CountedWindows(WindowStore):
    """Counts how often it is open."""

    opened = 0

    async def open(self) -> None:
        self.opened += 1

    async def close(self) -> None:
        self.opened -= 1


async def test_a_429_closes_the_gate_of_every_governor(clock: DrivenClock) -> None:
    leases = ModelLeases(clock)
    first, second = make_governors(clock, leases)
    await clock.run(send(first, users_batch()))

    await clock.run(send(first, users_batch(), rate_limit_headers(LIMIT, 0, 40), status=429))
    closed_at = clock.monotonic()
    waiters = [asyncio.ensure_future(send(governor, users_batch())) for governor in (first, second) for _ in range(3)]
    await clock.advance(seconds=39)
    assert not any(waiter.done() for waiter in waiters)

    await clock.run(*waiters)

    assert clock.monotonic() >= closed_at + 40


async def test_after_a_429_one_goes_first_over_all_governors(clock: DrivenClock) -> None:
    leases = ModelLeases(clock)
    governors = make_governors(clock, leases)
    await clock.run(send(governors[0], users_batch()))
    await clock.run(send(governors[0], users_batch(), rate_limit_headers(LIMIT, 0, 40), status=429))
    left: list[float] = []

    async def leave(governor: Governor) -> None:
        async with request_slot(governor, users_batch()) as slot:
            slot.mark_sent()
            left.append(clock.monotonic())
            await clock.sleep(0.3)
            slot.learn(200, {})

    await clock.run(*(leave(governor) for governor in governors for _ in range(3)))

    assert left[1] >= left[0] + 0.3, "one goes ahead, and its answer lets the others go"
    assert all(earlier <= later for earlier, later in pairwise(left))


async def test_a_store_out_of_reach_fails_no_request_and_shows_in_the_snapshot(clock: DrivenClock) -> None:
    leases = ModelLeases(clock)
    service = CountingService(clock, FixedWindows(LIMIT, MINUTE), uneven_latency(3, 0.2))
    governors = make_governors(clock, leases)
    await clock.run(*(send(governor, users_batch()) for governor in governors))
    leases.is_reachable = False

    sent = await clock.run(*(keep_sending(service, governor, MINUTE) for governor in governors for _ in range(4)))

    assert service.refused == 0
    assert sum(sent) >= 0.8 * LIMIT
    assert all(bucket.is_degraded for governor in governors for bucket in governor.snapshot())


async def test_a_governor_opens_and_closes_its_store(clock: DrivenClock) -> None:
    store = CountedWindows()
    governor = Governor(clock=clock, windows=store)

    async with governor as entered:
        assert entered is governor
        assert store.opened == 1

    assert store.opened == 0


async def test_local_windows_need_no_opening(clock: DrivenClock) -> None:
    governor = Governor(clock=clock)

    await send(governor, users_batch())
    async with governor:
        await send(governor, users_batch())

    assert find_bucket(governor, "ads.audience_users").used == 2
    assert not find_bucket(governor, "ads.audience_users").is_degraded
