"""A few virtual minutes, or up to half an hour, against services that count in their own ways."""

import random
from collections.abc import Awaitable, Callable

import pytest

from svc_async.governor.governor import Governor
from svc_async.governor.limits import LIMITS, change_limit
from tests.support.clock import DrivenClock
from tests.support.counting_service import (
    CountingService,
    FixedWindows,
    SlidingWindow,
    WindowCount,
    WindowsFromFirstRequest,
    uneven_latency,
)
from tests.support.rate_limits import users_batch

MINUTE = 60.0
KINDS = pytest.mark.parametrize("kind", [FixedWindows, WindowsFromFirstRequest, SlidingWindow])
Kind = Callable[[int, float], WindowCount]


def last(*, long: int) -> pytest.MarkDecorator:
    """Let a test last for two virtual minutes at a low limit, or for these minutes at a higher one."""
    return pytest.mark.parametrize(("limit", "minutes"), [(40, 2), pytest.param(100, long, marks=pytest.mark.long)])


def make_governor(clock: DrivenClock, limit: int, period: float = MINUTE) -> Governor:
    limits = change_limit(LIMITS, "ads.audience_users", requests=limit, period=period)
    return Governor(limits=limits, clock=clock, rng=random.Random(5))


async def keep_sending(service: CountingService, governor: Governor, until: float, *, bulk: bool) -> None:
    while service.clock.monotonic() < until:
        await service.answer(governor, users_batch(), bulk=bulk)


async def send_as_neighbour(service: CountingService, until: float, *, every: float) -> None:
    while service.clock.monotonic() < until:
        service.count(is_ours=False)
        await service.clock.sleep(every)


async def measure_rate(
    service: CountingService, governor: Governor, seconds: float, *others: Awaitable[None], senders: int = 8
) -> float:
    """Send for some time; return the requests a second."""
    end = service.clock.monotonic() + seconds
    work = [keep_sending(service, governor, end, bulk=True) for _ in range(senders)]
    await service.clock.run(*work, *others)
    return sum(moment < end for moment in service.arrived) / seconds


@KINDS
@pytest.mark.parametrize(
    ("limit", "minutes"),
    [(7, 2), *(pytest.param(limit, 10, marks=pytest.mark.long) for limit in (100, 90, 7))],
)
async def test_worst_window_never_exceeds_the_limit(clock: DrivenClock, kind: Kind, limit: int, minutes: int) -> None:
    service = CountingService(clock, kind(limit, MINUTE), uneven_latency(3, 0.4))

    await measure_rate(service, make_governor(clock, limit), minutes * MINUTE)

    assert service.worst_window(MINUTE) <= limit
    assert service.refused == 0


@KINDS
@pytest.mark.parametrize(
    ("limit", "minutes", "share"),
    [
        (40, 2, 0.05),
        pytest.param(100, 10, 0.05, marks=pytest.mark.long),
        pytest.param(100, 30, 0.1, marks=pytest.mark.long),
    ],
)
async def test_unmanaged_neighbour_costs_us_rate_and_no_storm(
    clock: DrivenClock, kind: Kind, limit: int, minutes: int, share: float
) -> None:
    service = CountingService(clock, kind(limit, MINUTE), uneven_latency(3, 0.4))
    neighbour = send_as_neighbour(service, minutes * MINUTE, every=200 / limit)

    await measure_rate(service, make_governor(clock, limit), minutes * MINUTE, neighbour)

    assert service.worst_window(MINUTE) <= limit
    assert len(service.arrived) > 0.4 * limit * minutes
    # A sliding service that two use up frees one request at a time, and the neighbour is sometimes quicker.
    assert service.refused <= share * len(service.arrived)


