"""A virtual hour against services that count in their own ways."""

import random
from collections.abc import Awaitable, Callable

import pytest

from svc_async.governor.governor import Governor
from svc_async.governor.limits import LIMITS, change_limit
from tests.governor.virtual import Counting, Fixed, FromFirstRequest, Service, Sliding, VirtualTime, uneven, users

MINUTE = 60.0
KINDS = pytest.mark.parametrize("kind", [Fixed, FromFirstRequest, Sliding])
Kind = Callable[[int, float], Counting]


def governed(time: VirtualTime, limit: int, period: float = MINUTE) -> Governor:
    limits = change_limit(LIMITS, "ads.audience_users", requests=limit, period=period)
    return Governor(limits=limits, clock=time, rng=random.Random(5))


async def keep_sending(service: Service, governor: Governor, until: float, **ways: bool) -> None:
    while service.time.monotonic() < until:
        await service.call(governor, users(), **ways)


async def bother(service: Service, until: float, every: float) -> None:
    while service.time.monotonic() < until:
        service.take(ours=False)
        await service.time.sleep(every)


async def run(
    service: Service, governor: Governor, seconds: float, *others: Awaitable[None], senders: int = 8
) -> float:
    start = service.time.monotonic()
    end = start + seconds
    work = [keep_sending(service, governor, end, bulk=True) for _ in range(senders)]
    await service.time.run(*work, *others)
    return sum(moment < end for moment in service.arrived) / seconds


@KINDS
@pytest.mark.parametrize("limit", [100, 90, 7])
async def test_worst_window_never_exceeds_the_limit(kind: Kind, limit: int) -> None:
    time = VirtualTime()
    service = Service(time, kind(limit, MINUTE), uneven(3, 0.4))
    await run(service, governed(time, limit), 10 * MINUTE)
    assert service.worst_window(MINUTE) <= limit
    assert service.refused == 0


@KINDS
@pytest.mark.parametrize(("minutes", "share"), [(10, 0.05), (60, 0.1)])
async def test_unmanaged_neighbour_costs_us_rate_and_no_storm(kind: Kind, minutes: int, share: float) -> None:
    time = VirtualTime()
    service = Service(time, kind(100, MINUTE), uneven(3, 0.4))
    end = time.monotonic() + minutes * MINUTE
    await run(service, governed(time, 100), minutes * MINUTE, bother(service, end, every=2.0))
    assert service.worst_window(MINUTE) <= 100
    assert len(service.arrived) > 40 * minutes
    # A sliding service that two use up frees one request at a time, and the neighbour is sometimes quicker.
    assert service.refused <= share * len(service.arrived)


@pytest.mark.parametrize(("kind", "latency"), [(Fixed, 0.05), (FromFirstRequest, 0.4), (Sliding, 1.0)])
@pytest.mark.rule("CAU-03")
async def test_use_of_the_limit_over_an_hour(kind: Kind, latency: float) -> None:
    time = VirtualTime()
    service = Service(time, kind(120, MINUTE), lambda: latency)
    rate = await run(service, governed(time, 120), 60 * MINUTE, senders=4)
    assert rate >= 0.99 * (0.97 * 120 / MINUTE)
    assert service.refused == 0


@pytest.mark.parametrize("latency", [0.05, 0.4, 1.0])
@pytest.mark.rule("CAU-03", "LIM-06")
async def test_audience_users_run_at_the_documented_rate(latency: float) -> None:
    time = VirtualTime()
    service = Service(time, Fixed(1_500, MINUTE), lambda: latency)
    governor = Governor(clock=time, rng=random.Random(5))
    rate = await run(service, governor, 3 * MINUTE, senders=32)
    assert rate >= 0.99 * (0.97 * 1_500 / MINUTE)
    assert service.worst_window(MINUTE) <= 1_500
    assert service.refused == 0


async def test_no_burst_of_a_whole_window() -> None:
    time = VirtualTime()
    service = Service(time, Fixed(1_500, MINUTE))
    governor = Governor(clock=time, rng=random.Random(5))
    await run(service, governor, 10.0, senders=200)
    assert service.worst_window(1.0) <= 25 + 15 + 1


@KINDS
async def test_restarts_every_minute_probe_before_they_open(kind: Kind) -> None:
    time = VirtualTime()
    service = Service(time, kind(300, 5 * MINUTE))
    for _ in range(20):
        await run(service, governed(time, 300, 5 * MINUTE), MINUTE)
    assert len(service.arrived) > 800
    assert service.refused <= 20


@KINDS
async def test_latency_that_swings_does_not_exceed_the_limit(kind: Kind) -> None:
    time = VirtualTime()
    rng = random.Random(11)
    service = Service(time, kind(100, MINUTE), lambda: rng.choice((0.01, 0.2, 5.0, 20.0)))
    await run(service, governed(time, 100), 10 * MINUTE, senders=30)
    assert service.worst_window(MINUTE) <= 100


async def test_two_sessions_share_one_governor() -> None:
    time = VirtualTime()
    service = Service(time, Sliding(100, MINUTE))
    governor = governed(time, 100)
    end = time.monotonic() + 3 * MINUTE
    await time.run(*(keep_sending(service, governor, end, bulk=bulk) for bulk in (True, False)))
    assert service.worst_window(MINUTE) <= 100
