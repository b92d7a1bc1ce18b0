"""What the service says in a stream about the stream itself."""

from collections.abc import Iterator, Mapping
from typing import Any

from svc_async.errors import ErrorDetail, StreamDropped, SvcError, TooManyConnections
from svc_async.wire.outcome import api_error

__all__ = ["notice"]

_RATE_LIMITED = 429
# Unspecified: how a stream says that it disconnects (contract UNS-stream-protocol). An error that is none of these
# stands in the stream as an event, so that it is seen, and disconnects nothing.
_NAMES = ("connection_issue", "disconnect_type")
_TITLES = frozenset({"operational-disconnect", "ConnectionException"})


def notice(raw: Mapping[str, Any]) -> SvcError | None:
    """Give what a line means for its connection: that it is over, or nothing."""
    said = [_detail(error) for error in _errors(raw)]
    if not said or "data" in raw:
        return None
    if any(detail.code == TooManyConnections.name for detail in said):
        return api_error(status=_RATE_LIMITED, errors=said)
    return StreamDropped("the service disconnects", errors=said)


def _errors(raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    listed = raw.get("errors")
    for error in listed if isinstance(listed, list) else [raw]:
        if isinstance(error, Mapping) and (error.get("title") in _TITLES or any(name in error for name in _NAMES)):
            yield error


def _detail(error: Mapping[str, Any]) -> ErrorDetail:
    names = (error.get(name) for name in (*_NAMES, "title"))
    return ErrorDetail(code=str(next(filter(None, names), "")), message=str(error.get("detail") or ""))
