"""What a receiver counts, and how fast it answered."""

from datetime import UTC, datetime, timedelta

import pytest

from svc_async.webhooks.stats import Counters
from svc_async.webhooks.verification import RejectReason

START = datetime(2026, 6, 10, 12, tzinfo=UTC)


def measure(*seconds: float) -> tuple[float, float]:
    counters = Counters()
    for each in seconds:
        counters.acknowledge(each)
    stats = counters.stats(waiting=0, lag=0.0)
    return stats.ack_p50, stats.ack_p99


def test_quantiles_of_answers() -> None:
    assert measure() == (0.0, 0.0)
    assert measure(3.0) == (3.0, 3.0)
    assert measure(2.0, 1.0) == (2.0, 2.0)
    assert measure(3.0, 1.0, 2.0) == (2.0, 3.0)
    assert measure(*map(float, range(100))) == (50.0, 99.0)
    assert measure(*map(float, range(200))) == (100.0, 198.0)


def test_the_last_1024_answers_count() -> None:
    assert measure(9.0, *[1.0] * 1_023)[1] == 1.0  # one of 1,024 is above the 99th percentile
    assert measure(*[9.0] * 20, *[1.0] * 1_004)[1] == 9.0
    assert measure(*[9.0] * 20, *[1.0] * 1_013)[1] == 9.0
    assert measure(*[9.0] * 20, *[1.0] * 1_014)[1] == 1.0


def test_counts_are_given_as_they_are() -> None:
    counters = Counters(received=1, crc_answered=2, duplicates=3, handled=4, unhandled=5, failed=6)
    counters.abandoned, counters.restored = 7, 8
    counters.verified["a"] += 2
    counters.reject(RejectReason.QUEUE_FULL)
    counters.reject(RejectReason.QUEUE_FULL)
    stats = counters.stats(waiting=9, lag=10.0)
    assert stats.to_dict() == {
        "received": 1,
        "crc_answered": 2,
        "verified": {"a": 2},
        "rejected": {"queue_full": 2},
        "duplicates": 3,
        "handled": 4,
        "unhandled": 5,
        "failed": 6,
        "abandoned": 7,
        "restored": 8,
        "waiting": 9,
        "lag": 10.0,
        "ack_p50": 0.0,
        "ack_p99": 0.0,
    }
    counters.verified["a"] += 1
    assert stats.verified == {"a": 2}  # a copy


@pytest.mark.parametrize(
    ("age", "valid"),
    [(timedelta(), True), (timedelta(hours=28), True), (timedelta(hours=28, microseconds=1), False), (None, None)],
)
def test_a_webhook_is_valid_for_28_hours_after_a_check(age: timedelta | None, *, valid: bool | None) -> None:
    counters = Counters(last_crc_ok=None if age is None else START - age)
    health = counters.health(running=True, now=START)
    assert (health.running, health.probably_valid, health.last_event) == (True, valid, None)
