"""The envelope of answers: pages, the reasons of a refusal, and the time of the service."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import attrs
import msgspec

from svc_async.errors import ApiError, ErrorDetail, UnexpectedAnswer, UsageCapExceeded
from svc_async.printable import strip_url
from svc_async.wire.outcome import api_error, is_usage_cap
from svc_async.wire.reasons import MOST_REASONS, parse_details, read_document, read_text
from svc_async.wire.records import to_plain_values, to_shown_values
from svc_async.wire.redaction import NO_SECRETS, Secrets
from svc_async.wire.tolerant import decode, has_too_many_values

__all__ = [
    "NOT_JSON",
    "Answer",
    "CallAnswer",
    "Page",
    "Unreadable",
    "errors_beside_data",
    "is_withheld",
    "make_unexpected",
    "other_resets",
    "parse_http_date",
    "parse_object",
    "parse_refusal",
    "parse_value",
    "service_time",
]

_EARLIEST = datetime(1, 1, 1, tzinfo=UTC) + timedelta(days=10)
_LATEST = datetime(9999, 12, 31, tzinfo=UTC) - timedelta(days=10)
"""Beyond these, the times around a moment are none that Python can compute."""


@lru_cache(maxsize=64)  # all answers of one second have the same
def parse_http_date(text: str) -> datetime | None:
    """Return the moment of an HTTP date, or None if it is not one."""
    try:
        moment = parsedate_to_datetime(text)
        moment = moment.replace(tzinfo=moment.tzinfo or UTC)
    except (ValueError, OverflowError):
        return None
    return moment if _EARLIEST < moment < _LATEST else None


def service_time(headers: Mapping[str, str], default: datetime) -> datetime:
    """Return the time of the service when it answered: that of `Date`, or `default` if there is none.

    The clock of this machine may be minutes ahead or behind; the difference of two times of the service is right.
    """
    return parse_http_date(headers.get("date", "")) or default


T = TypeVar("T")

NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of decoding a body; the last for one that is nested too deeply."""
_MOST_OPERATIONS = 10_000
"""Operations of an answer, and reasons of all of them; more than a request has."""


@attrs.frozen(kw_only=True)
class Unreadable:
    """A record of a page whose required fields do not fit.

    Attributes:
        raw: the record as it came.
        problem: what does not fit.
    """

    raw: Any = attrs.field(repr=False)
    problem: str


@attrs.frozen(kw_only=True)
class Page(Generic[T]):
    """One page of a listing (contract GEN-04).

    Attributes:
        items: the records of this page; an empty page is not necessarily the last.
        next_cursor: where the next page starts; None on the last page only.
        total_count: the number of records on all pages, if it was requested.
        unreadable: the records that do not fit; they are not among the items.
        broken_cursor: why the next page cannot be requested, if the service sent a cursor that does not fit, or one
            that the listing was at before.
        answer: the answer that it was read from.
    """

    items: Sequence[T]
    next_cursor: str | None = None
    total_count: int | None = None
    unreadable: tuple[Unreadable, ...] = ()
    broken_cursor: UnexpectedAnswer | None = attrs.field(default=None, eq=False, repr=False)
    answer: "CallAnswer | None" = attrs.field(default=None, eq=False, repr=False)

    if not TYPE_CHECKING:  # checkers, and isinstance(page, Iterable), see that it cannot be iterated over

        def __getitem__(self, position: object) -> NoReturn:
            """Say where the records are, to a `for` and to whoever takes it for a list."""
            raise TypeError("a page is no list: its records are in `.items`; `async for` takes those of all pages")

    def to_dict(self) -> dict[str, Any]:
        """Return the page as values that JSON can represent; unreadable records as they came."""
        return {
            "items": [to_plain_values(item) for item in self.items],
            "next_cursor": self.next_cursor,
            "total_count": self.total_count,
            "unreadable": [{"raw": each.raw, "problem": each.problem} for each in self.unreadable],
        }

    def to_json(self) -> str:
        """Return `to_dict()` as JSON in ASCII."""
        return json.dumps(self.to_dict())

    def _repr_html_(self) -> str:
        """Return a table of the first records, with the fields that a repr shows, for notebooks."""
        from svc_async.notebook import render_rows  # noqa: PLC0415 - only notebooks need it

        rows = [item if isinstance(item, Mapping) else {"": item} for item in map(to_shown_values, self.items)]
        kind = f" ({type(self.items[0]).__name__})" if self.items else ""
        unreadable = f", {len(self.unreadable):,} unreadable" if self.unreadable else ""
        end = "more pages follow" if self.next_cursor else "the last page"
        return render_rows(f"{len(rows):,} record{'s' * (len(rows) != 1)}{kind}{unreadable}; {end}", rows)


