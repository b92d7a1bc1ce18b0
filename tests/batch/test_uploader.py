"""Uploads as their callers see them: reports, observers, cancellation, times and settings."""

import asyncio
import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.batch.packing.batch import Limits
from svc_async.batch.report import Failure, Progress, Receipt, Report
from svc_async.errors import BatchError, InvalidArgument
from svc_async.lists.audience_users import AudienceUsers
from svc_async.sandbox import VirtualClock
from svc_async.users.tables import Rows
from tests.support.errors import has
from tests.support.fake_service import (
    LOST,
    REFUSED,
    FakeService,
    Outcome,
    adds_up,
    answer_counts,
    apply_and_raise,
    make_error,
    make_members,
)
from tests.support.tasks import wait_until


@pytest.mark.parametrize("observer", ["progress", "on_receipt", "on_failure"])
async def test_an_observer_that_fails_loses_no_row(users: AudienceUsers, service: FakeService, observer: str) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    rows: list[dict[str, object]] = [*make_members(3000), {"email": "x"}, {"email": "y"}]

    with pytest.raises(BatchError) as caught:
        await users.upload(rows, users_per_operation=1, concurrency=1, **{observer: fail})  # type: ignore[arg-type]  # one of the observers

    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    report: Report = caught.value.report
    assert adds_up(report)
    assert report.accepted == len(service.users)


async def test_a_cancelled_upload_reports(users: AudienceUsers, service: FakeService) -> None:
    service.clock = VirtualClock()  # does not advance by itself
    seen: list[Progress] = []
    service.latency = 10
    users = attrs.evolve(users, limits=Limits(operations=250))
    task = asyncio.create_task(
        users.upload(make_members(600), users_per_operation=1, concurrency=1, progress=seen.append)
    )
    await wait_until(lambda: service.in_flight == 1)
    await service.clock.advance(seconds=10)
    await wait_until(lambda: len(service.bodies) == 2)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    last = seen[-1]
    assert adds_up(last)
    assert (last.accepted, last.in_flight, last.in_doubt) == (250, 0, 250)
    assert last.pending == last.read - 250


async def test_times_are_pinned_when_a_batch_is_built(users: AudienceUsers, service: FakeService) -> None:
    service.script = {1: LOST}

    await users.upload(make_members(2))

    times = {
        (operation["params"]["effective_at"], operation["params"]["expires_at"]) for operation in service.operations
    }
    ((effective_at, expires_at),) = times
    assert len(service.bodies) == 2
    start = datetime.fromisoformat(effective_at)
    assert datetime.fromisoformat(expires_at) == start.replace(year=start.year + 1, month=start.month + 1)


async def test_a_delete_has_no_times(users: AudienceUsers, service: FakeService) -> None:
    report = await users.remove(make_members(3))

    assert report.accepted == 3
    (operation,) = service.operations
    assert operation["operation_type"] == "Delete"
    assert operation["params"].keys() == {"users"}


async def test_given_times_are_sent(users: AudienceUsers, service: FakeService) -> None:
    start, end = datetime(2026, 7, 1, tzinfo=UTC), datetime(2026, 8, 1, tzinfo=UTC)

    await users.upload(make_members(1), effective_at=start, expires_at=end)

    (operation,) = service.operations
    assert operation["params"]["effective_at"] == "2026-07-01T00:00:00Z"
    assert operation["params"]["expires_at"] == "2026-08-01T00:00:00Z"


async def test_bad_rows_fail_by_themselves_and_are_all_reported(users: AudienceUsers) -> None:
    rows: list[Any] = [
        {"email": "no"},
        *make_members(2),
        {},
        {"email": "a@b.de", "handle": "?"},
        "x",
        *make_members(2, first=2),
    ]
    notified: list[Failure] = []

    report = await users.upload(rows, on_failure=notified.append)

    assert [failure.position for failure in report.failures] == [0, 3, 4, 5]
    assert {failure.code for failure in report.failures} == {"INVALID_ROW"}
    assert sorted(notified, key=lambda failure: failure.position) == list(report.failures)
    assert (report.accepted, report.failed, report.read) == (4, 4, 8)


