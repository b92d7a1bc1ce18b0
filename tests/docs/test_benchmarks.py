"""The benchmarks that need no network run; their figures mean nothing here."""

from collections.abc import Callable

import pytest

from benchmarks import encode_rows
from benchmarks.measure import Figure, Scale, at_least, at_most


@pytest.mark.long("a benchmark takes the time that it needs")
@pytest.mark.parametrize("measure", [encode_rows.measure_emails, encode_rows.measure_four])
def test_a_benchmark_gives_figures(measure: Callable[[Scale], list[Figure]]) -> None:
    figures = measure(Scale.QUICK)

    assert figures
    assert all(figure.value >= 0 for figure in figures)


def test_within_3_percent_of_a_target_counts_as_reached() -> None:
    assert [at_least(0.7).holds(value) for value in (0.678, 0.68, 0.7)] == [False, True, True]
    assert [at_most(96).holds(value) for value in (96, 98.8, 98.9)] == [True, True, False]
