"""Reading, packing and back-pressure: how the rows of a source come to the lanes."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import attrs
import pytest

from svc_async.batch.packing.batch import Limits
from svc_async.batch.report import Progress, Report
from svc_async.batch.settings import JobSizes
from svc_async.batch.slicing import slice_rows
from svc_async.engine.memory import MemoryBudget
from svc_async.errors import BatchError
from svc_async.lists.audience_users import AudienceUsers
from svc_async.users.tables import Rows
from tests.support.fake_service import (
    LOST,
    REFUSED,
    FakeService,
    make_error,
    make_members,
)


def raise_after(count: int) -> Iterator[dict[str, object]]:
    yield from make_members(count)
    raise LookupError("row p77 of the customer")


async def raise_after_async(count: int) -> AsyncIterator[dict[str, object]]:
    for member in make_members(count):
        yield member
    raise LookupError("row p77 of the customer")


@pytest.mark.parametrize("count", [0, 100, 512, 1300])
@pytest.mark.parametrize("source", [raise_after, raise_after_async])
async def test_a_source_that_fails_loses_no_row(users: AudienceUsers, source: Any, count: int) -> None:
    with pytest.raises(BatchError) as caught:
        await users.upload(source(count))

    assert "p77" not in str(caught.value)
    assert isinstance(caught.value.__cause__, LookupError)
    report: Report = caught.value.report
    assert (report.read, report.accepted, report.pending) == (count, count, 0)


@pytest.mark.parametrize("lanes", [1, 3, 200])
async def test_rows_of_one_key_arrive_in_their_order(users: AudienceUsers, service: FakeService, lanes: int) -> None:
    rows = [{"partner_user_id": f"p{n % 40}", "svc_id": str(n + 1)} for n in range(400)]
    faults = itertools.cycle([None, None, make_error(503), REFUSED, None, LOST])

    def fail_sometimes(_: list[Any]) -> None:
        error = next(faults)
        if error is not None:
            raise error

    service.always = fail_sometimes
    service.latency = 1

    report = await users.upload(rows, concurrency=lanes, quarantine=5)

    assert report.accepted == 400
    assert service.most_in_flight <= lanes
    assert service.svc_ids == await _upload_last_of_each(rows)


async def _upload_last_of_each(rows: list[dict[str, str]]) -> dict[str, str]:
    alone = FakeService()
    await AudienceUsers(alone.pipeline, "a", "c").upload(rows[-40:])
    return alone.svc_ids


def few(users: AudienceUsers) -> AudienceUsers:
    """Return users that are sent 250 operations at a time."""
    return attrs.evolve(users, limits=Limits(operations=250))


async def test_tails_of_lanes_share_requests(users: AudienceUsers) -> None:
    report = await few(users).upload(make_members(600), users_per_operation=1, concurrency=32)

    assert (report.accepted, report.requests) == (600, 3)


async def test_tails_wait_for_requests_in_flight_to_share_one(users: AudienceUsers, service: FakeService) -> None:
    slow = iter([5.0])

    def answer(_: list[Any]) -> None:
        service.latency = next(slow, 1.0)

    service.always = answer
    service.latency = 1.0

    report = await few(users).upload(make_members(600), users_per_operation=1, concurrency=2)

    assert (report.accepted, report.requests) == (600, 3)


async def test_a_source_larger_than_the_memory_is_read_in_pieces(users: AudienceUsers, service: FakeService) -> None:
    service.memory = MemoryBudget(25_000)
    most = 0

    def watch(progress: Progress) -> None:
        nonlocal most
        most = max(most, progress.pending)

    service.latency = 1
    users = attrs.evolve(users, sizes=JobSizes(slice_rows=64, partition_rows=1_024))

    report = await users.upload(make_members(10_000), progress=watch)

    assert report.accepted == 10_000
    assert 0 < most < 5_000


async def test_a_row_too_large_for_any_request_fails_alone(users: AudienceUsers) -> None:
    rows: list[dict[str, object]] = [*make_members(3), {"partner_user_id": "x" * 5_000_000}, *make_members(3, first=3)]

    report = await users.upload(rows)

    assert [(failure.position, failure.code) for failure in report.failures] == [(3, "TOO_LARGE")]
    assert report.accepted == 6


async def test_no_request_is_larger_than_allowed(users: AudienceUsers, service: FakeService) -> None:
    rows = [{"partner_user_id": f"{number}".rjust(400, "x")} for number in range(300)]

    report = await attrs.evolve(users, limits=Limits(operations=2_500, size=50_000)).upload(rows, concurrency=1)

    assert report.accepted == 300
    sizes = [len(body) for body in service.bodies]
    assert max(sizes) <= 50_000
    assert len(sizes) == 3


async def test_an_empty_source_sends_nothing(users: AudienceUsers, service: FakeService) -> None:
    report = await users.upload([])

    assert report == Report()
    assert service.bodies == []
    report.raise_for_failures()


async def test_async_sources_are_read_like_others(users: AudienceUsers) -> None:
    async def source() -> AsyncIterator[tuple[str]]:
        for number in range(1000):
            yield (f"u{number}@b.de",)

    report = await users.upload(Rows(("email",), source()))

    assert report.accepted == 1000


async def test_other_tasks_run_between_slices(users: AudienceUsers) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(count_turns())

    await users.upload(make_members(5_000))

    task.cancel()
    assert turns >= 5_000 // 512


async def test_slices_are_full_and_complete() -> None:
    assert [len(part) async for part in slice_rows(range(1025))] == [512, 512, 1]
    assert [part async for part in slice_rows(range(0))] == []
