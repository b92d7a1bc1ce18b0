"""What `BatchError.sent` and `report.requests` say, against the sandbox over a socket."""

from pathlib import Path

import pytest

from svc_async import Session
from svc_async.batch.journal.record import JournalRecord
from svc_async.errors import BatchError, InvalidArgument, Sent, WrongState
from svc_async.handles import CustomAudienceHandle
from svc_async.sandbox import Fault, Sandbox

USERS = "*/custom_audiences/*/users"
ROWS = [{"email": "anna@example.org"}]


async def test_a_batch_of_rows_that_are_all_invalid_was_not_sent(
    sandbox: Sandbox, audience: CustomAudienceHandle
) -> None:
    report = await audience.users.upload([{"email": "no address"}])
    with pytest.raises(BatchError) as caught:
        report.raise_for_failures()
    assert (report.requests, caught.value.sent, sandbox.requests.total) == (0, Sent.NO, 0)


async def test_a_source_that_cannot_be_read_was_not_sent(sandbox: Sandbox, audience: CustomAudienceHandle) -> None:
    with pytest.raises(BatchError) as caught:
        await audience.users.apply([{"operation": "add"}])
    assert isinstance(caught.value.__cause__, InvalidArgument)
    assert (caught.value.sent, sandbox.requests.total) == (Sent.NO, 0)


async def test_a_request_of_a_closed_session_is_not_counted(sandbox: Sandbox, tmp_path: Path) -> None:
    async with Session.sandbox(sandbox) as session:
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
    with pytest.raises(BatchError) as caught:
        await users.upload(ROWS, journal=tmp_path / "job.journal")
    assert isinstance(caught.value.__cause__, WrongState)
    assert (caught.value.sent, caught.value.report.requests, sandbox.requests.total) == (Sent.NO, 0, 0)
    assert JournalRecord.read(tmp_path / "job.journal").report.requests == 0


async def test_requests_that_were_answered_are_counted(
    sandbox: Sandbox, audience: CustomAudienceHandle, tmp_path: Path
) -> None:
    sandbox.faults.on("POST", USERS).once().do(Fault.http(429))
    report = await audience.users.upload(ROWS, journal=tmp_path / "job.journal")
    assert report.requests == sandbox.requests.total == 2
    assert JournalRecord.read(tmp_path / "job.journal").report.requests == 2


async def test_a_batch_that_was_refused_was_sent(sandbox: Sandbox, audience: CustomAudienceHandle) -> None:
    sandbox.faults.on("POST", USERS).once().do(Fault.http(403))
    with pytest.raises(BatchError) as caught:
        await audience.users.upload(ROWS)
    assert (caught.value.sent, caught.value.report.requests) == (Sent.YES, 1)


async def test_a_batch_without_an_answer_may_have_had_an_effect(
    sandbox: Sandbox, audience: CustomAudienceHandle
) -> None:
    sandbox.faults.on("POST", USERS).once().do(Fault.drop_connection(), stage="after")

    def fail(_: object) -> None:
        if sandbox.requests.total:
            raise RuntimeError("the program fails while rows are in doubt")

    with pytest.raises(BatchError) as caught:
        await audience.users.upload(ROWS, progress=fail)
    assert (caught.value.sent, caught.value.report.in_doubt) == (Sent.MAYBE, 1)


async def test_a_sync_whose_requests_never_left_was_not_sent(sandbox: Sandbox, tmp_path: Path) -> None:
    async with Session.sandbox(sandbox) as session:
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
    with pytest.raises(BatchError) as caught:
        await users.sync(ROWS, state=tmp_path / "sync.state")
    assert caught.value.sent is Sent.NO
