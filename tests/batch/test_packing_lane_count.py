"""How many lanes a job has."""

import pytest

from svc_async.batch.packing.batch import Limits
from svc_async.batch.packing.packer import count_lanes
from svc_async.engine.memory import MEMORY

PACE = 1_500 / 60 * 0.97


def count(*, users: int = 25, concurrency: int = 32, memory: int = MEMORY, pace: float | None = PACE) -> int:
    limits = Limits(operations=2_500, per_operation=users)
    return count_lanes(limits, concurrency, memory=memory, pace=pace)


def test_the_pace_of_the_service_needs_twelve_lanes_at_the_defaults() -> None:
    assert count() == 12


def test_small_requests_have_as_many_lanes_as_are_allowed() -> None:
    assert count(users=1) == 32


@pytest.mark.parametrize("users", [1, 25])
@pytest.mark.parametrize("concurrency", [1, 3, 8])
def test_there_are_never_more_lanes_than_requests_are_allowed(users: int, concurrency: int) -> None:
    assert count(users=users, concurrency=concurrency) == concurrency


def test_a_slower_pace_needs_no_fewer_lanes_than_full_requests_fit_into_half_of_the_memory() -> None:
    assert count(pace=1.0) == count(pace=None) == 11
    assert count(pace=1.0, memory=2 * MEMORY) == 23


def test_a_faster_pace_has_more_lanes_while_their_open_batches_fit_into_the_memory() -> None:
    assert count(pace=2 * 24.25) == 22


def test_a_pace_for_which_the_memory_is_too_small_leaves_requests_full() -> None:
    assert count(pace=1e6) == 11
    assert count(pace=1e6, memory=MEMORY // 2) == 5


def test_a_small_memory_leaves_a_few_lanes_to_go_on_while_one_waits() -> None:
    assert count(memory=1) == 4
