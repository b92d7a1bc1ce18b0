"""Python values as strictly quoted query parameters.

The signature's base string and the request must agree byte for byte, so a value is quoted once, here, to the
unreserved characters of RFC 3986; transport and signer use the result unchanged.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from enum import Enum
from urllib.parse import quote as _quote

from svc_async.errors import InvalidArgument
from svc_async.value_rules import MOMENT
from svc_async.wire.params.kinds import MICROS

__all__ = ["Param", "fill_path", "query_string", "quote", "segment", "timestamp", "to_pairs", "to_utc"]

_Scalar = str | int | bool | datetime | Enum
Param = _Scalar | Iterable[_Scalar] | None
"""Types of a query parameter: a scalar, or several, which are sent as a comma-separated list."""


def quote(text: str) -> str:
    """Percent-encode all characters except the unreserved ones of RFC 3986."""
    if text.isalnum() and text.isascii():
        return text  # most ids
    return _quote(text, safe="~")


def timestamp(moment: datetime) -> str:
    """Format a datetime as ISO 8601 in UTC, to the second (contract GEN-12).

    Raises:
        InvalidArgument: the datetime has no time zone, so it is ambiguous, or has no year of four digits in UTC.
    """
    # strftime does not pad the year.
    return to_utc("timestamp", moment).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def to_utc(name: str, moment: datetime) -> datetime:
    """Return a datetime in UTC.

    Raises:
        InvalidArgument: it has no time zone, so it is ambiguous (contract GEN-12), or no year of four digits in UTC; or
            it is no datetime.
    """
    if not isinstance(moment, datetime):
        MOMENT.check(name, moment)
    if moment.tzinfo is None:
        raise InvalidArgument(name, "must have a time zone", rule_ids=("GEN-12",))
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidArgument(name, "must be in the years 1 to 9999 in UTC") from None


def to_pairs(params: Mapping[str, Param]) -> tuple[tuple[str, str], ...]:
    """Quote names and values of parameters; those that are None are left out."""
    return tuple(
        (_quote_value("params", name), _quote_value(name, _to_text(name, value)))
        for name, value in params.items()
        if value is not None
    )


def query_string(pairs: Iterable[tuple[str, str]]) -> str:
    """Join quoted names and values."""
    return "&".join(f"{name}={value}" for name, value in pairs)


def fill_path(template: str, segments: Mapping[str, object]) -> str:
    """Fill a path template with quoted ids."""
    return template.format_map({name: segment(name, value) for name, value in segments.items()})


def segment(name: str, value: object) -> str:
    """Quote an id as one segment of a path.

    Raises:
        InvalidArgument: the id is empty (a get would become a list call), contains a slash, or is `.` or `..`.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidArgument(name, "must be an id: a string, or an int where the service says long")
    text = _write_int(name, value) if isinstance(value, int) else str(value)
    if not text.strip():
        raise InvalidArgument(name, "must not be empty", rule_ids=("GEN-02",))
    if "/" in text or text in {".", ".."}:
        raise InvalidArgument(name, "must be a single path segment: no slash, and neither `.` nor `..`")
    return _quote_value(name, text)


def _quote_value(name: str, text: str) -> str:
    try:
        return quote(text)
    except UnicodeEncodeError:
        raise InvalidArgument(name, "must be valid Unicode (contains a lone surrogate)") from None


def _to_text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _write_int(name, value)
    if isinstance(value, datetime):
        return _format_datetime(name, value)
    if isinstance(value, Iterable) and not isinstance(value, bytes | Mapping | date):
        return ",".join(_format_element(name, element) for element in value)
    if name.endswith("_local_micro"):
        raise InvalidArgument(name, f"must be {MICROS.words}", rule_ids=MICROS.rule_ids)
    raise InvalidArgument(name, _SCALARS)


def _write_int(name: str, value: int) -> str:
    if value.bit_length() > _LONG:  # Python refuses to write very long ones
        raise InvalidArgument(name, f"must be an integer of at most {_LONG} bits")
    return str(value)


_LONG = 64
_SCALARS = "must be a string, a whole number, True or False, a datetime with a time zone, or a sequence of them"


def _format_element(name: str, value: object) -> str:
    text = _to_text(name, value)
    if "," in text:
        raise InvalidArgument(name, "must not contain a comma in an element: it is sent as a comma-separated list")
    return text


def _format_datetime(name: str, value: datetime) -> str:
    try:
        return timestamp(value)
    except InvalidArgument as error:
        raise InvalidArgument(name, error.rule, rule_ids=error.rule_ids) from None
