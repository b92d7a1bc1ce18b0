"""Lines of a stream: split however the bytes were divided, known before, or the service's last word; no I/O.

Every byte is copied a fixed number of times, so a line of many megabytes that arrives byte by byte costs time linear
in its length. Lines stay bytes, because a chunk may end inside a multi-byte character and a line cannot.
"""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from itertools import islice
from typing import Any

import attrs

from svc_async.errors import ErrorDetail, StreamDropped, SvcError, TooManyConnections, UsageCapExceeded
from svc_async.wire.outcome import api_error

__all__ = ["LineSplitter", "OverlongLine", "RecentKeys", "parse_disconnect"]

# Unspecified: the form of a disconnect message (contract UNS-stream-protocol). An error in any other form is delivered
# as an event, so that it is visible, and does not close the connection.
_REASON_FIELDS = ("connection_issue", "disconnect_type")
_TITLES = ("operational-disconnect", "ConnectionException")
_MOST_REASONS = 100


def parse_disconnect(raw: Mapping[str, Any]) -> SvcError | None:
    """Return the error that a line reports about its connection, or None if the line is an event."""
    details = []
    for error in islice(_find_errors(raw), _MOST_REASONS):
        codes = (error.get(name) for name in (*_REASON_FIELDS, "title"))
        code = str(next(filter(None, codes), ""))
        details.append(ErrorDetail(code=code, message=str(error.get("detail") or "")))
    if not details or "data" in raw:
        return None
    refusal = api_error(status=HTTPStatus.TOO_MANY_REQUESTS, errors=details)
    if isinstance(refusal, TooManyConnections | UsageCapExceeded):
        return refusal
    return StreamDropped("the service closed the stream", errors=details)


def _find_errors(raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    errors = raw.get("errors")
    for error in errors if isinstance(errors, list) else [raw]:
        if isinstance(error, Mapping) and (
            error.get("title") in _TITLES or any(name in error for name in _REASON_FIELDS)
        ):
            yield error


@attrs.define
class RecentKeys:
    """A bounded set of keys that evicts the oldest first.

    Args:
        size: the maximum number of keys; 0 stores none.
    """

    size: int
    _keys: dict[str, None] = attrs.field(factory=dict, init=False)

    def add(self, key: str) -> bool:
        """Store a key and return whether it is new."""
        if key in self._keys:
            return False
        if self.size:
            self._keys[key] = None
            if len(self._keys) > self.size:
                del self._keys[next(iter(self._keys))]
        return True


@attrs.frozen
class OverlongLine:
    """A line that was discarded because it is too long.

    Attributes:
        size: its length in bytes, without the line feed.
    """

    size: int


@attrs.define
class LineSplitter:
    r"""Splits chunks into lines, without their `\n` or `\r\n`.

    Args:
        max_line_bytes: the longest line that is kept, without its line feed; of a longer one only the size is known.
    """

    max_line_bytes: int
    _rest: bytearray = attrs.field(factory=bytearray, init=False)
    _size: int = attrs.field(default=0, init=False)

    def feed(self, chunk: bytes) -> list[bytes | OverlongLine]:
        """Add a chunk and return the lines that end in it."""
        first, *others = chunk.split(b"\n")
        self._append(first)
        lines: list[bytes | OverlongLine] = []
        for piece in others:
            line = bytes(self._rest)
            size = self.finish()
            lines.append(OverlongLine(size) if size > self.max_line_bytes else line.removesuffix(b"\r"))
            self._append(piece)
        return lines

    def finish(self) -> int:
        """Discard an incomplete last line and return its size in bytes."""
        size, self._size = self._size, 0
        self._rest.clear()
        return size

    def _append(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self.max_line_bytes:
            self._rest += piece
