"""The backoff rules, without sockets: which one applies, how long it waits, and how often it connects in an hour."""

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
    UnexpectedAnswer,
)
from svc_async.streams.reconnect_policy import (
    BACKOFF_RULES,
    BackoffRule,
    DisconnectReason,
    Growth,
    ReconnectPolicy,
    Reconnects,
    classify_error,
)
from svc_async.streams.reconnect_policy import DisconnectReason as Reason
from svc_async.wire.outcome import api_error
from tests.support.errors import has

DROPPED = StreamDropped("the stream ended")
TOO_MANY_CONNECTIONS = api_error(status=429, errors=[ErrorDetail(code="TooManyConnections")])


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (DROPPED, Reason.CLOSED),
        (StreamDropped("x", errors=[ErrorDetail(code="operational-disconnect")]), Reason.UNAVAILABLE),
        (TransportError("refused", sent=Sent.NO), Reason.UNREACHABLE),
        (TimedOut("late", sent=Sent.MAYBE), Reason.UNREACHABLE),
        *((api_error(status=status), Reason.UNAVAILABLE) for status in (408, 423, 500, 501, 502, 503, 504, 599)),
        *((api_error(status=status), Reason.RATE_LIMITED) for status in (420, 429)),
        *((api_error(status=status), Reason.REFUSED) for status in (302, 400, 401, 403, 404, 409, 410, 422)),
        (TOO_MANY_CONNECTIONS, Reason.TOO_MANY_CONNECTIONS),
        (InvalidArgument("session", "was closed"), Reason.REFUSED),
        (UnexpectedAnswer("the token is not JSON", status=200), Reason.REFUSED),
    ],
)
def test_every_error_has_its_reason(error: SvcError, reason: Reason) -> None:
    assert classify_error(error) is reason


def test_a_closed_connection_is_classified_by_its_age() -> None:
    policy = ReconnectPolicy(Reconnects())
    assert policy.classify(DROPPED, age=29.9) is Reason.CLOSED_EARLY
    assert policy.classify(DROPPED, age=30) is Reason.CLOSED
    assert policy.classify(TOO_MANY_CONNECTIONS, age=30) is Reason.TOO_MANY_CONNECTIONS


def list_delays(reason: Reason, times: int, *, retry_after: float = 0, sample: float = 0.5) -> list[float | None]:
    policy = ReconnectPolicy(Reconnects())
    return [policy.next_delay(reason, age=0, retry_after=retry_after, sample=sample) for _ in range(times)]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (Reason.CLOSED, [0, 0, 0]),
        (Reason.CLOSED_EARLY, [0.25, 0.5, 0.75]),
        (Reason.UNREACHABLE, [0.25, 0.5, 0.75]),
        (Reason.UNAVAILABLE, [5, 10, 20, 40, 80, 160, 320, 320]),
        (Reason.RATE_LIMITED, [60, 120, 240, 480, 960, 960]),
        (Reason.TOO_MANY_CONNECTIONS, [15, 30, 60, 120, 240, None]),
        (Reason.REFUSED, [None]),
    ],
)
def test_waits_grow_as_the_table_says(reason: Reason, expected: list[float | None]) -> None:
    assert list_delays(reason, len(expected)) == expected


@pytest.mark.parametrize("reason", [Reason.CLOSED_EARLY, Reason.UNREACHABLE])
def test_the_network_rule_stops_growing_at_16_seconds(reason: Reason) -> None:
    assert list_delays(reason, 100)[63:] == [16] * 37


def test_a_thousand_failures_do_not_overflow() -> None:
    assert list_delays(Reason.UNAVAILABLE, 5_000)[-1] == 320


