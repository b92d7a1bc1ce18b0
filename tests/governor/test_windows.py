"""One window: what is counted, and when it opens."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_async.governor.parts import Concurrency, SlidingLog
from svc_async.governor.rate_headers import RateLimitHeaders
from svc_async.governor.ticks import SECOND
from svc_async.governor.windows import Window

MINUTE = 60 * SECOND
QUARTER = 15 * MINUTE


def told(remaining: int, reset: int, *, limit: int | None = None) -> RateLimitHeaders:
    """Headers of a service whose Unix time is our monotonic time."""
    return RateLimitHeaders(limit=limit, remaining=remaining, reset=reset, reset_at=reset * SECOND)


def opened(window: Window, *, at: int = 0) -> Window:
    """Send the probe."""
    window.take(1, at)
    window.settle(1, at)
    window.on_success(at)
    return window


def burst(window: Window, now: int) -> int:
    sent = 0
    while window.admits(1, now):
        window.take(1, now)
        sent += 1
    return sent


def test_small_limit_bursts_and_is_used_to_the_last() -> None:
    window = opened(Window(5, QUARTER, 0.97))
    assert 1 + burst(window, 1) == 5


def test_a_request_counts_until_a_period_after_its_answer() -> None:
    window = opened(Window(1, MINUTE))
    assert not window.admits(1, MINUTE - 1)
    assert window.admits(1, MINUTE)
    window.take(1, MINUTE)
    window.settle(1, MINUTE + 7)
    assert window.opens_at(1, MINUTE + 7) == 2 * MINUTE + 7


def test_large_limit_is_paced_evenly() -> None:
    window = opened(Window(100, MINUTE, 0.97))
    step = MINUTE // 97
    moments = []
    now = 10 * SECOND
    for _ in range(20):
        now = max(now, window.opens_at(1, now))
        window.take(1, now)
        window.settle(1, now)
        moments.append(now)
    gaps = [later - earlier for earlier, later in pairwise(moments[1:])]
    assert gaps == [step] * 18


@pytest.mark.parametrize(("limit", "used"), [(100, 97), (1_500, 1_455), (99, 99)])
def test_headroom_belongs_to_limits_of_a_hundred_a_minute(limit: int, used: int) -> None:
    window = Window(limit, MINUTE, 0.97)
    now = sent = 0
    while now < MINUTE:
        if window.admits(1, now):
            window.take(1, now)
            window.settle(1, now)
            window.on_success(now)
            sent += 1
        else:
            now = window.opens_at(1, now)
    assert sent == used


def test_headers_only_lower_remaining_within_a_window() -> None:
    window = opened(Window(1_000, QUARTER, 0.97))
    for remaining, expected in ((50, 50), (80, 50), (20, 20)):
        window.take(1, 1)
        window.settle(1, 2, told(remaining, 600))
        assert window.state(3).remaining == expected


def test_later_reset_opens_a_new_window() -> None:
    window = opened(Window(1_000, QUARTER))
    window.take(2, 1)
    window.settle(1, 2, told(0, 600))
    assert window.opens_at(1, 3) == 600 * SECOND
    window.settle(1, 4, told(900, 1_500))
    assert window.state(5).remaining == 900
    assert window.opens_at(1, 5) <= 5


def test_earlier_reset_is_an_answer_that_comes_late() -> None:
    window = opened(Window(1_000, QUARTER))
    window.take(2, 1)
    window.settle(1, 2, told(900, 1_500))
    window.settle(1, 3, told(0, 600))
    assert window.state(4).remaining == 900


def test_reset_in_the_past_holds_nothing_back() -> None:
    window = opened(Window(1_000, QUARTER))
    window.take(1, 700 * SECOND)
    window.settle(1, 700 * SECOND, told(0, 600))
    assert window.state(700 * SECOND).remaining is None
    assert window.admits(1, 701 * SECOND)


def test_remaining_covers_what_is_in_flight() -> None:
    window = opened(Window(50, QUARTER))
    window.take(1, 1)
    window.settle(1, 2, told(3, 600))
    assert burst(window, 3) == 3
    assert window.awaits_answer(1, 3)
    window.settle(1, 4)  # an answer that tells nothing still used one
    assert not window.admits(1, 5)


def test_lower_limit_is_heeded_and_a_documented_one_is_never_raised() -> None:
    documented = Window(1_500, MINUTE, documented=True)
    default = Window(1_500, MINUTE)
    for window in (documented, default):
        for limit in (100, 3_000):
            window.take(1, 1)
            window.settle(1, 2, told(50, 60, limit=limit))
            if limit == 100:
                assert window.limit == 100
    assert documented.limit == 1_500
    assert default.limit == 3_000


def test_unknown_limit_is_learned() -> None:
    window = Window(None, SECOND)
    window.take(1, 1)
    assert window.awaits_answer(1, 1), "one probe"
    window.settle(1, 2, told(449, 900, limit=450))
    window.on_success(1)
    assert window.limit == 450
    assert window.period == 900 * SECOND - 2
    assert burst(window, 3) == 100, "as many as may be in flight"


def test_probe_first_then_open() -> None:
    window = Window(50, QUARTER)
    assert burst(window, 0) == 1
    window.settle(1, 5)
    window.on_success(0)
    assert burst(window, 5) == 49


def test_lost_probe_is_followed_by_another_probe() -> None:
    window = Window(50, QUARTER)
    window.take(1, 0)
    window.settle(1, 5)
    window.on_overload(0, 5)
    assert burst(window, 6) == 1


def test_refusal_closes_until_the_later_of_reset_and_retry_after() -> None:
    for reset, retry, closed in ((100, 40, 100), (100, 140, 140)):
        window = opened(Window(50, QUARTER))
        window.take(1, 1)
        answer = RateLimitHeaders(reset=reset, reset_at=reset * SECOND, retry_at=retry * SECOND)
        window.settle(1, 2, answer)
        window.on_rate_limited(answer, 1, 2, 0.5)
        assert window.opens_at(1, 3) == closed * SECOND + SECOND // 2


def test_refusals_without_headers_close_shortly_and_longer_each_time() -> None:
    window = opened(Window(600, MINUTE, 0.97))
    now, closures = SECOND, []
    for _ in range(4):
        window.take(1, now)
        window.settle(1, now + 1)
        window.on_rate_limited(RateLimitHeaders(), now, now + 1, 0)
        closures.append((window.gate.closed_until - now - 1) // SECOND)
        now = window.gate.closed_until
    assert closures == [1, 2, 4, 8]


def test_refusals_that_flew_together_count_once() -> None:
    window = opened(Window(600, MINUTE))
    for _ in range(5):
        window.take(1, 10)
    for moment in range(20, 25):
        window.settle(1, moment)
        window.on_rate_limited(RateLimitHeaders(), 10, moment, 0)
    assert window.gate.closed_until == SECOND + 24


def test_a_refusal_never_opens_a_gate_earlier() -> None:
    window = opened(Window(50, QUARTER))
    window.take(2, 1)
    for retry in (100, 10):
        answer = RateLimitHeaders(retry_at=retry * SECOND)
        window.settle(1, 2, answer)
        window.on_rate_limited(answer, 1, 2, 0)
    assert window.gate.closed_until == 100 * SECOND


def test_rate_is_cut_by_refusals_without_headers_and_recovers() -> None:
    window = opened(Window(600, MINUTE))
    window.take(1, 1)
    window.settle(1, 2)
    window.on_rate_limited(RateLimitHeaders(), 1, 2, 0)

    def step(now: int) -> int:
        return window.opens_at(21, now) - window.opens_at(20, now)

    full = MINUTE // 600
    now = window.gate.closed_until
    assert step(now) == pytest.approx(full / 0.7, rel=0.01)
    assert full < step(now + MINUTE // 2) < full / 0.7
    assert step(now + MINUTE) == full


def test_concurrency_halves_under_trouble_and_recovers() -> None:
    window = opened(Window(1_000, QUARTER))
    assert burst(window, 1) == 100
    for moment in range(2, 12):
        window.settle(1, moment)
        window.on_overload(1, moment)
    assert int(window.concurrency.allowed) == 50, "once for all that flew together"
    assert not window.admits(1, 12)
    for _ in range(6_000):
        window.on_success(12)
    assert int(window.concurrency.allowed) == 100


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


def test_refund_leaves_no_trace() -> None:
    window = opened(Window(100, MINUTE, 0.97))
    now = 30 * SECOND
    window.take(1, now)
    before = window.opens_at(5, now)
    window.take(1, now)
    assert window.opens_at(5, now) > before
    window.refund(1, now)
    assert window.opens_at(5, now) == before
    assert window.state(now).used == 2


def test_an_even_pace_starts_afresh_after_a_refusal() -> None:
    window = opened(Window(1_500, MINUTE, 0.97))
    window.take(1, SECOND)
    window.settle(1, SECOND)
    window.on_rate_limited(RateLimitHeaders(retry_at=10 * SECOND), SECOND, SECOND, 0)
    window.concurrency.allowed = 100
    assert burst(window, 10 * SECOND) == 1
    assert window.opens_at(1, 10 * SECOND) == 10 * SECOND + MINUTE // 1_455


def test_large_limit_has_a_short_log() -> None:
    window = opened(Window(10_000, QUARTER))
    now = 0
    for _ in range(9_000):
        now = max(now + 1, window.opens_at(1, now))
        window.take(1, now)
        window.settle(1, now)
    assert len(window.granted._runs) <= 2_001
    assert window.state(now).used == 9_001


TIMES = st.integers(min_value=0, max_value=10 * QUARTER)


@given(period=st.integers(1, QUARTER), grain=st.integers(1, 1_000_000), times=st.lists(TIMES, min_size=1, max_size=30))
def test_what_opens_at_names_is_open_at_that_very_tick(period: int, grain: int, times: list[int]) -> None:
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


@settings(max_examples=60)
@given(
    limit=st.integers(1, 200),
    period=st.floats(0.001, 1e4),
    start=st.floats(0, 1e9),
    latencies=st.lists(st.floats(0, 10), min_size=1, max_size=5),
)
def test_rounding_never_hangs(limit: int, period: float, start: float, latencies: list[float]) -> None:
    window = Window(limit, max(1, round(period * SECOND)), 0.97)
    seconds, waits = start, 0
    for turn in range(100):
        while not window.admits(1, int(seconds * SECOND)):
            now = int(seconds * SECOND)
            # As a timer does it: a float delay, added to a float time.
            seconds += (window.next_check_at(1, now) - now) / SECOND
            waits += 1
            assert waits < 100 * 4
        now = int(seconds * SECOND)
        window.take(1, now)
        seconds += latencies[turn % len(latencies)]
        window.settle(1, int(seconds * SECOND))
        window.on_success(now)


@given(
    limit=st.integers(1, 30),
    gaps=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 900), st.booleans()), max_size=60),
)
def test_no_window_of_the_service_exceeds_the_limit(limit: int, gaps: list[tuple[int, int, bool]]) -> None:
    period = 1_000
    window = Window(limit, period)
    window.concurrency.cold, window.concurrency.allowed = False, 1_000
    now, arrived = 0, list[int]()
    out: list[tuple[int, int]] = []
    for gap, latency, late in gaps:
        now += gap
        for answer in sorted(out):
            if answer[0] <= now:
                out.remove(answer)
                window.settle(1, answer[0])
        if window.admits(1, now):
            window.take(1, now)
            out.append((now + latency, now))
            arrived.append(now + latency if late else now)
    for moment in arrived:
        assert sum(moment <= other < moment + period for other in arrived) <= limit
