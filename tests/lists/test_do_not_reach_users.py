"""The users of a do-not-reach list: what differs from those of an audience; over a socket against the sandbox."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import attrs
import pytest

from svc_async.ads.do_not_reach_lists import (
    BatchOperationType,
    DoNotReachOperation,
    DoNotReachOperationParams,
    DoNotReachUser,
)
from svc_async.batch.job import ClusterRunner, Job, SourceSpec, TargetSpec
from svc_async.batch.packing.batch import Limits
from svc_async.batch.report import Report
from svc_async.errors import InvalidArgument, UnexpectedAnswer
from svc_async.lists.do_not_reach_users import DoNotReachUsers
from svc_async.sandbox import Fault, Sandbox
from svc_async.session import Session
from svc_async.users.tables import Rows
from tests.support.errors import has
from tests.support.user_operations import build_delete, build_update, hash_value, make_emails

USERS = "*/do_not_reach_lists/*/users"
LIST = "dnr7k1"


@attrs.frozen
class ClusterCalls(ClusterRunner):
    """Keeps the calls that are to run on a cluster."""

    calls: list[Job] = attrs.field(factory=list[Job])

    async def run(self, job: Job) -> Report:
        self.calls.append(job)
        return await super().run(job)


@pytest.fixture
async def users(sandbox: Sandbox) -> AsyncIterator[DoNotReachUsers]:
    async with Session.sandbox(sandbox) as session:
        yield session.account(sandbox.account_id).do_not_reach_list(LIST).users


def read_list(sandbox: Sandbox) -> set[str]:
    return {value for user in sandbox.audience(LIST).users for values in user.values() for value in values}


@pytest.mark.rule("DNR-01", "DNR-02", "DNR-03")
async def test_send_returns_the_counts_of_each_operation(sandbox: Sandbox, users: DoNotReachUsers) -> None:
    counts = await users.send(
        [
            build_update({"email": [hash_value("a").upper()]}, {"phone_number": [hash_value("1")]}),
            DoNotReachOperation(
                operation_type=BatchOperationType.UPDATE,
                params=DoNotReachOperationParams(users=[DoNotReachUser(email=[hash_value("b")])]),
            ),
            build_delete({"email": [hash_value("a")]}),
        ]
    )

    assert [(each.success_count, each.total_count) for each in counts] == [(2, 2), (1, 1), (1, 1)]
    assert read_list(sandbox) == {hash_value("1"), hash_value("b")}


@pytest.mark.rule("DNR-02", "ERR-09")
@pytest.mark.parametrize("counts", [(1, 1), (1, 2), (2, 1)])
async def test_send_verifies_the_sum_of_the_counts(
    sandbox: Sandbox, users: DoNotReachUsers, counts: tuple[int, int]
) -> None:
    success, total = counts
    sandbox.faults.on("POST", USERS).once().do(Fault.partial_counts(success=success, total=total))
    with pytest.raises(UnexpectedAnswer, check=has(status=200)):
        await users.send([build_update({"email": [hash_value("a")]}, {"email": [hash_value("b")]})])


SOON = datetime(2001, 1, 1, tzinfo=UTC)


@pytest.mark.rule("DNR-01", "DNR-03", "DNR-04", "DNL-05")
@pytest.mark.parametrize(
    ("operation", "parameter", "rule_ids"),
    [
        (
            build_update({"handle": [hash_value("a")]}),
            "operations[0].params.users[0]",
            (),
        ),
        (build_update({"email": ["a@b.de"]}), "operations[0].params.users[0].email", ("DNR-03",)),
        (
            build_update({"email": [hash_value("a")]}, effective_at=SOON),
            "operations[0].params",
            (),
        ),
        (
            build_update({"email": [hash_value("a")]}, expires_at=SOON),
            "operations[0].params.expires_at",
            ("DNR-04",),
        ),
        (
            build_update({"email": [hash_value("a")]}, expires_at="2100-01-01T00:00:00Z"),
            "operations[0].params.expires_at",
            ("DNR-04",),
        ),
        ({"operation_type": "Add", "params": {"users": []}}, "operations[0].operation_type", ("DNR-01",)),
        ({"operation_type": "Update", "params": {}}, "operations[0].params.users", ("DNR-01",)),
    ],
)
async def test_send_names_the_broken_rule(
    sandbox: Sandbox, users: DoNotReachUsers, operation: Any, parameter: str, rule_ids: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=parameter, rule_ids=rule_ids)):
        await users.send([operation])

    assert read_list(sandbox) == set()


@pytest.mark.rule("DNR-02", "DNR-03")
@pytest.mark.parametrize("per_operation", [1, 25])
async def test_users_are_added_to_the_list_and_removed(
    sandbox: Sandbox, users: DoNotReachUsers, per_operation: int
) -> None:
    users = attrs.evolve(users, limits=Limits(operations=250))
    report = await users.upload(make_emails(300), users_per_operation=per_operation)
    report.raise_for_failures()

    assert report.requests == (2 if per_operation == 1 else 1)
    assert read_list(sandbox) == {hash_value(f"u{number}@example.org") for number in range(300)}

    stream = users.stream(Rows(("email",), ((row["email"],) for row in make_emails(100))), operation_type="Delete")

    assert sum([receipt.accepted async for receipt in stream]) == 100

    await users.remove([*make_emails(200)[100:], {"phone_number": "+49 30 1234567"}])

    assert read_list(sandbox) == {hash_value(f"u{number}@example.org") for number in range(200, 300)}


@pytest.mark.rule("DNR-03")
async def test_only_emails_and_phone_numbers_are_accepted(sandbox: Sandbox, users: DoNotReachUsers) -> None:
    rows: list[dict[str, object]] = [{"email": "a@b.de"}, {"handle": "a"}, {"phone_number": "+4930123456"}]
    report = await users.upload(rows)

    assert [(failure.position, failure.reason) for failure in report.failures] == [
        (1, "must have no key but email, phone_number")
    ]
    assert read_list(sandbox) == {hash_value("a@b.de"), hash_value("+4930123456")}

    with pytest.raises(InvalidArgument, check=has(parameter="columns")):
        await users.upload(Rows(("handle",), [("a",)]))


@pytest.mark.rule("DNR-04", "DNL-04")
async def test_a_given_end_is_sent_and_the_default_one_is_within_the_bound(
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
        with pytest.raises(InvalidArgument, check=has(parameter="expires_at")):
            await users.upload(make_emails(1), expires_at=wrong)


async def test_operations_are_applied_in_their_order(sandbox: Sandbox, users: DoNotReachUsers) -> None:
    operations: list[Any] = [
        build_update({"email": ["A@b.de"]}, {"email": ["c@d.de"]}),
        build_delete({"email": ["a@b.de"]}),
        build_update({"email": ["bad"]}),
    ]
    report = await users.apply(operations)

    assert (report.read, report.accepted, report.coalesced, report.failed) == (4, 2, 1, 1)
    assert read_list(sandbox) == {hash_value("c@d.de")}


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
    report = await users.upload(make_emails(100), quarantine=7)

    assert (report.accepted, report.requests) == (100, 2)
    assert len(read_list(sandbox)) == 100


@pytest.mark.rule("DNR-01b")
async def test_refused_operations_are_isolated(sandbox: Sandbox, users: DoNotReachUsers) -> None:
    sandbox.faults.on("POST", USERS).nth(3).do(
        Fault.operation_errors({4: f"{hash_value('u54@example.org')} is not liked"})
    )
    sandbox.faults.on("POST", USERS).nth(1).do(Fault.operation_errors({2: "no"}))

    report = await users.upload(make_emails(100), concurrency=1)

    assert [(failure.position, failure.reason) for failure in report.failures] == [(54, "… is not liked")]
    assert len(read_list(sandbox)) == 99


async def test_a_job_on_a_cluster_is_told_its_list_and_reads_files_only(users: DoNotReachUsers) -> None:
    runner, cluster = ClusterCalls(), cast("Any", object())
    users = attrs.evolve(users, cluster_runner=runner)
    with pytest.raises(InvalidArgument, check=has(parameter="cluster")):
        await users.upload("users.csv", cluster=cluster)
    (call,) = runner.calls
    assert call.target == TargetSpec(kind="do_not_reach_list", account_id=users.account_id, list_id=LIST)
    assert call.source == SourceSpec(path="users.csv")
    with pytest.raises(InvalidArgument, check=has(parameter="members")):
        await users.upload([{"email": "a@example.org"}], cluster=cluster)
    assert runner.calls == [call]