@pytest.mark.parametrize(("sample", "expected"), [(0, 4.5), (0.5, 5), (1, 5.5)])
def test_the_delay_of_an_unavailable_service_has_a_jitter_of_a_tenth(sample: float, expected: float) -> None:
    assert list_delays(Reason.UNAVAILABLE, 1, sample=sample) == [pytest.approx(expected)]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (Reason.RATE_LIMITED, 700),
        (Reason.UNAVAILABLE, 700),
        (Reason.TOO_MANY_CONNECTIONS, 15),
        (Reason.CLOSED_EARLY, 0.25),
    ],
)
def test_retry_after_is_honored_by_the_rules_it_concerns(reason: Reason, expected: float) -> None:
    assert list_delays(reason, 1, retry_after=700) == [expected]


def test_retry_after_is_limited_to_a_day() -> None:
    assert list_delays(Reason.RATE_LIMITED, 1, retry_after=1e9) == [86_400]


def test_only_unreachable_and_closed_early_share_a_count() -> None:
    policy = ReconnectPolicy(Reconnects())

    def next_delay(reason: Reason) -> float | None:
        return policy.next_delay(reason, age=0, retry_after=0, sample=0.5)

    assert [
        next_delay(Reason.UNREACHABLE),
        next_delay(Reason.CLOSED_EARLY),
        next_delay(Reason.UNREACHABLE),
    ] == [0.25, 0.5, 0.75]
    assert [
        next_delay(Reason.UNAVAILABLE),
        next_delay(Reason.RATE_LIMITED),
        next_delay(Reason.TOO_MANY_CONNECTIONS),
    ] == [5, 60, 15]
    assert next_delay(Reason.CLOSED_EARLY) == 1


@pytest.mark.parametrize(("age", "expected"), [(29.9, 1.0), (30.0, 0.25)])
def test_failures_are_forgotten_only_after_the_minimum_age(age: float, expected: float) -> None:
    policy = ReconnectPolicy(Reconnects())
    for _ in range(3):
        policy.next_delay(Reason.CLOSED_EARLY, age=0, retry_after=0, sample=0.5)

    assert policy.next_delay(Reason.UNREACHABLE, age=age, retry_after=0, sample=0.5) == expected


def count_connects_in_an_hour(fails: Callable[[int], tuple[SvcError, float]]) -> int:
    """Count the connects in an hour of failures, each described by its error and the age of the connection."""
    policy, rng, time, connects = ReconnectPolicy(Reconnects()), random.Random(1), 0.0, 0
    while time < 3600:
        connects += 1
        error, age = fails(connects)
        delay = policy.next_delay(policy.classify(error, age=age), age=age, retry_after=0, sample=rng.random())
        assert delay is not None
        time += age + delay
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
def test_an_hour_of_failures_causes_a_bounded_number_of_connects(
    fails: Callable[[int], tuple[SvcError, float]], most: int
) -> None:
    assert most / 2 < count_connects_in_an_hour(fails) <= most


def test_the_table_can_be_changed() -> None:
    rules = {
        **BACKOFF_RULES,
        Reason.TOO_MANY_CONNECTIONS: BackoffRule(name="x", initial=1, maximum=2, growth=Growth.LINEAR),
    }
    changed = ReconnectPolicy(Reconnects(rules=rules, min_age=5))

    assert [changed.next_delay(Reason.TOO_MANY_CONNECTIONS, age=0, retry_after=0, sample=0) for _ in range(3)] == [
        1,
        2,
        2,
    ]


@pytest.mark.parametrize(
    "wrong",
    [{"min_age": 0}, {"rules": {}}, {"rules": {each: BACKOFF_RULES[each] for each in [*DisconnectReason][1:]}}],
)
def test_invalid_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=next(iter(wrong)))):
        Reconnects(**wrong)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("field", ["initial", "maximum", "jitter", "max_failures"])
def test_the_numbers_of_a_rule_must_not_be_negative(field: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=field)):
        BackoffRule(name="x", **{field: -1})  # type: ignore[arg-type]  # wrong on purpose


def test_a_rule_of_which_nothing_is_said_does_not_wait() -> None:
    assert BackoffRule(name="x", maximum=9.0).delay(1, 0.5) == BackoffRule(name="x", initial=9.0).delay(1, 0.5) == 0.0
