"""What the logger `svc_async.http` says of the requests that a job repeats."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from svc_async import BatchError, Session
from svc_async.batch.report import Report
from svc_async.sandbox import Fault, Sandbox
from tests.support.loggers import keep_loggers  # noqa: F401 - a fixture

HTTP = "svc_async.http"


pytestmark = pytest.mark.usefixtures("keep_loggers")


@pytest.fixture
async def session(sandbox: Sandbox) -> AsyncIterator[Session]:
    async with Session.sandbox(sandbox) as session:
        yield session


def list_lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == HTTP]


async def upload(session: Session, sandbox: Sandbox, **settings: Any) -> Report:
    users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
    return await users.upload([{"email": "ann@example.test"}], **settings)


UPLOAD = "POST /12/accounts/{account_id}/custom_audiences/{custom_audience_id}/users"


@pytest.mark.parametrize(
    ("fault", "repeat"),
    [
        (Fault.http(503, retry_after=7), "ServerError (HTTP 503); repeated in 7 s"),
        (Fault.http(503, retry_after=1_800), "ServerError (HTTP 503); repeated in 1,800 s"),
        (Fault.http(503), "ServerError (HTTP 503); repeated in 120 s"),
        (
            Fault.drop_connection(),
            "TransportError: the connection was closed before an answer (sent: maybe); repeated in 120 s",
        ),
        (Fault.partial_counts(success=1, total=5), "CountMismatch (sent: maybe); repeated in 120 s"),
        (Fault.http(423), "ApiError (HTTP 423); repeated in 0 s"),
    ],
    ids=["turned away", "for long", "in doubt", "no answer", "wrong counts", "at once"],
)
async def test_a_job_says_of_each_request_that_it_repeats_why_and_when(
    session: Session, sandbox: Sandbox, caplog: pytest.LogCaptureFixture, fault: Fault, repeat: str
) -> None:
    sandbox.faults.on("POST", "*/users").once().do(fault)
    report = await upload(session, sandbox)

    assert report.accepted == 1
    assert list_lines(caplog) == [("WARNING", f"{UPLOAD}: {repeat}")]


async def test_a_job_logs_as_many_repeats_as_it_makes(
    session: Session, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox.faults.on("POST", "*/users").once().do(Fault.rate_limited(30), stage="after")
    sandbox.faults.on("POST", "*/users").do(Fault.partial_counts(success=1, total=5), stage="after")
    report = await upload(session, sandbox, retry_delays=(0, 200))

    assert (report.failed, report.requests) == (1, 4)  # then it waits a quarantine, and gives up
    assert [line.partition("; ")[2] for _, line in list_lines(caplog)] == ["repeated in 120 s", "repeated in 200 s"]


async def test_a_job_that_is_turned_away_logs_as_many_repeats_as_it_makes(
    session: Session, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox.faults.on("POST", "*/users").do(Fault.http(423))
    with pytest.raises(BatchError):
        await upload(session, sandbox, retry_delays=(0, 200))

    assert [line.partition("; ")[2] for _, line in list_lines(caplog)] == ["repeated in 0 s", "repeated in 200 s"]


async def test_a_job_that_splits_a_request_or_waits_for_a_limit_repeats_nothing(
    session: Session, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox.faults.on("POST", "*/users").once().do(Fault.rate_limited(30))
    sandbox.faults.on("POST", "*/users").once().do(Fault.http(400))
    report = await upload(session, sandbox)

    assert report.failed == 1
    assert list_lines(caplog) == []
