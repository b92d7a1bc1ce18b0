"""One window: what is counted, and when it opens."""

import copy
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from svc_async.governor.windows import NEVER, SECOND, RateLimitHeaders, Window
from tests.support.windows import MINUTE, QUARTER, open_window, take_all


def report(remaining: int, reset: int, *, limit: int | None = None) -> RateLimitHeaders:
    """Return the headers of a service whose Unix time is our monotonic time."""
    return RateLimitHeaders(limit=limit, remaining=remaining, reset=reset, reset_at=reset * SECOND)


def test_small_limit_bursts_and_is_used_to_the_last() -> None:
    window = open_window(Window(5, QUARTER, 0.97))

    assert 1 + take_all(window, 1) == 5


def test_a_request_counts_until_a_period_after_its_answer() -> None:
    window = open_window(Window(1, MINUTE))
    assert not window.admits(1, MINUTE - 1)
    assert window.admits(1, MINUTE)

    window.take(1, MINUTE)
    window.settle(1, MINUTE + 7)

    assert window.opens_at(1, MINUTE + 7) == 2 * MINUTE + 7


def test_large_limit_is_paced_evenly() -> None:
    window = open_window(Window(100, MINUTE, 0.97))
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
    window = open_window(Window(1_000, QUARTER, 0.97))

    for remaining, expected in ((50, 50), (80, 50), (20, 20)):
        window.take(1, 1)
        window.settle(1, 2, report(remaining, 600))
        assert window.state(3).remaining == expected


def test_later_reset_opens_a_new_window() -> None:
    window = open_window(Window(1_000, QUARTER))
    window.take(2, 1)
    window.settle(1, 2, report(0, 600))
    assert window.opens_at(1, 3) == 600 * SECOND

    window.settle(1, 4, report(900, 1_500))

    assert window.state(5).remaining == 900
    assert window.opens_at(1, 5) <= 5


def test_earlier_reset_is_an_answer_that_comes_late() -> None:
    window = open_window(Window(1_000, QUARTER))
    window.take(2, 1)

    window.settle(1, 2, report(900, 1_500))
    window.settle(1, 3, report(0, 600))

    assert window.state(4).remaining == 900


def test_reset_in_the_past_holds_nothing_back() -> None:
    window = open_window(Window(1_000, QUARTER))
    window.take(1, 700 * SECOND)

    window.settle(1, 700 * SECOND, report(0, 600))

    assert window.state(700 * SECOND).remaining is None
    assert window.admits(1, 701 * SECOND)


def test_remaining_covers_what_is_in_flight() -> None:
    window = open_window(Window(50, QUARTER))
    window.take(1, 1)
    window.settle(1, 2, report(3, 600))

    assert take_all(window, 3) == 3
    assert window.awaits_answer(1, 3)

    window.settle(1, 4)  # an answer without a report still used one
    assert not window.admits(1, 5)


def test_a_limit_may_be_lowered_and_a_documented_one_is_never_raised() -> None:
    documented = Window(1_500, MINUTE, documented=True)
    default = Window(1_500, MINUTE)

    for window in (documented, default):
        for limit in (100, 3_000):
            window.take(1, 1)
            window.settle(1, 2, report(50, 60, limit=limit))
            if limit == 100:
                assert window.limit == 100

    assert documented.limit == 1_500
    assert default.limit == 3_000


def test_unknown_limit_is_learned() -> None:
    window = Window(None, SECOND)
    window.take(1, 1)
    assert window.awaits_answer(1, 1), "one probe"

    window.settle(1, 2, report(449, 900, limit=450))
    window.on_success(1)

    assert window.limit == 450
    assert window.period == 900 * SECOND - 2
    assert take_all(window, 3) == 100, "as many as may be in flight"


def test_probe_first_then_open() -> None:
    window = Window(50, QUARTER)
    assert take_all(window, 0) == 1

    window.settle(1, 5)
    window.on_success(0)
    assert take_all(window, 5) == 49


