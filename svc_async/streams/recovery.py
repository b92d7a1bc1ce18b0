"""What was missed between two connections, and how to request it; no I/O.

    up to 5 minutes    `backfill_minutes` on the new connection
    up to 24 hours     a replay: a second connection with `start_time` and `end_time`
    longer             the last 24 hours; events before that are lost, and the gap is reported

The service repeats events that it sent before, so recovery needs deduplication (`lines.RecentKeys`).
"""

import enum
import math
from collections.abc import Mapping
from datetime import datetime, timedelta

import attrs

from svc_async.errors import ApiError, Sent, SvcError, Unauthorized
from svc_async.wire.params import Param

__all__ = [
    "BACKFILL_REACH",
    "NO_REACH",
    "REPLAY_REACH",
    "Gap",
    "GapRecovery",
    "build_backfill_params",
    "build_replay_params",
    "find_gaps",
    "is_refused_authentication",
]

# Unspecified: bounds and parameters (contract UNS-stream-protocol); `stream(recover="off")` does without them.
NO_REACH = timedelta(0)
BACKFILL_REACH = timedelta(minutes=5)
REPLAY_REACH = timedelta(hours=24) - timedelta(minutes=1)  # the service measures its 24 hours when the request arrives
_OVERLAP = timedelta(seconds=10)
"""An event is sent a little after it happens, so events from just before the gap may have been missed too."""
_ABOUT_CREDENTIALS = (32, 89, 99, 215, 220, "invalid_client", "invalid_grant")
"""Codes of refusals of a token, or of a request for one (docs/how-to-authenticate.md)."""


class GapRecovery(enum.StrEnum):
    """How the events of a gap are recovered."""

    BACKFILL = "backfill"
    """Requested on the connection after the gap."""
    REPLAY = "replay"
    """Requested on a second connection, which delivered all of them."""
    NONE = "none"
    """Not recovered: the events are lost, unless another source has them."""


@attrs.frozen(kw_only=True)
class Gap:
    """A period without an open connection.

    Attributes:
        start: the time up to which all events are known to have arrived.
        end: when the next connection was opened.
        recovery: how its events are recovered.
        error: why they are not recovered, if a request failed.
    """

    start: datetime
    end: datetime
    recovery: GapRecovery
    error: SvcError | None = None


def find_gaps(start: datetime, end: datetime, *, reach: timedelta) -> tuple[Gap, ...]:
    """Divide the time without a connection into what can be recovered and what cannot.

    Args:
        start: when it began.
        end: when it ended.
        reach: how far back events can be requested: one of the three reaches.
    """
    end = max(start, end)  # the clock may have been set back
    reached = max(start, end - reach)
    lost = (Gap(start=start, end=reached, recovery=GapRecovery.NONE),) if reached > start else ()
    if not reach:
        return lost
    is_near = reach <= BACKFILL_REACH or end - reached + _OVERLAP <= BACKFILL_REACH
    return (*lost, Gap(start=reached, end=end, recovery=GapRecovery.BACKFILL if is_near else GapRecovery.REPLAY))


def build_backfill_params(gap: Gap) -> Mapping[str, Param]:
    """Return the parameters that request a gap, as far as possible, on a new connection."""
    duration = min(gap.end - gap.start + _OVERLAP, BACKFILL_REACH)
    return {"backfill_minutes": math.ceil(duration / timedelta(minutes=1))}


def build_replay_params(gap: Gap) -> Mapping[str, Param]:
    """Return the parameters of a replay connection for a gap."""
    return {"start_time": max(gap.start - _OVERLAP, gap.end - REPLAY_REACH), "end_time": gap.end}


def is_refused_authentication(error: SvcError) -> bool:
    """Return whether an error is about the credentials, and says nothing of what was requested with them."""
    if not isinstance(error, ApiError):
        return False
    # A refusal without a request repeats that of a token.
    return (
        isinstance(error, Unauthorized)
        or error.sent is Sent.NO
        or any(error.has_code(code) for code in _ABOUT_CREDENTIALS)
    )
