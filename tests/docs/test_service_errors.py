"""The functions of docs/how-to-use-in-a-service.md that make an answer of an error, in both examples."""

from typing import Any

import pytest

from svc_async import (
    AccessDenied,
    InvalidArgument,
    Session,
    StateUnavailable,
    SvcError,
    TakenUpElsewhere,
    TransportError,
    UnexpectedAnswer,
    UnusableFile,
    WouldWaitTooLong,
)
from svc_async.errors import BatchError, ErrorDetail, Sent
from svc_async.sandbox import RateRule, Sandbox, SandboxConfig, VirtualClock
from svc_async.wire.outcome import api_error
from tests.support.examples import ROOT, find_examples

PAGE = ROOT / "docs" / "how-to-use-in-a-service.md"
CODES = [each.code for each in find_examples(PAGE) if "find_status" in each.code]
LOCKED = UnusableFile("journal", "/srv/jobs/7.journal", "is locked by another job", repeatable=True)


@pytest.fixture(params=["FastAPI", "aiohttp"])
def names(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return what the example defines before it begins to serve."""
    code = next(each for each in CODES if ("TestClient" in each) == (request.param == "FastAPI"))
    found: dict[str, Any] = {"__name__": "example"}
    exec(code.partition("\nwith TestClient(app)")[0].partition("\nasync def main()")[0], found)  # noqa: S102 - as a reader does
    return found


def make_batch_error(cause: SvcError | None) -> BatchError:
    error = BatchError(f"the job ended early: {cause}", report=None, sent=Sent.NO)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidArgument("count", "must be less"), 400),
        (make_batch_error(InvalidArgument("rows", "must have known keys")), 400),
        (make_batch_error(LOCKED), 503),
        (make_batch_error(None), 500),
        *((api_error(status=status), status) for status in (400, 403, 404, 409)),
        (api_error(status=500), 502),
        (api_error(status=501), 502),
        (TransportError("connection failed", sent=Sent.NO), 502),
        (UnexpectedAnswer("no JSON", status=200), 502),
        (api_error(status=401), 502),
        (api_error(status=429), 503),
        (api_error(status=423), 503),
        (LOCKED, 503),
        (UnusableFile("journal", "/srv/jobs", "is a folder"), 500),
        (StateUnavailable("db.internal/svc", "timed out"), 503),
        (TakenUpElsewhere("nightly"), 409),
        (AccessDenied("the call needs a user"), 500),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_error_has_a_status(names: dict[str, Any], error: SvcError, status: int) -> None:
    assert names["find_status"](names["find_cause"](error)) == status


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (InvalidArgument("count", "must be less"), "count must be less"),
        (api_error(status=404, errors=[ErrorDetail(code="NOT_FOUND")]), "HTTP 404: NOT_FOUND"),
        (api_error(status=401), "Bad Gateway"),
        (LOCKED, "Service Unavailable"),
        (make_batch_error(LOCKED), "Service Unavailable"),
        (UnusableFile("journal", "/srv/jobs", "is a folder"), "Internal Server Error"),
        (StateUnavailable("db.internal/svc", "timed out"), "Service Unavailable"),
        (TakenUpElsewhere("jobs/nightly"), "Conflict"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_client_reads_of_no_file_or_host_of_the_service(names: dict[str, Any], error: SvcError, detail: str) -> None:
    assert names["find_detail"](names["find_cause"](error)) == detail


async def test_a_limit_says_when_it_opens_by_the_clock_of_the_session(names: dict[str, Any]) -> None:
    clock = VirtualClock("2001-01-01T00:00:00Z", mode="jump")
    config = SandboxConfig(rate_rules={"account_reads": RateRule(1, 900)})
    async with Sandbox(clock=clock, config=config) as sandbox, Session.sandbox(sandbox) as session:
        features = session.account(sandbox.account_id).features
        await features.list()
        with pytest.raises(WouldWaitTooLong) as caught:
            await features.list()
    assert 890 <= int(names["find_wait"](caught.value)["Retry-After"]) <= 901


def test_a_wait_is_at_least_a_second(names: dict[str, Any]) -> None:
    assert names["find_wait"](api_error(status=429, retry_after=29.2)) == {"Retry-After": "30"}
    assert names["find_wait"](api_error(status=429, retry_after=0.0)) == {"Retry-After": "1"}
    assert names["find_wait"](InvalidArgument("count", "must be less")) == {}