@KINDS
@pytest.mark.parametrize("ahead", [300.0, pytest.param(-300.0, marks=pytest.mark.long)])
@last(long=20)
async def test_a_clock_that_is_wrong_costs_no_rate_beside_a_neighbour(
    clock: DrivenClock, kind: Kind, ahead: float, limit: int, minutes: int
) -> None:
    service = CountingService(clock, kind(limit, MINUTE), uneven_latency(3, 0.4), ahead=ahead)
    neighbour = send_as_neighbour(service, minutes * MINUTE, every=200 / limit)

    await measure_rate(service, make_governor(clock, limit), minutes * MINUTE, neighbour)

    assert len(service.arrived) > 0.4 * limit * minutes
    assert service.refused <= 0.1 * len(service.arrived)


@pytest.mark.parametrize(
    ("kind", "latency"), [(FixedWindows, 0.05), (WindowsFromFirstRequest, 0.4), (SlidingWindow, 1.0)]
)
@pytest.mark.parametrize("minutes", [1, pytest.param(30, marks=pytest.mark.long)])
@pytest.mark.rule("CAU-03")
async def test_use_of_the_limit(clock: DrivenClock, kind: Kind, latency: float, minutes: int) -> None:
    service = CountingService(clock, kind(120, MINUTE), lambda: latency)

    rate = await measure_rate(service, make_governor(clock, 120), minutes * MINUTE, senders=4)

    assert rate >= 0.99 * (0.97 * 120 / MINUTE)
    assert service.refused == 0


@pytest.mark.parametrize(
    ("latency", "seconds"),
    [(0.05, 4.0), *(pytest.param(latency, 3 * MINUTE, marks=pytest.mark.long) for latency in (0.05, 0.4, 1.0))],
)
@pytest.mark.rule("CAU-03", "LIM-06")
async def test_audience_users_run_at_the_documented_rate(clock: DrivenClock, latency: float, seconds: float) -> None:
    service = CountingService(clock, FixedWindows(1_500, MINUTE), lambda: latency)
    governor = Governor(clock=clock, rng=random.Random(5))

    rate = await measure_rate(service, governor, seconds, senders=32)

    assert rate >= 0.99 * (0.97 * 1_500 / MINUTE)
    assert service.worst_window(MINUTE) <= 1_500
    assert service.refused == 0


@pytest.mark.parametrize(("senders", "seconds"), [(60, 3.0), pytest.param(200, 10.0, marks=pytest.mark.long)])
async def test_no_burst_of_a_whole_window(clock: DrivenClock, senders: int, seconds: float) -> None:
    service = CountingService(clock, FixedWindows(1_500, MINUTE))
    governor = Governor(clock=clock, rng=random.Random(5))

    await measure_rate(service, governor, seconds, senders=senders)

    assert service.worst_window(1.0) <= 25 + 15 + 1


@KINDS
@pytest.mark.parametrize(
    ("restarts", "limit", "period"),
    [(5, 30, MINUTE), pytest.param(20, 300, 5 * MINUTE, marks=pytest.mark.long)],
)
async def test_restarts_five_times_a_period_probe_before_they_open(
    clock: DrivenClock, kind: Kind, restarts: int, limit: int, period: float
) -> None:
    service = CountingService(clock, kind(limit, period))

    for _ in range(restarts):
        await measure_rate(service, make_governor(clock, limit, period), period / 5)

    assert len(service.arrived) > 2 / 3 * restarts / 5 * limit
    assert service.refused <= restarts


@KINDS
@last(long=10)
async def test_latency_that_swings_does_not_exceed_the_limit(
    clock: DrivenClock, kind: Kind, limit: int, minutes: int
) -> None:
    rng = random.Random(11)
    service = CountingService(clock, kind(limit, MINUTE), lambda: rng.choice((0.01, 0.2, 5.0, 20.0)))

    await measure_rate(service, make_governor(clock, limit), minutes * MINUTE, senders=30)

    assert service.worst_window(MINUTE) <= limit


@last(long=3)
async def test_two_sessions_share_one_governor(clock: DrivenClock, limit: int, minutes: int) -> None:
    service = CountingService(clock, SlidingWindow(limit, MINUTE))
    governor = make_governor(clock, limit)

    await clock.run(*(keep_sending(service, governor, minutes * MINUTE, bulk=bulk) for bulk in (True, False)))

    assert service.worst_window(MINUTE) <= limit
