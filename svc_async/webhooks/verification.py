"""Verifies requests without I/O: a CRC check to answer, a delivery to accept, or a request to reject with advice.

Nothing is parsed before it is verified. The signature covers the body byte for byte.
"""

import re
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, cast
from urllib.parse import quote, urljoin, urlsplit

import attrs
import msgspec

from svc_async.errors import InvalidArgument, SvcError
from svc_async.events.models import Event
from svc_async.events.parser import EventParser
from svc_async.value_rules import COUNT, SEVERAL, ValueRule, instance_of, or_none
from svc_async.wire.dialect import Dialect
from svc_async.wire.envelope import NOT_JSON
from svc_async.wire.hmac_sha256 import SIGNATURE_HEADER, SigningKey, crc_answer, crc_token, is_signature, sign, verify

__all__ = [
    "ADVICE",
    "ADVICE_AFTER_FAILURE",
    "DIALECT",
    "MAX_BODY",
    "CrcSignature",
    "Fields",
    "Headers",
    "HttpAnswer",
    "RejectReason",
    "Rejected",
    "Verifier",
    "check_keys",
    "diagnose_crc",
    "diagnose_signature",
    "name_keys",
    "parse_fields",
    "reject",
    "rename_headers",
    "unwrap",
]

_PREFIX = "sha256="
_MISSING = "lacks the prefix: it must be sha256= followed by base64"
_HEX = "is hexadecimal; it must be base64"
_URL_SAFE = "is URL-safe or unpadded base64; it must be standard base64 with padding"
_NO_BASE64 = "is not sha256= followed by the base64 of 32 bytes"
_OF_ANOTHER_PATH = {404, 405}
"""What a server answers if the receiver has another path."""
_OTHER_SECRET = "was made with another secret or over other bytes"  # noqa: S105 - a message, not a secret


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
    if problem == _OTHER_SECRET and verify(key, quote(token, safe="").encode(), signature):
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
        return _OTHER_SECRET
    if re.fullmatch(r"(sha256=)?[0-9A-Fa-f]{64}", signature):
        return f"{_HEX}, and {_OTHER_SECRET}"
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


class RejectReason(StrEnum):
    """Why a request is rejected; statistics count by reason."""

    NOT_FOUND = "not_found"
    METHOD = "method_not_allowed"
    CRC_TOKEN = "crc_token_refused"  # noqa: S105 - it names a parameter
    ENCODED = "body_encoded"
    TOO_LARGE = "body_too_large"
    TOO_MANY_BODIES = "too_many_bodies"
    TOO_SLOW = "body_too_slow"
    BROKEN = "body_broken"
    ALREADY_READ = "body_already_read"
    SIGNATURE_REPEATED = "signature_repeated"
    SIGNATURE_MISSING = "signature_missing"
    SIGNATURE_MALFORMED = "signature_malformed"
    SIGNATURE_WRONG = "signature_wrong"
    NOT_AN_OBJECT = "not_a_json_object"
    TOO_MANY_EVENTS = "too_many_events"
    HANDLER_FAILED = "handler_failed"
    QUEUE_FULL = "queue_full"
    ACCEPT_FAILED = "accept_failed"
    CLAIMED_ELSEWHERE = "claimed_elsewhere"
    TOO_LATE = "deadline_passed"
    NOT_RUNNING = "not_running"


@attrs.frozen
class Advice:
    """The status of a rejection, its cause and the next step.

    Attributes:
        status: the status of the answer.
        cause: why requests are rejected for this reason.
        next_step: what to do about it.
    """

    status: int
    cause: str
    next_step: str


