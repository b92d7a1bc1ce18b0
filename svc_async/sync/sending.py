"""When requests were sent, and until when they may still take effect; no I/O.

A run may end while a request is under way, and the service may apply it later, within the quarantine. What would cross
it waits for the rest of that time. The run notes when it sends, about once a second: after the wait for the rate limit,
which may take minutes. A request goes out at most ten seconds after the last note, so that nothing is sent long after
another process has taken up the state. The notes also say how many requests are sent, so that the rate limit of the
next run counts them.

No jump of a clock shortens the wait, since the wall clock has no part in it. The monotonic clock tells how much of the
quarantine is over as long as the machine runs. After a restart, on another machine, or where it is not known since when
that clock counts, the quarantine begins when nobody else sends any more: when the run opens a state that others lock,
or has taken up one that they may still use, ten seconds later.
"""

from datetime import datetime, timedelta

import attrs

__all__ = ["VALIDITY", "Allowance", "ClockReading", "SendingNote", "find_rest"]

VALIDITY = 1.0
"""Seconds for which a note holds: requests may be admitted so long without a new one."""


@attrs.frozen
class ClockReading:
    """What the clocks show at one moment.

    Attributes:
        now: the time of the wall clock.
        monotonic: seconds of the monotonic clock.
        boot: identifies the start from which the monotonic clock counts; None if it is not known.
        boottime: seconds that count suspension.
    """

    now: datetime
    monotonic: float
    boot: str | None = None
    boottime: float = attrs.field(default=attrs.Factory(lambda self: self.monotonic, takes_self=True))

    def after(self, seconds: float) -> "ClockReading":
        """Return what they show some seconds later, unless one is set meanwhile."""
        return attrs.evolve(
            self,
            now=self.now + timedelta(seconds=seconds),
            monotonic=self.monotonic + seconds,
            boottime=self.boottime + seconds,
        )

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
        return self.sent < self.most and 0 <= now.boottime - self.since.boottime < VALIDITY

    def renew(self, now: ClockReading) -> "Allowance":
        """Return what the next note covers."""
        return Allowance(self.number + 1, now, 2 * self.sent)


def find_rest(
    now: ClockReading, quarantine: float, *, sent: SendingNote | None, grace: float, opened: ClockReading
) -> float:
    """Return for how many seconds requests that were sent may still take effect.

    Args:
        now: the present moment.
        quarantine: how many seconds a request may take.
        sent: the last note; None if nothing was sent.
        grace: for how many seconds after a note requests may go out.
        opened: a moment after which only this run sends.
    """
    if sent is None or not quarantine:
        return 0.0
    rest = quarantine - (now.monotonic - opened.monotonic)
    if sent.boot is not None and sent.boot == now.boot:
        rest = min(rest, quarantine + grace - (now.monotonic - sent.monotonic))
    return max(rest, 0.0)
