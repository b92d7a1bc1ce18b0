"""What follows a failed request: which rows are sent again, when, and which fail."""

import itertools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from svc_async.batch.packing.batch import Limits
from svc_async.batch.report import Progress, Receipt, Report
from svc_async.errors import (
    ApiError,
    BatchError,
    ErrorDetail,
    Sent,
    TimedOut,
    TransportError,
    UnexpectedAnswer,
    UsageCapExceeded,
)
from svc_async.lists.audience_users import AudienceUsers
from svc_async.sandbox import Fault, Sandbox
from svc_async.session import Session
from tests.support.errors import because
from tests.support.fake_service import (
    LOST,
    REFUSED,
    FakeService,
    adds_up,
    answer_counts,
    apply_and_raise,
    make_error,
    make_members,
)


@pytest.mark.rule("CAU-12", "ERR-09")
@pytest.mark.parametrize(("success", "total"), [(97, 100), (97, 97), (100, 97), (4, 4)])
async def test_97_of_100_is_not_accepted(users: AudienceUsers, service: FakeService, success: int, total: int) -> None:
    service.script[1] = answer_counts(success, total)

    report = await users.upload(make_members(100))

    assert (report.accepted, report.requests) == (100, 2)
    assert service.bodies[0] == service.bodies[1]


async def test_a_count_that_stays_wrong_fails_the_rows(users: AudienceUsers, service: FakeService) -> None:
    service.always = answer_counts(97, 100)

    report = await users.upload(make_members(100), retry_delays=(0, 5))

    assert (report.accepted, report.failed, report.requests) == (0, 100, 3)
    assert {failure.code for failure in report.failures} == {"GAVE_UP"}
    with pytest.raises(BatchError) as caught:
        report.raise_for_failures()
    assert caught.value.report is report


async def test_operations_may_be_counted(service: FakeService) -> None:
    service.always = answer_counts(4, 4)
    users = AudienceUsers(service.pipeline, "a1", "c1", counted="operations")

    report = await users.upload(make_members(100))

    assert (report.accepted, report.requests) == (100, 1)


@pytest.mark.parametrize(
    "error",
    [
        make_error(423),
        make_error(503, headers={"retry-after": "0"}),
        make_error(400, errors=[ErrorDetail(code="TOO_MANY_JOBS")]),
        REFUSED,
    ],
    ids=repr,
)
async def test_transient_failures_are_repeated_with_the_same_bytes(
    users: AudienceUsers, service: FakeService, error: Exception
) -> None:
    service.script = {1: error, 2: error, 3: error}

    report = await users.upload(make_members(30))

    assert report.accepted == 30
    assert len(set(service.bodies)) == 1
    waits = [later - earlier for earlier, later in itertools.pairwise(service.times)]
    assert waits == [0, 60, 300]


@pytest.mark.parametrize(
    ("fault", "sent", "in_doubt"),
    [
        (Fault.http(503, retry_after=1), "yes", 0),
        (Fault.http(502), "maybe", 900),
        pytest.param(Fault.late(seconds=10), "maybe", 900, marks=pytest.mark.long),
    ],
)
async def test_an_outage_fails_no_row_and_the_job_can_be_resumed(
    sandbox: Sandbox, tmp_path: Path, fault: Fault, sent: str, in_doubt: int
) -> None:
    journal, rows = tmp_path / "journal", [{"email": f"user{number}@example.org"} for number in range(900)]
    sandbox.faults.on("POST", "*/users").do(fault)
    async with Session.sandbox(sandbox) as session:
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        with pytest.raises(BatchError) as caught:
            await users.upload(rows, journal=journal)
        sandbox.faults.clear()
        resumed = await users.upload(rows, journal=journal)

    report = caught.value.report
    assert (report.read, report.accepted, report.pending, report.failed) == (900, 0, 900, 0)
    assert (report.in_doubt, report.failures, caught.value.sent) == (in_doubt, (), sent)
    assert (resumed.accepted, len(sandbox.audience(sandbox.audience_id).users)) == (900, 900)


