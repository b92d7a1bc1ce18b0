"""When the turns of those are who wait for a lease, as far as one process knows."""

from typing import Any
from uuid import UUID

import attrs
import pytest

from svc_async.governor.windows import NEVER, SECOND, Demand, FirmLimit
from svc_async.state.limits.holding import Holding, Lease, SharedLimit
from svc_async.state.limits.leased_window import LeasedWindow

MINUTE = 60 * SECOND
LEASE = Lease(
    granted=2,
    ask_in=SECOND,
    opens_in=SECOND,
    closed_for=0,
    firm_for=0,
    generation=0,
    allowed=None,
    limit=100,
    period=MINUTE,
    is_guess=False,
    remaining=None,
    used=0,
    processes=1,
)


def make_window() -> LeasedWindow:
    shared = SharedLimit(bucket=UUID(int=1), name="x", limit=100, period=MINUTE, headroom=970_000)
    window = LeasedWindow(Holding(shared), on_change=lambda: None, ask=lambda *_: None)
    window.holding.make_request(Demand(5, 0), 0)
    return window


@pytest.mark.parametrize(
    ("limit", "behind"), [(100, [0, MINUTE // 97, 2 * (MINUTE // 97)]), (2, [0, 0, MINUTE]), (None, [0, 0, 0])]
)
def test_what_no_lease_covers_goes_at_the_pace_of_the_limit(limit: int | None, behind: list[int]) -> None:
    window = make_window()
    window.apply(attrs.evolve(LEASE, limit=limit), 0)

    assert [window.opens_at(cost, 1) for cost in (1, 2)] == [0, 0], "covered by the lease"
    assert [window.opens_at(cost, 1) - SECOND for cost in (3, 4, 5)] == behind


def test_the_limit_is_certain_once_the_first_answers_have_come() -> None:
    window = make_window()
    unknown = FirmLimit(limit=None, period=MINUTE, closed_until=0)
    assert window.firm_limit == unknown
    for changes in ({"allowed": 1}, {"is_guess": True}):
        window.apply(attrs.evolve(LEASE, **changes), 0)
        assert window.firm_limit == unknown

    window.apply(attrs.evolve(LEASE, closed_for=5), 0)
    assert window.firm_limit == FirmLimit(limit=100, period=MINUTE, closed_until=5)

    window.degrade(0)
    assert window.share is not None
    assert window.firm_limit == window.share.firm_limit


def test_after_five_seconds_without_an_answer_one_more_request_goes() -> None:
    window = make_window()
    window.apply(attrs.evolve(LEASE, granted=5), 0)
    window.take(1, 0)
    window.settle(1, 1)
    window.on_overload(0, 1)
    assert window.concurrency.allowed == 1

    window.take(1, 2)
    later = 2 + 5 * SECOND
    window.holding.make_request(Demand(1, 0), later - 2)
    window.apply(LEASE, later - 2)
    assert [window.admits(1, tick) for tick in (later - 1, later)] == [False, True]
    assert window.next_check_at(1, later - 1) == later
    assert window.next_check_at(1, later) == NEVER


@pytest.mark.parametrize(
    ("changes", "admitted"),
    [
        ({"is_guess": True, "granted": 0, "remaining": 0}, True),
        ({"is_guess": True, "granted": 0, "allowed": 1}, False),
        ({"is_guess": True, "granted": 0, "firm_for": 5}, False),
        ({"is_guess": False, "granted": 0}, False),
    ],
)
def test_a_guess_alone_keeps_nobody_waiting_too_long(changes: dict[str, Any], *, admitted: bool) -> None:
    window = make_window()
    window.apply(attrs.evolve(LEASE, **changes), 0)

    assert not window.admits(1, 4)
    assert window.admits_beyond_guess(1, 4) is admitted


def test_after_the_firm_limit_opens_only_the_guess_remains() -> None:
    window = make_window()
    window.apply(attrs.evolve(LEASE, is_guess=True, granted=0, firm_for=5), 0)

    assert [window.admits_beyond_guess(1, tick) for tick in (4, 5)] == [False, True]


def test_a_guess_goes_no_further_than_what_is_in_flight_allows() -> None:
    window = make_window()
    window.apply(attrs.evolve(LEASE, is_guess=True, granted=5), 0)
    window.take(1, 0)
    window.settle(1, 1)
    window.on_overload(0, 1)
    assert window.admits_beyond_guess(1, 2)

    window.take(1, 2)
    assert not window.admits_beyond_guess(1, 3)


def test_a_guess_alone_keeps_no_request_whose_time_is_over() -> None:
    window = make_window()
    window.apply(attrs.evolve(LEASE, granted=0, is_guess=True, firm_for=5), 0)
    assert [window.admits_beyond_guess(1, now) for now in (4, 5)] == [False, True]

    window.apply(attrs.evolve(LEASE, granted=0, is_guess=True, allowed=1), 0)
    assert not window.admits_beyond_guess(1, 5), "the first answers decide"

    window.apply(attrs.evolve(LEASE, granted=0, is_guess=True), 0)
    window.take(100, 5)
    assert not window.admits_beyond_guess(1, 5), "as many are in flight as may be"


@pytest.mark.parametrize(("granted", "admits"), [(0, False), (1, True)])
def test_a_limit_that_is_no_guess_keeps_what_no_lease_covers(granted: int, admits: bool) -> None:
    window = make_window()
    window.apply(attrs.evolve(LEASE, granted=granted), 0)

    assert window.admits_beyond_guess(1, 1) is admits
