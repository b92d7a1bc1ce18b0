"""The numbers of a window: what it keeps for whom, how far it runs ahead, when it is closed and when it is idle."""

from collections.abc import Callable

import pytest

from svc_async.governor.windows import (
    NEVER,
    SECOND,
    Concurrency,
    FirmLimit,
    Gate,
    RateCut,
    RateLimitHeaders,
    ServerCount,
    SlidingLog,
    Window,
    WindowState,
)
from tests.support.windows import MINUTE, QUARTER, open_window, take_all

HOUR = 60 * MINUTE


@pytest.mark.parametrize(
    ("limit", "period", "reserve", "step"),
    [
        (1, MINUTE, 0, 0),
        (2, MINUTE, 1, 0),
        (39, MINUTE, 1, 0),
        (40, MINUTE, 2, 0),
        (99, MINUTE, 4, 0),
        (100, MINUTE, 0, MINUTE // 97),
        (1_499, QUARTER, 74, 0),
        (1_500, QUARTER, 0, QUARTER // 1_455),
        (1, SECOND // 2, 0, SECOND // 2),
        (None, MINUTE, 0, 0),
    ],
)
def test_a_limit_of_a_hundred_a_minute_is_paced_and_a_smaller_one_keeps_a_twentieth_for_interactive_requests(
    limit: int | None, period: int, reserve: int, step: int
) -> None:
    window = Window(limit, period, 0.97)

    assert (window.reserve, window.pace.step) == (reserve, step)
    assert window.is_even is (step > 0)


@pytest.mark.parametrize(("limit", "burst"), [(100, 2), (206, 2), (207, 3), (1_500, 15), (10_000, 98)])
def test_an_even_pace_runs_ahead_by_a_hundredth(limit: int, burst: int) -> None:
    window = open_window(Window(limit, MINUTE, 0.97))

    assert take_all(window, 30 * SECOND) == burst


@pytest.mark.parametrize(("limit", "spacing"), [(None, 0), (1, MINUTE), (7, MINUTE // 7), (1_500, MINUTE // 1_500)])
def test_spacing_is_the_period_through_the_limit(limit: int | None, spacing: int) -> None:
    assert Window(limit, MINUTE, 0.97).spacing == spacing


@pytest.mark.parametrize(
    ("limit", "period", "grain"),
    [(2_000, QUARTER, 1), (2_001, QUARTER, QUARTER // 2_000), (10_000, 1_999, 1), (10_000, 4_000, 2)],
)
def test_a_limit_above_two_thousand_is_counted_in_steps(limit: int, period: int, grain: int) -> None:
    window = Window(limit, period)

    assert (window.granted.grain, window.answered.grain) == (grain, grain)
    assert (window.granted.period, window.answered.period) == (period, period)


@pytest.mark.parametrize(
    ("limit", "headroom", "granted", "answered"),
    [(100, 0.97, 97, 100), (100, 0.001, 1, 100), (99, 0.97, 99, 99), (1, 0.97, 1, 1)],
)
def test_headroom_is_kept_of_grants_and_not_of_answers(
    limit: int, headroom: float, granted: int, answered: int
) -> None:
    window = Window(limit, MINUTE, headroom)

    assert (window.granted.capacity, window.answered.capacity) == (granted, answered)


@pytest.mark.parametrize(("limit", "granted", "answered"), [(1_000, 679, 1_000), (10, 7, 7), (1, 1, 1)])
def test_a_cut_lowers_what_is_granted_and_of_a_small_limit_what_is_answered(
    limit: int, granted: int, answered: int
) -> None:
    window = open_window(Window(limit, MINUTE, 0.97))
    window.take(1, 1)
    window.settle(1, 1)
    window.on_rate_limited(RateLimitHeaders(), 1, 1, 0)

    assert (window.granted.capacity, window.answered.capacity) == (granted, answered)
    assert window.pace.step == (MINUTE // granted if limit == 1_000 else 0)


def test_more_than_the_limit_never_goes_and_a_limit_that_is_cut_to_one_leaves_no_reserve() -> None:
    window = open_window(Window(2, MINUTE))
    assert (window.reserve, window.admits(2, MINUTE), window.admits(3, MINUTE)) == (1, True, False)

    window.take(1, 1)
    window.settle(1, 1)
    window.on_rate_limited(RateLimitHeaders(), 1, 1, 0)

    assert (window.reserve, window.granted.capacity) == (0, 1)


def test_a_state_names_what_is_used_and_when_it_opens() -> None:
    window = open_window(Window(3, MINUTE))
    window.take(2, 5)

    assert window.state(6) == WindowState(
        limit=3, used=3, remaining=None, opens_at=MINUTE, closed_until=0, concurrency=100, is_degraded=False
    )
    assert Window(None, SECOND).state(0) == WindowState(
        limit=None, used=0, remaining=None, opens_at=0, closed_until=0, concurrency=1
    )


def test_what_an_earlier_process_sent_may_have_been_counted_five_seconds_later() -> None:
    window = Window(2, MINUTE)

    window.restore([0, 3])

    assert window.opens_at(1, 10) == MINUTE + 5 * SECOND
    assert window.opens_at(2, 10) == MINUTE + 5 * SECOND + 3


def close_gate(window: Window) -> None:
    window.gate.close(7 * MINUTE, is_stated=True)


def report_remaining(window: Window) -> None:
    window.server.update(RateLimitHeaders(remaining=1, reset=420, reset_at=7 * MINUTE), 0)


def overload(window: Window) -> None:
    window.on_overload(6 * MINUTE, 6 * MINUTE)


def restore(window: Window) -> None:
    window.restore([6 * MINUTE - 5 * SECOND])


def take(window: Window) -> None:
    window.granted.add(1, 6 * MINUTE)


def settle(window: Window) -> None:
    window.answered.add(1, 6 * MINUTE)


@pytest.mark.parametrize("happen", [close_gate, report_remaining, overload, restore, take, settle])
def test_a_window_is_idle_when_nothing_of_it_holds_any_more(happen: Callable[[Window], None]) -> None:
    window = Window(5, MINUTE)
    assert window.is_idle(0), "it is new"

    happen(window)

    assert not window.is_idle(7 * MINUTE - 1)
    assert window.is_idle(7 * MINUTE)


def test_a_window_with_a_request_in_flight_is_not_idle() -> None:
    window = Window(5, MINUTE)
    window.take(1, 0)

    assert not window.is_idle(HOUR)


def test_the_next_check_is_when_it_opens_or_when_a_report_ends() -> None:
    window = open_window(Window(1, MINUTE))
    assert window.next_check_at(1, 5) == MINUTE
    assert window.next_check_at(1, MINUTE - 1) == MINUTE
    assert window.next_check_at(1, MINUTE) == NEVER, "it is open"

    window.server.update(RateLimitHeaders(remaining=1, reset=70, reset_at=70 * SECOND), MINUTE)

    assert window.next_check_at(1, MINUTE) == 70 * SECOND
    assert window.next_check_at(1, 70 * SECOND - 1) == 70 * SECOND
    assert window.next_check_at(1, 70 * SECOND) == NEVER

    window.gate.close(MINUTE, is_stated=True)
    assert window.next_check_at(1, MINUTE) == 70 * SECOND, "open at this very tick"


@pytest.mark.parametrize(
    ("limit", "documented", "opens"), [(1, True, MINUTE), (1, False, 0), (None, False, 0), (None, True, 0)]
)
def test_only_a_documented_limit_is_firm(limit: int | None, documented: bool, opens: int) -> None:
    window = open_window(Window(limit, MINUTE, documented=documented))

    assert window.firm_opens_at(1, 1) == opens
    assert window.admits_beyond_guess(1, 1) is (opens == 0)


def test_a_limit_that_headers_state_is_firm() -> None:
    window = open_window(Window(50, MINUTE))

    window.take(1, 1)
    window.settle(1, 1, RateLimitHeaders(limit=2))

    assert window.firm_opens_at(1, 2) == MINUTE


def test_what_is_certain_of_a_limit_changes_with_what_answers_state() -> None:
    window = open_window(Window(50, MINUTE))
    assert window.firm_limit == FirmLimit(limit=None, period=MINUTE, closed_until=0)
    headers = RateLimitHeaders(limit=50, remaining=40, reset=7, reset_at=MINUTE)

    for _ in range(2):
        window.take(1, 1)
        window.settle(1, 1, headers)
        assert window.firm_limit == FirmLimit(limit=50, period=MINUTE, closed_until=0, reset=7)

    window.on_rate_limited(RateLimitHeaders(), 1, 2, 0.0)
    assert window.firm_limit.closed_until == 0, "how long it is closed was guessed"
    window.on_rate_limited(RateLimitHeaders(retry_at=30), 3, 3, 0.0)
    assert window.firm_limit.closed_until == 30


def test_beyond_a_guess_goes_what_neither_an_answer_nor_a_request_in_flight_forbids() -> None:
    window = open_window(Window(1, MINUTE))
    assert not window.admits(1, 1)
    assert window.admits_beyond_guess(1, 1)

    window.gate.close(5, is_stated=True)
    assert not window.admits_beyond_guess(1, 4)
    assert window.admits_beyond_guess(1, 5)

    window.concurrency.allowed = 0
    assert not window.admits_beyond_guess(1, 5)


@pytest.mark.parametrize(
    ("in_flight", "allowed", "remaining", "waits"),
    [(0, 1, None, False), (1, 1, None, True), (1, 2, None, False), (1, 2, 2, False), (1, 2, 1, True), (1, 2, 0, False)],
)
def test_a_request_waits_for_an_answer_that_decides_about_it(
    in_flight: int, allowed: int, remaining: int | None, waits: bool
) -> None:
    window = Window(5, MINUTE)
    window.in_flight, window.concurrency.allowed = in_flight, allowed
    window.concurrency.on_grant(0)
    if remaining is not None:
        window.server.update(RateLimitHeaders(remaining=remaining, reset=9, reset_at=9 * SECOND), 0)

    assert window.awaits_answer(1, 0) is waits


@pytest.mark.parametrize(("granted_at", "concurrency"), [(9, 25), (10, 25), (11, 12)])
def test_an_overload_counts_once_for_what_was_granted_before_it(granted_at: int, concurrency: int) -> None:
    window = open_window(Window(1_000, QUARTER))
    window.take(50, 5)
    window.settle(1, 10)
    window.on_overload(5, 10)
    assert window.concurrency.allowed == 25

    window.settle(1, 20)
    window.on_overload(granted_at, 20)

    assert int(window.concurrency.allowed) == concurrency


@pytest.mark.parametrize(("granted_at", "refusals"), [(10, 1), (11, 2)])
def test_refusals_count_once_for_what_was_granted_before_them(granted_at: int, refusals: int) -> None:
    window = open_window(Window(1_000, QUARTER))
    window.take(2, 5)
    for granted, now in ((5, 10), (granted_at, 20)):
        window.settle(1, now)
        window.on_rate_limited(RateLimitHeaders(), granted, now, 0)

    assert window.gate.refusals == refusals
    assert window.rate_cut.factor == pytest.approx(0.7**refusals)


@pytest.mark.parametrize(("granted_at", "refusals"), [(10, 1), (11, 0)])
def test_a_success_of_what_was_granted_before_a_refusal_says_nothing(granted_at: int, refusals: int) -> None:
    window = open_window(Window(1_000, QUARTER))
    window.on_rate_limited(RateLimitHeaders(), 5, 10, 0)

    window.on_success(granted_at)

    assert window.gate.refusals == refusals


@pytest.mark.parametrize("jitter", [0, 0.25, 0.999])
def test_jitter_closes_the_gate_for_up_to_a_second_more(jitter: float) -> None:
    window = open_window(Window(1_000, QUARTER))

    window.on_rate_limited(RateLimitHeaders(retry_at=9 * SECOND), 5, 10, jitter)

    assert window.gate.closed_until == 9 * SECOND + int(jitter * SECOND)
    assert window.gate.stated_until == window.gate.closed_until
    assert window.pace.opens_at(1) == window.gate.closed_until


@pytest.mark.parametrize(("until", "refusals"), [(10, 1), (11, 0)])
def test_a_429_that_names_a_tick_in_the_future_cuts_no_rate(until: int, refusals: int) -> None:
    window = open_window(Window(1_000, QUARTER))

    window.on_rate_limited(RateLimitHeaders(retry_at=until), 5, 10, 0)

    assert window.gate.refusals == refusals
    assert window.gate.closed_until == (10 + SECOND if refusals else 11)
    assert window.rate_cut.factor == (0.7 if refusals else 1.0)
    assert window.gate.stated_until == (0 if refusals else 11)


@pytest.mark.parametrize(
    ("limit", "documented", "seconds"),
    [(5, True, 61), (5, False, 3_601), (None, False, 3_601)],
)
def test_a_reset_closes_for_the_period_of_a_known_limit_or_for_an_hour(
    limit: int | None, documented: bool, seconds: int
) -> None:
    window = open_window(Window(limit, MINUTE, documented=documented))

    window.on_rate_limited(RateLimitHeaders(reset=1, reset_at=9 * HOUR), 0, 10, 0)
    assert window.gate.closed_until == 10 + seconds * SECOND


def test_retry_after_closes_for_an_hour_at_most() -> None:
    window = open_window(Window(5, MINUTE, documented=True))

    window.on_rate_limited(RateLimitHeaders(retry_at=9 * HOUR), 0, 10, 0)

    assert window.gate.closed_until == 10 + HOUR


def test_the_period_of_an_unknown_limit_is_the_farthest_reset() -> None:
    window = Window(None, SECOND)
    for now, reset in ((0, 60), (10 * SECOND, 900), (20 * SECOND, 100)):
        window.take(1, now)
        window.settle(1, now, RateLimitHeaders(limit=5, remaining=5, reset=reset, reset_at=reset * SECOND))

    assert (window.limit, window.period) == (5, 890 * SECOND)


def test_the_period_of_a_known_limit_is_not_learned() -> None:
    window = open_window(Window(5, MINUTE))
    window.take(1, 0)

    window.settle(1, 0, RateLimitHeaders(limit=6, remaining=5, reset=900, reset_at=900 * SECOND))

    assert (window.limit, window.period) == (6, MINUTE)


@pytest.mark.parametrize(("now", "limit"), [(MINUTE + 8, 5), (MINUTE + 9, None)])
def test_a_guess_that_a_429_brought_back_is_retired_a_period_later(now: int, limit: int | None) -> None:
    window = open_window(Window(5, MINUTE))
    window.retire_guess(0)
    assert window.limit is None
    window.on_rate_limited(RateLimitHeaders(), 5, 9, 0)
    assert window.limit == 5

    window.retire_guess(now)

    assert window.limit == limit


@pytest.mark.parametrize(
    ("now", "at", "factor"), [(0, 0, 0.7), (0, MINUTE // 3, 0.8), (0, MINUTE, 1.0), (MINUTE, 2 * MINUTE, 1.0)]
)
def test_a_cut_recovers_evenly(now: int, at: int, factor: float) -> None:
    cut = RateCut()
    cut.cut(now)

    cut.recover(at, MINUTE)

    assert cut.factor == pytest.approx(factor)
    assert cut.at == at


def test_cuts_multiply() -> None:
    cut = RateCut()
    cut.cut(0)
    cut.cut(5)

    assert cut.factor == pytest.approx(0.49)
    assert cut.at == 5


@pytest.mark.parametrize(
    ("allowed", "in_flight", "left"), [(100, 100, 50), (100, 10, 5), (10, 100, 5), (3, 3, 1.5), (1, 1, 1), (100, 1, 1)]
)
def test_overload_halves_what_was_in_flight(allowed: float, in_flight: int, left: float) -> None:
    concurrency = Concurrency(allowed, cold=False)

    concurrency.on_overload(in_flight)

    assert concurrency.allowed == left


def test_after_an_overload_concurrency_grows_by_one_a_round() -> None:
    concurrency = Concurrency()
    concurrency.on_success()
    concurrency.on_rate_limited()
    concurrency.on_overload(1)

    for _ in range(3):
        concurrency.on_success()

    assert concurrency.allowed == pytest.approx(1 + 1 + 1 / 2 + 1 / 2.5)


def test_concurrency_doubles_up_to_what_it_was_before_the_refusals_and_then_grows_by_one_a_round() -> None:
    concurrency = Concurrency(8, cold=False)
    concurrency.on_rate_limited()
    concurrency.on_rate_limited()

    for _ in range(7):
        concurrency.on_success()
    assert concurrency.allowed == 8

    concurrency.on_success()
    assert concurrency.allowed == 8 + 1 / 8


@pytest.mark.parametrize("allowed", [99.5, 100])
def test_at_most_a_hundred_are_in_flight(allowed: float) -> None:
    concurrency = Concurrency(100, cold=False)
    concurrency.on_rate_limited()
    concurrency.allowed = allowed

    concurrency.on_success()

    assert concurrency.allowed == 100


def test_a_gate_moves_only_forward_and_remembers_what_was_stated() -> None:
    gate = Gate()
    assert (gate.closed_until, gate.stated_until, gate.refusals) == (0, 0, 0)

    for until, is_stated in ((10, True), (5, True), (20, False), (15, True)):
        gate.close(until, is_stated=is_stated)

    assert (gate.closed_until, gate.stated_until) == (20, 15)


@pytest.mark.parametrize(("refusals", "seconds"), [(0, 1), (1, 1), (2, 2), (7, 64), (8, 64)])
def test_a_guessed_closure_doubles_six_times(refusals: int, seconds: int) -> None:
    assert Gate(refusals=refusals).guess_closure(QUARTER) == seconds * SECOND


@pytest.mark.parametrize(
    ("reset", "remaining", "now", "left"),
    [(9, 4, 1, 3), (9, 2, 1, 2), (10, 5, 1, 5), (8, 0, 1, 3), (8, 1, 9, 1), (8, 1, 8, 3)],
)
def test_a_report_of_the_same_window_lowers_a_later_one_replaces_an_earlier_one_is_late(
    reset: int, remaining: int, now: int, left: int
) -> None:
    server = ServerCount()
    server.update(RateLimitHeaders(remaining=3, reset=9, reset_at=9 * SECOND), 0)

    assert server.update(RateLimitHeaders(remaining=remaining, reset=reset, reset_at=20 * SECOND), now * SECOND)

    assert server.remaining == left


@pytest.mark.parametrize("absent", ["remaining", "reset", "reset_at"])
def test_a_report_is_complete(absent: str) -> None:
    values = {"remaining": 3, "reset": 9, "reset_at": 9, absent: None}

    assert ServerCount().update(RateLimitHeaders(**values), 0) is False


@pytest.mark.parametrize(("cost", "now", "opens"), [(2, 8, 0), (3, 8, 9), (3, 9, 0)])
def test_a_report_forbids_what_exceeds_it_until_it_ends(cost: int, now: int, opens: int) -> None:
    assert ServerCount(remaining=2, reset=1, reset_at=9).opens_at(cost, now) == opens


@pytest.mark.parametrize(
    ("cost", "in_flight", "now", "waits"), [(1, 1, 8, False), (2, 1, 8, True), (3, 1, 8, False), (2, 1, 9, False)]
)
def test_what_is_in_flight_may_use_up_what_remains(cost: int, in_flight: int, now: int, waits: bool) -> None:
    assert ServerCount(remaining=2, reset=1, reset_at=9).awaits_answer(cost, in_flight, now) is waits


def test_a_log_removes_what_was_recorded_then_or_before() -> None:
    log = SlidingLog(MINUTE)
    for cost, time in ((2, 10), (1, 20)):
        log.add(cost, time)

    log.remove(1, 15)
    assert (log.leaves_at(1), log.used) == (10 + MINUTE, 2)
    log.remove(5, 20)
    assert (log.leaves_at(2), log.used) == (NEVER, 1)
    log.remove(1, 9)
    assert log.used == 1


def test_a_log_keeps_one_entry_for_each_step() -> None:
    log = SlidingLog(1_000, grain=10)

    for time in (1, 10, 11, 5):
        log.add(1, time)

    assert len(log) == 2
    assert (log.leaves_at(2), log.leaves_at(3)) == (1_010, 1_020)


def test_a_log_merges_what_an_earlier_process_recorded() -> None:
    log = SlidingLog(1_000, grain=10)
    log.add(1, 15)
    log.add(1, 30)

    log.restore([5, 12, 17, 50])

    assert (len(log), log.used) == (4, 6)
    assert [log.leaves_at(cost) for cost in (1, 2, 4, 5, 6)] == [1_010, 1_020, 1_020, 1_030, 1_050]


@pytest.mark.parametrize(
    ("cost", "in_flight", "opens"),
    [(1, 0, 0), (2, 0, 1_000), (3, 0, 1_005), (9, 0, 1_005), (1, 1, 1_000), (2, 2, 1_050), (3, 1, 1_050)],
)
def test_a_log_opens_when_enough_has_left(cost: int, in_flight: int, opens: int) -> None:
    log = SlidingLog(1_000, capacity=3)
    log.add(1, 0)
    log.add(1, 5)

    assert log.opens_at(cost, 50, in_flight) == opens
