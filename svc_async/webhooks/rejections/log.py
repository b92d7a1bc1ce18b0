"""The lines of requests that need attention in the log: few, however many requests there are."""

import logging

import attrs

from svc_async.clock import Clock
from svc_async.webhooks.rejections.advice import ADVICE
from svc_async.webhooks.rejections.reasons import RejectReason

__all__ = ["RejectionLog"]

_log = logging.getLogger("svc_async.webhooks")
_INTERVAL = 60.0
"""Seconds between two lines about the same reason."""
_NOT_FINISHED = (
    "its handlers have not finished within the deadline of ack, and if one fails, the event is not delivered again; "
    "make the handlers faster, or have it delivered again with Ack.inline(on_deadline='refuse')"
)


@attrs.define
class _Line:
    """The latest line about a reason.

    Attributes:
        due: when the next one may be written.
        count: how many requests there were since.
    """

    due: float
    count: int = 0


@attrs.frozen
class RejectionLog:
    """Logs the first request that is rejected for a reason, and at most once a minute how many more there were.

    Deliveries that are acknowledged before their handlers finish are logged in the same way.
    """

    _clock: Clock
    _lines: dict[str, _Line] = attrs.field(factory=dict[str, _Line], init=False)

    def add(self, reason: RejectReason) -> None:
        """Count a rejected request, and log it if a line is due."""
        advice = ADVICE[reason]
        self._add("rejected", "a request", f"{reason.value}: {advice.cause}; {advice.next_step}")

    def add_unfinished(self) -> None:
        """Count a delivery that is acknowledged before its handlers finish, and log it if a line is due."""
        self._add("acknowledged", "a delivery", _NOT_FINISHED)

    def _add(self, outcome: str, subject: str, reason: str) -> None:
        now = self._clock.monotonic()
        line = self._lines.get(reason)
        if line is None:
            self._lines[reason] = _Line(now + _INTERVAL)
            _log.warning("%s %s: %s", outcome, subject, reason)
            return
        line.count += 1
        if now >= line.due:
            _log.warning("%s %s more: %s", outcome, f"{line.count:,}", reason)
            line.due, line.count = now + _INTERVAL, 0