async def test_retry_after_is_respected(users: AudienceUsers, service: FakeService) -> None:
    def ask_to_wait(_: list[Any]) -> None:
        raise make_error(
            503,
            headers={"retry-after": "77"},
            retry_at=datetime.fromtimestamp(service.clock.now().timestamp() + 77, UTC),
        )

    service.script[1] = ask_to_wait

    await users.upload(make_members(3))

    assert service.times[1] - service.times[0] == pytest.approx(77)


async def test_a_429_uses_up_no_retry_delay(users: AudienceUsers, service: FakeService) -> None:
    service.script = dict.fromkeys(range(1, 8), make_error(429))
    seen: list[Progress] = []

    report = await users.upload(make_members(3), progress=seen.append)

    assert report.accepted == 3
    assert seen[-1].rate_limited == 7
    waits = [later - earlier for earlier, later in itertools.pairwise(service.times)]
    assert waits == [0] * 7  # the governor, which is not part of this test, closes the limit


@pytest.mark.parametrize(
    "error",
    [
        LOST,
        TimedOut("no answer", sent=Sent.MAYBE),
        UnexpectedAnswer("no JSON", status=200),
        *map(make_error, (408, 500, 502, 503, 504, 520)),
    ],
    ids=repr,
)
async def test_an_unknown_outcome_quarantines_the_lane_then_resends_the_bytes(
    users: AudienceUsers, service: FakeService, error: Exception
) -> None:
    service.script[1] = apply_and_raise(service, error)

    report = await users.upload(make_members(3), quarantine=45)

    assert (report.accepted, report.in_doubt) == (3, 0)
    assert service.bodies[0] == service.bodies[1]
    assert service.times[1] - service.times[0] == 45


async def test_other_lanes_continue_while_one_waits(users: AudienceUsers, service: FakeService) -> None:
    service.script[1] = LOST

    report = await users.upload(make_members(3000), users_per_operation=1, concurrency=2, quarantine=500)

    assert report.accepted == 3000
    assert service.times[:2] == [service.times[0]] * 2
    assert service.times[-1] - service.times[0] == 500


async def test_without_order_nothing_needs_a_quarantine(users: AudienceUsers, service: FakeService) -> None:
    service.script[1] = LOST

    report = await users.upload(make_members(3), ordering="none", quarantine=500, retry_delays=[1])

    assert report.accepted == 3
    assert service.times[1] - service.times[0] == 1


@pytest.mark.parametrize("code", [403, *(pytest.param(code, marks=pytest.mark.long) for code in (401, 404))])
async def test_a_final_refusal_stops_the_job_and_loses_no_row(
    users: AudienceUsers, service: FakeService, code: int
) -> None:
    service.script[2] = make_error(code, errors=[ErrorDetail(code="NO")])

    with pytest.raises(BatchError, check=because(ApiError, status=code)) as caught:
        await users.upload(make_members(10_000), users_per_operation=1, concurrency=1)

    report: Report = caught.value.report
    assert (report.accepted, report.failed, report.requests) == (2500, 0, 2)
    assert report.pending == report.read - 2500
    assert adds_up(report)


async def test_a_certificate_that_is_refused_stops_the_job_and_loses_no_row(
    users: AudienceUsers, service: FakeService
) -> None:
    refused = TransportError("certificate verification failed (certificate has expired)", sent=Sent.NO)
    refused.repeatable = False
    service.script[2] = refused

    with pytest.raises(BatchError, check=because(TransportError, repeatable=False)) as caught:
        await users.upload(make_members(10_000), users_per_operation=1, concurrency=1)

    report: Report = caught.value.report
    assert (report.accepted, report.failed, report.pending) == (2500, 0, report.read - 2500)


@pytest.mark.parametrize("lanes", [2, 4, 8])
async def test_no_lane_begins_a_request_after_a_final_refusal(service: FakeService, lanes: int) -> None:
    sent: list[int] = []

    def refuse(_: object) -> None:
        sent.append(len(service.bodies))
        raise make_error(401)

    service.script[1] = refuse
    users = AudienceUsers(service.pipeline, "a1", "c1", limits=Limits(operations=1))

    with pytest.raises(BatchError):
        await users.upload(make_members(10), users_per_operation=1, concurrency=lanes)

    assert sent == [len(service.bodies)]


