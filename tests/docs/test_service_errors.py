"""The functions of docs/how-to-use-in-a-service.md that make an answer of an error, in both examples."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from svc_async import InvalidArgument, SvcError, TransportError, UnexpectedAnswer, WouldWaitTooLong
from svc_async.errors import BatchError, Sent
from svc_async.wire.outcome import api_error
from tests.support.examples import ROOT, find_examples

PAGE = ROOT / "docs" / "how-to-use-in-a-service.md"
CODES = [each.code for each in find_examples(PAGE) if "find_status" in each.code]


@pytest.fixture(params=["FastAPI", "aiohttp"])
def names(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return what the example defines before it begins to serve."""
    code = next(each for each in CODES if ("TestClient" in each) == (request.param == "FastAPI"))
    found: dict[str, Any] = {"__name__": "example"}
    exec(code.partition("\nwith TestClient(app)")[0].partition("\nasync def main()")[0], found)  # noqa: S102 - as a reader does
    return found


def in_seconds(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def make_batch_error() -> BatchError:
    error = BatchError("the job ended early", report=None, sent=Sent.NO)
    error.__cause__ = InvalidArgument("rows", "must have known keys")
    return error


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidArgument("count", "must be less"), 400),
        (make_batch_error(), 400),
        (api_error(status=404), 404),
        (api_error(status=500), 502),
        (TransportError("connection failed", sent=Sent.NO), 502),
        (UnexpectedAnswer("no JSON", status=200), 502),
        (api_error(status=429), 503),
        (api_error(status=401), 500),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_error_has_a_status(names: dict[str, Any], error: SvcError, status: int) -> None:
    assert names["find_status"](error) == status


def test_a_limit_says_when_it_opens(names: dict[str, Any]) -> None:
    late = WouldWaitTooLong(until=in_seconds(900), limit="ads.writes", max_wait=60)
    assert 890 <= int(names["find_wait"](late)["Retry-After"]) <= 900
    assert 20 <= int(names["find_wait"](api_error(status=429, retry_at=in_seconds(30)))["Retry-After"]) <= 30
    assert names["find_wait"](api_error(status=429, retry_at=in_seconds(-5))) == {"Retry-After": "1"}
    assert names["find_wait"](InvalidArgument("count", "must be less")) == {}
