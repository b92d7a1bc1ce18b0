"""What to ask for after a gap, without sockets."""

from datetime import UTC, datetime, timedelta

import pytest

from svc_async.streams.recovery import BACKFILL_REACH, NO_REACH, REPLAY_REACH, Cover, Gap, backfill, gaps, replay

END = datetime(2026, 6, 10, 12, tzinfo=UTC)


def covers(seconds: float, reach: timedelta) -> list[tuple[Cover, float]]:
    found = gaps(END - timedelta(seconds=seconds), END, reach=reach)
    return [(gap.cover, (gap.end - gap.start).total_seconds()) for gap in found]


@pytest.mark.parametrize(
    ("seconds", "reach", "expected"),
    [
        (0, REPLAY_REACH, [(Cover.BACKFILL, 0)]),
        (0, NO_REACH, []),
        (-5, REPLAY_REACH, [(Cover.BACKFILL, 0)]),
        (0.2, REPLAY_REACH, [(Cover.BACKFILL, 0.2)]),
        (290, REPLAY_REACH, [(Cover.BACKFILL, 290)]),
        (291, REPLAY_REACH, [(Cover.REPLAY, 291)]),
        (86_400, REPLAY_REACH, [(Cover.REPLAY, 86_400)]),
        (90_000, REPLAY_REACH, [(Cover.NONE, 3_600), (Cover.REPLAY, 86_400)]),
        (300, BACKFILL_REACH, [(Cover.BACKFILL, 300)]),
        (400, BACKFILL_REACH, [(Cover.NONE, 100), (Cover.BACKFILL, 300)]),
        (400, NO_REACH, [(Cover.NONE, 400)]),
    ],
)
def test_a_gap_is_made_good_as_far_as_the_service_reaches(
    seconds: float, reach: timedelta, expected: list[tuple[Cover, float]]
) -> None:
    assert covers(seconds, reach) == expected


@pytest.mark.parametrize(("seconds", "minutes"), [(0.2, 1), (50, 1), (51, 2), (290, 5), (4_000, 5)])
def test_a_backfill_asks_for_whole_minutes_and_a_little_more_than_the_gap(seconds: float, minutes: int) -> None:
    gap = Gap(start=END - timedelta(seconds=seconds), end=END, cover=Cover.BACKFILL)
    assert backfill(gap) == {"backfill_minutes": minutes}


@pytest.mark.parametrize(("seconds", "asked"), [(3_600, 3_610), (86_395, 86_400)])
def test_a_side_connection_asks_for_a_little_more_than_the_gap_but_not_beyond_a_day(seconds: int, asked: int) -> None:
    gap = Gap(start=END - timedelta(seconds=seconds), end=END, cover=Cover.REPLAY)
    assert replay(gap) == {"start_time": END - timedelta(seconds=asked), "end_time": END}
