"""The table of outcomes, row by row, against the errors that answers raise."""

import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from svc_async.errors import (
    ApiError,
    BadRequest,
    Conflict,
    ErrorDetail,
    Forbidden,
    InvalidArgument,
    NotFound,
    RateLimited,
    Sent,
    ServerError,
    StreamDropped,
    StreamOverflow,
    SvcError,
    TimedOut,
    TooManyConnections,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
    WouldWaitTooLong,
)
from svc_async.wire.envelope import Answer, parse_refusal
from svc_async.wire.outcome import Effect, Repeat, api_error, outcome_for_status, outcome_of

CONTRACT = Path(__file__).parents[1] / "contract"
NOW = datetime(2026, 1, 1, tzinfo=UTC)

TABLE: list[tuple[int, str | int, type[ApiError], Repeat]] = [
    (400, "", BadRequest, Repeat.NEVER),
    (400, "INVALID_PARAMETER", BadRequest, Repeat.NEVER),
    (400, "MISSING_PARAMETER", BadRequest, Repeat.NEVER),
    (400, "EXCLUSIVE_PARAMETERS", BadRequest, Repeat.NEVER),
    (400, "FEATURE_NOT_AVAILABLE", BadRequest, Repeat.NEVER),
    (400, "TOO_MANY_JOBS", BadRequest, Repeat.ALWAYS),
    (401, "", Unauthorized, Repeat.NEVER),
    (401, 89, Unauthorized, Repeat.NEVER),
    (401, "UNAUTHORIZED_ACCESS", Unauthorized, Repeat.NEVER),
    (403, "", Forbidden, Repeat.NEVER),
    (403, 99, Forbidden, Repeat.NEVER),
    (403, "ACCOUNT_NOT_FOUND", Forbidden, Repeat.NEVER),
    (403, "UNAUTHORIZED_CLIENT_APPLICATION", Forbidden, Repeat.NEVER),
    (404, "", NotFound, Repeat.NEVER),
    (404, "LINE_ITEM_NOT_FOUND", NotFound, Repeat.NEVER),
    (408, "CANCELLED_REQUEST", ApiError, Repeat.SAFE),
    (409, "", Conflict, Repeat.NEVER),
    (413, "", ApiError, Repeat.NEVER),
    (418, "", ApiError, Repeat.NEVER),
    (420, "", ApiError, Repeat.NEVER),
    (302, "", ApiError, Repeat.NEVER),
    (423, "LOCK_ACQUISITION_TIMEOUT", ApiError, Repeat.ALWAYS),
    (429, "", RateLimited, Repeat.ALWAYS),
    (429, "TOO_MANY_REQUESTS", RateLimited, Repeat.ALWAYS),
    (429, "TooManyConnections", TooManyConnections, Repeat.ALWAYS),
    (500, "", ServerError, Repeat.SAFE),
    (500, "INTERNAL_ERROR", ServerError, Repeat.SAFE),
    (501, "", ServerError, Repeat.NEVER),
    (502, "", ServerError, Repeat.SAFE),
    (503, "", ServerError, Repeat.ALWAYS),
    (503, "OVER_CAPACITY", ServerError, Repeat.ALWAYS),
    (503, "SERVICE_UNAVAILABLE", ServerError, Repeat.ALWAYS),
    (504, "", ServerError, Repeat.SAFE),
    (599, "", ServerError, Repeat.NEVER),
]


def load(name: str) -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads((CONTRACT / name).read_text(encoding="utf-8"))


def read_documented() -> Iterator[tuple[int, str | int]]:
    for row in load("limits.toml")["limit"]:
        if row["kind"] == "status" and row["value"] >= 400:
            yield row["value"], row.get("code", "")
    for row in load("assumptions.toml")["assumption"]:
        if row["about"] == "UNS-error-catalog":
            yield from ((status, code) for code, status in row["value"].items())
    for row in load("enums.toml")["enum"]:
        if row["id"] == "StreamErrorName":
            yield from ((429, name) for name in row["values"])


def test_the_table_has_every_documented_status_and_code() -> None:
    assert {*read_documented()} <= {(status, code) for status, code, *_ in TABLE}


@pytest.mark.parametrize(("status", "code", "kind", "repeat"), TABLE)
def test_an_answer_raises_the_class_of_its_row_and_means_what_the_row_says(
    status: int, code: str | int, kind: type[ApiError], repeat: Repeat
) -> None:
    body = msgspec.json.encode({"errors": [{"code": code, "message": "No."}]})
    error = parse_refusal(Answer(status=status, headers={}, body=body), now=NOW)

    assert type(error) is kind
    assert error.sent is Sent.YES
    assert error.repeatable is (repeat is not Repeat.NEVER)
    assert outcome_of(error) == outcome_for_status(status, [code])
    assert outcome_of(error).repeat is repeat


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 423, 429, 503])
def test_a_call_that_was_turned_away_had_no_effect(status: int) -> None:
    assert outcome_for_status(status).effect is Effect.NONE


@pytest.mark.parametrize(("status", "code", "kind", "repeat"), TABLE)
def test_only_503_means_overload_and_only_429_means_throttled(
    status: int, code: str | int, kind: type[ApiError], repeat: Repeat
) -> None:
    del kind, repeat
    outcome = outcome_for_status(status, [code])

    assert outcome.overload is (status == 503)
    assert outcome.throttled is (status in {429, 420})


@pytest.mark.parametrize(
    ("error", "effect", "repeat"),
    [
        (TransportError("connection refused", sent=Sent.NO), Effect.NONE, Repeat.ALWAYS),
        (TransportError("connection reset", sent=Sent.MAYBE), Effect.MAYBE, Repeat.SAFE),
        (TimedOut("late", sent=Sent.NO), Effect.NONE, Repeat.ALWAYS),
        (TimedOut("late", sent=Sent.MAYBE), Effect.MAYBE, Repeat.SAFE),
        (UnexpectedAnswer("not JSON", status=200), Effect.MAYBE, Repeat.SAFE),
        (WouldWaitTooLong(until=NOW, limit="writes", max_wait=1), Effect.NONE, Repeat.ALWAYS),
        (InvalidArgument("count", "must be positive"), Effect.NONE, Repeat.NEVER),
        (StreamDropped("the stream ended"), Effect.DONE, Repeat.SAFE),
        (StreamOverflow(queue_size=1), Effect.DONE, Repeat.NEVER),
    ],
)
def test_a_failure_without_a_refusal_means_what_its_sending_says(
    error: SvcError, effect: Effect, repeat: Repeat
) -> None:
    assert (outcome_of(error).effect, outcome_of(error).repeat) == (effect, repeat)
    assert not outcome_of(error).throttled


@pytest.mark.parametrize(("sent", "overload"), [(Sent.NO, False), (Sent.MAYBE, True)])
def test_a_lost_answer_means_overload_and_a_refused_connection_does_not(sent: Sent, overload: bool) -> None:
    assert outcome_of(TransportError("broken", sent=sent)).overload is overload


@pytest.mark.parametrize("status", [400, 409, 500])
def test_too_many_jobs_says_later_with_any_status_and_wherever_it_is_named(status: int) -> None:
    error = api_error(status=status, errors=[ErrorDetail(code="OTHER"), ErrorDetail(code="TOO_MANY_JOBS")])

    assert error.repeatable
    assert outcome_of(error).repeat is Repeat.ALWAYS
