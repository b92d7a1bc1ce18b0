"""CRC answers and delivery signatures: keys, sign, verify.

Both are the same function: HMAC-SHA256 of bytes, keyed with the app's consumer secret, as base64 after `sha256=`. An
endpoint that answers any `crc_token` would therefore sign whatever a stranger sends it, a forged event included. So CRC
answers are restricted to tokens of an alphabet in which no JSON object can be written, and deliveries to JSON objects.
"""

import hmac
import re
from base64 import b64decode, b64encode
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import attrs
import msgspec

from svc_async.errors import InvalidArgument
from svc_async.value_rules import HEADER_NAME, TEXT, ValueRule, hides_values, instance_of, or_none

__all__ = ["SIGNATURE_HEADER", "SigningKey", "crc_answer", "crc_token", "is_signature", "sign", "verify"]

SIGNATURE_HEADER: Final = "x-svc-webhooks-signature"
"""The header of a delivery (contract WH-40b)."""

# Unspecified: algorithm, encoding and prefix of the signature, parameter and answer of the CRC (UNS-signature,
# UNS-crc-parameter, UNS-crc-hash-input, UNS-crc-answer-format).
_PREFIX = "sha256="
_PARAMETER = b"crc_token"
_CRC_TOKEN = re.compile(rb"[A-Za-z0-9+/=_-]{1,256}")
_SIGNATURE = re.compile(r"sha256=([A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=)", re.ASCII)
"""The canonical base64 of 32 bytes: padded, and with unused bits zero."""


def _check_secret(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
    if not isinstance(value, str):
        raise InvalidArgument(field.name, f"must be a string, not {'None' if value is None else type(value).__name__}")
    if not value:
        raise InvalidArgument(field.name, "must be a non-empty string")
    if value != value.strip():
        raise InvalidArgument(field.name, "must have no white space at its ends, such as the line break of a file")


_APP = ValueRule(
    lambda value: isinstance(value, str) and value != "" and value.isprintable(),
    "a non-empty string of printable characters",
)


@hides_values
@attrs.frozen
class SigningKey:
    """A secret with which deliveries are signed.

    Args:
        secret: the app's consumer secret (contract WH-35), or the OAuth 2.0 client secret for another header.
        header: the header that contains the signature by this key; case-insensitive.
        key_id: identifies the key in statistics and handlers; never part of the secret.
        app: a name for the app whose secret it is; a receiver with several keys needs it. Keys of one app may sign the
            same event: its new secret and its former one, or a second signature.
    """

    secret: str = attrs.field(repr=False, validator=_check_secret)
    # Unspecified: a second signature in another header (UNS-signature).
    header: str = attrs.field(default=SIGNATURE_HEADER, kw_only=True, validator=HEADER_NAME)
    key_id: str | None = attrs.field(default=None, kw_only=True, validator=or_none(TEXT))
    app: str | None = attrs.field(default=None, kw_only=True, validator=or_none(_APP))


_KEY = instance_of(SigningKey, "a SigningKey")
_MESSAGE = instance_of((bytes, bytearray, memoryview), "bytes: text has no signature")
_QUERY = instance_of(bytes, "the bytes of a query")


def sign(key: SigningKey, message: bytes) -> str:
    """Return the value of the signature header for a body.

    Raises:
        InvalidArgument: the key is no `SigningKey`, or the body is not bytes.
    """
    _KEY.check("key", key)
    _MESSAGE.check("message", message)
    return _PREFIX + b64encode(_digest(key, message)).decode()


def verify(key: SigningKey, message: bytes, signature: str) -> bool:
    """Whether `signature` was made with this key for exactly these bytes, compared in constant time.

    A malformed signature fails: hexadecimal digits, another prefix, missing padding.

    Raises:
        InvalidArgument: the key is no `SigningKey`, the message is not bytes, or the signature is no string.
    """
    _KEY.check("key", key)
    _MESSAGE.check("message", message)
    TEXT.check("signature", signature)
    match = _SIGNATURE.fullmatch(signature)
    return match is not None and hmac.compare_digest(b64decode(match[1]), _digest(key, message))


def is_signature(text: str) -> bool:
    """Whether the value of a header has the form of a signature.

    Raises:
        InvalidArgument: it is no string.
    """
    TEXT.check("text", text)
    return _SIGNATURE.fullmatch(text) is not None


def crc_token(raw_query: bytes) -> str:
    """Return the token in the query of a CRC check, which has exactly one; other parameters are ignored.

    Raises:
        InvalidArgument: there is none or more than one, or it is not 1 to 256 characters of `A-Z a-z 0-9 + / = _ -`.
            The message does not contain it. Or the query is not bytes.
    """
    _QUERY.check("raw_query", raw_query)
    # A bare plus stays a plus: no token contains a space, which forms encode as one.
    pairs = (map(unquote_to_bytes, pair.partition(b"=")) for pair in raw_query.split(b"&"))
    tokens = [value for name, _, value in pairs if name == _PARAMETER]
    if len(tokens) != 1:
        raise InvalidArgument("crc_token", "must be given exactly once")
    return _validate(tokens[0]).decode()


def crc_answer(key: SigningKey, token: str | None) -> bytes:
    """Return the body of the answer to a CRC check (contract WH-35).

    Raises:
        InvalidArgument: the token must not be signed, see `crc_token`, or is None, as that of a request without one; or
            the key is no `SigningKey`.
    """
    message = _validate(token.encode("utf-8", "surrogatepass") if isinstance(token, str) else b"")
    return msgspec.json.encode({"response_token": sign(key, message)})


def _digest(key: SigningKey, message: bytes) -> bytes:
    return hmac.digest(key.secret.encode(), message, "sha256")


def _validate(token: bytes) -> bytes:
    if not _CRC_TOKEN.fullmatch(token):
        raise InvalidArgument("crc_token", "must be 1 to 256 characters of A-Z a-z 0-9 + / = _ -")
    return token