@pytest.mark.long("ten thousand rows fail")
async def test_a_report_lists_ten_thousand_failures_and_counts_all(users: AudienceUsers) -> None:
    notified = 0

    def count(_: Failure) -> None:
        nonlocal notified
        notified += 1

    report = await users.upload(Rows(("email",), (("no",) for _ in range(10_500))), on_failure=count)

    assert (len(report.failures), report.failed, notified) == (10_000, 10_500, 10_500)
    assert report.requests == 0


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("concurrency", 0),
        ("users_per_operation", 0),
        ("quarantine", -1),
        ("retry_delays", (0, -1)),
        ("ordering", "random"),
    ],
)
async def test_a_bad_setting_is_named_before_anything_is_read(
    users: AudienceUsers, service: FakeService, setting: str, value: Any
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await users.upload(make_members(1), **{setting: value})

    assert caught.value.parameter == setting
    assert service.bodies == []


@pytest.mark.parametrize("source", [b"a@b.de", {"email": "a@b.de"}, 5])
async def test_members_must_be_iterable(users: AudienceUsers, source: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="members")):
        await users.upload(source)


OUTCOMES = st.sampled_from(
    ["fine", "fine", "fine", "503", "lost", "lost after", "refused", "429", "counts", "bad", "stop"]
)


@pytest.mark.usefixtures("examples")
@given(
    keys=st.lists(st.integers(0, 300), max_size=500),
    outcomes=st.lists(OUTCOMES, max_size=12),
    per_operation=st.sampled_from([1, 3]),
    lanes=st.integers(1, 5),
)
async def test_rows_add_up_at_every_event(keys: list[int], outcomes: list[str], per_operation: int, lanes: int) -> None:
    service = FakeService()
    errors: dict[str, Outcome | None] = {
        "fine": None,
        "503": make_error(503),
        "lost": LOST,
        "lost after": apply_and_raise(service, LOST),
        "refused": REFUSED,
        "429": make_error(429),
        "counts": answer_counts(0, 0),
        "bad": make_error(400),
        "stop": make_error(403),
    }
    service.script = {number: outcome for number, each in enumerate(outcomes, 1) if (outcome := errors[each])}
    users = AudienceUsers(service.pipeline, "a1", "c1")
    rows = [{"partner_user_id": f"p{key}"} if key else {"email": "no"} for key in keys]
    seen: list[Progress] = []
    receipts: list[Receipt] = []

    try:
        report = await users.upload(
            rows,
            users_per_operation=per_operation,
            concurrency=lanes,
            progress=seen.append,
            on_receipt=receipts.append,
            retry_delays=[0],
        )
    except BatchError as error:
        report = error.report

    assert all(map(adds_up, seen))
    assert adds_up(report)
    assert report.read == len(rows)
    assert report.requests == len(service.bodies)
    assert report.accepted == sum(receipt.accepted for receipt in receipts) <= len(service.users)
    assert report.accepted + report.failed - keys.count(0) == sum(receipt.rows for receipt in receipts)


async def test_bodies_are_arrays_of_operations(users: AudienceUsers, service: FakeService) -> None:
    await users.upload(make_members(30))

    (body,) = service.bodies
    assert [len(operation["params"]["users"]) for operation in json.loads(body)] == [25, 5]


@pytest.mark.parametrize("status", [503, 504])
async def test_no_answer_holds_a_lane_for_more_than_an_hour(
    users: AudienceUsers, service: FakeService, status: int
) -> None:
    retry_at = service.clock.now() + timedelta(hours=23)
    service.script[1] = make_error(status, headers={"retry-after": "82800"}, retry_at=retry_at)

    report = await users.upload(make_members(3))

    assert report.accepted == 3
    assert service.times[1] - service.times[0] == 3_600


@pytest.mark.parametrize("delay", [-1.0, math.nan, math.inf])
async def test_a_delay_that_never_ends_is_refused(users: AudienceUsers, service: FakeService, delay: float) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="retry_delays")):
        await users.upload(make_members(1), retry_delays=[delay])
    assert not service.bodies


# --- receipts one by one


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
