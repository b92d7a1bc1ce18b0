"""Which lines of the log are written about what happens again and again: few, however often it does."""

from collections.abc import Hashable

import attrs

from svc_async.clock import Clock

__all__ = ["DueLines"]

_INTERVAL = 60.0
"""Seconds between two lines about the same subject."""


@attrs.define
class _Line:
    """The latest line about a subject.

    Attributes:
        due: when the next one may be written.
        count: how often it has happened since.
    """

    due: float
    count: int = 0


@attrs.frozen
class DueLines:
    """Decides that a line is written when something happens first, and then at most once a minute."""

    _clock: Clock
    _lines: dict[Hashable, _Line] = attrs.field(factory=dict[Hashable, _Line], init=False)

    def count(self, subject: Hashable) -> int | None:
        """Count what has happened; return None unless a line is due.

        Returns:
            How often it has happened since the line before, this time included; 0 if there was no line before.
        """
        now = self._clock.monotonic()
        line = self._lines.get(subject)
        if line is None:
            self._lines[subject] = _Line(now + _INTERVAL)
            return 0
        line.count += 1
        if now < line.due:
            return None
        count = line.count
        line.due, line.count = now + _INTERVAL, 0
        return count
