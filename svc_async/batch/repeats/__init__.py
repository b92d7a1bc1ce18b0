"""Logs the requests that a job repeats, in the form of single calls that are repeated; never a row or an id."""

from typing import Any

from svc_async.batch.lane import Lane
from svc_async.batch.lane_events import Answered, Command, Event, Failed, Intend, Release, Settle, Wait
from svc_async.batch.recovery import CountMismatch, Recovery, Unacknowledged, recovery_for
from svc_async.engine.call import log_repeat
from svc_async.errors import SvcError
from svc_async.wire.route import Request

__all__ = ["RepeatLog"]

_SENT_AGAIN = (Recovery.REPEAT, Recovery.QUARANTINE)  # a 429 closes its limit, and waits like any other request


class RepeatLog:
    """Follows the events and the commands of lanes, and logs each repeat when its wait begins."""

    def __init__(self, request: Request[Any], *, most: int) -> None:
        """Begin without failures.

        Args:
            request: a request like those of the job, to name them.
            most: how often a request is repeated; what it waits for after that is no repeat.
        """
        self._request = request
        self._most = most
        self._counts: dict[Lane, int] = {}
        self._errors: dict[Lane, SvcError] = {}

    def handle(self, lane: Lane, event: Event) -> Command | None:
        """Let a lane handle an event, and log whether it repeats a request; return its command."""
        self._note(lane, event)
        command = lane.handle(event)
        self._log(lane, command)
        return command

    def _note(self, lane: Lane, event: Event) -> None:
        """Note the failure of a request, before its lane handles it: the first attempt begins a new count."""
        if lane.attempts == 1 and isinstance(event, Failed | Answered):
            self._counts[lane] = 0
        error = _find_failure(event)
        if error is None or recovery_for(error) not in _SENT_AGAIN:
            return
        self._counts[lane] += 1
        if self._counts[lane] <= self._most:
            self._errors[lane] = error

    def _log(self, lane: Lane, command: Command | None) -> None:
        if isinstance(command, Release | Settle):  # comes first
            return
        error = self._errors.pop(lane, None)
        if error is not None and isinstance(command, Wait | Intend):
            log_repeat(self._request, error, command.seconds if isinstance(command, Wait) else 0.0)


def _find_failure(event: Event) -> SvcError | None:
    if isinstance(event, Failed):
        return event.error
    if not isinstance(event, Answered):
        return None
    if event.verdict is None:
        return CountMismatch()
    return Unacknowledged() if event.verdict.unknown else None
