"""The table of outcomes, row by row, against the errors that answers raise."""

import pickle
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
    UsageCapExceeded,
    WouldWaitTooLong,
)
from svc_async.wire.envelope import Answer, parse_refusal
from svc_async.wire.outcome import (
    Effect,
    Repeat,
    RetryBudget,
    api_error,
    may_have_worked,
    outcome_for_status,
    outcome_of,
)

CONTRACT = Path(__file__).parents[1] / "contract"
NOW = datetime(2026, 1, 1, tzinfo=UTC)

NONE, MAYBE = Effect.NONE, Effect.MAYBE

TABLE: list[tuple[int, str | int, type[ApiError], Effect, Repeat]] = [
    (400, "", BadRequest, NONE, Repeat.NEVER),
    (400, "INVALID_PARAMETER", BadRequest, NONE, Repeat.NEVER),
    (400, "MISSING_PARAMETER", BadRequest, NONE, Repeat.NEVER),
    (400, "EXCLUSIVE_PARAMETERS", BadRequest, NONE, Repeat.NEVER),
    (400, "FEATURE_NOT_AVAILABLE", BadRequest, NONE, Repeat.NEVER),
    (400, "TOO_MANY_JOBS", BadRequest, NONE, Repeat.ALWAYS),
    (401, "", Unauthorized, NONE, Repeat.NEVER),
    (401, 89, Unauthorized, NONE, Repeat.NEVER),
    (401, "UNAUTHORIZED_ACCESS", Unauthorized, NONE, Repeat.NEVER),
    (403, "", Forbidden, NONE, Repeat.NEVER),
    (403, 99, Forbidden, NONE, Repeat.NEVER),
    (403, "ACCOUNT_NOT_FOUND", Forbidden, NONE, Repeat.NEVER),
    (403, "UNAUTHORIZED_CLIENT_APPLICATION", Forbidden, NONE, Repeat.NEVER),
    (404, "", NotFound, NONE, Repeat.NEVER),
    (404, "LINE_ITEM_NOT_FOUND", NotFound, NONE, Repeat.NEVER),
    (408, "", ApiError, MAYBE, Repeat.SAFE),
    (408, "CANCELLED_REQUEST", ApiError, MAYBE, Repeat.SAFE),
    (409, "", Conflict, NONE, Repeat.NEVER),
    (413, "", ApiError, NONE, Repeat.NEVER),
    (418, "", ApiError, NONE, Repeat.NEVER),
    (420, "", ApiError, NONE, Repeat.NEVER),
    (499, "", ApiError, NONE, Repeat.NEVER),
    (302, "", ApiError, NONE, Repeat.NEVER),
    (423, "LOCK_ACQUISITION_TIMEOUT", ApiError, NONE, Repeat.ALWAYS),
    (429, "", RateLimited, NONE, Repeat.ALWAYS),
    (429, "TOO_MANY_REQUESTS", RateLimited, NONE, Repeat.ALWAYS),
    (429, "TooManyConnections", TooManyConnections, NONE, Repeat.ALWAYS),
    (429, "UsageCapExceeded", UsageCapExceeded, NONE, Repeat.NEVER),
    (429, "USAGE_CAP_EXCEEDED", UsageCapExceeded, NONE, Repeat.NEVER),
    (403, "UsageCapExceeded", Forbidden, NONE, Repeat.NEVER),
    (500, "", ServerError, MAYBE, Repeat.SAFE),
    (500, "INTERNAL_ERROR", ServerError, MAYBE, Repeat.SAFE),
    (501, "", ServerError, NONE, Repeat.NEVER),
    (502, "", ServerError, MAYBE, Repeat.SAFE),
    (503, "", ServerError, MAYBE, Repeat.SAFE),
    (503, "OVER_CAPACITY", ServerError, MAYBE, Repeat.SAFE),
    (503, "SERVICE_UNAVAILABLE", ServerError, MAYBE, Repeat.SAFE),
    (504, "", ServerError, MAYBE, Repeat.SAFE),
    (504, "TOO_MANY_JOBS", ServerError, NONE, Repeat.ALWAYS),
    (505, "", ServerError, NONE, Repeat.NEVER),
    (520, "", ServerError, MAYBE, Repeat.SAFE),
    (599, "", ServerError, MAYBE, Repeat.SAFE),
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


@pytest.mark.parametrize(("status", "code", "kind", "effect", "repeat"), TABLE)
def test_an_answer_raises_the_class_of_its_row_and_means_what_the_row_says(
    status: int, code: str | int, kind: type[ApiError], effect: Effect, repeat: Repeat
) -> None:
    body = msgspec.json.encode({"errors": [{"code": code, "message": "No."}]})
    error = parse_refusal(Answer(status=status, headers={}, body=body), now=NOW)

    assert type(error) is kind
    assert error.sent is (Sent.MAYBE if effect is MAYBE else Sent.YES)
    assert error.repeatable is (repeat is not Repeat.NEVER)
    assert outcome_of(error) == outcome_for_status(status, [code])
    assert (outcome_of(error).effect, outcome_of(error).repeat) == (effect, repeat)


def test_a_refusal_whose_effect_is_unknown_is_never_repeated_for_every_call() -> None:
    for status in range(300, 600):
        for headers in ({}, {"retry-after": "7"}):
            outcome = outcome_for_status(status, headers=headers)
            assert outcome.effect is NONE or outcome.repeat is Repeat.SAFE, status


@pytest.mark.parametrize(
    ("status", "value", "effect"),
    [
        (503, "7", NONE),
        (503, "0", NONE),
        (503, "Wed, 10 Jun 2026 12:00:45 GMT", NONE),
        (503, "", MAYBE),
        (503, "  ", MAYBE),
        (500, "7", MAYBE),
        (502, "7", MAYBE),
        (504, "7", MAYBE),
        (408, "7", MAYBE),
    ],
)
def test_a_503_that_says_when_to_come_back_had_no_effect_and_no_gateway_answer_gains_that_by_it(
    status: int, value: str, effect: Effect
) -> None:
    headers = {"retry-after": value}
    error = parse_refusal(Answer(status=status, headers=headers, body=b""), now=NOW)

    assert outcome_of(error) == outcome_for_status(status, headers=headers)
    assert outcome_of(error).effect is effect
    assert outcome_of(error).repeat is (Repeat.ALWAYS if effect is NONE else Repeat.SAFE)
    assert outcome_of(error).overload is (status in {502, 503, 504})
    assert error.sent is (Sent.YES if effect is NONE else Sent.MAYBE)


def test_an_error_keeps_its_meaning_when_it_is_pickled() -> None:
    error = pickle.loads(pickle.dumps(api_error(status=503, headers={"Retry-After": "7"})))

    assert outcome_of(error).effect is NONE
    assert error.sent is Sent.YES
    assert pickle.loads(pickle.dumps(api_error(status=504))).sent is Sent.MAYBE


@pytest.mark.parametrize(("status", "code", "kind", "effect", "repeat"), TABLE)
def test_only_an_unavailable_service_means_overload_and_only_429_means_throttled(
    status: int, code: str | int, kind: type[ApiError], effect: Effect, repeat: Repeat
) -> None:
    del kind, effect, repeat
    outcome = outcome_for_status(status, [code])

    assert outcome.overload is (status in {502, 503, 504})
    others = {"TooManyConnections", "UsageCapExceeded", "USAGE_CAP_EXCEEDED"}  # limits of streams, and of a plan
    assert outcome.throttled is (status in {429, 420} and code not in others)


@pytest.mark.parametrize(
    ("error", "effect", "repeat"),
    [
        (TransportError("connection refused", sent=Sent.NO), Effect.NONE, Repeat.ALWAYS),
        (TransportError("connection reset", sent=Sent.MAYBE), Effect.MAYBE, Repeat.SAFE),
        (TimedOut("late", sent=Sent.NO), Effect.NONE, Repeat.ALWAYS),
        (TimedOut("late", sent=Sent.MAYBE), Effect.MAYBE, Repeat.SAFE),
        (UnexpectedAnswer("not JSON", status=200, repeatable=True), Effect.MAYBE, Repeat.SAFE),
        (UnexpectedAnswer("another form", status=200), Effect.MAYBE, Repeat.NEVER),
        (WouldWaitTooLong(until=NOW, limit="writes", max_wait=1), Effect.NONE, Repeat.ALWAYS),
        (InvalidArgument("count", "must be positive"), Effect.NONE, Repeat.NEVER),
        (StreamDropped("the stream ended"), Effect.DONE, Repeat.SAFE),
        (StreamOverflow(queue_size=1, queue_bytes=1), Effect.DONE, Repeat.NEVER),
    ],
)
def test_a_failure_without_a_refusal_means_what_its_sending_says(
    error: SvcError, effect: Effect, repeat: Repeat
) -> None:
    assert (outcome_of(error).effect, outcome_of(error).repeat) == (effect, repeat)
    assert may_have_worked(error) is (effect is not NONE)
    assert not outcome_of(error).throttled


@pytest.mark.parametrize(("sent", "overload"), [(Sent.NO, False), (Sent.MAYBE, True)])
def test_a_lost_answer_means_overload_and_a_refused_connection_does_not(sent: Sent, overload: bool) -> None:
    assert outcome_of(TransportError("broken", sent=sent)).overload is overload


@pytest.mark.parametrize("status", [400, 409, 500, 502, 504])
def test_too_many_jobs_says_later_with_any_status_and_wherever_it_is_named(status: int) -> None:
    error = api_error(status=status, errors=[ErrorDetail(code="OTHER"), ErrorDetail(code="TOO_MANY_JOBS")])

    assert error.repeatable
    assert error.sent is Sent.YES
    assert (outcome_of(error).effect, outcome_of(error).repeat) == (NONE, Repeat.ALWAYS)


def test_a_budget_of_repeats_is_refilled_by_successes_up_to_its_size() -> None:
    budget = RetryBudget(most=2, earned=0.5)
    assert [budget.spend() for _ in range(3)] == [True, True, False]
    budget.earn()
    assert not budget.spend()
    for _ in range(100):
        budget.earn()
    assert [budget.spend() for _ in range(3)] == [True, True, False]
    assert budget.successes == 101
