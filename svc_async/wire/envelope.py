"""What the service wraps around its values: pages, and the reasons of a refusal."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Generic, TypeVar

import attrs
import msgspec

from svc_async.errors import ApiError, ErrorDetail
from svc_async.wire.outcome import api_error

__all__ = ["NOT_JSON", "Answer", "Page", "complaint", "complaints", "is_withheld", "refusal"]

T = TypeVar("T")

NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises about a body; the last for one that is nested without end."""


@attrs.frozen(kw_only=True)
class Page(Generic[T]):
    """One page of a listing (contract GEN-04).

    Attributes:
        items: the records of this page; an empty page is not the end.
        next_cursor: where the next page starts; None on the last page only.
        total_count: how many records there are in all, when it was asked for.
    """

    items: Sequence[T]
    next_cursor: str | None = None
    total_count: int | None = None


@attrs.frozen(kw_only=True)
class Answer:
    """An HTTP answer as it came; names of `headers` are found in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = attrs.field(repr=False)

    def request_id(self, header: str | None) -> str | None:
        """Give the service's name for the call, from the header that the session is told."""
        return self.headers.get(header) if header else None

    @property
    def is_success(self) -> bool:
        """Whether the status is a 2xx."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the 2xx class


def refusal(answer: Answer, *, now: datetime, request_id_header: str | None = None) -> ApiError:
    """Turn an answer that is no success into its exception.

    The status decides; the body may be HTML, empty or broken and is only asked for reasons.
    """
    body = _json_object(answer.body)
    return api_error(
        status=answer.status,
        errors=[*_problem(body), *_details(body.get("errors")), *_grant_refusal(body)],
        operation_errors=_operation_errors(body.get("operation_errors")),
        headers=answer.headers,
        request_id=answer.request_id(request_id_header),
        retry_at=_retry_at(answer, now),
    )


def complaints(answer: Answer) -> tuple[ErrorDetail, ...]:
    """Give the reasons that the main API names in an answer of success, beside its data or in place of it."""
    return tuple(_details(_json_object(answer.body).get("errors"))) if b'"errors"' in answer.body else ()


def is_withheld(answer: Answer) -> bool:
    """Whether an answer of success is a refusal: it has reasons, and no data."""
    return b'"errors"' in answer.body and bool(complaints(answer)) and _json_object(answer.body).get("data") is None


def _json_object(body: bytes) -> Mapping[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except NOT_JSON:
        return {}
    return value if isinstance(value, dict) else {}


def _details(errors: object) -> Iterable[ErrorDetail]:
    # `errors` is a list on both APIs; a lone object was seen as well.
    if isinstance(errors, dict):
        errors = [errors]
    if isinstance(errors, list):
        for error in errors:
            if isinstance(error, dict):
                yield complaint(error)


def complaint(error: Mapping[str, Any]) -> ErrorDetail:
    """Read one reason, as either API writes it."""
    code = error.get("code") or ("" if "message" in error else _name(error))
    parameter = error.get("parameter") or error.get("attribute") or next(iter(_object(error.get("parameters"))), None)
    return ErrorDetail(
        code=code if isinstance(code, int) else str(code),
        message=str(error.get("message") or error.get("detail") or error.get("title") or ""),
        parameter=None if parameter is None else str(parameter),
    )


def _problem(body: Mapping[str, Any]) -> Iterable[ErrorDetail]:
    """Read the problem document of the main API's version 2: {type, title, detail, status}."""
    if "title" in body:
        name = _name(body)
        yield ErrorDetail(code=name, message=str(body.get("detail", "")).removeprefix(f"{name}: "))


_FAILURE = re.compile(r"(?:[A-Z][a-z]+){2,}\b")


def _name(problem: Mapping[str, Any]) -> str:
    # Unspecified: a failure such as `CrcValidationFailed` is named by the first word of `detail` (contract
    # UNS-main-error-body), one of a stream by `connection_issue` (UNS-stream-protocol); else the title must do.
    failure = _FAILURE.match(str(problem.get("detail", "")))
    return str(problem.get("connection_issue") or (failure and failure[0]) or problem.get("title") or "")


def _grant_refusal(body: Mapping[str, Any]) -> Iterable[ErrorDetail]:
    """Read the refusal of an OAuth 2.0 grant (RFC 6749, 5.2): {error, error_description}."""
    if isinstance(body.get("error"), str):
        yield ErrorDetail(code=body["error"], message=str(body.get("error_description", "")))


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _operation_errors(entries: object) -> dict[int, tuple[ErrorDetail, ...]]:
    # Unspecified: a list with one (often empty) list for each operation, or one object with its index for each
    # operation that failed (contract UNS-batch-error-shape). Both are read.
    if not isinstance(entries, list):
        return {}
    found: dict[int, tuple[ErrorDetail, ...]] = {}
    for position, entry in enumerate(entries):
        index = entry.get("index", position) if isinstance(entry, dict) else position
        details = tuple(_details(entry))
        if details and isinstance(index, int):
            found[index] = found.get(index, ()) + details
    return found


_SECONDS = re.compile(r"\d{1,9}")


def _retry_at(answer: Answer, now: datetime) -> datetime | None:
    """Read retry-after (seconds or a date) and, on a 429, the reset of the limit; a time in the past says nothing."""
    moments = [_after(answer.headers.get("retry-after", ""), now)]
    if answer.status == 429:  # noqa: PLR2004 - rate limited
        reset = answer.headers.get("x-account-rate-limit-reset") or answer.headers.get("x-rate-limit-reset", "")
        moments.append(_epoch(reset))
    return max((moment for moment in moments if moment is not None and moment > now), default=None)


def _after(value: str, now: datetime) -> datetime | None:
    if _SECONDS.fullmatch(value):
        return now + timedelta(seconds=int(value))
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC)


def _epoch(value: str) -> datetime | None:
    try:
        return datetime.fromtimestamp(int(value), UTC)
    except (ValueError, OverflowError, OSError):
        return None
