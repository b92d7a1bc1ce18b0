import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from svc_async.errors import ApiError, ErrorDetail, Forbidden, UsageCapExceeded
from svc_async.wire.envelope import Answer, CallAnswer, errors_beside_data, is_withheld, parse_refusal

NOW = datetime(2026, 6, 10, 12, tzinfo=UTC)
LATE = "Wed, 10 Jun 2026 12:05:00 GMT"
"""Five minutes after NOW: our clock is behind."""
LAST = "Fri, 31 Dec 9999 23:59:59 GMT"
DAY_LIMIT = {
    "x-user-limit-24hour-limit": "17",
    "x-user-limit-24hour-remaining": "0",
    "x-user-limit-24hour-reset": str(int(NOW.timestamp()) + 80_000),
}


def refuse(status: int, body: object, headers: dict[str, str] | None = None) -> ApiError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse_refusal(
        Answer(status=status, headers=headers or {}, body=raw), now=NOW, request_id_header="x-request-id"
    )


@pytest.mark.rule("ERR-04")
def test_the_advertising_api_gives_its_reasons_in_errors() -> None:
    error = refuse(
        400,
        {
            "errors": [
                {"code": "INVALID_PARAMETER", "message": "Bad.", "parameter": "count", "value": "secret"},
                {"code": "MISSING_PARAMETER", "message": "Gone.", "attribute": "name"},
            ],
            "request": {"params": {}},
        },
        {"x-request-id": "r-7"},
    )

    assert error.errors == (
        ErrorDetail(code="INVALID_PARAMETER", message="Bad.", parameter="count"),
        ErrorDetail(code="MISSING_PARAMETER", message="Gone.", parameter="name"),
    )
    assert error.request_id == "r-7"
    assert "secret" not in str(error)


@pytest.mark.rule("ERR-01")
def test_the_main_api_gives_numbers() -> None:
    assert refuse(401, {"errors": [{"code": 89, "message": "Invalid or expired token"}]}).has_code(89)


@pytest.mark.parametrize("name", ["message", "detail", "title"])
def test_the_words_of_a_reason_are_found_under_each_name(name: str) -> None:
    assert refuse(400, {"errors": [{name: "Bad."}]}).errors[0].message == "Bad."


def test_all_reasons_of_one_operation_are_kept() -> None:
    entries = [{"index": 7, "code": "A"}, {"index": 7, "code": "B"}]
    assert refuse(400, {"operation_errors": entries}).operation_errors == {
        7: (ErrorDetail(code="A"), ErrorDetail(code="B"))
    }


@pytest.mark.parametrize("index", [True, "1", 1.0, None])
def test_what_is_no_position_blames_no_operation(index: object) -> None:
    assert refuse(400, {"operation_errors": [{"index": index, "code": "A"}]}).operation_errors == {}


@pytest.mark.parametrize("body", [b'{"errors": ["Gr\xfc\xdfe"]}', b'{"errors": [{"message": "Gr\\ud83d\\ud83de"}]}'])
def test_a_reason_is_read_whatever_its_characters_are(body: bytes) -> None:
    assert refuse(400, body).errors == (ErrorDetail(message="Gr\ufffd\ufffde"),)


def test_a_success_with_words_in_errors_and_no_data_is_a_refusal() -> None:
    assert is_withheld(Answer(status=200, headers={}, body=b'{"errors": ["No user."]}'))


def test_a_code_is_read_beside_a_number_of_any_size() -> None:
    body = b'{"errors": [{"code": "TOO_MANY_JOBS", "message": "Later.", "value": %b}]}' % (b"9" * 5_000)
    error = refuse(400, body)
    assert (error.has_code("TOO_MANY_JOBS"), error.repeatable) == (True, True)


def test_a_body_does_not_show() -> None:
    assert "Ada" not in repr(Answer(status=200, headers={}, body=b"Ada"))


def test_a_reason_without_code_and_words_is_an_empty_one() -> None:
    assert refuse(400, {"errors": [{"code": None, "message": None}]}).errors == (ErrorDetail(),)


CAPPED = {"title": "UsageCapExceeded", "detail": "Usage cap exceeded: Monthly product cap", "period": "Monthly"}
CAP_TYPE = "https://api.example.test/2/problems/usage-capped"