# Unspecified: the answer to a rejected request, and whether it is sent again (UNS-delivery-retry). A request that may
# be accepted later gets a 503.
ADVICE: Mapping[RejectReason, Advice] = {
    RejectReason.NOT_FOUND: Advice(
        404,
        "the path is not the one of receiver.asgi(path), which begins where the application is mounted: "
        "app.mount('/hooks/svc', receiver.asgi('/hooks/svc')) serves /hooks/svc/hooks/svc",
        "nothing if another URL was meant: others probe public ones; otherwise leave the prefix of the mount out of "
        "the path: app.mount('/hooks', receiver.asgi('/svc'))",
    ),
    RejectReason.METHOD: Advice(
        405, "the request is neither GET nor POST", "nothing: the service sends neither; others probe public URLs"
    ),
    RejectReason.CRC_TOKEN: Advice(
        400,
        "a GET has no crc_token, several, or one in which an event could be written",
        "nothing if the service did not send it; otherwise pass the query on as it was received",
    ),
    RejectReason.ENCODED: Advice(
        415,
        "the body has a Content-Encoding, and the signature covers the bytes as sent",
        "switch off compression in the proxy before the receiver",
    ),
    RejectReason.TOO_LARGE: Advice(
        413, "the body is larger than max_body", "raise max_body if the service sends deliveries of this size"
    ),
    RejectReason.TOO_MANY_BODIES: Advice(
        503,
        "max_bodies deliveries, or max_bytes of them, are being read or wait for their answer",
        "find what delays the answers, such as a slow store, or raise max_bodies and max_bytes",
    ),
    RejectReason.TOO_SLOW: Advice(
        408,
        "the body did not arrive within read_deadline",
        "remove ASGI middleware that reads the body before the receiver; otherwise check the network, or raise "
        "read_deadline",
    ),
    RejectReason.BROKEN: Advice(
        400,
        "the connection ended within the body, or Content-Length is not a number",
        "nothing: the service delivers again; if it persists, check the proxy before the receiver",
    ),
    RejectReason.ALREADY_READ: Advice(
        400,
        "Content-Length promises a body, and none is left",
        "let nothing consume the body before the receiver, such as an http middleware of Starlette or FastAPI that "
        "iterates request.stream() (request.body() there keeps it), or a middleware of aiohttp that calls "
        "request.read(), request.text(), request.json() or request.post()",
    ),
    RejectReason.SIGNATURE_REPEATED: Advice(
        400, "a signature header is there more than once", "check the proxy before the receiver: the service sends one"
    ),
    RejectReason.SIGNATURE_MISSING: Advice(
        401,
        f"there is no signature header, by default {SIGNATURE_HEADER}",
        "nothing if the service did not send it; otherwise let the proxy pass the header on, or name it in "
        "SigningKey(header=)",
    ),
    RejectReason.SIGNATURE_MALFORMED: Advice(
        401,
        "the signature is not sha256= followed by the base64 of 32 bytes",
        "nothing if the service did not send it; otherwise find what changes the header on the way",
    ),
    RejectReason.SIGNATURE_WRONG: Advice(
        401,
        "no key made the signature over exactly these bytes",
        "check that keys has the consumer secret of the app that owns the webhook, and that nothing changes the body",
    ),
    RejectReason.NOT_AN_OBJECT: Advice(
        400,
        "the body is signed and is not a JSON object",
        "report it to the service: it has signed what is not an event",
    ),
    RejectReason.TOO_MANY_EVENTS: Advice(
        413, "the body has more than 10,000 events", "report it to the service: no delivery should be as large"
    ),
    RejectReason.HANDLER_FAILED: Advice(
        500,
        "a handler failed, and the answer waits for handlers (Ack.inline)",
        "find the handler and the line in the log of errors",
    ),
    RejectReason.QUEUE_FULL: Advice(
        503,
        "maxsize events, or max_bytes of them, wait for handlers",
        "make handlers faster, or raise workers or the maxsize and max_bytes of ack",
    ),
    RejectReason.ACCEPT_FAILED: Advice(
        503,
        "a store or order_by failed",
        "find the exception in the log of errors: a full disk, a database that is away",
    ),
    RejectReason.CLAIMED_ELSEWHERE: Advice(
        503,
        "another receiver has the event and has not handled it yet",
        "nothing: the service delivers again, and by then the event is handled or free",
    ),
    RejectReason.TOO_LATE: Advice(
        503,
        "the event was not accepted, or not handled (Ack.inline), within the deadline of ack, by default 8 seconds",
        "nothing if it is rare: the handlers go on, and a repeated delivery is answered when they finish; otherwise "
        "make the store or the handlers faster, or answer before the handlers with Ack.enqueue or Ack.durable",
    ),
    RejectReason.NOT_RUNNING: Advice(
        503,
        "the receiver was not started, or is closing",
        "enter the receiver in the lifespan of the application, with `async with receiver`",
    ),
}
ADVICE_AFTER_FAILURE = Advice(
    503,
    "the receiver has ended because of an unexpected exception",
    "find the exception in the log of errors and report it, and start the receiver again",
)
"""Of `not_running`, if the receiver was started, and nothing has closed it."""


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
        return ADVICE[self.reason].status


def reject(reason: RejectReason, *, retry_after: int) -> HttpAnswer:
    """Return the answer to a request that is rejected."""
    headers = {"content-type": "text/plain; charset=utf-8"}
    if reason is RejectReason.METHOD:
        headers["allow"] = "GET, POST"
    status = ADVICE[reason].status
    if status == _TRY_LATER:
        headers["retry-after"] = str(retry_after)
    return HttpAnswer(status, headers, reason.value.encode())


