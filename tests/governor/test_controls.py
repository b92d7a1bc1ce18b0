"""Controls of docs/design.md: what happens to a governor without its second count, or without headroom."""

import random
from collections.abc import Callable

import pytest

from svc_async.governor.governor import Governor
from svc_async.governor.limits import LIMITS, change_limit
from svc_async.governor.window_store import WindowSpec, WindowStore
from svc_async.governor.windows import SlidingLog, Window
from tests.support.clock import DrivenClock
from tests.support.counting_service import CountingService, FixedWindows, SilentService
from tests.support.rate_limits import users_batch

MINUTE = 60.0


class UnboundedLog(SlidingLog):
    """A log that never makes a request wait."""

    def opens_at(self, cost: int, now: int, in_flight: int = 0) -> int:
        del cost, now, in_flight
        return 0


class GrantsOnly(WindowStore):
    """Windows that count requests by their grants alone, not by their answers."""

    def window(self, spec: WindowSpec, on_change: Callable[[], object]) -> Window:
        window = super().window(spec, on_change)
        assert isinstance(window, Window)
        window.answered = UnboundedLog(window.period)
        return window


async def keep_sending(service: CountingService, governor: Governor, minutes: float, *, senders: int) -> None:
    async def send() -> None:
        while service.clock.monotonic() < minutes * MINUTE:
            await service.answer(governor, users_batch(), bulk=True)

    await service.clock.run(*(send() for _ in range(senders)))


@pytest.mark.parametrize(
    ("windows", "stays_within"), [(GrantsOnly(), False), pytest.param(WindowStore(), True, marks=pytest.mark.long)]
)
async def test_without_the_count_of_answers_late_requests_exceed_the_limit(
    clock: DrivenClock, windows: WindowStore, *, stays_within: bool
) -> None:
    rng = random.Random(12)
    service = CountingService(clock, FixedWindows(30, MINUTE), lambda: rng.choice((0.01, 0.2, 5.0, 20.0)))
    limits = change_limit(LIMITS, "ads.audience_users", requests=30)

    await keep_sending(
        service, Governor(limits=limits, windows=windows, clock=clock, rng=random.Random(5)), 4, senders=30
    )

    assert (service.worst_window(MINUTE) <= 30) is stays_within


@pytest.mark.long("a slow clock shows after minutes")
@pytest.mark.parametrize(("headroom", "is_refused"), [(0.97, False), (1.0, True)])
async def test_without_headroom_a_clock_that_is_one_percent_slow_refuses(
    clock: DrivenClock, headroom: float, *, is_refused: bool
) -> None:
    service = SilentService(clock, FixedWindows(100, 1.01 * MINUTE), lambda: 0.2)
    limits = change_limit(LIMITS, "ads.audience_users", requests=100)

    await keep_sending(
        service, Governor(limits=limits, headroom=headroom, clock=clock, rng=random.Random(5)), 3, senders=4
    )

    assert (service.refused > 0) is is_refused