@pytest.mark.parametrize(
    ("body", "codes"),
    [
        (CAPPED, ["UsageCapExceeded"]),
        ({**CAPPED, "type": CAP_TYPE}, ["UsageCapExceeded"]),
        ({"title": "Too Many Requests", "type": CAP_TYPE}, ["UsageCapExceeded", "Too Many Requests"]),
        ({"errors": [CAPPED]}, ["UsageCapExceeded"]),
        ({"errors": [{"code": 88, "message": "No.", "type": CAP_TYPE}]}, ["UsageCapExceeded", 88]),
        ({"errors": {"code": "MONTHLY_CAP_REACHED", "message": "No."}}, ["MONTHLY_CAP_REACHED"]),
    ],
)
def test_a_cap_of_the_plan_is_no_rate_limit(body: dict[str, Any], codes: list[str | int]) -> None:
    headers = {"x-rate-limit-remaining": "0", "x-rate-limit-reset": str(int(NOW.timestamp()) + 60), **DAY_LIMIT}
    error = refuse(429, body, headers)

    assert type(error) is UsageCapExceeded
    assert (error.repeatable, error.retry_at, error.sent) == (False, None, "yes")
    assert [reason.code for reason in error.errors] == codes
    assert type(refuse(403, body)) is Forbidden


def test_a_problem_document_is_a_reason() -> None:
    error = refuse(
        429,
        {
            "type": "about:blank",
            "title": "ConnectionException",
            "detail": "Too many.",
            "status": 429,
            "connection_issue": "TooManyConnections",
        },
    )
    assert error.errors == (ErrorDetail(code="TooManyConnections", message="Too many."),)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>502 Bad Gateway</html>",
        b'{"errors":',
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"errors": 5}',
        b'{"errors":[5]}',
        b"[" * 100_000,
    ],
)
def test_the_status_decides_whatever_the_body_is(body: bytes) -> None:
    error = refuse(502, body)

    assert error.status == 502
    assert error.errors == ()


@pytest.mark.rule("ERR-05", "CAU-11")
@pytest.mark.parametrize(
    "entries",
    [
        [[], [{"code": "INVALID_PARAMETER", "message": "m", "parameter": "params.users"}], []],
        [{"index": 1, "code": "INVALID_PARAMETER", "message": "m", "parameter": "params.users"}],
    ],
)
def test_operation_errors_are_read_in_both_shapes(entries: object) -> None:
    error = refuse(400, {"operation_errors": entries})
    assert error.operation_errors == {
        1: (ErrorDetail(code="INVALID_PARAMETER", message="m", parameter="params.users"),)
    }


@pytest.mark.parametrize("entries", [None, {}, "x", [None, 3, "x"], [[[]]], [[{"code": "A"}], "x"]])
def test_operation_errors_of_any_other_shape_do_not_crash(entries: object) -> None:
    assert set(refuse(400, {"operation_errors": entries}).operation_errors) <= {0}


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (503, {"retry-after": "30"}, 30),
        (503, {"retry-after": "Wed, 10 Jun 2026 12:00:45 GMT"}, 45),
        (503, {"retry-after": "Wed, 10 Jun 2026 12:00:45 -0000"}, 45),
        (503, {"retry-after": "soon"}, None),
        (503, {"retry-after": "Wed, 10 Jun 99999999999999 12:00:45 GMT"}, None),
        (503, {"retry-after": "-3"}, None),
        (503, {"retry-after": "0"}, None),
        (503, {}, None),
        (429, {"x-rate-limit-reset": str(int(NOW.timestamp()) + 60)}, 60),
        (429, {"x-rate-limit-reset": str(int(NOW.timestamp()) - 60)}, None),
        (429, {"x-rate-limit-reset": "never"}, None),
        (429, {"x-rate-limit-reset": "9" * 30}, None),
        (429, {"x-account-rate-limit-reset": str(int(NOW.timestamp()) + 9), "x-rate-limit-reset": "1"}, 9),
        (429, {"retry-after": "90", "x-rate-limit-reset": str(int(NOW.timestamp()) + 60)}, 90),
        (400, {"x-rate-limit-reset": str(int(NOW.timestamp()) + 60)}, None),
        (503, {"retry-after": "86400"}, 86_400),
        (503, {"retry-after": "86401"}, None),
        (429, {"x-rate-limit-reset": str(int(NOW.timestamp()) + 86_401), "retry-after": "5"}, 5),
        (429, {"x-rate-limit-reset": "253402300799", "date": LATE}, None),
        (503, {"retry-after": "999999999", "date": LATE}, None),
        (503, {"retry-after": "30", "date": LATE}, 30),
        (503, {"retry-after": "30", "date": LAST}, 30),
        (429, {"x-rate-limit-reset": "253402300799", "date": LAST}, None),
        (503, {"retry-after": LAST, "date": LATE}, None),
        (503, {"retry-after": "Wed, 10 Jun 2026 12:05:45 GMT", "date": LATE}, 45),
        (503, {"retry-after": "Wed, 10 Jun 2026 12:04:59 GMT", "date": LATE}, None),
        (429, {"x-rate-limit-reset": str(int(NOW.timestamp()) + 360), "date": LATE}, 60),
        (429, {"x-rate-limit-reset": str(int(NOW.timestamp()) + 300), "date": LATE}, None),
        (429, {"x-rate-limit-reset": str(int(NOW.timestamp()) + 60), "date": "today"}, 60),
        (
            429,
            {**DAY_LIMIT, "x-rate-limit-remaining": "9", "x-rate-limit-reset": str(int(NOW.timestamp()) + 60)},
            80_000,
        ),
        (429, {**DAY_LIMIT, "x-app-limit-24hour-remaining": "0", "x-app-limit-24hour-reset": "1"}, 80_000),
        (429, {**DAY_LIMIT, "x-user-limit-24hour-remaining": "1"}, None),
        (429, {**DAY_LIMIT, "x-user-limit-24hour-reset": "soon"}, None),
        (429, {"x-user-limit-24hour-remaining": "0"}, None),
        (403, DAY_LIMIT, None),
    ],
)
def test_retry_at_is_the_latest_moment_that_the_service_names(
    status: int, headers: dict[str, str], seconds: int | None
) -> None:
    refusal = refuse(status, {}, headers)
    assert (refusal.retry_at and (refusal.retry_at - NOW).total_seconds()) == seconds
    assert refusal.retry_after == seconds


