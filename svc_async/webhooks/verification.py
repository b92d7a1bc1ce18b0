"""What a request is, decided without I/O: a CRC check to answer, a delivery to accept, or something to refuse.

Nothing is parsed before it is verified, and every byte counts: a delivery is what its signature was made of.
"""

from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, cast

import attrs

from svc_async.errors import InvalidArgument
from svc_async.wire.hmac_sha256 import SigningKey, crc_answer, crc_token, is_signature, verify

__all__ = ["CrcSignature", "Fields", "Gate", "Headers", "HttpAnswer", "Reason", "Refused", "fields_of", "refusal"]

Headers = Mapping[str, str] | Iterable[tuple[str | bytes, str | bytes]]
"""Header fields as a framework has them: names in any case, and those that come twice are there twice."""

Fields = Sequence[tuple[str, str]]
"""The same, read: names in small letters."""

CrcSignature = Literal["ignore", "verify_if_present", "require"]
"""What to make of a signature of the CRC check itself, which is made of the raw query."""


class HttpAnswer(NamedTuple):
    """What goes back to the service."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Reason(StrEnum):
    """Why a request is refused; statistics count by these."""

    METHOD = "method_not_allowed"
    CRC_TOKEN = "crc_token_refused"  # noqa: S105 - it names a parameter
    ENCODED = "body_encoded"
    TOO_LARGE = "body_too_large"
    TOO_SLOW = "body_too_slow"
    BROKEN = "body_broken"
    SIGNATURE_REPEATED = "signature_repeated"
    SIGNATURE_MISSING = "signature_missing"
    SIGNATURE_MALFORMED = "signature_malformed"
    SIGNATURE_WRONG = "signature_wrong"
    NOT_AN_OBJECT = "not_a_json_object"
    HANDLER_FAILED = "handler_failed"
    QUEUE_FULL = "queue_full"
    ACCEPT_FAILED = "accept_failed"
    TOO_LATE = "deadline_passed"
    NOT_RUNNING = "not_running"


# Unspecified: what is answered to a refused request, and whether it is sent again (UNS-delivery-retry). What may be
# accepted later is a 503.
_STATUS: Mapping[Reason, int] = {
    Reason.METHOD: 405,
    Reason.CRC_TOKEN: 400,
    Reason.ENCODED: 415,
    Reason.TOO_LARGE: 413,
    Reason.TOO_SLOW: 408,
    Reason.BROKEN: 400,
    Reason.SIGNATURE_REPEATED: 400,
    Reason.SIGNATURE_MISSING: 401,
    Reason.SIGNATURE_MALFORMED: 401,
    Reason.SIGNATURE_WRONG: 401,
    Reason.NOT_AN_OBJECT: 400,
    Reason.HANDLER_FAILED: 500,
    Reason.QUEUE_FULL: 503,
    Reason.ACCEPT_FAILED: 503,
    Reason.TOO_LATE: 503,
    Reason.NOT_RUNNING: 503,
}
_LATER = 503
_PLAIN = frozenset({"", "identity"})


class Refused(Exception):
    """A request is not accepted."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


def refusal(reason: Reason, *, retry_after: int) -> HttpAnswer:
    """Write the answer to a request that is refused."""
    headers = {"content-type": "text/plain; charset=utf-8"}
    if reason is Reason.METHOD:
        headers["allow"] = "GET, POST"
    if _STATUS[reason] == _LATER:
        headers["retry-after"] = str(retry_after)
    return HttpAnswer(_STATUS[reason], headers, reason.value.encode())


@attrs.frozen(kw_only=True)
class Gate:
    """The rules for what comes in.

    Attributes:
        keys: any of them may have signed a delivery, each under its own header.
        crc_key: answers CRC checks.
        crc_signature: what to make of a signature of the CRC check.
        max_body: bytes of the largest body.
    """

    keys: Sequence[SigningKey]
    crc_key: SigningKey
    crc_signature: CrcSignature
    max_body: int

    def answer_crc(self, raw_query: bytes, fields: Fields) -> HttpAnswer:
        """Answer a CRC check (contract WH-36).

        Raises:
            Refused: the query holds no token that may be signed, or its own signature is refused.
        """
        if self.crc_signature == "require" or (self.crc_signature == "verify_if_present" and self._is_signed(fields)):
            self.verified_by(raw_query, fields)
        try:
            body = crc_answer(self.crc_key, crc_token(raw_query))
        except InvalidArgument:
            raise Refused(Reason.CRC_TOKEN) from None
        return HttpAnswer(200, {"content-type": "application/json"}, body)

    def verified_by(self, message: bytes, fields: Fields) -> SigningKey:
        """Give the key that signed a message (contract WH-40c).

        Raises:
            Refused: none of the keys did.
        """
        sent = [(key, value) for key, values in self._signatures(fields) for value in values]
        for key, value in sent:
            if verify(key, message, value):
                return key
        raise Refused(_why_not([value for _, value in sent]))

    def check_encoding(self, fields: Fields) -> None:
        """Refuse a body that is compressed: some servers decompress it, and what was signed is not there any more.

        Raises:
            Refused: it is.
        """
        if any(name == "content-encoding" and value.strip().lower() not in _PLAIN for name, value in fields):
            raise Refused(Reason.ENCODED)

    def check_size(self, size: int) -> None:
        """Refuse a body that is too large.

        Raises:
            Refused: it is.
        """
        if size > self.max_body:
            raise Refused(Reason.TOO_LARGE)

    async def read(self, chunks: AsyncIterable[bytes]) -> bytes:
        """Collect a body, and no more of it than is allowed.

        Raises:
            Refused: it is too large, or does not come whole.
        """
        body = bytearray()
        async for chunk in chunks:
            body += chunk
            self.check_size(len(body))
        return bytes(body)

    def _is_signed(self, fields: Fields) -> bool:
        return any(values for _, values in self._signatures(fields))

    def _signatures(self, fields: Fields) -> Iterator[tuple[SigningKey, list[str]]]:
        for key in self.keys:
            values = [value for name, value in fields if name == key.header.lower()]
            if len(values) > 1:
                raise Refused(Reason.SIGNATURE_REPEATED)
            yield key, values


def fields_of(headers: Headers) -> Fields:
    """Read header fields, once: a framework may give what can be iterated only once."""
    return [(_text(name).lower(), _text(value)) for name, value in _items(headers)]


def _items(headers: Headers) -> Iterable[tuple[str | bytes, str | bytes]]:
    if isinstance(headers, Mapping):
        return cast(Mapping[str, str], headers).items()
    return headers


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _why_not(signatures: Sequence[str]) -> Reason:
    if not signatures:
        return Reason.SIGNATURE_MISSING
    return Reason.SIGNATURE_WRONG if any(map(is_signature, signatures)) else Reason.SIGNATURE_MALFORMED
