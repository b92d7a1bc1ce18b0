"""What a stream tells about itself."""

import enum
from datetime import datetime

import attrs

from svc_async.errors import InvalidArgument, SvcError

__all__ = ["Checkpoint", "Malformed", "StateChange", "StreamState", "StreamStats"]


class StreamState(enum.StrEnum):
    """Where a stream stands."""

    CONNECTING = "connecting"
    OPEN = "open"
    BACKOFF = "backoff"
    """It waits before it connects again."""
    CLOSED = "closed"


@attrs.frozen(kw_only=True)
class StateChange:
    """A step of a stream's life, told to `on_state`.

    Attributes:
        state: the state that it came to.
        error: why, where something failed: what ended the connection, or the stream.
        wait: seconds until the next connection, in `backoff`.
    """

    state: StreamState
    error: SvcError | None = None
    wait: float | None = None


@attrs.frozen(kw_only=True)
class Checkpoint:
    """How far a stream has been taken; give it to a later stream as `since=`.

    Attributes:
        at: the moment until which nothing is missing from what was taken.
        key: the key of the event that was taken last, if there was one.
    """

    at: datetime
    key: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.at.tzinfo is None:
            raise InvalidArgument("at", "must carry a time zone (contract GEN-12)")


@attrs.frozen(kw_only=True)
class Malformed:
    """A line that is no event, told to `on_malformed`.

    Attributes:
        line: the line; None if it was too long to be kept. It may hold personal data.
        size: its bytes.
        reason: what is wrong with it.
    """

    line: bytes | None = attrs.field(repr=False)
    size: int
    reason: str


@attrs.define(kw_only=True)
class StreamStats:
    """What a stream has counted so far.

    Attributes:
        connects: connections that were opened, side connections included.
        refusals: connects that failed.
        stalls: connections that fell silent.
        heartbeats: blank lines.
        malformed: lines that are no event.
        partial_lines: lines that the end of a connection cut off; they were dropped.
        events: events that went into the queue.
        duplicates: events that had come before and were hidden.
        dropped: events that `overflow="drop_oldest"` let go.
        waiting: events in the queue now.
        lag: seconds that the event taken last had waited in the queue.
        lost: gaps that nothing covers.
    """

    connects: int = 0
    refusals: int = 0
    stalls: int = 0
    heartbeats: int = 0
    malformed: int = 0
    partial_lines: int = 0
    events: int = 0
    duplicates: int = 0
    dropped: int = 0
    waiting: int = 0
    lag: float = 0.0
    lost: int = 0