def test_the_id_of_a_request_is_in_the_header_that_is_configured() -> None:
    found = Answer(status=200, headers={"x-request-id": "r-7"}, body=b"")
    assert (found.request_id("x-request-id"), found.request_id("x-other"), found.request_id(None)) == (
        "r-7",
        None,
        None,
    )


@pytest.mark.parametrize(("status", "is_success"), [(199, False), (200, True), (299, True), (300, False)])
def test_a_success_is_a_2xx(status: int, is_success: bool) -> None:
    assert Answer(status=status, headers={}, body=b"").is_success is is_success


REASON = {"title": "Not Found Error", "detail": "No user.", "parameter": "id"}


@pytest.mark.parametrize(
    ("body", "reasons", "withheld"),
    [
        ({"data": {}}, 0, False),
        ({"data": {}, "errors": [REASON]}, 1, False),
        ({"data": None, "errors": [REASON, REASON]}, 2, True),
        ({"errors": REASON}, 1, True),
        ({"errors": []}, 0, False),
        ({"errors": [1]}, 0, False),
        ({"data": [{"errors": 1}]}, 0, False),
        ([], 0, False),
        ('"errors"', 0, False),
    ],
)
def test_a_success_with_errors_and_no_data_is_a_refusal(body: object, reasons: int, withheld: bool) -> None:
    raw = body if isinstance(body, str) else json.dumps(body)
    found = Answer(status=200, headers={}, body=raw.encode())

    assert (
        errors_beside_data(found)
        == (ErrorDetail(code="Not Found Error", message="No user.", parameter="id"),) * reasons
    )
    assert is_withheld(found) is withheld


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"title": "Bad", "detail": "Bad: no."}, ErrorDetail(code="Bad", message="no.")),
        ({"title": "Bad"}, ErrorDetail(code="Bad", message="")),
        (
            {"title": "Bad", "detail": "CrcValidationFailed: no token."},
            ErrorDetail(code="CrcValidationFailed", message="no token."),
        ),
        ({"title": "Bad", "detail": "Unauthorized client."}, ErrorDetail(code="Bad", message="Unauthorized client.")),
        ({"error": "invalid_grant"}, ErrorDetail(code="invalid_grant", message="")),
        (
            {"error": "invalid_grant", "error_description": "Used."},
            ErrorDetail(code="invalid_grant", message="Used."),
        ),
        ({"errors": [{"parameters": {"id": ["7"]}}]}, ErrorDetail(parameter="id")),
        ({"errors": [{"parameters": ["id"]}]}, ErrorDetail()),
        ({"errors": [{"message": "m", "title": "t", "detail": "d"}]}, ErrorDetail(message="m")),
        ({"errors": [{"title": "t", "detail": "d"}]}, ErrorDetail(code="t", message="d")),
        ({"errors": [{"code": 5, "parameter": 7}]}, ErrorDetail(code=5, parameter="7")),
    ],
)
def test_a_reason_is_read_in_each_documented_form(body: object, reason: ErrorDetail) -> None:
    assert refuse(400, body).errors == (reason,)


