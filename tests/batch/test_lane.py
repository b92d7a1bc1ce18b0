"""The machine of a lane: by itself, and under random schedules; without its protection, the schedules fail."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_async.batch.lane import Lane
from tests.support.lane_model import run_schedule, run_schedules


@settings(max_examples=500)
@given(dice=st.randoms(use_true_random=False))
def test_under_any_schedule_rows_are_accounted_for_and_applied_in_order(dice: Random) -> None:
    run_schedule(dice)


def _change_bytes_in_doubt(lane: Lane) -> None:
    if lane.queue and lane.in_doubt and lane.queue[0].rows > 1:
        lane.queue.extendleft(reversed(lane.queue.popleft().split_in_half()))


def _lose_batch(lane: Lane) -> None:
    if len(lane.queue) > 3:
        lane.queue.pop()


CONTROLS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "quarantine": ({"quarantine": 0.0}, "can no longer be applied"),
    "a whole quarantine": ({"quarantine": 50.0}, "can no longer be applied"),
    "the same bytes": ({"sabotage": _change_bytes_in_doubt}, "other bytes were sent"),
    "counts": ({"trusts_counts": True}, "accepted, not applied"),
    "accounting": ({"sabotage": _lose_batch}, "do not add up"),
}


@pytest.mark.parametrize("without", CONTROLS)
def test_without_protection_a_schedule_fails(without: str) -> None:
    control, message = CONTROLS[without]

    with pytest.raises((AssertionError, RuntimeError), match=message):
        run_schedules(200, **control)
