"""The engine, against a service that is scripted; the failures that are known from elsewhere are named here."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_async.ads.custom_audiences import BatchCounts
from svc_async.batch.lists.audience_users import AudienceUsers
from svc_async.batch.report import Failure, Progress, Receipt, Report
from svc_async.batch.settings import JobSizes
from svc_async.batch.source import slice_rows
from svc_async.errors import (
    ApiError,
    BatchError,
    ErrorDetail,
    InvalidArgument,
    Sent,
    TimedOut,
    TransportError,
    UnexpectedAnswer,
)
from svc_async.sandbox import VirtualClock
from svc_async.users.encoding import Rows
from svc_async.wire.outcome import api_error
from tests.batch.conftest import Outcome, Service, until


def members(count: int, *, first: int = 0) -> list[dict[str, object]]:
    return [{"partner_user_id": f"p{number}"} for number in range(first, first + count)]


def names(service: Service) -> list[str]:
    return [user["partner_user_id"][0] for user in service.users]


def applied_then(service: Service, error: Exception) -> Outcome:
    def outcome(operations: list[Any]) -> BatchCounts | None:
        service.accepted += operations
        raise error

    return outcome


def counting(success: int, total: int) -> Outcome:
    return lambda _: BatchCounts(success_count=success, total_count=total)


def status(code: int, **details: Any) -> ApiError:
    return api_error(status=code, **details)


LOST = TransportError("the connection broke", sent=Sent.MAYBE)
REFUSED = TransportError("connection refused", sent=Sent.NO)


def balanced(report: Report | Progress) -> bool:
    return report.read == report.accepted + report.coalesced + report.failed + report.pending


@pytest.mark.rule("CAU-12", "ERR-09")
@pytest.mark.parametrize(("success", "total"), [(97, 100), (97, 97), (100, 97), (4, 4)])
async def test_97_of_100_is_not_accepted(users: AudienceUsers, service: Service, success: int, total: int) -> None:
    service.script[1] = counting(success, total)
    report = await users.upload(members(100))
    assert (report.accepted, report.requests) == (100, 2)
    assert service.bodies[0] == service.bodies[1]


async def test_a_count_that_stays_wrong_fails_the_rows(users: AudienceUsers, service: Service) -> None:
    service.always = counting(97, 100)
    report = await users.upload(members(100), retry_delays=(0, 5))
    assert (report.accepted, report.failed, report.requests) == (0, 100, 3)
    assert {failure.code for failure in report.failures} == {"GAVE_UP"}
    with pytest.raises(BatchError) as caught:
        report.raise_for_failures()
    assert caught.value.report is report


async def test_operations_may_be_counted(service: Service) -> None:
    service.always = counting(4, 4)
    users = AudienceUsers(service, "a1", "c1", counted="operations")
    report = await users.upload(members(100))
    assert (report.accepted, report.requests) == (100, 1)


@pytest.mark.parametrize(
    "error",
    [*map(status, (408, 423, 500, 502, 503, 504)), status(400, errors=[ErrorDetail(code="TOO_MANY_JOBS")]), REFUSED],
    ids=repr,
)
async def test_what_passes_is_repeated_with_the_same_bytes(
    users: AudienceUsers, service: Service, error: Exception
) -> None:
    service.script = {1: error, 2: error, 3: error}
    report = await users.upload(members(30))
    assert report.accepted == 30
    assert len(set(service.bodies)) == 1
    waits = [later - earlier for earlier, later in itertools.pairwise(service.times)]
    assert waits == [0, 60, 300]


async def test_retry_after_is_waited_out(users: AudienceUsers, service: Service) -> None:
    def later(_: list[Any]) -> None:
        raise status(503, retry_at=datetime.fromtimestamp(service.clock.now().timestamp() + 77, UTC))

    service.script[1] = later
    await users.upload(members(3))
    assert service.times[1] - service.times[0] == pytest.approx(77)


async def test_a_429_is_the_limits_word_and_not_the_rows_fault(users: AudienceUsers, service: Service) -> None:
    service.script = dict.fromkeys(range(1, 8), status(429))
    seen: list[Progress] = []
    report = await users.upload(members(3), progress=seen.append)
    assert report.accepted == 3
    assert seen[-1].rate_limited == 7
    waits = [later - earlier for earlier, later in itertools.pairwise(service.times)]
    assert waits == [60] * 7  # no header said how long


@pytest.mark.parametrize(
    "error", [LOST, TimedOut("no answer", sent=Sent.MAYBE), UnexpectedAnswer("no JSON", status=200)], ids=repr
)
async def test_an_unknown_outcome_holds_the_lane_then_repeats_the_bytes(
    users: AudienceUsers, service: Service, error: Exception
) -> None:
    service.script[1] = applied_then(service, error)
    report = await users.upload(members(3), quarantine=45)
    assert (report.accepted, report.in_doubt) == (3, 0)
    assert service.bodies[0] == service.bodies[1]
    assert service.times[1] - service.times[0] == 45


async def test_other_lanes_go_on_while_one_is_held(users: AudienceUsers, service: Service) -> None:
    service.script[1] = LOST
    report = await users.upload(members(3000), users_per_operation=1, concurrency=2, quarantine=500)
    assert report.accepted == 3000
    assert service.times[:2] == [service.times[0]] * 2
    assert service.times[-1] - service.times[0] == 500


async def test_without_order_nothing_needs_a_quarantine(users: AudienceUsers, service: Service) -> None:
    service.script[1] = LOST
    report = await users.upload(members(3), ordering="none", quarantine=500, retry_delays=[1])
    assert report.accepted == 3
    assert service.times[1] - service.times[0] == 1


@pytest.mark.parametrize("code", [401, 403, 404])
async def test_a_final_refusal_stops_the_job_and_loses_no_row(
    users: AudienceUsers, service: Service, code: int
) -> None:
    service.script[2] = status(code, errors=[ErrorDetail(code="NO")])
    with pytest.raises(BatchError, match=f"HTTP {code} NO") as caught:
        await users.upload(members(10_000), users_per_operation=1, concurrency=1)
    report: Report = caught.value.report
    assert isinstance(caught.value.__cause__, ApiError)
    assert (report.accepted, report.failed, report.requests) == (2500, 0, 2)
    assert report.pending == report.read - 2500
    assert balanced(report)


async def test_who_only_waits_is_called_off_when_the_job_stops(users: AudienceUsers, service: Service) -> None:
    service.script = {1: status(503), 2: status(403)}
    with pytest.raises(BatchError) as caught:
        await users.upload(members(3000), users_per_operation=1, concurrency=2, retry_delays=[10**9])
    assert service.clock.monotonic() - service.times[0] < 10**6
    assert caught.value.report.pending == 3000


@pytest.mark.rule("ERR-05", "CAU-11")
@pytest.mark.parametrize("per_operation", [1, 25])
async def test_a_refused_operation_costs_only_its_own_row(
    users: AudienceUsers, service: Service, per_operation: int
) -> None:
    bad = {"p7", "p30", "p31", "p99"}

    def refuse(operations: list[Any]) -> None:
        named = {
            index: (ErrorDetail(code="INVALID_PARAMETER", message=f"bad user {min(guilty)}"),)
            for index, operation in enumerate(operations)
            if (guilty := bad & {user["partner_user_id"][0] for user in operation["params"]["users"]})
        }
        if named:
            raise status(400, operation_errors=named)

    service.always = refuse
    receipts: list[Receipt] = []
    report = await users.upload(members(100), users_per_operation=per_operation, on_receipt=receipts.append)
    assert [failure.position for failure in report.failures] == [7, 30, 31, 99]
    assert {failure.code for failure in report.failures} == {"INVALID_PARAMETER"}
    assert {failure.reason for failure in report.failures} == {"bad user …"}, "a value of a row was repeated"
    assert report.accepted == 96
    assert sorted(names(service)) == sorted({f"p{number}" for number in range(100)} - bad)
    assert sum(receipt.rows for receipt in receipts) == 100
    assert all(receipt.request_id for receipt in receipts if receipt.accepted)
    assert report.requests <= 4


@pytest.mark.parametrize("code", [400, 409, 413, 422])
async def test_a_refusal_without_a_name_is_narrowed_down_to_the_row(
    users: AudienceUsers, service: Service, code: int
) -> None:
    def refuse(operations: list[Any]) -> None:
        if any("p42" in user["partner_user_id"] for operation in operations for user in operation["params"]["users"]):
            raise status(code, errors=[ErrorDetail(code="TOO_COMPLEX", message="no")])

    service.always = refuse
    report = await users.upload(members(100))
    assert [(failure.position, failure.code) for failure in report.failures] == [(42, "TOO_COMPLEX")]
    assert (report.accepted, len(names(service))) == (99, 99)


@pytest.mark.parametrize("error", [status(503), status(400), status(429), LOST], ids=repr)
async def test_an_error_storm_has_pauses_and_a_budget(users: AudienceUsers, service: Service, error: Exception) -> None:
    service.always = error
    with pytest.raises(BatchError) as caught:
        await users.upload(members(150_000), users_per_operation=1, concurrency=4)
    report: Report = caught.value.report
    assert balanced(report)
    assert report.accepted == 0
    assert report.requests < 250
    if not isinstance(error, ApiError) or error.status != 400:
        assert service.clock.monotonic() - service.times[0] > 300


async def test_nothing_is_lost_after_one_error(users: AudienceUsers, service: Service) -> None:
    service.script[3] = status(500)
    report = await users.upload(members(60), users_per_operation=1, concurrency=3)
    assert report.accepted == 60
    assert sorted(names(service)) == sorted(f"p{number}" for number in range(60))


def raising_after(count: int) -> Iterator[dict[str, object]]:
    yield from members(count)
    raise LookupError("row p77 of the customer")


async def async_raising_after(count: int) -> AsyncIterator[dict[str, object]]:
    for member in members(count):
        yield member
    raise LookupError("row p77 of the customer")


@pytest.mark.parametrize("count", [0, 100, 512, 1300])
@pytest.mark.parametrize("source", [raising_after, async_raising_after])
async def test_a_source_that_fails_loses_no_row(users: AudienceUsers, source: Any, count: int) -> None:
    with pytest.raises(BatchError, match="LookupError") as caught:
        await users.upload(source(count))
    assert "p77" not in str(caught.value)
    assert isinstance(caught.value.__cause__, LookupError)
    report: Report = caught.value.report
    assert (report.read, report.accepted, report.pending) == (count, count, 0)


@pytest.mark.parametrize("observer", ["progress", "on_receipt", "on_failure"])
async def test_an_observer_that_fails_loses_no_row(users: AudienceUsers, service: Service, observer: str) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    rows: list[dict[str, object]] = [*members(3000), {"email": "x"}, {"email": "y"}]
    with pytest.raises(BatchError) as caught:
        await users.upload(rows, users_per_operation=1, concurrency=1, **{observer: fail})  # type: ignore[arg-type]  # one of the observers
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    report: Report = caught.value.report
    assert balanced(report)
    assert report.accepted == len(service.users)


async def test_a_cancelled_upload_reports(users: AudienceUsers, service: Service) -> None:
    service.clock = VirtualClock()  # stands still: answers never come
    seen: list[Progress] = []
    service.latency = 10
    task = asyncio.create_task(users.upload(members(6000), users_per_operation=1, concurrency=1, progress=seen.append))
    await until(lambda: service.in_flight == 1)
    await service.clock.advance(seconds=10)
    await until(lambda: len(service.bodies) == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    last = seen[-1]
    assert balanced(last)
    assert (last.accepted, last.in_flight, last.in_doubt) == (2500, 0, 2500)
    assert last.pending == last.read - 2500


async def test_a_stream_gives_receipts_as_they_come_and_the_report(users: AudienceUsers) -> None:
    stream = users.stream(members(6000), users_per_operation=1, concurrency=2)
    receipts = [receipt async for receipt in stream]
    assert sum(receipt.accepted for receipt in receipts) == stream.report.accepted == 6000
    assert min(receipt.first for receipt in receipts) == 0
    assert max(receipt.last for receipt in receipts) == 5999
    assert [receipt async for receipt in stream] == []


async def test_a_stream_that_is_closed_ends_the_job(users: AudienceUsers, service: Service) -> None:
    async with users.stream(members(60_000), users_per_operation=1, concurrency=2) as stream:
        receipt = await anext(stream)
    report = stream.report
    assert receipt.accepted > 0
    assert balanced(report)
    assert 0 < report.accepted < 60_000
    sent = len(service.bodies)
    await asyncio.sleep(0)
    assert (service.in_flight, len(service.bodies)) == (0, sent)


async def test_a_stream_whose_reader_is_cancelled_ends_the_job(users: AudienceUsers, service: Service) -> None:
    service.clock = VirtualClock()
    service.latency = 10
    stream = users.stream(members(10))

    async def read() -> None:
        async for _ in stream:
            pass

    task = asyncio.create_task(read())
    await until(lambda: service.in_flight == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert service.in_flight == 0
    assert (stream.report.pending, stream.report.in_doubt) == (10, 10)


async def test_a_stream_ends_with_the_reason_after_the_last_receipt(users: AudienceUsers, service: Service) -> None:
    service.script[2] = status(403)
    stream = users.stream(members(6000), users_per_operation=1, concurrency=1, operation_type="Delete")
    receipts = [await anext(stream)]
    with pytest.raises(BatchError):
        await anext(stream)
    assert [receipt.accepted for receipt in receipts] == [2500]
    assert stream.report.accepted == 2500
    assert {operation["operation_type"] for operation in service.operations} == {"Delete"}


@pytest.mark.parametrize("lanes", [1, 3, 200])
async def test_rows_of_one_key_arrive_in_their_order(users: AudienceUsers, service: Service, lanes: int) -> None:
    rows = [{"partner_user_id": f"p{n % 40}", "svc_id": str(n)} for n in range(2000)]
    faults = itertools.cycle([None, None, status(503), REFUSED, None, LOST])

    def sometimes(_: list[Any]) -> None:
        error = next(faults)
        if error is not None:
            raise error

    service.always = sometimes
    service.latency = 1
    report = await users.upload(rows, concurrency=lanes, quarantine=5)
    assert report.accepted == 2000
    assert service.most_in_flight <= lanes
    last = {user["partner_user_id"][0]: user["svc_id"] for user in service.users}
    expected = await _last_of_each(rows)
    assert last == expected


async def _last_of_each(rows: list[dict[str, str]]) -> dict[str, list[str]]:
    alone = Service()
    await AudienceUsers(alone, "a", "c").upload(rows[-40:])
    return {user["partner_user_id"][0]: user["svc_id"] for user in alone.users}


async def test_tails_of_lanes_share_requests(users: AudienceUsers) -> None:
    report = await users.upload(members(6000), users_per_operation=1, concurrency=32)
    assert (report.accepted, report.requests) == (6000, 3)


async def test_tails_wait_for_requests_under_way_to_share_one(users: AudienceUsers, service: Service) -> None:
    slow = iter([5.0])

    def answer(_: list[Any]) -> None:
        service.latency = next(slow, 1.0)

    service.always = answer
    service.latency = 1.0
    report = await users.upload(members(6000), users_per_operation=1, concurrency=2)
    assert (report.accepted, report.requests) == (6000, 3)


async def test_a_source_larger_than_the_memory_is_read_in_pieces(users: AudienceUsers, service: Service) -> None:
    users = attrs.evolve(users, sizes=JobSizes(memory=100_000))
    most = 0

    def watch(progress: Progress) -> None:
        nonlocal most
        most = max(most, progress.pending)

    service.latency = 1
    report = await users.upload(members(100_000), progress=watch)
    assert report.accepted == 100_000
    assert 0 < most < 20_000


async def test_times_are_pinned_when_a_batch_is_built(users: AudienceUsers, service: Service) -> None:
    service.script = {1: LOST}
    await users.upload(members(2))
    times = {
        (operation["params"]["effective_at"], operation["params"]["expires_at"]) for operation in service.operations
    }
    ((effective_at, expires_at),) = times
    assert len(service.bodies) == 2
    start = datetime.fromisoformat(effective_at)
    assert datetime.fromisoformat(expires_at) == start.replace(year=start.year + 1, month=start.month + 1)


async def test_a_delete_goes_without_times(users: AudienceUsers, service: Service) -> None:
    report = await users.remove(members(3))
    assert report.accepted == 3
    (operation,) = service.operations
    assert operation["operation_type"] == "Delete"
    assert operation["params"].keys() == {"users"}


async def test_given_times_are_sent(users: AudienceUsers, service: Service) -> None:
    start, end = datetime(2026, 7, 1, tzinfo=UTC), datetime(2026, 8, 1, tzinfo=UTC)
    await users.upload(members(1), effective_at=start, expires_at=end)
    (operation,) = service.operations
    assert operation["params"]["effective_at"] == "2026-07-01T00:00:00Z"
    assert operation["params"]["expires_at"] == "2026-08-01T00:00:00Z"


async def test_bad_rows_fail_by_themselves_and_are_all_told(users: AudienceUsers) -> None:
    rows: list[Any] = [{"email": "no"}, *members(2), {}, {"email": "a@b.de", "handle": "?"}, "x", *members(2, first=2)]
    told: list[Failure] = []
    report = await users.upload(rows, on_failure=told.append)
    assert [failure.position for failure in report.failures] == [0, 3, 4, 5]
    assert {failure.code for failure in report.failures} == {"INVALID_ROW"}
    assert sorted(told, key=lambda failure: failure.position) == list(report.failures)
    assert (report.accepted, report.failed, report.read) == (4, 4, 8)


async def test_a_row_too_large_for_any_request_fails_alone(users: AudienceUsers) -> None:
    rows: list[dict[str, object]] = [*members(3), {"partner_user_id": "x" * 5_000_000}, *members(3, first=3)]
    report = await users.upload(rows)
    assert [(failure.position, failure.code) for failure in report.failures] == [(3, "TOO_LARGE")]
    assert report.accepted == 6


async def test_no_request_is_larger_than_allowed(users: AudienceUsers, service: Service) -> None:
    rows = [{"partner_user_id": f"{number}".rjust(40_000, "x")} for number in range(300)]
    report = await users.upload(rows, concurrency=1)
    assert report.accepted == 300
    sizes = [len(body) for body in service.bodies]
    assert max(sizes) <= 5_000_000
    assert len(sizes) == 3


async def test_a_report_lists_ten_thousand_failures_and_counts_all(users: AudienceUsers) -> None:
    told = 0

    def tell(_: Failure) -> None:
        nonlocal told
        told += 1

    report = await users.upload(Rows(("email",), (("no",) for _ in range(10_500))), on_failure=tell)
    assert (len(report.failures), report.failed, told) == (10_000, 10_500, 10_500)
    assert report.requests == 0


async def test_an_empty_source_sends_nothing(users: AudienceUsers, service: Service) -> None:
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


async def test_the_loop_gets_its_turn_between_parts(users: AudienceUsers) -> None:
    turns = 0

    async def neighbour() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(neighbour())
    await users.upload(members(20_000))
    task.cancel()
    assert turns >= 20_000 // 512


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
    users: AudienceUsers, service: Service, setting: str, value: Any
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await users.upload(members(1), **{setting: value})
    assert caught.value.parameter == setting
    assert service.bodies == []


@pytest.mark.parametrize("source", [b"a@b.de", {"email": "a@b.de"}, 5])
async def test_members_are_many(users: AudienceUsers, source: Any) -> None:
    with pytest.raises(InvalidArgument, match="members"):
        await users.upload(source)


OUTCOMES = st.sampled_from(
    ["fine", "fine", "fine", "503", "lost", "lost after", "refused", "429", "counts", "bad", "stop"]
)


@settings(max_examples=40)
@given(
    keys=st.lists(st.integers(0, 300), max_size=500),
    outcomes=st.lists(OUTCOMES, max_size=12),
    per_operation=st.sampled_from([1, 3]),
    lanes=st.integers(1, 5),
)
async def test_the_books_balance_at_every_event(
    keys: list[int], outcomes: list[str], per_operation: int, lanes: int
) -> None:
    service = Service()
    errors: dict[str, Outcome | None] = {
        "fine": None,
        "503": status(503),
        "lost": LOST,
        "lost after": applied_then(service, LOST),
        "refused": REFUSED,
        "429": status(429),
        "counts": counting(0, 0),
        "bad": status(400),
        "stop": status(403),
    }
    service.script = {number: outcome for number, each in enumerate(outcomes, 1) if (outcome := errors[each])}
    users = AudienceUsers(service, "a1", "c1")
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
    assert all(map(balanced, seen))
    assert balanced(report)
    assert report.read == len(rows)
    assert report.requests == len(service.bodies)
    assert report.accepted == sum(receipt.accepted for receipt in receipts) <= len(service.users)
    assert report.accepted + report.failed - keys.count(0) == sum(receipt.rows for receipt in receipts)


async def test_parts_are_full_and_complete() -> None:
    assert [len(part) async for part in slice_rows(range(1025))] == [512, 512, 1]
    assert [part async for part in slice_rows(range(0))] == []


async def test_bodies_are_arrays_of_operations(users: AudienceUsers, service: Service) -> None:
    await users.upload(members(30))
    (body,) = service.bodies
    assert [len(operation["params"]["users"]) for operation in json.loads(body)] == [25, 5]
