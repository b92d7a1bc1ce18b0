"""What to request after a gap, without sockets."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from svc_async.errors import ApiError, BadRequest, ErrorDetail, Forbidden, Sent, StreamDropped, SvcError, Unauthorized
from svc_async.streams.recovery import (
    BACKFILL_REACH,
    NO_REACH,
    REPLAY_REACH,
    Gap,
    GapRecovery,
    build_backfill_params,
    build_replay_params,
    find_gaps,
    is_refused_authentication,
)

END = datetime(2026, 6, 10, 12, tzinfo=UTC)


def list_recoveries(seconds: float, reach: timedelta) -> list[tuple[GapRecovery, float]]:
    gaps = find_gaps(END - timedelta(seconds=seconds), END, reach=reach)
    return [(gap.recovery, (gap.end - gap.start).total_seconds()) for gap in gaps]


@pytest.mark.parametrize(
    ("seconds", "reach", "expected"),
    [
        (0, REPLAY_REACH, [(GapRecovery.BACKFILL, 0)]),
        (0, NO_REACH, []),
        (-5, REPLAY_REACH, [(GapRecovery.BACKFILL, 0)]),
        (0.2, REPLAY_REACH, [(GapRecovery.BACKFILL, 0.2)]),
        (290, REPLAY_REACH, [(GapRecovery.BACKFILL, 290)]),
        (291, REPLAY_REACH, [(GapRecovery.REPLAY, 291)]),
        (86_340, REPLAY_REACH, [(GapRecovery.REPLAY, 86_340)]),
        (90_000, REPLAY_REACH, [(GapRecovery.NONE, 3_660), (GapRecovery.REPLAY, 86_340)]),
        (300, BACKFILL_REACH, [(GapRecovery.BACKFILL, 300)]),
        (400, BACKFILL_REACH, [(GapRecovery.NONE, 100), (GapRecovery.BACKFILL, 300)]),
        (400, NO_REACH, [(GapRecovery.NONE, 400)]),
    ],
)
def test_a_gap_is_recovered_as_far_as_the_service_reaches(
    seconds: float, reach: timedelta, expected: list[tuple[GapRecovery, float]]
) -> None:
    assert list_recoveries(seconds, reach) == expected


@pytest.mark.parametrize(("seconds", "minutes"), [(0.2, 1), (50, 1), (51, 2), (290, 5), (4_000, 5)])
def test_a_backfill_requests_whole_minutes_and_a_little_more_than_the_gap(seconds: float, minutes: int) -> None:
    gap = Gap(start=END - timedelta(seconds=seconds), end=END, recovery=GapRecovery.BACKFILL)
    assert build_backfill_params(gap) == {"backfill_minutes": minutes}


@pytest.mark.parametrize(("seconds", "asked"), [(3_600, 3_610), (86_335, 86_340)])
def test_a_replay_requests_a_little_more_than_the_gap_but_no_more_than_the_service_has_when_it_arrives(
    seconds: int, asked: int
) -> None:
    gap = Gap(start=END - timedelta(seconds=seconds), end=END, recovery=GapRecovery.REPLAY)
    assert build_replay_params(gap) == {"start_time": END - timedelta(seconds=asked), "end_time": END}


def refuse(kind: type[ApiError], status: int, *codes: str | int, **details: Any) -> ApiError:
    return kind(status=status, errors=[ErrorDetail(code=code, message="no") for code in codes], **details)


@pytest.mark.parametrize(
    "error",
    [
        refuse(Unauthorized, 401),
        refuse(Forbidden, 403, sent=Sent.NO),
        *(refuse(Forbidden, 403, "other", code) for code in (32, 89, 99, 215, 220)),
        *(refuse(BadRequest, 400, code) for code in ("invalid_client", "invalid_grant")),
    ],
)
def test_a_refusal_is_about_the_credentials(error: ApiError) -> None:
    assert is_refused_authentication(error)


@pytest.mark.parametrize(
    "error", [refuse(Forbidden, 403), refuse(BadRequest, 400, "backfill_minutes"), StreamDropped("it was closed")]
)
def test_a_refusal_is_about_what_was_requested(error: SvcError) -> None:
    assert not is_refused_authentication(error)