async def test_lanes_that_wait_are_cancelled_when_the_job_stops(users: AudienceUsers, service: FakeService) -> None:
    service.script = {1: make_error(503), 2: make_error(403)}

    with pytest.raises(BatchError) as caught:
        await users.upload(make_members(3000), users_per_operation=1, concurrency=2, retry_delays=[10**9])

    assert service.clock.monotonic() - service.times[0] < 10**6
    assert caught.value.report.pending == 3000


@pytest.mark.rule("ERR-05", "CAU-11")
@pytest.mark.parametrize("per_operation", [1, 25])
async def test_a_refused_operation_costs_only_its_own_row(
    users: AudienceUsers, service: FakeService, per_operation: int
) -> None:
    bad = {"p7", "p30", "p31", "p99"}

    def refuse(operations: list[Any]) -> None:
        named = {
            index: (ErrorDetail(code="INVALID_PARAMETER", message=f"bad user {min(guilty)}"),)
            for index, operation in enumerate(operations)
            if (guilty := bad & {user["partner_user_id"][0] for user in operation["params"]["users"]})
        }
        if named:
            raise make_error(400, operation_errors=named)

    service.always = refuse
    receipts: list[Receipt] = []

    report = await users.upload(make_members(100), users_per_operation=per_operation, on_receipt=receipts.append)

    assert [failure.position for failure in report.failures] == [7, 30, 31, 99]
    assert {failure.code for failure in report.failures} == {"INVALID_PARAMETER"}
    assert {failure.reason for failure in report.failures} == {"bad user …"}, "a value of a row was repeated"
    assert report.accepted == 96
    assert sorted(service.partner_user_ids) == sorted({f"p{number}" for number in range(100)} - bad)
    assert sum(receipt.rows for receipt in receipts) == 100
    assert all(receipt.request_id for receipt in receipts if receipt.accepted)
    assert report.requests <= 4


async def test_a_cap_of_the_plan_ends_a_job_before_it_is_sent_in_halves(
    users: AudienceUsers, service: FakeService
) -> None:
    service.always = make_error(429, errors=[ErrorDetail(code="UsageCapExceeded", message="Monthly product cap")])
    with pytest.raises(BatchError) as caught:
        await users.upload(make_members(100))

    report: Report = caught.value.report
    assert isinstance(caught.value.__cause__, UsageCapExceeded)
    assert (report.requests, report.accepted, len(report.failures), report.pending) == (1, 0, 0, 100)


@pytest.mark.parametrize("code", [400, 409, 413, 422])
async def test_a_refusal_that_names_nothing_is_narrowed_down_to_the_row(
    users: AudienceUsers, service: FakeService, code: int
) -> None:
    def refuse(operations: list[Any]) -> None:
        if any("p42" in user["partner_user_id"] for operation in operations for user in operation["params"]["users"]):
            raise make_error(code, errors=[ErrorDetail(code="TOO_COMPLEX", message="no")])

    service.always = refuse

    report = await users.upload(make_members(100))

    assert [(failure.position, failure.code) for failure in report.failures] == [(42, "TOO_COMPLEX")]
    assert (report.accepted, len(service.partner_user_ids)) == (99, 99)


@pytest.mark.parametrize(
    "error",
    [
        make_error(503),
        *(pytest.param(each, marks=pytest.mark.long) for each in (make_error(400), make_error(429), LOST)),
    ],
    ids=repr,
)
async def test_an_error_storm_has_pauses_and_a_budget(
    users: AudienceUsers, service: FakeService, error: Exception
) -> None:
    service.always = error

    with pytest.raises(BatchError) as caught:
        await users.upload(make_members(2_000), users_per_operation=1, concurrency=4)

    report: Report = caught.value.report
    assert adds_up(report)
    assert report.accepted == 0
    assert report.requests < 250
    if not isinstance(error, ApiError) or error.status not in {400, 429}:  # a 429 pauses at the governor
        assert service.clock.monotonic() - service.times[0] > 300


async def test_nothing_is_lost_after_one_error(users: AudienceUsers, service: FakeService) -> None:
    service.script[3] = make_error(500)

    report = await users.upload(make_members(60), users_per_operation=1, concurrency=3)

    assert report.accepted == 60
    assert sorted(service.partner_user_ids) == sorted(f"p{number}" for number in range(60))
