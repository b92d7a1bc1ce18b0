"""The users of an audience, over a socket against the sandbox."""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from svc_async import Session, Timeouts
from svc_async.ads.custom_audiences import (
    AudienceUser,
    AudienceUserOperation,
    AudienceUserOperationParams,
    BatchOperationType,
)
from svc_async.errors import BadRequest, BatchError, InvalidArgument, Unauthorized, UnexpectedAnswer
from svc_async.handles import CustomAudienceHandle
from svc_async.lists.audience_users import AudienceUsers
from svc_async.sandbox import Fault, Sandbox
from svc_async.users.tables import Rows
from tests.support.errors import has
from tests.support.fake_service import FakeService
from tests.support.tasks import wait_until
from tests.support.user_operations import build_delete, build_update, hash_value, make_emails

USERS = "*/custom_audiences/*/users"
NOW = datetime(2026, 6, 10, 12, tzinfo=UTC)
LATER = datetime(2999, 1, 1, tzinfo=UTC)


def read_list(sandbox: Sandbox) -> set[str]:
    users = sandbox.audience(sandbox.audience_id).users
    return {value for user in users for values in user.values() for value in values}


@pytest.mark.rule("CAU-01", "CAU-04", "CAU-10")
async def test_send_is_one_request(sandbox: Sandbox, audience: CustomAudienceHandle) -> None:
    counts = await audience.users.send(
        [build_update({"email": [hash_value("a").upper()]}, {"partner_user_id": ['p"ü']})]
    )

    assert (counts.success_count, counts.total_count) == (2, 2)
    assert read_list(sandbox) == {hash_value("a"), 'p"ü'}

    await audience.users.send([build_delete({"email": [hash_value("a")]})])

    assert read_list(sandbox) == {'p"ü'}


async def test_send_accepts_records(sandbox: Sandbox, audience: CustomAudienceHandle) -> None:
    params = AudienceUserOperationParams(
        users=[AudienceUser(email=[hash_value("a")])], expires_at=sandbox.clock.now() + timedelta(days=2)
    )
    operation = AudienceUserOperation(operation_type=BatchOperationType.UPDATE, params=params)
    await audience.users.send([operation])
    (member,) = sandbox.audience(sandbox.audience_id).members

    assert member.expires_at == params.expires_at


@pytest.mark.rule("CAU-09")
async def test_send_raises_what_the_service_says(sandbox: Sandbox, audience: CustomAudienceHandle) -> None:
    sandbox.faults.on("POST", USERS).once().do(Fault.operation_errors({1: "no"}))
    with pytest.raises(BadRequest) as caught:
        await audience.users.send(
            [build_update({"email": [hash_value("a")]}), build_update({"email": [hash_value("b")]})]
        )

    assert list(caught.value.operation_errors) == [1]
    assert read_list(sandbox) == set()


async def test_send_names_what_has_no_form_in_json(audience: CustomAudienceHandle) -> None:
    operation = build_update({"email": [hash_value("a")]})
    operation["params"]["users"][0]["email"] = b"bytes"
    with pytest.raises(InvalidArgument, check=has(parameter="operations[0].params.users[0].email")):
        await audience.users.send([operation])


@pytest.mark.rule("CAU-12")
async def test_send_verifies_the_counts(sandbox: Sandbox, audience: CustomAudienceHandle) -> None:
    sandbox.faults.on("POST", USERS).once().do(Fault.partial_counts(success=1, total=1))
    with pytest.raises(UnexpectedAnswer, check=has(status=200)) as caught:
        await audience.users.send([build_update({"email": [hash_value("a")]}, {"email": [hash_value("b")]})])
    assert b'"success_count":1' in caught.value.body


