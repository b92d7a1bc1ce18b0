"""The parts of a window, each by itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.governor.windows import (
    SECOND,
    Concurrency,
    Gate,
    Pace,
    RateCut,
    RateLimitHeaders,
    ServerCount,
    SlidingLog,
)

MINUTE = 60 * SECOND
QUARTER = 15 * MINUTE

TIMES = st.integers(min_value=0, max_value=10 * QUARTER)


@pytest.mark.usefixtures("examples")
@given(period=st.integers(1, QUARTER), grain=st.integers(1, 1_000_000), times=st.lists(TIMES, min_size=1, max_size=30))
def test_what_leaves_at_names_has_left_at_that_very_tick(period: int, grain: int, times: list[int]) -> None:
    log = SlidingLog(period, grain)
    for time in sorted(times):
        log.add(1, time)

    last = max(times)
    while log.count(last):
        leaves = log.leaves_at(1)
        before = log.used
        assert leaves > last
        assert log.count(leaves - 1) == before
        assert log.count(leaves) < before
        last = leaves


@pytest.mark.usefixtures("examples")
@given(
    capacity=st.integers(1, 20),
    cost=st.integers(1, 25),
    times=st.lists(st.integers(0, 2_000), max_size=40),
)
def test_a_log_has_room_from_the_tick_that_opens_at_names(capacity: int, cost: int, times: list[int]) -> None:
    log = SlidingLog(1_000, capacity=capacity)
    for time in sorted(times):
        log.add(1, time)
    now = max(times, default=0)

    opens = log.opens_at(cost, now)

    needed = min(cost, capacity)
    if opens > now:
        assert log.count(opens - 1) + needed > capacity
    assert log.count(max(opens, now)) + needed <= capacity


def test_what_is_in_flight_must_be_answered_first_and_then_leave() -> None:
    log = SlidingLog(MINUTE, capacity=3)
    log.add(1, 0)

    assert log.opens_at(1, 10, 2) == MINUTE
    assert log.opens_at(1, 10, 3) == MINUTE + 10


def test_a_pace_runs_ahead_and_restarts_without() -> None:
    pace = Pace(step=10, ahead=20)
    pace.take(1, 1_000)
    assert pace.opens_at(1) == 990

    pace.restart(5_000)

    assert pace.opens_at(1) == 5_000
    assert pace.opens_at(3) == 5_020


def test_a_report_ends_with_its_window() -> None:
    server = ServerCount()
    assert server.report(0) is None

    assert server.update(RateLimitHeaders(remaining=2, reset=10, reset_at=10 * SECOND), SECOND)
    server.consume(3)

    assert server.report(2 * SECOND) == 0, "never below nothing"
    assert server.opens_at(1, 2 * SECOND) == 10 * SECOND
    assert server.report(10 * SECOND) is None
    assert server.opens_at(1, 10 * SECOND) == 0


def test_headers_without_remaining_are_no_report() -> None:
    assert not ServerCount().update(RateLimitHeaders(limit=5, reset=10, reset_at=10 * SECOND), 0)


def test_guessed_closures_double_up_to_a_bound_and_the_period() -> None:
    gate = Gate()
    closures = []

    for refusals in range(1, 10):
        gate.refusals = refusals
        closures.append(gate.guess_closure(QUARTER) // SECOND)

    assert closures == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    assert gate.guess_closure(20 * SECOND) == 20 * SECOND
    assert gate.guess_closure(1) == SECOND


def test_a_cut_recovers_over_a_period() -> None:
    cut = RateCut()
    cut.cut(0)
    assert cut.factor == 0.7

    cut.recover(MINUTE // 2, MINUTE)
    assert 0.84 < cut.factor < 0.86

    cut.recover(MINUTE + 1, MINUTE)
    assert cut.factor == 1.0


def test_concurrency_doubles_after_a_refusal() -> None:
    concurrency = Concurrency()
    concurrency.on_success()
    concurrency.on_rate_limited()

    allowed = []
    for _ in range(4):
        allowed.append(int(concurrency.allowed))
        for _ in range(int(concurrency.allowed)):
            concurrency.on_success()

    assert allowed == [1, 2, 4, 8]
