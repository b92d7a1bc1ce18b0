import copy
import pickle
from datetime import UTC, datetime
from pathlib import Path

import pytest

from svc_async import errors
from svc_async.errors import (
    AccessDenied,
    ApiError,
    BatchError,
    ErrorDetail,
    InvalidArgument,
    Sent,
    SvcError,
    TimedOut,
    TransportError,
    UnexpectedAnswer,
    UnusableFile,
    WouldWaitTooLong,
    WrongState,
)
from svc_async.wire.outcome import api_error


def test_an_api_error_says_status_codes_request_and_when_to_try_again() -> None:
    error = api_error(
        status=429,
        errors=[ErrorDetail(code="TOO_MANY_REQUESTS", message="Slow down.", parameter="account_id")],
        request_id="r-1",
        retry_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )

    assert str(error) == (
        "HTTP 429, request r-1: TOO_MANY_REQUESTS (account_id) Slow down.; try again at 2026-01-02T03:04:05Z"
    )
    assert error.sent == "yes"
    assert error.has_code("TOO_MANY_REQUESTS")
    assert not error.has_code(88)


def test_numeric_codes_are_found_as_numbers_and_as_text() -> None:
    error = api_error(status=401, errors=[ErrorDetail(code=89)])

    assert error.has_code(89)
    assert error.has_code("89")


def test_an_error_without_reasons_says_so() -> None:
    assert "no reason given" in str(api_error(status=500))


def test_operation_errors_stand_in_the_message_without_words_that_may_repeat_a_row() -> None:
    reason = ErrorDetail(code="INVALID_PARAMETER", message="Ada of Rome is no hash", parameter="email")
    error = api_error(status=400, operation_errors={2: (reason,)})

    assert str(error) == "HTTP 400: operation 2: INVALID_PARAMETER (email)"
    assert error.operation_errors[2][0].message == "Ada of Rome is no hash"


@pytest.mark.parametrize(
    "person",
    ["a.b+c@mail.example", "ada%40mail.example", r"ada\u0040mail.example", "ada&#64;mail.example", "+12125550101"],
)
@pytest.mark.parametrize("place", [0, 990])
def test_a_reason_has_no_address_or_number_of_a_person(person: str, place: int) -> None:
    before = "x " * (place // 2)
    reason = ErrorDetail(message=f"{before}<{person}> is taken", parameter=person)

    assert reason.message.startswith(f"{before}<…>")
    assert reason.parameter == "…"


@pytest.mark.parametrize(
    "error",
    [
        api_error(status=500, body=b"ada@mail.example"),
        UnexpectedAnswer("not JSON", status=200, body=b"ada@mail.example"),
    ],
)
def test_a_body_is_read_by_its_name_and_in_no_other_way(error: ApiError | UnexpectedAnswer) -> None:
    assert error.body == copy.copy(error).body == b"ada@mail.example"
    assert "ada" not in f"{error!r} {error} {error.args} {vars(error)}"
    assert b"ada" not in pickle.dumps(error)
    assert pickle.loads(pickle.dumps(error)).body == b""


def test_invalid_argument_is_a_value_error_that_names_parameter_and_rule() -> None:
    error = InvalidArgument("count", "must be a whole number from 1 to 1000")

    assert isinstance(error, ValueError)
    assert (error.parameter, error.rule) == ("count", "must be a whole number from 1 to 1000")
    assert error.sent is Sent.NO
    assert not error.repeatable


def test_an_unusable_file_names_parameter_file_and_problem() -> None:
    error = UnusableFile("journal", Path("/jobs/a.journal"), "is locked by another job")

    assert str(error) == "journal /jobs/a.journal is locked by another job"
    assert (error.parameter, error.path, error.problem) == ("journal", "/jobs/a.journal", "is locked by another job")


@pytest.mark.parametrize(
    "error", [WrongState("closed"), AccessDenied("no app"), UnusableFile("state", "s", "is a folder")]
)
def test_what_was_refused_before_sending_is_neither_sent_nor_repeatable(error: SvcError) -> None:
    assert error.sent is Sent.NO
    assert not error.repeatable
    assert not isinstance(error, ValueError)


@pytest.mark.parametrize(
    "error",
    [
        InvalidArgument("count", "must be positive"),
        WrongState("the session was closed"),
        AccessDenied("this call needs AppCredentials"),
        UnusableFile("journal", "jobs/a.journal", "is locked by another job"),
        WouldWaitTooLong(until=datetime(2026, 1, 1, tzinfo=UTC), limit="writes", max_wait=60),
        TransportError("connection reset", sent=Sent.MAYBE),
        TimedOut("request timed out", sent=Sent.NO),
        UnexpectedAnswer("not JSON", status=200, headers={"X-A": "1"}, request_id="r"),
        api_error(status=404, errors=[ErrorDetail(code="NOT_FOUND")], headers={"A": "b"}),
    ],
)
def test_every_error_survives_a_trip_between_processes(error: SvcError) -> None:
    arrived = pickle.loads(pickle.dumps(error))

    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert repr(vars(arrived)) == repr(vars(error))


def test_the_tree_in_the_module_names_every_class() -> None:
    assert errors.__doc__ is not None
    for name in errors.__all__:
        kind = getattr(errors, name)
        if isinstance(kind, type) and issubclass(kind, SvcError):
            assert name in errors.__doc__


def test_the_message_names_three_refused_operations_and_no_more() -> None:
    error = api_error(status=400, operation_errors={index: (ErrorDetail(code="BAD"),) for index in range(2_500)})

    assert str(error) == "HTTP 400: operation 0: BAD; operation 1: BAD; operation 2: BAD"
    assert len(error.operation_errors) == 2_500


def test_headers_are_found_in_lower_case() -> None:
    assert api_error(status=500, headers={"X-Trace": "t"}).headers == {"x-trace": "t"}


def test_a_failed_batch_says_whether_it_was_sent() -> None:
    assert BatchError("3 rows were not accepted", report=None, sent=Sent.MAYBE).sent is Sent.MAYBE
