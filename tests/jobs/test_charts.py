import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_async.jobs.charts import Chart, choose_ticks, choose_times, format_duration, format_times, render_chart


@given(st.floats(min_value=0.5, max_value=1e12))
def test_ticks_are_round_few_and_reach_the_highest_value(highest: float) -> None:
    ticks = choose_ticks(highest)
    assert 2 <= len(ticks) <= 6
    assert ticks[0] == 0
    assert ticks[-2] < highest <= ticks[-1]
    assert re.fullmatch(r"[125]0*", f"{ticks[1]:.0f}")


@settings(max_examples=20)
@given(st.floats(min_value=0.01, max_value=1e8), st.integers(3, 12))
def test_times_are_few_and_within_the_chart(seconds: float, most: int) -> None:
    times = choose_times(seconds, most)
    assert times[0] == 0
    assert len(times) <= most
    assert times[-1] <= seconds


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (0.06, ["0 s"]),
        (0.42, ["0 s", "0.1 s", "0.2 s", "0.3 s", "0.4 s"]),
        (64, ["0 s", "15 s", "30 s", "45 s", "60 s"]),
        (187.3, ["0 min", "1 min", "2 min", "3 min"]),
        (9_000, ["0 h", "1 h", "2 h"]),
        (300_000, ["0 d", "1 d", "2 d", "3 d"]),
    ],
)
def test_times_are_those_that_people_use(seconds: float, labels: list[str]) -> None:
    assert format_times(choose_times(seconds, 5)) == labels


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.123, "0.123 s"),
        (59.4, "59.4 s"),
        (59.97, "1 min"),
        (187.3, "3 min 7 s"),
        (3_600, "1 h"),
        (3_607, "1 h"),
        (93_780, "1 d 2 h"),
    ],
)
def test_a_duration_has_the_two_largest_units(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


def test_a_chart_has_a_table_of_the_same_numbers_to_its_end() -> None:
    points = [(second, second * 100.0) for second in range(41)]
    chart = render_chart(Chart(title="Rows", kind="rows", points=[*points, (43.0, 4_000.0)], seconds=43.0))
    rows = re.findall(r'<tr><th scope="row">([^<]+)</th><td class="n">([^<]+)</td></tr>', chart)
    assert rows[:3] == [("0 s", "0"), ("5 s", "500"), ("10 s", "1,000")]
    assert rows[-1] == ("43 s", "4,000")
    assert 'aria-label="Rows: 4,000 after 43 s"' in chart


def test_the_limit_ends_at_the_top_of_the_chart() -> None:
    chart = Chart(
        title="Requests", kind="requests", points=[(0.0, 0.0), (180.0, 217.0)], seconds=187.0, per_minute=1_500.0
    )
    assert chart.values == [0, 100, 200, 300]
    assert chart.limit == [(0.0, 0.0), (12.0, 300.0)]
