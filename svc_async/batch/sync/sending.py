"""When requests were sent, and until when they may still take effect; no I/O.

A run may end while a request is under way, and the service may apply it later, within the quarantine. What would cross
it waits for the rest of that time. The run notes when it sends, at most once a second, directly before the bytes go
out: after the wait for the rate limit, which may take minutes.

No jump of a clock shortens the wait, since the wall clock has no part in it. The monotonic clock tells how much of the
quarantine is over as long as the machine runs. After a restart, on another machine, or where it is not known since when
that clock counts, the quarantine begins when the run opens the state: who held its lock before sends nothing any more.
"""

from datetime import datetime

import attrs

__all__ = ["VALIDITY", "ClockReading", "SendingNote", "find_rest"]

VALIDITY = 1.0
"""Seconds for which a note holds: requests may be sent so long without a new one."""


@attrs.frozen
class ClockReading:
    """What the clocks show at one moment.

    Attributes:
        now: the time of the wall clock.
        monotonic: seconds of the monotonic clock.
        boot: identifies the start from which the monotonic clock counts; None if it is not known.
    """

    now: datetime
    monotonic: float
    boot: str | None = None

    @property
    def note(self) -> "SendingNote":
        """A note that requests are sent at this moment."""
        return SendingNote(self.monotonic, self.boot)

    def is_covered(self, note: "SendingNote | None") -> bool:
        """Return whether a request may be sent at this moment, given the last note of the same run."""
        return note is not None and 0 <= self.monotonic - note.monotonic < VALIDITY


@attrs.frozen
class SendingNote:
    """When requests were sent.

    Attributes:
        monotonic: seconds of the monotonic clock.
        boot: identifies the start from which it counted; None if it is not known.
    """

    monotonic: float
    boot: str | None


def find_rest(now: ClockReading, quarantine: float, *, sent: SendingNote | None, opened: ClockReading) -> float:
    """Return for how many seconds requests that were sent may still take effect.

    Args:
        now: the present moment.
        quarantine: how many seconds a request may take.
        sent: the last note; None if nothing was sent.
        opened: a moment after which only this run sends.
    """
    if sent is None or not quarantine:
        return 0.0
    if sent.boot is not None and sent.boot == now.boot:
        rest = quarantine + VALIDITY - (now.monotonic - sent.monotonic)
    else:
        rest = quarantine - (now.monotonic - opened.monotonic)
    return min(max(rest, 0.0), quarantine + VALIDITY)
