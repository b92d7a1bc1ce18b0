"""CRC answers and delivery signatures: keys, sign, verify.

Both are the same function, HMAC-SHA256 of bytes in base64 behind `sha256=`, keyed with the app's consumer secret. An
endpoint that answers any `crc_token` therefore signs whatever a stranger sends it, a forged event too. So a CRC answer
is given only for tokens of an alphabet in which no JSON object can be written, and only JSON objects are deliveries.
"""

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import attrs
import msgspec

from svc_async.errors import InvalidArgument

__all__ = ["SIGNATURE_HEADER", "SigningKey", "crc_answer", "crc_token", "is_signature", "sign", "verify"]

SIGNATURE_HEADER: Final = "x-svc-webhooks-signature"
"""The header of a delivery (contract WH-40b)."""

# Unspecified: algorithm, encoding and prefix of the signature, parameter and answer of the CRC (UNS-signature,
# UNS-crc-parameter, UNS-crc-hash-input, UNS-crc-answer-format).
_PREFIX = "sha256="
_PARAMETER = b"crc_token"
_CRC_TOKEN = re.compile(rb"[A-Za-z0-9+/=_-]{1,256}")
_SIGNATURE = re.compile(r"sha256=([A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=)", re.ASCII)
"""The one way to write 32 bytes in base64: with padding, and without bits that mean nothing."""
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)


def _is_secret(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
    if not isinstance(value, str) or not value or value != value.strip():
        raise InvalidArgument(field.name, "must be a non-empty string without surrounding white space")


def _is_header(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
    if not isinstance(value, str) or not _HEADER.fullmatch(value):
        raise InvalidArgument(field.name, "must be the name of a header")


@attrs.frozen
class SigningKey:
    """A secret that deliveries are signed with.

    Args:
        secret: the app's consumer secret (contract WH-35), or the OAuth 2.0 client secret for a header of its own.
        header: the header whose value this key makes; its name is compared in any case.
        key_id: how statistics and handlers name the key; never part of the secret.
    """

    secret: str = attrs.field(repr=False, validator=_is_secret)
    # Unspecified: a second signature under a header of its own (UNS-signature).
    header: str = attrs.field(default=SIGNATURE_HEADER, kw_only=True, validator=_is_header)
    key_id: str | None = attrs.field(default=None, kw_only=True)


def sign(key: SigningKey, message: bytes) -> str:
    """Give the value of the signature header for a body."""
    return _PREFIX + b64encode(_digest(key, message)).decode()


def verify(key: SigningKey, message: bytes, signature: str) -> bool:
    """Whether `signature` was made with this key for exactly these bytes; takes equally long for every signature.

    What is no signature at all is not verified: hexadecimal digits, another prefix, missing padding.
    """
    match = _SIGNATURE.fullmatch(signature)
    return match is not None and hmac.compare_digest(b64decode(match[1]), _digest(key, message))


def is_signature(text: str) -> bool:
    """Whether a header's value has the form of a signature."""
    return _SIGNATURE.fullmatch(text) is not None


def crc_token(raw_query: bytes) -> str:
    """Find the token in the query of a CRC check, which holds exactly one; other parameters do not matter.

    Raises:
        InvalidArgument: there is none or more than one, or it is not of the alphabet `A-Z a-z 0-9 + / = _ -` or not
            1 to 256 characters long. The message does not repeat it.
    """
    tokens = [value for name, value in _pairs(raw_query) if name == _PARAMETER]
    if len(tokens) != 1:
        raise InvalidArgument("crc_token", "must be given exactly once")
    return _checked(tokens[0]).decode()


def crc_answer(key: SigningKey, token: str) -> bytes:
    """Write the body that answers a CRC check (contract WH-35).

    Raises:
        InvalidArgument: the token is not one that may be signed, see `crc_token`.
    """
    message = _checked(token.encode("utf-8", "surrogatepass"))
    return msgspec.json.encode({"response_token": sign(key, message)})


def _digest(key: SigningKey, message: bytes) -> bytes:
    return hmac.digest(key.secret.encode(), message, "sha256")


def _checked(token: bytes) -> bytes:
    if not _CRC_TOKEN.fullmatch(token):
        raise InvalidArgument("crc_token", "must be 1 to 256 characters of A-Z a-z 0-9 + / = _ -")
    return token


def _pairs(raw_query: bytes) -> Iterable[tuple[bytes, bytes]]:
    # A bare plus stays one: no token holds a space, which forms write so.
    for pair in raw_query.split(b"&"):
        name, _, value = pair.partition(b"=")
        yield unquote_to_bytes(name), unquote_to_bytes(value)
