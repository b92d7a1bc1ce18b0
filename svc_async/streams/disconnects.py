"""Recognise the messages by which the service closes a stream; no I/O."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from itertools import islice
from typing import Any

from svc_async.errors import ErrorDetail, StreamDropped, SvcError, TooManyConnections
from svc_async.wire.outcome import api_error

__all__ = ["parse_disconnect"]

# Unspecified: the form of a disconnect message (contract UNS-stream-protocol). An error in any other form is delivered
# as an event, so that it is visible, and does not close the connection.
_REASON_FIELDS = ("connection_issue", "disconnect_type")
_TITLES = ("operational-disconnect", "ConnectionException")
_MOST_REASONS = 100


def parse_disconnect(raw: Mapping[str, Any]) -> SvcError | None:
    """Return the error that a line reports about its connection, or None if the line is an event."""
    details = [_parse_detail(error) for error in islice(_find_errors(raw), _MOST_REASONS)]
    if not details or "data" in raw:
        return None
    if any(detail.code == TooManyConnections.name for detail in details):
        return api_error(status=HTTPStatus.TOO_MANY_REQUESTS, errors=details)
    return StreamDropped("the service closed the stream", errors=details)


def _find_errors(raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    errors = raw.get("errors")
    for error in errors if isinstance(errors, list) else [raw]:
        if isinstance(error, Mapping) and _is_disconnect(error):
            yield error


def _is_disconnect(error: Mapping[str, Any]) -> bool:
    return error.get("title") in _TITLES or any(name in error for name in _REASON_FIELDS)


def _parse_detail(error: Mapping[str, Any]) -> ErrorDetail:
    codes = (error.get(name) for name in (*_REASON_FIELDS, "title"))
    return ErrorDetail(code=str(next(filter(None, codes), "")), message=str(error.get("detail") or ""))
