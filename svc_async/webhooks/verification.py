"""Verifies requests without I/O: a CRC check to answer, a delivery to accept, or a request to reject.

Nothing is parsed before it is verified. The signature covers the body byte for byte.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, cast

import attrs

from svc_async.errors import InvalidArgument, SvcError
from svc_async.events.models import Event
from svc_async.events.parser import EventParser
from svc_async.value_rules import COUNT, SEVERAL, ValueRule, instance_of
from svc_async.webhooks.rejections.advice import ADVICE
from svc_async.webhooks.rejections.reasons import RejectReason
from svc_async.wire.hmac_sha256 import SigningKey, crc_answer, crc_token, is_signature, verify

__all__ = [
    "MAX_BODY",
    "CrcSignature",
    "Fields",
    "Headers",
    "HttpAnswer",
    "RejectReason",
    "Rejected",
    "Verifier",
    "check_keys",
    "parse_fields",
    "reject",
    "unwrap",
]

MAX_BODY = 2**20
"""The largest body of a delivery, in bytes, unless a caller allows more."""

Headers = Mapping[str, str] | Iterable[tuple[str | bytes, str | bytes]]
"""Header fields as a framework provides them: names in any case, repeated fields repeated."""

Fields = Sequence[tuple[str, str]]
"""Parsed header fields: names in lower case."""

CrcSignature = Literal["ignore", "verify_if_present", "require"]
"""How to treat a signature of the CRC check itself, which covers the raw query."""


class HttpAnswer(NamedTuple):
    """The answer to a request of the service."""

    status: int
    headers: Mapping[str, str]
    body: bytes


# Unspecified: the answer to a rejected request, and whether it is sent again (UNS-delivery-retry). A request that may
# be accepted later gets a 503.
_STATUS: Mapping[RejectReason, int] = {
    RejectReason.METHOD: 405,
    RejectReason.CRC_TOKEN: 400,
    RejectReason.NOT_FOUND: 404,
    RejectReason.ENCODED: 415,
    RejectReason.TOO_LARGE: 413,
    RejectReason.TOO_MANY_BODIES: 503,
    RejectReason.TOO_SLOW: 408,
    RejectReason.BROKEN: 400,
    RejectReason.ALREADY_READ: 400,
    RejectReason.SIGNATURE_REPEATED: 400,
    RejectReason.SIGNATURE_MISSING: 401,
    RejectReason.SIGNATURE_MALFORMED: 401,
    RejectReason.SIGNATURE_WRONG: 401,
    RejectReason.NOT_AN_OBJECT: 400,
    RejectReason.TOO_MANY_EVENTS: 413,
    RejectReason.HANDLER_FAILED: 500,
    RejectReason.QUEUE_FULL: 503,
    RejectReason.ACCEPT_FAILED: 503,
    RejectReason.CLAIMED_ELSEWHERE: 503,
    RejectReason.TOO_LATE: 503,
    RejectReason.NOT_RUNNING: 503,
}
_TRY_LATER = 503
_UNENCODED = frozenset({"", "identity"})


class Rejected(SvcError):
    """A request is not accepted.

    Attributes:
        reason: why.
        status: the status to answer with.
    """

    def __init__(self, reason: RejectReason) -> None:
        super().__init__(f"the request is rejected: {reason.value}; {ADVICE[reason].next_step}")
        self.reason = reason

    @property
    def status(self) -> int:
        """The status to answer with."""
        return _STATUS[self.reason]


def reject(reason: RejectReason, *, retry_after: int) -> HttpAnswer:
    """Return the answer to a request that is rejected."""
    headers = {"content-type": "text/plain; charset=utf-8"}
    if reason is RejectReason.METHOD:
        headers["allow"] = "GET, POST"
    if _STATUS[reason] == _TRY_LATER:
        headers["retry-after"] = str(retry_after)
    return HttpAnswer(_STATUS[reason], headers, reason.value.encode())


@attrs.frozen(kw_only=True)
class Verifier:
    """The rules for requests.

    Attributes:
        keys: the keys that may sign a delivery, each under its own header.
        crc_key: the key that answers CRC checks.
        crc_signature: how to treat a signature of the CRC check.
        max_body: the largest body, in bytes.
    """

    keys: Sequence[SigningKey]
    crc_key: SigningKey
    crc_signature: CrcSignature
    max_body: int

    def answer_crc(self, raw_query: bytes, fields: Fields) -> HttpAnswer:
        """Answer a CRC check (contract WH-36).

        Raises:
            Rejected: the query has no token that may be signed, or its own signature is rejected.
        """
        if self.crc_signature == "require" or (self.crc_signature == "verify_if_present" and self._is_signed(fields)):
            self.verify(raw_query, fields)
        try:
            body = crc_answer(self.crc_key, crc_token(raw_query))
        except InvalidArgument:
            raise Rejected(RejectReason.CRC_TOKEN) from None
        return HttpAnswer(200, {"content-type": "application/json"}, body)

    def verify(self, message: bytes, fields: Fields) -> SigningKey:
        """Return the key that signed a message (contract WH-40c).

        Raises:
            Rejected: no key signed it.
        """
        received = [(key, value) for key, values in self._signatures(fields) for value in values]
        for key, value in received:
            if verify(key, message, value):
                return key
        raise Rejected(_diagnose([value for _, value in received]))

    def read(self, body: bytes, fields: Fields, parser: EventParser) -> tuple[SigningKey, tuple[Event, ...]]:
        """Return the key that signed a delivery, and its events.

        Raises:
            Rejected: no key signed exactly these bytes, or they are no delivery.
            InvalidArgument: the body is not bytes.
        """
        if not isinstance(body, bytes):
            raise InvalidArgument(
                "body", "must be the bytes that were received: text and parsed JSON have no signature"
            )
        self.check_encoding(fields)
        self.check_size(len(body))
        if not body and any(name == "content-length" and value.strip(" 0") for name, value in fields):
            raise Rejected(RejectReason.ALREADY_READ)
        key = self.verify(body, fields)
        try:
            return key, parser.parse(body)
        except InvalidArgument as error:
            too_many = error.parameter == "events"
            raise Rejected(RejectReason.TOO_MANY_EVENTS if too_many else RejectReason.NOT_AN_OBJECT) from None

    def check_head(self, fields: Fields) -> None:
        """Check what the header fields of a delivery say, before its body is read.

        Raises:
            Rejected: the body is compressed or too large, or has no signature that might be right.
        """
        self.check_encoding(fields)
        for name, value in fields:
            if name == "content-length":
                self.check_size(_parse_length(value))
        signatures = [value for _, values in self._signatures(fields) for value in values]
        if not any(map(is_signature, signatures)):
            raise Rejected(_diagnose(signatures))

    def check_encoding(self, fields: Fields) -> None:
        """Reject a compressed body: some servers decompress it, and the signed bytes are lost.

        Raises:
            Rejected: the body is compressed.
        """
        if any(name == "content-encoding" and value.strip().lower() not in _UNENCODED for name, value in fields):
            raise Rejected(RejectReason.ENCODED)

    def check_size(self, size: int) -> None:
        """Reject a body that is too large.

        Raises:
            Rejected: the body is too large.
        """
        if size > self.max_body:
            raise Rejected(RejectReason.TOO_LARGE)

    def _is_signed(self, fields: Fields) -> bool:
        return any(values for _, values in self._signatures(fields))

    def _signatures(self, fields: Fields) -> Iterator[tuple[SigningKey, list[str]]]:
        for key in self.keys:
            values = [value for name, value in fields if name == key.header.lower()]
            if len(values) > 1:
                raise Rejected(RejectReason.SIGNATURE_REPEATED)
            yield key, values


def unwrap(body: bytes, headers: Headers, *, keys: Iterable[SigningKey], max_body: int = MAX_BODY) -> tuple[Event, ...]:
    """Return the events of one delivery once its signature is verified, for code with a queue of its own.

    Nothing is stored or counted, and an event may arrive more than once: `event.key` is the same each time. A delivery
    has no time of its own that is signed (contract WH-40b), so only the keys of its events show that it is a repeated
    one.

    Args:
        body: the body, byte for byte as it was received.
        headers: the header fields; a mapping, or pairs.
        keys: the keys that may have signed it, such as the app's secret and its former one.
        max_body: the largest body, in bytes.

    Raises:
        Rejected: no key signed exactly these bytes, or they are no delivery; `status` is the status to answer with.
        InvalidArgument: there is no key, the body is not bytes, or the header fields are no fields.
    """
    keys = check_keys(keys)
    COUNT.check("max_body", max_body)
    verifier = Verifier(keys=keys, crc_key=keys[0], crc_signature="ignore", max_body=max_body)
    _, events = verifier.read(body, parse_fields(headers), _PARSER)
    return events


_PARSER = EventParser()
_KEY = instance_of(SigningKey, "a SigningKey, such as SigningKey(...)")
_KEYS = ValueRule(SEVERAL.accepts, "a list of SigningKey, such as [SigningKey(...)]")


def check_keys(keys: object) -> tuple[SigningKey, ...]:
    """Return the keys.

    Raises:
        InvalidArgument: there is none, or something else among them, or in place of them.
    """
    _KEYS.check("keys", keys)
    found = tuple(cast(Iterable[SigningKey], keys))
    for position, key in enumerate(found):
        _KEY.check(f"keys[{position}]", key)
    if not found:
        raise InvalidArgument("keys", "must contain at least one SigningKey: without one nothing can be verified")
    return found


def parse_fields(headers: Headers) -> Fields:
    """Parse header fields, in one pass: a framework may provide an iterator.

    Raises:
        InvalidArgument: they are neither a mapping nor pairs.
    """
    try:
        pairs = cast(Mapping[str, str], headers).items() if isinstance(headers, Mapping) else headers
        return [(_decode(name).lower(), _decode(value)) for name, value in pairs]
    except (TypeError, ValueError):
        raise InvalidArgument("headers", "must be a mapping, or pairs of a name and a value") from None


def _decode(value: str | bytes) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if not isinstance(value, str):
        raise TypeError("a name or a value of a header is text")
    return value


def _parse_length(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise Rejected(RejectReason.BROKEN) from None


def _diagnose(signatures: Sequence[str]) -> RejectReason:
    if not signatures:
        return RejectReason.SIGNATURE_MISSING
    return RejectReason.SIGNATURE_WRONG if any(map(is_signature, signatures)) else RejectReason.SIGNATURE_MALFORMED
