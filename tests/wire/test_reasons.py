"""What refusals say, in the forms of both APIs and of what is before them."""

import json
from datetime import UTC, datetime

import pytest

from svc_async.errors import ApiError, ErrorDetail
from svc_async.wire.envelope import Answer, parse_refusal

NOW = datetime(2026, 6, 10, 12, tzinfo=UTC)
HTML, TEXT, JSON = "text/html; charset=utf-8", "text/plain", "application/json"


def refuse(body: object, kind: str = JSON, **headers: str) -> ApiError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse_refusal(Answer(status=403, headers={"content-type": kind, **headers}, body=raw), now=NOW)


def tell(error: ApiError) -> list[tuple[str | int, str, str | None]]:
    return [(reason.code, reason.message, reason.parameter) for reason in error.errors]


FORMS: list[tuple[object, list[tuple[str | int, str, str | None]]]] = [
    ({"errors": "not permissible"}, [("", "not permissible", None)]),
    ({"errors": ["one", {"code": 7, "message": "two"}]}, [("", "one", None), (7, "two", None)]),
    ({"errors": [["one"], [{"message": "two"}]]}, [("", "one", None), ("", "two", None)]),
    ({"errors": {"name": ["is short", "is odd"]}}, [("", "is short; is odd", "name")]),
    ({"error": {"message": "Invalid cursors", "code": 2642}}, [(2642, "Invalid cursors", None)]),
    ({"error": [{"message": "one"}, "two"]}, [("", "one", None), ("", "two", None)]),
    ({"error": {"errors": [{"reason": "rateLimited"}]}}, [("", "rateLimited", None)]),
    ({"error": "Not authorized", "request": "/1/x"}, [("Not authorized", "", None)]),
    ({"error": "invalid_grant", "error_description": "Bad."}, [("invalid_grant", "Bad.", None)]),
    ({"error": "Forbidden", "message": "Access Denied"}, [("Forbidden", "", None), ("", "Access Denied", None)]),
    ({"message": "Missing Token"}, [("", "Missing Token", None)]),
    ({"Message": "User is not authorized"}, [("", "User is not authorized", None)]),
    ({"message": ["one", "two"]}, [("", "one; two", None)]),
    ({"message": {"en": "No."}}, [("", "No.", None)]),
    ({"detail": "Not in allow list"}, [("", "Not in allow list", None)]),
    ({"detail": [{"loc": ["body"], "msg": "field required"}]}, [("", "field required", None)]),
    (
        {"code": "not-enrolled", "reason": "no app", "detail": "no project"},
        [("not-enrolled", "no project; no app", None)],
    ),
    ({"code": 5}, [(5, "", None)]),
    ({"fault": {"faultstring": "Invalid key", "detail": {"errorcode": "x"}}}, [("", "Invalid key", None)]),
    (
        {"title": "Client Forbidden", "detail": "Why.", "reason": "no-client"},
        [("Client Forbidden", "Why.; no-client", None)],
    ),
    ([{"errorCode": "NO_SESSION", "message": "Session expired"}], [("NO_SESSION", "Session expired", None)]),
    ("down for maintenance", [("", "down for maintenance", None)]),
    ({"message": True, "code": None, "errors": None, "error": 1.5, "detail": ""}, []),
    ({}, []),
]


@pytest.mark.parametrize(("body", "reasons"), FORMS, ids=[json.dumps(body)[:40] for body, _ in FORMS])
def test_what_a_refusal_says_is_told_in_whatever_form_it_is_said(
    body: object, reasons: list[tuple[str | int, str, str | None]]
) -> None:
    error = refuse(body)
    assert tell(error) == reasons
    assert all(message in str(error) for _, message, _ in reasons)


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (b"Your IP address is\r\n blocked\n", TEXT, "Your IP address is blocked"),
        ("zu spät".encode(), "", "zu spät"),
        (b"<html><title>Attention &amp; Required</title>", HTML, "Attention & Required"),
        (b"<!DOCTYPE html><body><h1 class=x>\n404 Not Found </h1>", HTML, "404 Not Found"),
        (
            b"<?xml version='1.0'?><Error><Code>X</Code><Message>Access Denied</Message></Error>",
            "application/xml",
            "Access Denied",
        ),
        (b"<title></title><h1>x</h1>", TEXT, "x"),
    ],
)
def test_text_and_titles_of_pages_are_reasons(body: bytes, kind: str, message: str) -> None:
    error = refuse(body, kind)
    assert tell(error) == [("", message, None)]
    assert error.body == body


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<html>502 Bad Gateway</html>", HTML),
        (b"\x89PNG\r\n\x1a\n\x00", "image/png"),
        (b"a\x00b", TEXT),
        (b"\xff\xfe", TEXT),
        (b'{"errors":', JSON),
        (b"words", "application/octet-stream"),
        (b"<" * 100_000, HTML),
        (b"<title" * 20_000, HTML),
    ],
)
def test_of_another_body_its_type_and_size_are_told(body: bytes, kind: str) -> None:
    error = refuse(body, kind)
    assert error.errors == ()
    assert f"({kind}, {len(body):,} bytes)" in str(error)
    assert error.body == body[:16_384]


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("https://new.example/12/accounts", "https://new.example/12/accounts"),
        ("https://user:hush@new.example/x?token=hush#hush", "https://new.example/x"),
        ("/elsewhere?token=hush", "/elsewhere"),
    ],
)
def test_a_redirect_says_where_to_and_nothing_secret(location: str, shown: str) -> None:
    error = parse_refusal(
        Answer(status=301, headers={"location": location, "set-cookie": "session=hush"}, body=b""), now=NOW
    )
    assert str(error) == f"HTTP 301: redirect to {shown}"
    assert error.headers["location"] == shown
    assert "hush" not in f"{vars(error)}"


@pytest.mark.parametrize("depth", [3, *range(100, 600, 20)])
def test_what_is_nested_deeply_is_bounded(depth: int) -> None:
    nested = '{"message":[' * depth + '"x"' + "]}" * depth
    body = f'{{"errors":[{nested}],"message":{nested},"operation_errors":[[{nested}]],"request":1}}'
    assert isinstance(refuse(body.encode()), ApiError)


def test_as_many_reasons_are_read_as_anybody_reads() -> None:
    many = [["x"] * 200] * 200
    assert len(refuse({"errors": many, "error": many, "detail": many}).errors) == 100
    assert refuse({"operation_errors": [["x", ErrorDetail().message]]}).operation_errors == {
        0: (ErrorDetail(message="x"),)
    }