@attrs.frozen(kw_only=True)
class CallAnswer:
    """The answer behind the value of a call.

    Attributes:
        status: the HTTP status.
        headers: its headers; their names are case-insensitive.
        body: the body as it came, decompressed; it may contain personal data.
        request_id: the server-assigned request id, from the header that the session configures, else None.
        attempts: how many times the call was sent.
        seconds: how long the call took, all its waits included.
        waited: how many of these seconds it waited, at the rate limit and before repeats.
    """

    status: int
    headers: Mapping[str, str] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)
    request_id: str | None
    attempts: int
    seconds: float
    waited: float


def make_unexpected(message: str, answer: CallAnswer, *, repeatable: bool = False) -> UnexpectedAnswer:
    """Return the exception of an answer that was read and is not what the call needs."""
    return UnexpectedAnswer(
        message,
        status=answer.status,
        headers=answer.headers,
        request_id=answer.request_id,
        body=answer.body,
        repeatable=repeatable,
    )


@attrs.frozen(kw_only=True)
class Answer:
    """An HTTP answer; the names of `headers` are case-insensitive.

    Attributes:
        came: the body as it came, if a dialect has changed words in it.
    """

    status: int
    headers: Mapping[str, str] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)
    came: bytes | None = attrs.field(default=None, repr=False)

    @property
    def received(self) -> bytes:
        """The body as it came."""
        return self.body if self.came is None else self.came

    def request_id(self, header: str | None) -> str | None:
        """Return the server-assigned request id from the header that the session configures."""
        return self.headers.get(header) if header else None

    @property
    def is_success(self) -> bool:
        """Whether the status is a 2xx."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the 2xx class


def parse_refusal(
    answer: Answer, *, now: datetime, request_id_header: str | None = None, secrets: Secrets = NO_SECRETS
) -> ApiError:
    """Return the exception of an answer that is not a success.

    The status decides its class; the body, which may be HTML, empty or broken, only contributes reasons.

    Args:
        answer: the answer.
        now: the time.
        request_id_header: the header with the server-assigned request id, if there is one.
        secrets: what the call has proved itself with; it is removed from all that the answer says.
    """
    raw, headers = secrets.hide(answer.body), secrets.hide_headers(answer.headers)
    value = parse_value(raw)
    kept = (value, raw)
    if answer.came is not None:
        came = secrets.hide(answer.came)
        kept = (parse_value(came), came)
    body = value if isinstance(value, dict) else {}
    reasons = [*read_document(value)]
    if not reasons and (text := read_text(raw, headers.get("content-type", ""))):
        reasons = [ErrorDetail(message=text)]
    if not reasons and (location := headers.get("location")):
        reasons = [ErrorDetail(message=f"redirect to {strip_url(location)}")]
    is_cap = any(is_usage_cap(reason.code) for reason in reasons)
    if not is_cap and any(map(is_usage_cap, _find_types(body))):
        is_cap = True
        reasons.insert(0, ErrorDetail(code=UsageCapExceeded.name))
    wait = _parse_wait(answer, now, has_reset=answer.status == HTTPStatus.TOO_MANY_REQUESTS and not is_cap)
    return api_error(
        status=answer.status,
        errors=reasons,
        operation_errors=_parse_operation_errors(body.get("operation_errors")),
        headers=headers,
        request_id=answer.request_id(request_id_header),
        body=_remove_echo(*kept),
        retry_at=None if wait is None else now + wait,
        retry_after=None if wait is None else wait.total_seconds(),
    )


def _remove_echo(value: object, raw: bytes) -> bytes:
    """Return the body of a refusal without the values of the request, which it may repeat (contract GEN-03)."""
    if not isinstance(value, dict):
        return raw
    errors = value.get("errors")
    echoes = [each for each in errors if isinstance(each, dict) and "value" in each] if isinstance(errors, list) else []
    if "request" not in value and not echoes:
        return raw
    for each in echoes:
        each.pop("value")
    value.pop("request", None)
    try:
        return json.dumps(value).encode("ascii")
    except RecursionError:
        return b""


def _find_types(body: Mapping[str, Any]) -> Iterable[object]:
    """Return the types of the problems of a refusal: of the document, and of each of its errors."""
    errors = body.get("errors")
    listed = errors[:MOST_REASONS] if isinstance(errors, list) else [errors]
    return (each.get("type") for each in (body, *listed) if isinstance(each, Mapping))


def errors_beside_data(
    answer: Answer, find_secrets: Callable[[], Secrets] = lambda: NO_SECRETS
) -> tuple[ErrorDetail, ...]:
    """Return the errors that the main API reports in an answer of success, beside its data or in place of it.

    Args:
        answer: the answer.
        find_secrets: returns what is removed from its words; it is called only if there may be errors.
    """
    if b'"errors"' not in answer.body:
        return ()
    return tuple(parse_details((parse_object(find_secrets().hide(answer.body)) or {}).get("errors")))


def is_withheld(answer: Answer) -> bool:
    """Whether an answer of success is a refusal: it has errors and no data."""
    return (
        b'"errors"' in answer.body
        and bool(errors_beside_data(answer))
        and (parse_object(answer.body) or {}).get("data") is None
    )


def parse_object(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a body, also one that only a closer look can decode; None if it is not an object.

    One with too many values is not read.
    """
    value = parse_value(body)
    return value if isinstance(value, dict) else None


