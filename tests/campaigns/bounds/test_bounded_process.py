"""The measurements find what they are to find."""

from collections.abc import Callable

import pytest

from tests.support.bounded_process import MIB, check_linear, measure_peak


def allocate(size: int) -> int:
    return len(b"x" * size)


async def allocate_in_parts(size: int) -> int:
    return sum(len(b"x" * MIB) for _ in range(size // MIB))


def add_once(size: int) -> Callable[[], object]:
    return lambda: sum(range(size))


def add_for_each(size: int) -> Callable[[], object]:
    return lambda: [sum(range(size)) for _ in range(size // 16)]


def test_the_peak_is_what_a_case_held_at_once() -> None:
    peak = measure_peak(allocate, 64 * MIB)
    assert peak.value == 64 * MIB
    assert 60 * MIB < peak.bytes < 80 * MIB
    assert measure_peak(allocate_in_parts, 64 * MIB).bytes < 16 * MIB


def test_a_case_without_a_bound_ends_before_the_machine_does() -> None:
    with pytest.raises(AssertionError, match="MemoryError"):
        measure_peak(allocate, 4096 * MIB)


def test_linear_work_is_told_from_quadratic_work() -> None:
    check_linear(add_once)
    with pytest.raises(AssertionError, match="is not linear"):
        check_linear(add_for_each)