@pytest.mark.rule("CAU-04", "CAU-05", "CAU-06b", "CAU-07", "CAU-08")
@pytest.mark.parametrize(
    ("operations", "parameter", "rule_ids"),
    [
        ([], "operations", ("CAU-01b",)),
        ([build_update({"email": [hash_value("a")]})] * 2501, "operations", ("CAU-01b",)),
        ([build_update({"partner_user_id": ["x" * 2_500_000]})] * 2, "operations", ("CAU-02",)),
        ([{"operation_type": "Upsert", "params": {"users": []}}], "operations[0].operation_type", ("CAU-04",)),
        ([{"params": {"users": []}}], "operations[0].operation_type", ("CAU-04",)),
        ([{"operation_type": "Update"}], "operations[0].params", ()),
        ([{"operation_type": "Update", "params": {}}], "operations[0].params.users", ("CAU-05",)),
        ([{"operation_type": "Update", "params": {"users": "ab"}}], "operations[0].params.users", ("CAU-05",)),
        ([build_update({}), "x"], "operations[0].params.users[0]", ()),
        (["x"], "operations[0]", ()),
        ([build_update({"email": [hash_value("a")]}, {"mail": ["x"]})], "operations[0].params.users[1]", ()),
        ([build_update({"email": ["a@b.de"]})], "operations[0].params.users[0].email", ("CAU-08",)),
        ([build_update({"email": [hash_value("a")[:-1]]})], "operations[0].params.users[0].email", ("CAU-08",)),
        (
            [{"operation_type": "Update", "params": {"users": [{"email": hash_value("a")}]}}],
            "operations[0].params.users[0].email",
            ("CAU-07",),
        ),
        ([build_update({"email": []})], "operations[0].params.users[0]", ()),
        ([build_update({"partner_user_id": [" "]})], "operations[0].params.users[0].partner_user_id", ("CAU-08",)),
        (
            [build_update({"email": [hash_value("a")]}, effective_at=LATER, expires_at=LATER)],
            "operations[0].params.expires_at",
            ("CAU-06b",),
        ),
        (
            [build_update({"email": [hash_value("a")]}, expires_at="2001-01-01T00:00:00Z")],
            "operations[0].params.expires_at",
            ("CAU-06b",),
        ),
        (
            [build_update({"email": [hash_value("a")]}, expires_at="soon")],
            "operations[0].params.expires_at",
            ("CAU-06",),
        ),
        ([build_update({"email": [hash_value("a")]}, expires_at=5)], "operations[0].params.expires_at", ("CAU-06",)),
        (
            [build_update({"email": [hash_value("a")]}, expires_at="2030-01-01T00:00:00")],
            "operations[0].params.expires_at",
            ("GEN-12",),
        ),
    ],
)
async def test_send_names_the_broken_rule_and_never_the_value(
    users: AudienceUsers, service: FakeService, operations: list[Any], parameter: str, rule_ids: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=parameter, rule_ids=rule_ids)) as caught:
        await users.send(operations)

    assert "a@b.de" not in str(caught.value)
    assert service.bodies == []


async def test_a_session_that_does_not_validate_leaves_it_to_the_service(
    users: AudienceUsers, service: FakeService
) -> None:
    service.validate = False
    await users.send([build_update({"email": ["a@b.de"]})])

    assert len(service.bodies) == 1


@pytest.mark.parametrize("per_operation", [1, 25])
async def test_an_upload_arrives(sandbox: Sandbox, audience: CustomAudienceHandle, per_operation: int) -> None:
    report = await audience.users.upload(make_emails(3000), users_per_operation=per_operation)
    report.raise_for_failures()

    assert read_list(sandbox) == {hash_value(f"u{number}@example.org") for number in range(3000)}
    assert report.requests == (2 if per_operation == 1 else 1)


async def test_a_removal_arrives(sandbox: Sandbox, audience: CustomAudienceHandle) -> None:
    await audience.users.upload(make_emails(100))
    report = await audience.users.remove(make_emails(60))

    assert report.accepted == 60
    assert read_list(sandbox) == {hash_value(f"u{number}@example.org") for number in range(60, 100)}


async def test_operations_are_applied_in_their_order(sandbox: Sandbox, audience: CustomAudienceHandle) -> None:
    later = sandbox.clock.now() + timedelta(days=5)
    operations: list[Any] = [
        build_update({"email": ["A@b.de"]}, {"email": ["c@d.de"]}, expires_at=later),
        build_delete({"email": ["a@b.de"]}),
        build_update({"email": ["bad"]}),
        AudienceUserOperation(
            operation_type=BatchOperationType.UPDATE,
            params=AudienceUserOperationParams(users=[AudienceUser(email=[hash_value("e@f.de")])]),
        ),
    ]

    report = await audience.users.apply(operations)

    assert (report.read, report.accepted, report.coalesced) == (5, 3, 1)
    assert [failure.position for failure in report.failures] == [3]
    assert read_list(sandbox) == {hash_value("c@d.de"), hash_value("e@f.de")}

    expiries = {
        member.identifiers["email"][0]: member.expires_at
        for member in sandbox.audience(audience.custom_audience_id).members
    }

    assert expiries[hash_value("c@d.de")] == later
    assert expiries[hash_value("e@f.de")] > later


