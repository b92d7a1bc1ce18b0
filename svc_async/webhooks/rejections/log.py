"""The lines of requests that need attention in the log: few, however many requests there are."""

import logging

import attrs

from svc_async.webhooks.logs.due_lines import DueLines
from svc_async.webhooks.rejections.advice import ADVICE, ADVICE_AFTER_FAILURE
from svc_async.webhooks.rejections.reasons import RejectReason

__all__ = ["RejectionLog"]

_log = logging.getLogger("svc_async.webhooks")
_NOT_FINISHED = (
    "its handlers have not finished within the deadline of ack, and if one fails, the event is not delivered again; "
    "make the handlers faster, or have it delivered again with Ack.inline(on_deadline='refuse')"
)


@attrs.frozen
class RejectionLog:
    """Logs the first request that is rejected for a reason, and at most once a minute how many more there were.

    Deliveries that are acknowledged before their handlers finish are logged in the same way.
    """

    _lines: DueLines

    def add(self, reason: RejectReason, *, has_failed: bool) -> None:
        """Count a rejected request, and log it if a line is due.

        Args:
            reason: why it is rejected.
            has_failed: whether an unexpected exception has ended the receiver.
        """
        is_failure = has_failed and reason is RejectReason.NOT_RUNNING
        advice = ADVICE_AFTER_FAILURE if is_failure else ADVICE[reason]
        self._add("rejected", "a request", f"{reason.value}: {advice.cause}; {advice.next_step}")

    def add_unfinished(self) -> None:
        """Count a delivery that is acknowledged before its handlers finish, and log it if a line is due."""
        self._add("acknowledged", "a delivery", _NOT_FINISHED)

    def _add(self, outcome: str, subject: str, reason: str) -> None:
        count = self._lines.count(reason)
        if count is not None:
            _log.warning("%s %s: %s", outcome, f"{count:,} more" if count else subject, reason)
