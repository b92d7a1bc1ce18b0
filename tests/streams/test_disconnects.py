"""Which lines close a stream, without sockets."""

from typing import Any

import pytest

from svc_async.errors import ErrorDetail, StreamDropped, SvcError, TooManyConnections, UsageCapExceeded
from svc_async.streams.lines import parse_disconnect

OPERATIONAL = {"title": "operational-disconnect", "detail": "Bye."}
TOO_MANY = {"title": "ConnectionException", "connection_issue": "TooManyConnections", "detail": "No."}
OTHER = {"title": "Not Found Error", "detail": "No user."}


@pytest.mark.parametrize(
    ("raw", "kind", "codes"),
    [
        (OPERATIONAL, StreamDropped, ["operational-disconnect"]),
        ({"errors": [OPERATIONAL]}, StreamDropped, ["operational-disconnect"]),
        ({"errors": [OPERATIONAL, OTHER, {"disconnect_type": "X"}]}, StreamDropped, ["operational-disconnect", "X"]),
        ({"title": "ConnectionException"}, StreamDropped, ["ConnectionException"]),
        ({**OPERATIONAL, "disconnect_type": "Upstream"}, StreamDropped, ["Upstream"]),
        ({"disconnect_type": "Upstream"}, StreamDropped, ["Upstream"]),
        ({"disconnect_type": None}, StreamDropped, [""]),
        (TOO_MANY, TooManyConnections, ["TooManyConnections"]),
        ({"disconnect_type": "UsageCapExceeded"}, UsageCapExceeded, ["UsageCapExceeded"]),
        ({"connection_issue": "Other", "disconnect_type": "Upstream"}, StreamDropped, ["Other"]),
        ({"errors": [OPERATIONAL, TOO_MANY]}, TooManyConnections, ["operational-disconnect", "TooManyConnections"]),
    ],
)
def test_a_message_about_the_connection_closes_the_stream(
    raw: dict[str, Any], kind: type[SvcError], codes: list[str]
) -> None:
    error = parse_disconnect(raw)
    assert type(error) is kind
    assert isinstance(error, StreamDropped | TooManyConnections | UsageCapExceeded)
    assert [reason.code for reason in error.errors] == codes


def test_the_words_of_the_service_are_kept() -> None:
    error = parse_disconnect(OPERATIONAL)
    assert isinstance(error, StreamDropped)
    assert error.errors == (ErrorDetail(code="operational-disconnect", message="Bye."),)
    assert str(error).startswith("the service closed the stream; ")
    refusal = parse_disconnect(TOO_MANY)
    assert isinstance(refusal, TooManyConnections)
    assert refusal.status == 429


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"data": {}},
        {"data": {}, "errors": [OPERATIONAL]},
        {"data": None, **OPERATIONAL},
        {"errors": [OTHER]},
        {"errors": ["operational-disconnect", None]},
        {"errors": []},
        {"errors": {"title": "operational-disconnect"}},
        OTHER,
    ],
)
def test_any_other_line_is_an_event(raw: dict[str, Any]) -> None:
    assert parse_disconnect(raw) is None


@pytest.mark.parametrize("value", [[], {}, [[1]], {"a": {}}])
def test_a_title_of_any_type_closes_no_stream(value: object) -> None:
    assert parse_disconnect({"title": value}) is None
    assert parse_disconnect({"errors": [{"title": value}, value]}) is None


def test_the_reasons_of_a_message_are_bounded() -> None:
    error = parse_disconnect({"errors": [{**OPERATIONAL, "detail": "word " * 10_000}] * 10_000})
    assert isinstance(error, StreamDropped)
    assert len(error.errors) == 100
    assert len(str(error)) < 15_000
