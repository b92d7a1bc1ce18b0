"""Dates in headers, and the time of the service: what a header says about a moment is measured against it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache

__all__ = ["parse_http_date", "service_time"]

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
