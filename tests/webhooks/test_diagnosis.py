"""What is wrong with a signature, or with an answer to a CRC check."""

import base64
import hashlib
import hmac
import json

import pytest

from svc_async.webhooks.verification import diagnose_crc, diagnose_signature
from tests.support.deliveries import KEY

MESSAGE = b"the body"
HEX = "is hexadecimal; it must be base64"
URL_SAFE = "is URL-safe or unpadded base64; it must be standard base64 with padding"
MISSING = "lacks the prefix: it must be sha256= followed by base64"
OTHER = "was made with another secret or over other bytes"
NO_BASE64 = "is not sha256= followed by the base64 of 32 bytes"


def digest(message: bytes, secret: str = KEY.secret) -> bytes:
    return hmac.new(secret.encode(), message, hashlib.sha256).digest()


def find_message_with_all_letters() -> bytes:
    """Return a message whose digest has both characters that the two alphabets of base64 write differently."""
    return next(
        message
        for message in (b"%d" % number for number in range(10_000))
        if {"+", "/"} <= {*base64.b64encode(digest(message)).decode()}
    )


MIXED = find_message_with_all_letters()
GOOD = base64.b64encode(digest(MIXED)).decode()
SAFE = base64.urlsafe_b64encode(digest(MIXED)).decode()
STRANGE = digest(MIXED, "another")


@pytest.mark.parametrize(
    ("signature", "problem"),
    [
        (f"sha256={GOOD}", None),
        (GOOD, MISSING),
        (f"sha256={digest(MIXED).hex()}", HEX),
        (digest(MIXED).hex(), HEX),
        (f"sha256={digest(MIXED).hex().upper()}", HEX),
        (digest(MIXED).hex().upper(), HEX),
        (f"sha256={GOOD[:-1]}", URL_SAFE),
        (GOOD[:-1], URL_SAFE),
        (f"sha256={SAFE}", URL_SAFE),
        (SAFE, URL_SAFE),
        (f"sha256={SAFE[:-1]}", URL_SAFE),
        (SAFE[:-1], URL_SAFE),
        (f"sha256={base64.b64encode(STRANGE).decode()}", OTHER),
        (base64.b64encode(STRANGE).decode(), MISSING),
        (f"sha256={STRANGE.hex()}", f"{HEX}, and {OTHER}"),
        (STRANGE.hex().upper(), f"{HEX}, and {OTHER}"),
        (STRANGE.hex()[:-1], NO_BASE64),
        (f"{STRANGE.hex()}0", NO_BASE64),
        ("sha256=", NO_BASE64),
        ("", NO_BASE64),
        (f"md5={GOOD}", NO_BASE64),
    ],
)
def test_what_is_wrong_with_a_signature_is_named(signature: str, problem: str | None) -> None:
    assert diagnose_signature(KEY, MIXED, signature) == problem


def answer(token: str) -> bytes:
    return json.dumps({"response_token": token}).encode()


def sign(message: bytes) -> str:
    return f"sha256={base64.b64encode(digest(message)).decode()}"


NOT_AN_OBJECT = "the answer is not an object with a text `response_token`, which makes the webhook invalid"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (answer(sign(b"a=")), None),
        (b"<html>", "the answer is not JSON, which makes the webhook invalid"),
        (b"\xff", "the answer is not JSON, which makes the webhook invalid"),
        (b"[]", NOT_AN_OBJECT),
        (b'"text"', NOT_AN_OBJECT),
        (b"{}", NOT_AN_OBJECT),
        (b'{"response_token":7}', NOT_AN_OBJECT),
        (answer("a="), "response_token is the crc_token itself; it must be its keyed hash"),
        (
            answer(sign(b"a%3D")),
            "response_token is the hash of the percent-encoded token; the token must be decoded first",
        ),
        (answer(sign(b"other")), f"response_token {OTHER}"),
        (answer(digest(b"a=").hex()), f"response_token {HEX}"),
    ],
)
def test_what_is_wrong_with_an_answer_is_named(body: bytes, problem: str | None) -> None:
    assert diagnose_crc(KEY, "a=", status=200, body=body) == problem


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (201, "a success, but not 200"),
        (299, "a success, but not 200"),
        (301, "a redirect, which makes the webhook invalid: let the URL itself answer"),
        (400, "a refusal, which counts as a transient error"),
        (404, "a refusal, which counts as a transient error; check that the URL has the path of the receiver"),
        (405, "a refusal, which counts as a transient error; check that the URL has the path of the receiver"),
        (500, "a failure, which counts as a transient error"),
        (199, "which is not a final status"),
        (600, "which is not a final status"),
    ],
)
def test_a_status_is_described(status: int, kind: str) -> None:
    problem = diagnose_crc(KEY, "a", status=status, body=answer(sign(b"a")))
    assert problem == f"the server answered HTTP {status}, {kind}"