@attrs.frozen(kw_only=True)
class Verifier:
    """The rules for requests.

    Attributes:
        keys: the keys that may sign a delivery, each under its own header.
        crc_key: the key that answers CRC checks.
        crc_signature: how to treat a signature of the CRC check.
        max_body: the largest body, in bytes.
        dialect: the words of the service, if they are not those of the contract.
    """

    keys: Sequence[SigningKey]
    crc_key: SigningKey
    crc_signature: CrcSignature
    max_body: int
    dialect: Dialect | None = None

    def answer_crc(self, raw_query: bytes, fields: Fields) -> HttpAnswer:
        """Answer a CRC check (contract WH-36).

        Raises:
            Rejected: the query has no token that may be signed, or its own signature is rejected.
        """
        if self.crc_signature == "require" or (
            self.crc_signature == "verify_if_present" and any(values for _, values in self._signatures(fields))
        ):
            self.verify(raw_query, fields)
        query = raw_query if self.dialect is None else self.dialect.read_form(raw_query)
        try:
            body = crc_answer(self.crc_key, crc_token(query))
        except InvalidArgument:
            raise Rejected(RejectReason.CRC_TOKEN) from None
        if self.dialect is not None:
            body = self.dialect.write_json(body)
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
            Rejected: no key signed exactly these bytes, or they are not a delivery.
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
                try:
                    self.check_size(int(value))
                except ValueError:
                    raise Rejected(RejectReason.BROKEN) from None
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

    def _signatures(self, fields: Fields) -> Iterator[tuple[SigningKey, list[str]]]:
        for key in self.keys:
            values = [value for name, value in fields if name == key.header.lower()]
            if len(values) > 1:
                raise Rejected(RejectReason.SIGNATURE_REPEATED)
            yield key, values


def unwrap(
    body: bytes,
    headers: Headers,
    *,
    keys: Iterable[SigningKey],
    max_body: int = MAX_BODY,
    dialect: Dialect | None = None,
) -> tuple[Event, ...]:
    """Return the events of one delivery once its signature is verified, for code with a queue of its own.

    Nothing is stored or counted, and an event may arrive more than once: `event.key` is the same each time. A delivery
    has no time of its own that is signed (contract WH-40b), so only the keys of its events show that it is a repeated
    one.

    Args:
        body: the body, byte for byte as it was received.
        headers: the header fields; a mapping, or pairs.
        keys: the keys that may have signed it, such as the app's secret and its former one.
        max_body: the largest body, in bytes.
        dialect: the words of the service, if they are not those of the contract.

    Raises:
        Rejected: no key signed exactly these bytes, or they are not a delivery; `status` is the status to answer with.
        InvalidArgument: there is no key, the body is not bytes, or the header fields are not fields.
    """
    keys = check_keys(keys)
    COUNT.check("max_body", max_body)
    DIALECT.check("dialect", dialect)
    if dialect is not None:
        keys = rename_headers(keys, dialect)
    verifier = Verifier(keys=keys, crc_key=keys[0], crc_signature="ignore", max_body=max_body)
    _, events = verifier.read(body, parse_fields(headers), EventParser(dialect=dialect))
    return events


DIALECT = or_none(instance_of(Dialect, "a Dialect, such as Dialect.load(path)"))
_KEY = instance_of(SigningKey, "a SigningKey, such as SigningKey(...)")
_KEYS = ValueRule(SEVERAL.accepts, "a list of SigningKey, such as [SigningKey(...)]")


def check_keys(keys: object) -> tuple[SigningKey, ...]:
    """Return the keys.

    Raises:
        InvalidArgument: there is no key, or something else is among them or in place of them.
    """
    _KEYS.check("keys", keys)
    found = tuple(cast(Iterable[SigningKey], keys))
    for position, key in enumerate(found):
        _KEY.check(f"keys[{position}]", key)
    if not found:
        raise InvalidArgument("keys", "must contain at least one SigningKey: without one nothing can be verified")
    return found


def rename_headers(keys: Iterable[SigningKey], dialect: Dialect) -> tuple[SigningKey, ...]:
    """Return keys under the headers that a dialect has for theirs."""
    return tuple(attrs.evolve(key, header=dialect.headers.get(key.header.lower(), key.header)) for key in keys)


def name_keys(keys: Sequence[SigningKey]) -> Mapping[SigningKey, tuple[str, str]]:
    """Return the id of each signing key and the app that it stands for, empty for the first.

    Raises:
        InvalidArgument: there are several keys, and one lacks its app or has the id of another.
    """
    if len(keys) > 1 and not all(key.app for key in keys):
        raise InvalidArgument(
            "keys",
            "must each name their app, since there are several: SigningKey(secret, app=NAME), with the same name for a "
            "former secret",
        )
    ids = [key.key_id or f"key-{position}" for position, key in enumerate(keys, 1)]
    if len({*ids}) < len(ids):
        raise InvalidArgument("keys", "must not have the same key_id")
    first = keys[0].app
    return {key: (key_id, "" if key.app == first else str(key.app)) for key, key_id in zip(keys, ids, strict=True)}


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


def _diagnose(signatures: Sequence[str]) -> RejectReason:
    if not signatures:
        return RejectReason.SIGNATURE_MISSING
    return RejectReason.SIGNATURE_WRONG if any(map(is_signature, signatures)) else RejectReason.SIGNATURE_MALFORMED
