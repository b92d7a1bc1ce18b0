"""Time as ticks: whole microseconds of the monotonic clock.

Sums of floats round, and a rounded comparison can hang: a timer fires just before the tick for which it was set, finds
nothing open, and is set again without end. So windows and queues count in integers.
"""

import sys

__all__ = ["NEVER", "SECOND"]

SECOND = 1_000_000
"""Ticks of a second."""
NEVER = sys.maxsize
