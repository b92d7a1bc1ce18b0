"""Receipts of a job one by one; closing or cancelling their reader ends the job."""

import asyncio

import attrs
import pytest

from svc_async.batch.packing.batch import Limits
from svc_async.errors import BatchError
from svc_async.lists.audience_users import AudienceUsers
from svc_async.sandbox import VirtualClock
from tests.support.fake_service import FakeService, adds_up, make_error, make_members
from tests.support.tasks import wait_until


async def test_a_stream_gives_receipts_as_they_come_and_the_report(users: AudienceUsers) -> None:
    stream = users.stream(make_members(6000), users_per_operation=1, concurrency=2)

    receipts = [receipt async for receipt in stream]

    assert sum(receipt.accepted for receipt in receipts) == stream.report.accepted == 6000
    assert min(receipt.first for receipt in receipts) == 0
    assert max(receipt.last for receipt in receipts) == 5999
    assert [receipt async for receipt in stream] == []


async def test_a_stream_that_is_closed_ends_the_job(users: AudienceUsers, service: FakeService) -> None:
    async with users.stream(make_members(60_000), users_per_operation=1, concurrency=2) as stream:
        receipt = await anext(stream)

    report = stream.report
    assert receipt.accepted > 0
    assert adds_up(report)
    assert 0 < report.accepted < 60_000
    sent = len(service.bodies)
    await asyncio.sleep(0)
    assert (service.in_flight, len(service.bodies)) == (0, sent)


async def test_a_stream_whose_reader_is_cancelled_ends_the_job(users: AudienceUsers, service: FakeService) -> None:
    service.clock = VirtualClock()
    service.latency = 10
    stream = users.stream(make_members(10))

    async def read() -> None:
        async for _ in stream:
            pass

    task = asyncio.create_task(read())
    await wait_until(lambda: service.in_flight == 1)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert service.in_flight == 0
    assert (stream.report.pending, stream.report.in_doubt) == (10, 10)


async def test_a_stream_ends_with_the_reason_after_the_last_receipt(users: AudienceUsers, service: FakeService) -> None:
    service.script[2] = make_error(403)
    users = attrs.evolve(users, limits=Limits(operations=250))
    stream = users.stream(make_members(600), users_per_operation=1, concurrency=1, operation_type="Delete")
    receipts = [await anext(stream)]

    with pytest.raises(BatchError):
        await anext(stream)

    assert [receipt.accepted for receipt in receipts] == [250]
    assert stream.report.accepted == 250
    assert {operation["operation_type"] for operation in service.operations} == {"Delete"}
