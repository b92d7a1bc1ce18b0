"""How many requests a job takes, and how long, where the service admits so many a minute.

The amounts are those of the defaults divided by a scale, so that few rows show what many do.
"""

from math import ceil
from pathlib import Path
from typing import Any

import pytest

from svc_async.batch.packing.batch import Limits
from svc_async.batch.report import Report
from svc_async.batch.settings import JobSizes
from svc_async.engine.memory import MEMORY, MemoryBudget
from svc_async.errors import BatchError
from svc_async.lists.audience_users import AudienceUsers
from svc_async.lists.user_list import USER_LIMITS
from svc_async.users.tables import Rows
from tests.support.fake_service import LOST, FakeService, make_error

SCALE = 100
FULL = 59_580 // SCALE
"""Users with one e-mail address that the bytes of a request have room for, at 25 an operation with its times."""
REFUSED_FOR_GOOD = make_error(401)
PACE = 1_500 / 60 * 0.97
LIMITS = Limits(operations=USER_LIMITS.operations // SCALE, size=USER_LIMITS.size // SCALE)


@pytest.fixture
def service() -> FakeService:
    return FakeService(latency=0.4, pace=PACE, memory=MemoryBudget(MEMORY // SCALE))


@pytest.fixture
def users(service: FakeService) -> AudienceUsers:
    return AudienceUsers(service.pipeline, "a1", "c1", limits=LIMITS, sizes=JobSizes(slice_rows=60, partition_rows=41))


async def upload(users: AudienceUsers, rows: int, **settings: Any) -> Report:
    emails = Rows(("email",), [(f"u{number}@b.de",) for number in range(rows)])
    report = await users.upload(emails, **settings)
    assert report.accepted == rows
    return report


@pytest.mark.parametrize(
    "rows",
    [
        100,
        FULL,
        4_567,
        pytest.param(1_000_000 // SCALE, marks=pytest.mark.long),
        pytest.param(1_234_567 // SCALE, marks=pytest.mark.long),
        pytest.param(2_222_222 // SCALE, marks=pytest.mark.long),
    ],
)
async def test_a_job_takes_at_most_one_request_more_than_the_fewest(users: AudienceUsers, rows: int) -> None:
    report = await upload(users, rows)

    assert report.requests <= ceil(rows / FULL) + 1


@pytest.mark.long("a short job does not reach the pace")
async def test_a_long_job_fills_its_requests_and_keeps_up_with_the_pace(
    users: AudienceUsers, service: FakeService
) -> None:
    rows = 10_000_000 // SCALE

    report = await upload(users, rows)

    assert report.requests <= ceil(rows / FULL) + 1
    assert service.clock.monotonic() <= 1.05 * (report.requests / PACE + service.latency)


@pytest.mark.parametrize("rows", [1_250, pytest.param(12_345, marks=pytest.mark.long)])
async def test_one_user_an_operation_fills_requests_as_well(users: AudienceUsers, rows: int) -> None:
    report = await upload(users, rows, users_per_operation=1)

    assert report.requests <= ceil(rows / LIMITS.operations) + 1


@pytest.mark.long("a short job has few full requests")
async def test_a_lane_that_waits_leaves_the_others_their_full_requests(
    users: AudienceUsers, service: FakeService
) -> None:
    service.script = {5: LOST}
    rows = 1_000_000 // SCALE

    report = await upload(users, rows)

    assert report.requests <= ceil(rows / FULL) + 3  # the repeat, and a tail by itself


async def test_less_memory_makes_smaller_requests_but_not_fewer_at_a_time(
    users: AudienceUsers, service: FakeService
) -> None:
    service.memory = MemoryBudget(MEMORY // SCALE // 16)
    rows = 1_000_000 // SCALE

    report = await upload(users, rows)

    assert report.requests > 2 * ceil(rows / FULL)
    assert service.most_in_flight > 1


async def test_a_resumed_job_keeps_its_lanes(users: AudienceUsers, service: FakeService, tmp_path: Path) -> None:
    rows = 300_000 // SCALE
    service.script = {2: REFUSED_FOR_GOOD}
    with pytest.raises(BatchError):
        await upload(users, rows, journal=tmp_path / "journal")
    service.script, service.most_in_flight = {}, 0
    service.memory = MemoryBudget(MEMORY)  # a new job would have more lanes

    await upload(users, rows, journal=tmp_path / "journal")

    assert service.most_in_flight <= 12