async def test_a_malformed_operation_ends_the_reading(audience: CustomAudienceHandle) -> None:
    with pytest.raises(BatchError) as caught:
        await audience.users.apply(
            [build_update({"email": ["a@b.de"]}), {"operation_type": "x", "params": {"users": []}}]
        )

    assert isinstance(caught.value.__cause__, InvalidArgument)
    assert caught.value.__cause__.parameter == "operations[1].operation_type"
    assert (caught.value.report.read, caught.value.report.accepted) == (1, 1)


@pytest.mark.parametrize(
    ("fault", "stage", "requests"),
    [
        (Fault.http(503, retry_after=3), "before", 2),
        pytest.param(Fault.http(503), "before", 2, marks=pytest.mark.long),
        pytest.param(Fault.html(502), "before", 2, marks=pytest.mark.long),
        (Fault.rate_limited(30), "before", 2),
        pytest.param(Fault.rate_limited(-30), "before", 2, marks=pytest.mark.long),
        (Fault.rate_limited(headers=False), "before", 2),
        pytest.param(Fault.drop_connection(), "before", 2, marks=pytest.mark.long),
        (Fault.drop_connection(), "after", 2),
        (Fault.reset_connection(), "after", 2),
        pytest.param(Fault.truncate(10), "after", 2, marks=pytest.mark.long),
        (Fault.malformed_json(), "after", 2),
        pytest.param(Fault.empty(), "after", 2, marks=pytest.mark.long),
        (Fault.html(200), "after", 2),
        (Fault.partial_counts(success=97, total=100), "after", 2),
        pytest.param(Fault.partial_counts(success=97, total=97), "after", 2, marks=pytest.mark.long),
    ],
    ids=lambda value: getattr(value, "name", None),
)
async def test_a_fault_costs_a_request_and_no_row(
    sandbox: Sandbox, audience: CustomAudienceHandle, fault: Fault, stage: Any, requests: int
) -> None:
    sandbox.faults.on("POST", USERS).once().do(fault, stage=stage)
    report = await audience.users.upload(make_emails(100), quarantine=7)

    assert (report.accepted, report.requests) == (100, requests)
    assert len(read_list(sandbox)) == 100


async def test_rate_limits_twice_in_a_row_are_waited_out(sandbox: Sandbox, audience: CustomAudienceHandle) -> None:
    sandbox.faults.on("POST", USERS).times(2).do(Fault.rate_limited(20))
    report = await audience.users.upload(make_emails(100))

    assert (report.accepted, report.requests) == (100, 3)


async def test_invalidated_credentials_stop_the_job(sandbox: Sandbox, audience: CustomAudienceHandle) -> None:
    sandbox.invalidate(sandbox.credentials["token"])
    with pytest.raises(BatchError) as caught:
        await audience.users.upload(make_emails(100))

    assert isinstance(caught.value.__cause__, Unauthorized)
    assert (caught.value.report.pending, caught.value.report.requests) == (100, 1)


async def test_refused_operations_are_isolated(sandbox: Sandbox, audience: CustomAudienceHandle) -> None:
    sandbox.faults.on("POST", USERS).nth(3).do(
        Fault.operation_errors({4: f"{hash_value('u54@example.org')} is not liked"})
    )
    sandbox.faults.on("POST", USERS).nth(1).do(Fault.operation_errors({2: "no"}))
    report = await audience.users.upload(make_emails(100), concurrency=1)
    ((failure,),) = [report.failures]

    assert (failure.code, failure.reason) == ("INVALID_PARAMETER", "… is not liked")
    assert failure.position == 54
    assert report.accepted == 99
    assert read_list(sandbox) == {hash_value(f"u{number}@example.org") for number in range(100)} - {
        hash_value("u54@example.org")
    }


