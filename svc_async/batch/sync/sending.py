"""When requests were sent, and until when they may still take effect; no I/O.

A run may end while a request is under way, and the service may apply it later, within the quarantine. What would cross
it waits for the rest of that time. The run notes when it sends, about once a second, directly before the bytes go
out: after the wait for the rate limit, which may take minutes. The notes also say how many requests are sent, so that
the rate limit of the next run counts them.

No jump of a clock shortens the wait, since the wall clock has no part in it. The monotonic clock tells how much of the
quarantine is over as long as the machine runs. After a restart, on another machine, or where it is not known since when
that clock counts, the quarantine begins when the run opens the state: who held its lock before sends nothing any more.
"""

from datetime import datetime, timedelta

import attrs

__all__ = ["VALIDITY", "Allowance", "ClockReading", "SendingNote", "find_rest"]

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

    def after(self, seconds: float) -> "ClockReading":
        """Return what they show some seconds later, unless one is set meanwhile."""
        return attrs.evolve(self, now=self.now + timedelta(seconds=seconds), monotonic=self.monotonic + seconds)

    @property
    def note(self) -> "SendingNote":
        """A note that requests are sent at this moment."""
        return SendingNote(self.monotonic, self.boot)


@attrs.frozen
class SendingNote:
    """When requests were sent.

    Attributes:
        monotonic: seconds of the monotonic clock.
        boot: identifies the start from which it counted; None if it is not known.
    """

    monotonic: float
    boot: str | None


@attrs.define
class Allowance:
    """The requests that one note covers: up to a number, sent within a second of it.

    The number is stored before they are sent, so a process that is killed has never sent more. The next note covers
    twice as many as were sent under this one, so more than one a second is written only while the rate grows.

    Attributes:
        number: the number of the note.
        since: when it was written.
        most: how many requests it covers.
        sent: how many of them were sent.
    """

    number: int
    since: ClockReading
    most: int = 1
    sent: int = 0

    def covers(self, now: ClockReading) -> bool:
        """Return whether one more request may be sent at this moment."""
        return self.sent < self.most and 0 <= now.monotonic - self.since.monotonic < VALIDITY

    def renew(self, now: ClockReading) -> "Allowance":
        """Return what the next note covers."""
        return Allowance(self.number + 1, now, 2 * self.sent)


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