@pytest.mark.parametrize("body", [{"error": 5}, {"error": {"code": "x"}}, {}])
def test_what_is_no_reason_adds_none(body: object) -> None:
    assert refuse(400, body).errors == ()


def test_a_refusal_keeps_its_headers() -> None:
    error = refuse(503, {}, {"x-request-id": "r-1", "retry-after": "7"})
    assert (error.headers["retry-after"], error.request_id) == ("7", "r-1")
    assert parse_refusal(Answer(status=503, headers={"x-request-id": "r"}, body=b""), now=NOW).request_id is None


LONG = "word " * 1_000
HASH = "0123456789abcdef" * 4
WORDS = {
    "message": {"errors": [{"code": "C", "message": LONG}]},
    "code": {"errors": [{"code": LONG}]},
    "parameter": {"errors": [{"code": "C", "parameter": LONG}]},
    "parameters": {"errors": [{"code": "C", "parameters": {LONG: 1}}]},
    "detail": {"title": "T", "detail": LONG},
    "title": {"title": LONG},
    "connection_issue": {"title": "T", "connection_issue": LONG},
    "grant": {"error": LONG, "error_description": LONG},
    "many": {"errors": [{"code": "C"}] * 1_000},
    "operations": {"operation_errors": [[{"code": "word " * 10}]] * 11_000},
    "one operation": {"operation_errors": [{"index": 0, "code": "C"}] * 5_000},
}


@pytest.mark.parametrize(
    "place", [pytest.param(place, marks=pytest.mark.long if place == "operations" else ()) for place in WORDS]
)
def test_a_refusal_keeps_a_bounded_number_of_the_words_of_the_service(place: str) -> None:
    error = refuse(400, WORDS[place])

    reasons = [*error.errors, *(reason for each in error.operation_errors.values() for reason in each)]
    assert len(str(error)) < 15_000
    assert len(reasons) <= 10_000
    assert max(len(f"{each.code}{each.message}{each.parameter}") for each in reasons) <= 1_500


def test_what_is_cut_off_is_said() -> None:
    assert str(refuse(400, WORDS["many"])).endswith("C; C; and 90 more")
    assert str(refuse(400, WORDS["message"])).endswith("word word…")


@pytest.mark.parametrize("identifier", ["ada.b@shop.example.org", "crm:7.0042-x", "b64+/abc=="])
def test_no_part_of_an_identifier_is_left_where_words_are_cut_off(identifier: str) -> None:
    for length in range(980, 1_000):
        words = f"{'x' * (length - 1)} {identifier} {LONG}"
        message = refuse(400, {"errors": [{"message": words}]}).errors[0].message.replace(identifier, "")
        assert identifier[:3] not in message


@pytest.mark.parametrize("length", [900, 960, 999, 1_000])
def test_no_part_of_a_hash_is_left_where_words_are_cut_off(length: int) -> None:
    words = f"{'x ' * (length // 2)}{HASH} {LONG}"
    assert "0123" not in refuse(400, {"errors": [{"message": words}]}).errors[0].message.replace(HASH, "")


@pytest.mark.parametrize("date", ["Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 +2359"])
@pytest.mark.parametrize("name", ["date", "retry-after"])
@pytest.mark.parametrize("status", [429, 503])
def test_a_date_at_the_end_of_time_is_no_date(name: str, date: str, status: int) -> None:
    headers = {"retry-after": "5", "x-rate-limit-reset": "253402300799", name: date}
    assert refuse(status, {}, headers).retry_at == (NOW + timedelta(seconds=5) if name == "date" else None)


def test_the_repr_of_an_answer_shows_neither_headers_nor_body() -> None:
    answer = CallAnswer(
        status=200,
        headers={"set-cookie": "hush-1"},
        body=b"hush-2",
        request_id="r1",
        attempts=1,
        seconds=0.5,
        waited=0.0,
    )
    assert repr(answer) == "CallAnswer(status=200, request_id='r1', attempts=1, seconds=0.5, waited=0.0)"