def parse_value(body: bytes) -> Any:
    """Parse a body as `parse_object` does; None if it is not JSON, or too much of it."""
    if has_too_many_values(body):
        return None
    try:
        return msgspec.json.decode(body)
    except NOT_JSON:
        try:
            return decode(body)
        except (ValueError, RecursionError):
            return None


def _parse_operation_errors(entries: object) -> dict[int, tuple[ErrorDetail, ...]]:
    # Unspecified: a list with one (often empty) list for each operation, or one object with its index for each
    # operation that failed (contract UNS-batch-error-shape). Both are accepted.
    if not isinstance(entries, list):
        return {}
    found: dict[int, tuple[ErrorDetail, ...]] = {}
    left = _MOST_OPERATIONS
    for position, entry in enumerate(entries[:_MOST_OPERATIONS]):
        index = entry.get("index", position) if isinstance(entry, dict) else position
        found_here = parse_details(entry) if isinstance(entry, list | dict) else ()
        details = tuple(islice(found_here, max(1, left)))  # each operation keeps its first reason
        left -= len(details)
        if details and isinstance(index, int) and not isinstance(index, bool):
            found[index] = (found.get(index, ()) + details)[:MOST_REASONS]
    return found


# Unspecified: that there may be limits beside those of `x-rate-limit-*`, such as one of a day in
# `x-user-limit-24hour-*` (contract UNS-rate-headers).
_REMAINING = re.compile(r"(?!x-(?:account-)?rate-limit-)(x-[a-z0-9-]{1,100}-)remaining", re.IGNORECASE)


def other_resets(headers: Mapping[str, str]) -> Sequence[str]:
    """Return the resets of the limits of other names of which a refusal says that nothing remains."""
    names = (found[1] for name, value in headers.items() if value == "0" and (found := _REMAINING.fullmatch(name)))
    return [headers.get(f"{name}reset", "") for name in names]


_DAY = timedelta(days=1)
_SECONDS = re.compile(r"\d{1,9}")


def _parse_wait(answer: Answer, now: datetime, *, has_reset: bool) -> timedelta | None:
    """Parse retry-after (seconds or a date) and, on a 429 of a rate limit, the resets of those that are exhausted.

    A time in the past is ignored, and one more than a day ahead as well: it is a mistake, such as milliseconds. Times
    of the service are measured against the answer's `Date`.
    """
    service_now = service_time(answer.headers, now)
    waits: list[timedelta] = []
    retry_after = answer.headers.get("retry-after", "")
    if _SECONDS.fullmatch(retry_after):
        waits.append(timedelta(seconds=int(retry_after)))
    elif moment := parse_http_date(retry_after):
        waits.append(moment - service_now)
    if has_reset:
        reset = answer.headers.get("x-account-rate-limit-reset") or answer.headers.get("x-rate-limit-reset", "")
        for each in (reset, *other_resets(answer.headers)):
            with suppress(ValueError, OverflowError, OSError):
                waits.append(datetime.fromtimestamp(int(each), UTC) - service_now)
    return max((each for each in waits if timedelta() < each <= _DAY), default=None)