async def _apply_late_update(sandbox: Sandbox, audience: CustomAudienceHandle, quarantine: float) -> set[str]:
    """Let the first request be applied late, after its answer was lost; then give it the time to do harm."""
    sandbox.faults.on("POST", USERS).once().do(Fault.late(60))
    rows = [{"partner_user_id": [f"p{number}"], "email": [f"u{number}@b.de"]} for number in range(50)]
    removals = [{"partner_user_id": [f"p{number}"]} for number in range(0, 50, 2)]
    report = await audience.users.apply([build_update(*rows), build_delete(*removals)], quarantine=quarantine)
    assert report.accepted == 75
    await sandbox.clock.sleep(100)
    return {value for value in read_list(sandbox) if value.startswith("p")}


async def test_a_request_that_is_applied_late_undoes_nothing(sandbox: Sandbox, audience: CustomAudienceHandle) -> None:
    assert await _apply_late_update(sandbox, audience, 120) == {f"p{number}" for number in range(1, 50, 2)}


async def test_without_a_quarantine_a_late_request_undoes_newer_rows(
    sandbox: Sandbox, audience: CustomAudienceHandle
) -> None:
    assert await _apply_late_update(sandbox, audience, 0) == {f"p{number}" for number in range(50)}


@pytest.mark.parametrize(("lanes", "rows"), [(40, 200), pytest.param(200, 1_500, marks=pytest.mark.long)])
async def test_many_lanes_keep_the_order_through_a_bad_network(sandbox: Sandbox, lanes: int, rows: int) -> None:
    posts = sandbox.faults.on("POST", USERS)
    posts.probability(0.1, seed=1).do(Fault.drop_connection(), stage="after")
    posts.probability(0.1, seed=2).do(Fault.http(503))
    posts.probability(0.1, seed=3).do(Fault.partial_counts(success=0, total=0))
    dice = random.Random(5)
    operations: list[Any] = []
    expected: set[str] = set()
    for number in range(rows):
        name = f"p{dice.randrange(rows // 5)}"
        if dice.random() < 0.6:
            operations.append(build_update({"partner_user_id": [name], "handle": [f"h{number}"]}))
            expected.add(name)
        else:
            operations.append(build_delete({"partner_user_id": [name]}))
            expected.discard(name)
    # The time that other lanes let jump must not run out for a request that is on its way in real time.
    async with Session.sandbox(sandbox, timeouts=Timeouts(total=None)) as session:
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        report = await users.apply(operations, concurrency=lanes, quarantine=1, retry_delays=[0.1] * 20)

    assert report.accepted + report.coalesced == rows
    assert {value for value in read_list(sandbox) if value.startswith("p")} == expected


async def test_a_cancelled_stream_reports_what_was_accepted(sandbox: Sandbox, audience: CustomAudienceHandle) -> None:
    sandbox.faults.on("POST", USERS).nth(2).do(Fault.hang())
    stream = audience.users.stream(make_emails(6000), users_per_operation=1, concurrency=1)

    async def read() -> None:
        async with stream:
            async for _ in stream:
                pass

    task = asyncio.create_task(read())
    await wait_until(lambda: stream.report.requests == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    report = stream.report

    assert report.read == report.accepted + report.pending
    assert (report.accepted, report.in_doubt) == (2500, 2500)
    assert len(read_list(sandbox)) == 2500


async def test_rows_with_times_expire(sandbox: Sandbox, audience: CustomAudienceHandle) -> None:
    soon = sandbox.clock.now() + timedelta(hours=2)
    await audience.users.upload(Rows(("email",), [("a@b.de",)]), expires_at=soon)
    await audience.users.upload(Rows(("email",), [("c@d.de",)]))

    await sandbox.clock.sleep(3 * 3600)

    assert read_list(sandbox) == {hash_value("c@d.de")}


@pytest.mark.parametrize(
    "times",
    [
        {"effective_at": NOW, "expires_at": NOW},
        {"expires_at": datetime(2001, 1, 1, tzinfo=UTC)},
        {"expires_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - the mistake
    ],
)
@pytest.mark.rule("CAU-06b")
async def test_times_are_checked_before_anything_is_read(
    users: AudienceUsers, service: FakeService, times: Any
) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="expires_at")):
        await users.upload(iter(make_emails(1)), **times)
    assert service.bodies == []
