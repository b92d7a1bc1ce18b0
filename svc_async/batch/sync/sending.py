"""When requests were sent, and until when they may still take effect; no I/O.

A run may end while a request is under way, and the service may apply it later, within the quarantine. What would cross
it waits for the rest of that time. The run notes when it sends, at most once a second, directly before the bytes go
out: after the wait for the rate limit, which may take minutes.

Two clocks measure how much of the quarantine is over, and the one that says less is right: the wall clock may have been
set forward, and the monotonic clock began anew if the machine was restarted, but neither runs backwards by itself.
"""

from datetime import datetime

import attrs

__all__ = ["VALIDITY", "ClockReading", "find_rest"]

VALIDITY = 1.0
"""Seconds for which a note holds: requests may be sent so long without a new one."""


@attrs.frozen
class ClockReading:
    """A moment by two clocks.

    Attributes:
        wall: seconds since 1970.
        monotonic: seconds of the monotonic clock.
    """

    wall: float
    monotonic: float

    @classmethod
    def at(cls, now: datetime, monotonic: float) -> "ClockReading":
        """Return the moment that two clocks show."""
        return cls(now.timestamp(), monotonic)

    def is_covered(self, note: "ClockReading | None") -> bool:
        """Return whether a request may be sent at this moment, given the last note."""
        return note is not None and 0 <= self.monotonic - note.monotonic < VALIDITY

    def measure_since(self, earlier: "ClockReading") -> float:
        """Return how many seconds are over since an earlier moment, at least."""
        steady = self.monotonic - earlier.monotonic
        return max(0.0, min(self.wall - earlier.wall, steady if steady >= 0 else self.monotonic))


def find_rest(sent: ClockReading | None, now: ClockReading, quarantine: float) -> float:
    """Return for how many seconds requests that were sent may still take effect.

    Args:
        sent: the last note; None if nothing was sent.
        now: the present moment.
        quarantine: how many seconds a request may take.
    """
    if sent is None or not quarantine:
        return 0.0
    return max(0.0, quarantine + VALIDITY - now.measure_since(sent))
