"""What a stream reports about itself."""

import enum
from datetime import datetime

import attrs

from svc_async.errors import SvcError
from svc_async.value_rules import MOMENT, TEXT, or_none

__all__ = ["Checkpoint", "MalformedLine", "StateChange", "StreamState", "StreamStats"]


class StreamState(enum.StrEnum):
    """The state of a stream's connection."""

    CONNECTING = "connecting"
    OPEN = "open"
    BACKOFF = "backoff"
    """Waiting before the next connection."""
    CLOSED = "closed"


@attrs.frozen(kw_only=True)
class StateChange:
    """A transition of a stream, passed to `on_state`.

    Attributes:
        state: the new state.
        error: the error that ended the connection or the stream, if any.
        wait: seconds until the next connection, in the state `backoff`.
    """

    state: StreamState
    error: SvcError | None = None
    wait: float | None = None


@attrs.frozen(kw_only=True)
class Checkpoint:
    """The point of a stream up to which events were taken; pass it to a later stream as `since=`.

    Attributes:
        at: the time up to which no event is missing from those taken.
        key: the key of the event that was taken last, if any.
    """

    at: datetime = attrs.field(validator=MOMENT)
    key: str | None = attrs.field(default=None, validator=or_none(TEXT))


@attrs.frozen(kw_only=True)
class MalformedLine:
    """A line that is not an event, passed to `on_malformed`.

    Attributes:
        line: the line; None if it was too long to keep. It may contain personal data.
        size: its length in bytes.
        reason: what is wrong with it.
    """

    line: bytes | None = attrs.field(repr=False)
    size: int
    reason: str


@attrs.define(kw_only=True)
class StreamStats:
    """The counters of a stream.

    Attributes:
        connects: connections that were opened, replays included.
        refusals: attempts to connect that failed.
        stalls: connections that were closed because nothing arrived within the stall timeout.
        heartbeats: blank lines.
        malformed: lines that are not events.
        partial_lines: incomplete lines at the end of a connection, which were discarded.
        events: events that were added to the queue.
        misfits: added events that do not fit their type.
        duplicates: events that were suppressed because they had arrived before.
        dropped: events that were discarded by `overflow="drop_oldest"`.
        waiting: events that are in the queue now.
        lag: seconds that the event taken last had waited in the queue.
        lost: gaps that were not recovered.
    """

    connects: int = 0
    refusals: int = 0
    stalls: int = 0
    heartbeats: int = 0
    malformed: int = 0
    partial_lines: int = 0
    events: int = 0
    misfits: int = 0
    duplicates: int = 0
    dropped: int = 0
    waiting: int = 0
    lag: float = 0.0
    lost: int = 0
