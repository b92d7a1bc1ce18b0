"""Diagnoses wrong answers to CRC checks and wrong signatures, without I/O."""

import re
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from svc_async.wire.envelope import NOT_JSON
from svc_async.wire.hmac_sha256 import SigningKey, is_signature, sign, verify

__all__ = ["OTHER_SECRET", "diagnose_crc", "diagnose_signature"]

_PREFIX = "sha256="
_MISSING = "lacks the prefix: it must be sha256= followed by base64"
_HEX = "is hexadecimal; it must be base64"
_URL_SAFE = "is URL-safe or unpadded base64; it must be standard base64 with padding"
_NO_BASE64 = "is not sha256= followed by the base64 of 32 bytes"
_OF_ANOTHER_PATH = {404, 405}
"""What a server answers if the receiver has another path."""
OTHER_SECRET = "was made with another secret or over other bytes"  # noqa: S105 - a message, not a secret


def diagnose_crc(
    key: SigningKey, token: str, *, status: int, body: bytes, url: str = "", location: str = ""
) -> str | None:
    """Return what is wrong with an answer to a CRC check, or None.

    Args:
        key: the key that should have signed it.
        token: the token of the check.
        status: the answer's status.
        body: the answer's body.
        url: the URL that was asked.
        location: where a redirect leads, as the answer says it.
    """
    if status != 200:  # noqa: PLR2004 - the only good status
        return _diagnose_status(status, url, location)
    try:
        answer = msgspec.json.decode(body)
    except NOT_JSON:
        return "the answer is not JSON, which makes the webhook invalid"
    if not isinstance(answer, dict) or not isinstance(answer.get("response_token"), str):
        return "the answer is not an object with a text `response_token`, which makes the webhook invalid"
    signature = answer["response_token"]
    if signature == token:
        return "response_token is the crc_token itself; it must be its keyed hash"
    problem = diagnose_signature(key, token.encode(), signature)
    if problem == OTHER_SECRET and verify(key, quote(token, safe="").encode(), signature):
        problem = "is the hash of the percent-encoded token; the token must be decoded first"
    return problem and f"response_token {problem}"


def diagnose_signature(key: SigningKey, message: bytes, signature: str) -> str | None:
    """Return what is wrong with a signature, or None."""
    if verify(key, message, signature):
        return None
    good = sign(key, message).removeprefix(_PREFIX)
    for wrong, problem in _list_mistakes(good):
        if signature == wrong:
            return problem
    if is_signature(signature):
        return OTHER_SECRET
    if re.fullmatch(r"(sha256=)?[0-9A-Fa-f]{64}", signature):
        return f"{_HEX}, and {OTHER_SECRET}"
    return _MISSING if is_signature(_PREFIX + signature) else _NO_BASE64


def _list_mistakes(good: str) -> Iterator[tuple[str, str]]:
    digest = b64decode(good)
    yield good, _MISSING
    for prefix in (_PREFIX, ""):
        for written in (digest.hex(), digest.hex().upper()):
            yield prefix + written, _HEX
        for written in (good.rstrip("="), urlsafe_b64encode(digest).decode(), urlsafe_b64encode(digest).decode()[:-1]):
            yield prefix + written, _URL_SAFE


def _diagnose_status(status: int, url: str, location: str) -> str:
    advice = "; check that the URL has the path of the receiver" if status in _OF_ANOTHER_PATH else ""
    kinds = {
        2: "a success, but not 200",
        3: f"a redirect, which makes the webhook invalid: {_diagnose_redirect(url, location)}",
        4: f"a refusal, which counts as a transient error{advice}",
        5: "a failure, which counts as a transient error",
    }
    return f"the server answered HTTP {status}, {kinds.get(status // 100, 'which is not a final status')}"


def _diagnose_redirect(url: str, location: str) -> str:
    try:
        asked, target = _find_place(url), _find_place(urljoin(url, location))
    except ValueError:
        asked = target = ""
    if target == f"{asked}/":
        return "add a slash to the end of the URL"
    if f"{target}/" == asked:
        return "remove the slash at the end of the URL"
    return "let the URL itself answer"


def _find_place(url: str) -> str:
    parts = urlsplit(url)
    return parts.netloc + parts.path
