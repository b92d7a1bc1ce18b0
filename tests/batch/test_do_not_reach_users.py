"""The users of a do-not-reach list: what differs from those of an audience; over a socket against the sandbox."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from svc_async.ads.do_not_reach_lists import (
    BatchOperationType,
    DoNotReachOperation,
    DoNotReachOperationParams,
    DoNotReachUser,
)
from svc_async.batch.lists.do_not_reach_users import DoNotReachUsers
from svc_async.errors import InvalidArgument, UnexpectedAnswer
from svc_async.sandbox import Fault, Sandbox
from svc_async.session import Session
from svc_async.users.encoding import Rows
from tests.batch.test_audience_users import delete, emails, hashed, update

USERS = "*/do_not_reach_lists/*/users"
LIST = "dnr7k1"


@pytest.fixture
async def users(sandbox: Sandbox) -> AsyncIterator[DoNotReachUsers]:
    async with Session.sandbox(sandbox) as session:
        yield session.account(sandbox.account_id).do_not_reach_list(LIST).users


def held(sandbox: Sandbox) -> set[str]:
    return {value for user in sandbox.audience(LIST).users for values in user.values() for value in values}


@pytest.mark.rule("DNR-01", "DNR-02", "DNR-03")
async def test_send_gives_the_counts_of_each_operation(sandbox: Sandbox, users: DoNotReachUsers) -> None:
    counts = await users.send(
        [
            update({"email": [hashed("a").upper()]}, {"phone_number": [hashed("1")]}),
            DoNotReachOperation(
                operation_type=BatchOperationType.UPDATE,
                params=DoNotReachOperationParams(users=[DoNotReachUser(email=[hashed("b")])]),
            ),
            delete({"email": [hashed("a")]}),
        ]
    )
    assert [(each.success_count, each.total_count) for each in counts] == [(2, 2), (1, 1), (1, 1)]
    assert held(sandbox) == {hashed("1"), hashed("b")}


@pytest.mark.rule("DNR-02", "ERR-09")
@pytest.mark.parametrize("counts", [(1, 1), (1, 2), (2, 1)])
async def test_send_verifies_the_sum_of_the_counts(
    sandbox: Sandbox, users: DoNotReachUsers, counts: tuple[int, int]
) -> None:
    success, total = counts
    sandbox.faults.on("POST", USERS).once().do(Fault.partial_counts(success=success, total=total))
    with pytest.raises(UnexpectedAnswer, match="counted other users"):
        await users.send([update({"email": [hashed("a")]}, {"email": [hashed("b")]})])


SOON = datetime(2001, 1, 1, tzinfo=UTC)


@pytest.mark.rule("DNR-01", "DNR-03", "DNR-04")
@pytest.mark.parametrize(
    ("operation", "parameter", "rule"),
    [
        (update({"handle": [hashed("a")]}), "operations[0].params.users[0]", "no keys but email, phone_number"),
        (update({"email": ["a@b.de"]}), "operations[0].params.users[0].email", "SHA-256.*DNR-03"),
        (update({"email": [hashed("a")]}, effective_at=SOON), "operations[0].params", "no keys but users, expires_at"),
        (
            update({"email": [hashed("a")]}, expires_at=SOON),
            "operations[0].params.expires_at",
            "later than now.*DNR-04",
        ),
        (
            update({"email": [hashed("a")]}, expires_at="2100-01-01T00:00:00Z"),
            "operations[0].params.expires_at",
            "within 13 months",
        ),
        ({"operation_type": "Add", "params": {"users": []}}, "operations[0].operation_type", "DNR-01"),
        ({"operation_type": "Update", "params": {}}, "operations[0].params.users", "array.*DNR-01"),
    ],
)
async def test_send_names_what_is_wrong(
    sandbox: Sandbox, users: DoNotReachUsers, operation: Any, parameter: str, rule: str
) -> None:
    with pytest.raises(InvalidArgument, match=rule) as caught:
        await users.send([operation])
    assert caught.value.parameter == parameter
    assert held(sandbox) == set()


@pytest.mark.rule("DNR-02", "DNR-03")
@pytest.mark.parametrize("per_operation", [1, 25])
async def test_users_are_put_on_the_list_and_taken_off(
    sandbox: Sandbox, users: DoNotReachUsers, per_operation: int
) -> None:
    report = await users.upload(emails(3000), users_per_operation=per_operation)
    report.raise_for_failures()
    assert report.requests == (2 if per_operation == 1 else 1)
    assert held(sandbox) == {hashed(f"u{number}@example.org") for number in range(3000)}
    stream = users.stream(Rows(("email",), ((row["email"],) for row in emails(1000))), operation_type="Delete")
    assert sum([receipt.accepted async for receipt in stream]) == 1000
    await users.remove([*emails(2000)[1000:], {"phone_number": "+49 30 1234567"}])
    assert held(sandbox) == {hashed(f"u{number}@example.org") for number in range(2000, 3000)}


@pytest.mark.rule("DNR-03")
async def test_only_emails_and_phone_numbers_are_taken(sandbox: Sandbox, users: DoNotReachUsers) -> None:
    rows: list[dict[str, object]] = [{"email": "a@b.de"}, {"handle": "a"}, {"phone_number": "+4930123456"}]
    report = await users.upload(rows)
    assert [(failure.position, failure.reason) for failure in report.failures] == [
        (1, "must have no key but email, phone_number (contract CAU-07, DNR-03)")
    ]
    assert held(sandbox) == {hashed("a@b.de"), hashed("+4930123456")}
    with pytest.raises(InvalidArgument, match="must be among email, phone_number"):
        await users.upload(Rows(("handle",), [("a",)]))


@pytest.mark.rule("DNR-04")
async def test_an_end_is_kept_and_one_that_is_not_given_is_within_the_bound(
    sandbox: Sandbox, users: DoNotReachUsers
) -> None:
    now = sandbox.clock.now()
    await users.upload([{"email": "a@b.de"}], expires_at=now + timedelta(days=2))
    await users.upload([{"email": "c@d.de"}])
    first, second = sandbox.audience(LIST).members
    assert first.expires_at == now + timedelta(days=2)
    year = now.replace(year=now.year + 1)
    assert timedelta(days=27) < second.expires_at - year < timedelta(days=32)
    for wrong in (now, now + timedelta(days=500), datetime(2030, 1, 1)):  # noqa: DTZ001 - the mistake
        with pytest.raises(InvalidArgument, match="expires_at"):
            await users.upload(emails(1), expires_at=wrong)


async def test_operations_are_applied_in_their_order(sandbox: Sandbox, users: DoNotReachUsers) -> None:
    operations: list[Any] = [
        update({"email": ["A@b.de"]}, {"email": ["c@d.de"]}),
        delete({"email": ["a@b.de"]}),
        update({"email": ["bad"]}),
    ]
    report = await users.apply(operations)
    assert (report.read, report.accepted, report.coalesced, report.failed) == (4, 2, 1, 1)
    assert held(sandbox) == {hashed("c@d.de")}


@pytest.mark.rule("DNR-01b", "DNR-02")
@pytest.mark.parametrize(
    "fault",
    [
        Fault.http(503, retry_after=3),
        Fault.drop_connection(),
        Fault.malformed_json(),
        Fault.partial_counts(success=0, total=0),
        Fault.rate_limited(20),
    ],
    ids=lambda fault: fault.name,
)
async def test_a_fault_costs_a_request_and_no_row(sandbox: Sandbox, users: DoNotReachUsers, fault: Fault) -> None:
    sandbox.faults.on("POST", USERS).once().do(fault)
    report = await users.upload(emails(100), quarantine=7)
    assert (report.accepted, report.requests) == (100, 2)
    assert len(held(sandbox)) == 100


@pytest.mark.rule("DNR-01b")
async def test_refused_operations_are_taken_out(sandbox: Sandbox, users: DoNotReachUsers) -> None:
    sandbox.faults.on("POST", USERS).nth(3).do(Fault.operation_errors({4: f"{hashed('u54@example.org')} is not liked"}))
    sandbox.faults.on("POST", USERS).nth(1).do(Fault.operation_errors({2: "no"}))
    report = await users.upload(emails(100), concurrency=1)
    assert [(failure.position, failure.reason) for failure in report.failures] == [(54, "… is not liked")]
    assert len(held(sandbox)) == 99
