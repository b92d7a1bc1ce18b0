"""The lanes, without sockets: which one, how long, and what an hour of trouble costs."""

import random
from collections.abc import Callable

import pytest

from svc_async.errors import (
    ErrorDetail,
    InvalidArgument,
    Sent,
    StreamDropped,
    SvcError,
    TimedOut,
    TransportError,
)
from svc_async.streams.reconnect_policy import LANES, Growth, Lane, Lanes, Outcome, Reconnects, outcome_of
from svc_async.wire.outcome import api_error

DROPPED = StreamDropped("the stream ended")
CROWDED = api_error(status=429, errors=[ErrorDetail(code="TooManyConnections")])


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (DROPPED, Outcome.ENDED),
        (StreamDropped("x", errors=[ErrorDetail(code="operational-disconnect")]), Outcome.TROUBLED),
        (TransportError("refused", sent=Sent.NO), Outcome.UNREACHABLE),
        (TimedOut("late", sent=Sent.MAYBE), Outcome.UNREACHABLE),
        *((api_error(status=status), Outcome.TROUBLED) for status in (408, 423, 500, 501, 502, 503, 504, 599)),
        *((api_error(status=status), Outcome.LIMITED) for status in (420, 429)),
        *((api_error(status=status), Outcome.REFUSED) for status in (302, 400, 401, 403, 404, 409, 410, 422)),
        (CROWDED, Outcome.CROWDED),
        (InvalidArgument("session", "was closed"), Outcome.REFUSED),
    ],
)
def test_every_failure_has_its_lane(error: SvcError, outcome: Outcome) -> None:
    assert outcome_of(error) is outcome


def test_an_end_counts_by_the_age_of_the_connection() -> None:
    lanes = Lanes(Reconnects())
    assert lanes.outcome(DROPPED, age=29.9) is Outcome.ENDED_YOUNG
    assert lanes.outcome(DROPPED, age=30) is Outcome.ENDED
    assert lanes.outcome(CROWDED, age=30) is Outcome.CROWDED


def waits(outcome: Outcome, times: int, *, asked: float = 0, chance: float = 0.5) -> list[float | None]:
    lanes = Lanes(Reconnects())
    return [lanes.wait(outcome, age=0, asked=asked, chance=chance) for _ in range(times)]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome.ENDED, [0, 0, 0]),
        (Outcome.ENDED_YOUNG, [0.25, 0.5, 0.75]),
        (Outcome.UNREACHABLE, [0.25, 0.5, 0.75]),
        (Outcome.TROUBLED, [5, 10, 20, 40, 80, 160, 320, 320]),
        (Outcome.LIMITED, [60, 120, 240, 480, 960, 960]),
        (Outcome.CROWDED, [15, 30, 60, 120, 240, None]),
        (Outcome.REFUSED, [None]),
    ],
)
def test_waits_grow_as_the_table_says(outcome: Outcome, expected: list[float | None]) -> None:
    assert waits(outcome, len(expected)) == expected


@pytest.mark.parametrize("outcome", [Outcome.ENDED_YOUNG, Outcome.UNREACHABLE])
def test_the_network_lane_stops_growing_at_16_seconds(outcome: Outcome) -> None:
    assert waits(outcome, 100)[63:] == [16] * 37


def test_a_thousand_failures_do_not_overflow() -> None:
    assert waits(Outcome.TROUBLED, 5_000)[-1] == 320


@pytest.mark.parametrize(("chance", "expected"), [(0, 4.5), (0.5, 5), (1, 5.5)])
def test_a_tenth_of_the_wait_for_a_service_in_trouble_is_chance(chance: float, expected: float) -> None:
    assert waits(Outcome.TROUBLED, 1, chance=chance) == [pytest.approx(expected)]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [(Outcome.LIMITED, 700), (Outcome.TROUBLED, 700), (Outcome.CROWDED, 15), (Outcome.ENDED_YOUNG, 0.25)],
)
def test_the_service_s_own_time_counts_where_it_is_about_this(outcome: Outcome, expected: float) -> None:
    assert waits(outcome, 1, asked=700) == [expected]


def test_a_service_that_asks_for_years_is_mistaken() -> None:
    assert waits(Outcome.LIMITED, 1, asked=1e9) == [86_400]


def test_network_and_young_ends_share_their_count_and_no_others() -> None:
    lanes = Lanes(Reconnects())

    def wait(outcome: Outcome) -> float | None:
        return lanes.wait(outcome, age=0, asked=0, chance=0.5)

    assert [wait(Outcome.UNREACHABLE), wait(Outcome.ENDED_YOUNG), wait(Outcome.UNREACHABLE)] == [0.25, 0.5, 0.75]
    assert [wait(Outcome.TROUBLED), wait(Outcome.LIMITED), wait(Outcome.CROWDED)] == [5, 60, 15]
    assert wait(Outcome.ENDED_YOUNG) == 1


@pytest.mark.parametrize(("age", "expected"), [(29.9, 1.0), (30.0, 0.25)])
def test_failures_are_forgotten_only_after_a_life_of_the_minimum_age(age: float, expected: float) -> None:
    lanes = Lanes(Reconnects())
    for _ in range(3):
        lanes.wait(Outcome.ENDED_YOUNG, age=0, asked=0, chance=0.5)
    assert lanes.wait(Outcome.UNREACHABLE, age=age, asked=0, chance=0.5) == expected


def an_hour(fails: Callable[[int], tuple[SvcError, float]]) -> int:
    """How many connects an hour of failures costs: each is told as the error and the age of the connection."""
    lanes, rng, time, connects = Lanes(Reconnects()), random.Random(1), 0.0, 0
    while time < 3600:
        connects += 1
        error, age = fails(connects)
        wait = lanes.wait(lanes.outcome(error, age=age), age=age, asked=0, chance=rng.random())
        assert wait is not None
        time += age + wait
    return connects


@pytest.mark.parametrize(
    ("fails", "most"),
    [
        (lambda _: (DROPPED, 0.0), 257),
        (lambda _: (DROPPED, 29.9), 122),
        (lambda _: (DROPPED, 30.0), 120),
        (lambda _: (TransportError("x", sent=Sent.NO), 0.0), 257),
        (lambda _: (api_error(status=503), 0.0), 20),
        (lambda _: (api_error(status=429), 0.0), 8),
        (lambda n: (DROPPED if n % 2 else api_error(status=503), 0.0), 60),
    ],
)
def test_an_hour_of_trouble_costs_a_bounded_number_of_connects(
    fails: Callable[[int], tuple[SvcError, float]], most: int
) -> None:
    assert most / 2 < an_hour(fails) <= most


def test_the_table_can_be_changed() -> None:
    lanes = {**LANES, Outcome.CROWDED: Lane(name="crowded", first=1, longest=2, growth=Growth.LINEAR, most=None)}
    changed = Lanes(Reconnects(lanes=lanes, min_age=5))
    assert [changed.wait(Outcome.CROWDED, age=0, asked=0, chance=0) for _ in range(3)] == [1, 2, 2]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"min_age": 0}, "^min_age must be greater than 0"), ({"lanes": {}}, "^lanes must have a lane for ended, ")],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Reconnects(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["first", "longest", "jitter", "most"])
def test_a_lane_has_nothing_negative(field: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{field} must be at least 0"):
        Lane(name="x", **{field: -1})  # type: ignore[arg-type]
