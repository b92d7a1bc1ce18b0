"""A request is sent soon after the commit that allows it, by a clock that counts suspension, or not at all."""

import time

import pytest

from svc_async.batch.ledger import GRACE, SENDABLE, NoLongerSendable, check_sendable
from svc_async.clock import SystemClock, read_boottime
from svc_async.errors import Sent
from svc_async.sandbox import VirtualClock


@pytest.mark.parametrize("waited", [0.0, 5.0, 9.99])
def test_what_was_committed_just_now_may_be_sent(waited: float) -> None:
    check_sendable(100.0, 100.0 + waited)


@pytest.mark.parametrize("waited", [SENDABLE, 3_600.0, -1.0])
def test_what_was_committed_too_long_ago_is_not_sent(waited: float) -> None:
    with pytest.raises(NoLongerSendable, match="not sent within 10 s of its record") as caught:
        check_sendable(100.0, 100.0 + waited)
    assert (caught.value.sent, caught.value.repeatable) == (Sent.NO, True)


def test_a_new_owner_waits_longer_than_a_request_may_be_sent() -> None:
    assert GRACE > SENDABLE


def test_the_time_of_the_system_counts_suspension() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= read_boottime(SystemClock()) <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_clock_without_such_a_time_has_its_monotonic_one() -> None:
    clock = VirtualClock()
    assert read_boottime(clock) == clock.monotonic()


def test_a_system_clock_whose_monotonic_time_is_another_has_no_second_time() -> None:
    class Simulated(SystemClock):
        def monotonic(self) -> float:
            return 7.0

    assert read_boottime(Simulated()) == 7.0
