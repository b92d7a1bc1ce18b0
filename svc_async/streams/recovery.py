"""What was missed between two connections, and how to get it; no I/O.

    up to 5 minutes    `backfill_minutes` on the new connection
    up to 24 hours     a side connection with `start_time` and `end_time`
    longer             the last 24 hours; the rest is lost and told

The service repeats what it sent before, so recovery needs the dedupe of `seen.py`.
"""

import enum
import math
from collections.abc import Mapping
from datetime import datetime, timedelta

import attrs

from svc_async.errors import SvcError
from svc_async.wire.params import Param

__all__ = ["BACKFILL_REACH", "NO_REACH", "REPLAY_REACH", "Cover", "Gap", "backfill", "gaps", "replay"]

# Unspecified: bounds and parameters (contract UNS-stream-protocol); `stream(recover="off")` does without them.
NO_REACH = timedelta(0)
BACKFILL_REACH = timedelta(minutes=5)
REPLAY_REACH = timedelta(hours=24)
_OVERLAP = timedelta(seconds=10)
"""An event is sent a little after it happens: what happened just before the gap may be in it."""


class Cover(enum.StrEnum):
    """How what was missed is made good."""

    BACKFILL = "backfill"
    """The connection after the gap was asked for it."""
    REPLAY = "replay"
    """A side connection was asked for it, and gave it all."""
    NONE = "none"
    """Not at all: the events of this time are lost, unless another source has them."""


@attrs.frozen(kw_only=True)
class Gap:
    """A time in which no connection was open.

    Attributes:
        start: the last moment until which all is known to have come.
        end: when the next connection was opened.
        cover: how it is made good.
        error: why it is not, where something failed.
    """

    start: datetime
    end: datetime
    cover: Cover
    error: SvcError | None = None


def gaps(start: datetime, end: datetime, *, reach: timedelta) -> tuple[Gap, ...]:
    """Cut the time without a connection into what can be made good and what cannot.

    Args:
        start: when it began.
        end: when it ended.
        reach: how far back the service can be asked: one of the three reaches.
    """
    end = max(start, end)  # the clock may have been set back
    reached = max(start, end - reach)
    lost = (Gap(start=start, end=reached, cover=Cover.NONE),) if reached > start else ()
    if not reach:
        return lost
    near = reach <= BACKFILL_REACH or end - reached + _OVERLAP <= BACKFILL_REACH
    return (*lost, Gap(start=reached, end=end, cover=Cover.BACKFILL if near else Cover.REPLAY))


def backfill(gap: Gap) -> Mapping[str, Param]:
    """Ask a new connection for what it can give of a gap."""
    wanted = min(gap.end - gap.start + _OVERLAP, BACKFILL_REACH)
    return {"backfill_minutes": math.ceil(wanted / timedelta(minutes=1))}


def replay(gap: Gap) -> Mapping[str, Param]:
    """Ask a side connection for a gap."""
    return {"start_time": max(gap.start - _OVERLAP, gap.end - REPLAY_REACH), "end_time": gap.end}
