"""The lines of rejected requests in the log: few, however many requests there are."""

import logging

import attrs

from svc_async.clock import Clock
from svc_async.webhooks.rejections.advice import ADVICE
from svc_async.webhooks.verification import RejectReason

__all__ = ["RejectionLog"]

_log = logging.getLogger("svc_async.webhooks")
_INTERVAL = 60.0
"""Seconds between two lines about the same reason."""


@attrs.define
class _Line:
    """The latest line about a reason.

    Attributes:
        due: when the next one may be written.
        count: how many requests were rejected since.
    """

    due: float
    count: int = 0


@attrs.frozen
class RejectionLog:
    """Logs the first request that is rejected for a reason, and at most once a minute how many more there were."""

    _clock: Clock
    _lines: dict[RejectReason, _Line] = attrs.field(factory=dict[RejectReason, _Line], init=False)

    def add(self, reason: RejectReason) -> None:
        """Count a rejected request, and log it if a line is due."""
        now = self._clock.monotonic()
        line = self._lines.get(reason)
        if line is None:
            self._lines[reason] = _Line(now + _INTERVAL)
            self._write("rejected a request", reason)
            return
        line.count += 1
        if now >= line.due:
            self._write(f"rejected {line.count:,} more", reason)
            line.due, line.count = now + _INTERVAL, 0

    def _write(self, what: str, reason: RejectReason) -> None:
        _log.warning("%s: %s: %s; %s", what, reason.value, ADVICE[reason].cause, ADVICE[reason].next_step)
