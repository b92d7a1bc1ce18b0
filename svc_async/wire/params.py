"""Python values as strictly quoted query parameters.

The signature's base string and the wire must agree byte for byte, so a value is quoted once, here, to the
unreserved characters of RFC 3986; transport and signer take the result as it is.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from enum import Enum
from urllib.parse import quote as _quote

from svc_async.errors import InvalidArgument

__all__ = ["Param", "fill_path", "query_string", "quote", "segment", "timestamp", "to_pairs"]

_Scalar = str | int | bool | datetime | Enum
Param = _Scalar | Iterable[_Scalar] | None
"""What a query parameter may be: a scalar, or several, which travel as a comma list."""


def quote(text: str) -> str:
    """Percent-encode all but the unreserved characters of RFC 3986."""
    if text.isalnum() and text.isascii():
        return text  # as most ids are
    return _quote(text, safe="~")


def timestamp(moment: datetime) -> str:
    """Write a moment as ISO 8601 in UTC, to the second (contract GEN-12).

    Raises:
        InvalidArgument: the moment has no time zone, so that nobody can know what it means.
    """
    if moment.tzinfo is None:
        raise InvalidArgument("timestamp", "must carry a time zone (contract GEN-12)")
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_pairs(params: Mapping[str, Param]) -> tuple[tuple[str, str], ...]:
    """Quote the parameters that are given; None means not given."""
    return tuple(
        (quote(name), _quoted(name, _text(name, value))) for name, value in params.items() if value is not None
    )


def query_string(pairs: Iterable[tuple[str, str]]) -> str:
    """Join quoted pairs."""
    return "&".join(f"{name}={value}" for name, value in pairs)


def fill_path(template: str, segments: Mapping[str, object]) -> str:
    """Put quoted ids into a path template."""
    return template.format_map({name: segment(name, value) for name, value in segments.items()})


def segment(name: str, value: object) -> str:
    """Quote one id as a segment of a path.

    Raises:
        InvalidArgument: the id is empty (a get would become a list call), holds a slash, or is `.` or `..`.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidArgument(name, "must be an id: a string, or an int where the service says long")
    text = str(value)
    if not text.strip():
        raise InvalidArgument(name, "must not be empty (contract GEN-02)")
    if "/" in text or text in {".", ".."}:
        raise InvalidArgument(name, "must be a single path segment: no slash, and neither `.` nor `..`")
    return _quoted(name, text)


def _quoted(name: str, text: str) -> str:
    try:
        return quote(text)
    except UnicodeEncodeError:
        raise InvalidArgument(name, "must be text that UTF-8 can write: it holds half a character") from None


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime):
        return _moment(name, value)
    if isinstance(value, Iterable) and not isinstance(value, bytes | Mapping | date):
        return ",".join(_element(name, element) for element in value)
    raise InvalidArgument(name, f"cannot be a {type(value).__name__}")


def _element(name: str, value: object) -> str:
    text = _text(name, value)
    if "," in text:
        raise InvalidArgument(name, "must not hold a comma inside an element: the service reads a comma list")
    return text


def _moment(name: str, value: datetime) -> str:
    try:
        return timestamp(value)
    except InvalidArgument as error:
        raise InvalidArgument(name, error.rule) from None