def test_lost_probe_is_followed_by_another_probe() -> None:
    window = Window(50, QUARTER)
    window.take(1, 0)

    window.settle(1, 5)
    window.on_overload(0, 5)

    assert take_all(window, 6) == 1


def test_refusal_closes_until_the_later_of_reset_and_retry_after() -> None:
    for reset, retry, closed in ((100, 40, 100), (100, 140, 140)):
        window = open_window(Window(50, QUARTER))
        window.take(1, 1)
        answer = RateLimitHeaders(reset=reset, reset_at=reset * SECOND, retry_at=retry * SECOND)
        window.settle(1, 2, answer)
        window.on_rate_limited(answer, 1, 2, 0.5)
        assert window.opens_at(1, 3) == closed * SECOND + SECOND // 2


def test_refusals_without_headers_close_shortly_and_longer_each_time() -> None:
    window = open_window(Window(600, MINUTE, 0.97))
    now, closures = SECOND, []

    for _ in range(4):
        window.take(1, now)
        window.settle(1, now + 1)
        window.on_rate_limited(RateLimitHeaders(), now, now + 1, 0)
        closures.append((window.gate.closed_until - now - 1) // SECOND)
        now = window.gate.closed_until

    assert closures == [1, 2, 4, 8]


def test_refusals_of_requests_in_flight_together_count_once() -> None:
    window = open_window(Window(600, MINUTE))
    for _ in range(5):
        window.take(1, 10)

    for moment in range(20, 25):
        window.settle(1, moment)
        window.on_rate_limited(RateLimitHeaders(), 10, moment, 0)

    assert window.gate.closed_until == SECOND + 24


def test_a_refusal_never_opens_a_gate_earlier() -> None:
    window = open_window(Window(50, QUARTER))
    window.take(2, 1)

    for retry in (100, 10):
        answer = RateLimitHeaders(retry_at=retry * SECOND)
        window.settle(1, 2, answer)
        window.on_rate_limited(answer, 1, 2, 0)

    assert window.gate.closed_until == 100 * SECOND


def test_rate_is_cut_by_refusals_without_headers_and_recovers() -> None:
    window = open_window(Window(600, MINUTE))
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


def test_concurrency_halves_under_overload_and_recovers() -> None:
    window = open_window(Window(1_000, QUARTER))
    assert take_all(window, 1) == 100

    for moment in range(2, 12):
        window.settle(1, moment)
        window.on_overload(1, moment)

    assert int(window.concurrency.allowed) == 50, "once for all requests in flight at the time"
    assert not window.admits(1, 12)

    for _ in range(6_000):
        window.on_success(12)
    assert int(window.concurrency.allowed) == 100


def test_refund_leaves_no_trace() -> None:
    window = open_window(Window(100, MINUTE, 0.97))
    now = 30 * SECOND
    window.take(1, now)
    before = window.opens_at(5, now)
    window.take(1, now)
    assert window.opens_at(5, now) > before

    window.refund(1, now)

    assert window.opens_at(5, now) == before
    assert window.state(now).used == 2


def test_an_even_pace_starts_afresh_after_a_refusal() -> None:
    window = open_window(Window(1_500, MINUTE, 0.97))
    window.take(1, SECOND)
    window.settle(1, SECOND)

    window.on_rate_limited(RateLimitHeaders(retry_at=10 * SECOND), SECOND, SECOND, 0)
    window.concurrency.allowed = 100

    assert take_all(window, 10 * SECOND) == 1
    assert window.opens_at(1, 10 * SECOND) == 10 * SECOND + MINUTE // 1_455


def test_large_limit_has_a_short_log() -> None:
    window = open_window(Window(10_000, QUARTER))
    now = 0

    for _ in range(9_000):
        now = max(now + 1, window.opens_at(1, now))
        window.take(1, now)
        window.settle(1, now)

    assert len(window.granted) <= 2_001
    assert window.state(now).used == 9_001


class WindowHistory(RuleBasedStateMachine):
    """Anything that may happen to a window."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.in_flight: list[int] = []

    @initialize(
        limit=st.sampled_from([None, 1, 5, 60, 100, 1_500, 10_000]),
        period=st.sampled_from([1, SECOND, MINUTE, QUARTER]),
        documented=st.booleans(),
    )
    def start(self, limit: int | None, period: int, documented: bool) -> None:
        self.window = Window(limit, period, 0.97, documented)

    @rule(ticks=st.one_of(st.integers(0, 100), st.integers(0, 2 * MINUTE)))
    def wait(self, ticks: int) -> None:
        self.now += ticks

    @rule()
    def wait_for_the_next_check(self) -> None:
        check = self.window.next_check_at(1, self.now)
        assert check > self.now
        if check < NEVER:
            self.now = check

    @precondition(lambda self: self.window.admits(1, self.now))
    @rule()
    def take(self) -> None:
        self.window.take(1, self.now)
        self.in_flight.append(self.now)

    @precondition(lambda self: self.in_flight)
    @rule()
    def refund(self) -> None:
        used = self.window.state(self.now).used
        self.window.refund(1, self.in_flight.pop())
        assert self.window.state(self.now).used == used - 1

    @precondition(lambda self: self.in_flight)
    @rule(
        remaining=st.one_of(st.none(), st.integers(0, 50)),
        seconds=st.integers(-5, 900),
        limit=st.sampled_from([None, 3, 100, 3_000]),
        ending=st.sampled_from(["success", "success", "overload", "rate limited"]),
    )
    def settle(self, remaining: int | None, seconds: int, limit: int | None, ending: str) -> None:
        granted_at = self.in_flight.pop(0)
        reset = self.now // SECOND + seconds
        headers = RateLimitHeaders(limit=limit, remaining=remaining, reset=reset, reset_at=(reset + 1) * SECOND)
        self.window.settle(1, self.now, headers)
        if ending == "success":
            self.window.on_success(granted_at)
        elif ending == "overload":
            self.window.on_overload(granted_at, self.now)
        else:
            closed_until = self.window.gate.closed_until
            self.window.on_rate_limited(headers, granted_at, self.now, 0.5)
            assert self.window.gate.closed_until >= closed_until
            assert not self.window.admits(1, self.now)

    @invariant()
    def counts_agree(self) -> None:
        window, now = self.window, self.now
        assert window.in_flight == len(self.in_flight)
        assert window.concurrency.allowed >= 1
        assert 0 < window.rate_cut.factor <= 1
        assert window.state(now).used >= len(self.in_flight)

    @invariant()
    def opens_at_the_latest_of_its_parts(self) -> None:
        window, now = self.window, self.now
        opens = window.opens_at(1, now)
        assert opens >= window.gate.closed_until
        assert opens >= window.server.opens_at(1, now)
        assert window.admits(1, now) == (opens <= now and not window.awaits_answer(1, now))
        if not self.in_flight:
            assert not window.awaits_answer(1, now), "nothing would ever open it"
            assert self.opens_within(1 if window.rate_cut.factor == 1.0 else 3), "open at that very tick"

    def opens_within(self, checks: int) -> bool:
        """Return whether a copy opens when checked at the ticks it names; a rate that recovers moves its pace a bit."""
        window, now = copy.deepcopy(self.window), self.now
        for _ in range(checks):
            now = max(now, window.opens_at(1, now))
            if window.admits(1, now):
                return True
        return False


TestWindowHistory = WindowHistory.TestCase
TestWindowHistory.settings = settings(max_examples=10)


class ManyWindowHistories(WindowHistory):
    """The same, many times."""


TestManyWindowHistories = pytest.mark.long("its law is about many histories")(ManyWindowHistories.TestCase)
TestManyWindowHistories.settings = settings(max_examples=500)


def test_a_rate_that_recovers_may_move_the_pace_once() -> None:
    history = WindowHistory()
    history.start(limit=None, period=SECOND, documented=False)
    history.take()
    history.settle(ending="rate limited", limit=100, remaining=None, seconds=-1)

    assert not history.opens_within(1)
    assert history.opens_within(2)


@pytest.mark.usefixtures("examples")
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


@pytest.mark.usefixtures("examples")
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
