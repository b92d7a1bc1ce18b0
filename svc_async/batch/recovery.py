"""Decides what to do after a failed request, and what its failure means for the rows; no I/O."""

import enum
import re
from collections.abc import Callable, Mapping, Sequence

import attrs

from svc_async.batch.packing.batch import Batch, Limits
from svc_async.errors import (
    ApiError,
    ErrorDetail,
    Forbidden,
    NotFound,
    Sent,
    SvcError,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
    UsageCapExceeded,
)
from svc_async.wire.outcome import Effect, Repeat, RetryBudget, api_error, outcome_of

__all__ = [
    "REMOVED",
    "CountMismatch",
    "Recovery",
    "RecoveryPolicy",
    "Unacknowledged",
    "add_missing_fields",
    "find_refused_operations",
    "mark_as_repeat",
    "name_failure",
    "recovery_for",
    "remove_hashes",
    "remove_hashes_from_error",
    "request_id_of",
    "says_nothing_of_rows",
    "summarize",
]


class Recovery(enum.Enum):
    """What to do after a failed request; `batch/lane.py` does it."""

    REPEAT = enum.auto()
    """Send the same bytes again, after a delay."""
    WAIT = enum.auto()
    """Send the same bytes again once the rate limit opens; no delay is used up."""
    QUARANTINE = enum.auto()
    """Hold the lane before the same bytes are sent again: the request may still be applied."""
    ISOLATE = enum.auto()
    """Send the other operations again, and the named ones with one user each."""
    HALVE = enum.auto()
    """Send each half by itself."""
    STOP = enum.auto()
    """Send nothing more."""


class CountMismatch(SvcError):
    """The answer counts other rows than were sent, so none is accepted (contract ERR-09, CAU-12).

    It may be the answer to another request, so nothing is known of this one.
    """

    sent = Sent.MAYBE
    repeatable = True


class Unacknowledged(SvcError):
    """The answer does not mention some rows; the others of their batch are settled."""

    sent = Sent.MAYBE
    repeatable = True


@attrs.frozen(kw_only=True)
class RecoveryPolicy:
    """How the lanes of a job recover.

    Attributes:
        limits: what one request may hold.
        retry_delays: seconds before each repeat of a batch. When they are used up, the job stops if the service is out
            of order; otherwise the batch is given up.
        quarantine: seconds for which a lane waits after an unknown outcome.
        redact: removes from the service's message what it repeats of a row, given in JSON.
        budget: the repeats that are left.
        name_rows: returns what failures call the rows of a batch, in their order; nothing where rows have no names.
        on_repeat: called with a failure and the seconds to wait, when a batch is to be sent again.
    """

    limits: Limits
    retry_delays: Sequence[float]
    quarantine: float
    redact: Callable[[ErrorDetail, str], ErrorDetail]
    budget: RetryBudget
    name_rows: Callable[[Batch], Sequence[str | None]] = lambda _: ()
    on_repeat: Callable[[SvcError, float], object] = lambda *_: None


REMOVED = "…"
"""What stands for an identifier that was removed from the service's words."""
_find_hashes = re.compile(r"[0-9A-Fa-f]{64,}").sub
_STOPS_THE_JOB = (Unauthorized, Forbidden, NotFound, UsageCapExceeded)
"""Refusals that every other request would meet as well."""


def recovery_for(error: SvcError) -> Recovery:
    """Return what to do after a request failed."""
    outcome = outcome_of(error)
    if isinstance(error, _STOPS_THE_JOB):
        return Recovery.STOP
    if outcome.effect is not Effect.NONE:
        return Recovery.QUARANTINE
    if outcome.repeat is not Repeat.NEVER:
        return Recovery.WAIT if outcome.throttled else Recovery.REPEAT
    if not isinstance(error, ApiError):
        return Recovery.STOP
    # Unspecified: which refusals name a size or a complexity, and which concern a row that is not named. Halves find
    # the one as well as the other; the budget ends it where every half is refused.
    return Recovery.ISOLATE if error.operation_errors else Recovery.HALVE


def says_nothing_of_rows(error: SvcError) -> bool:
    """Return whether the service, or what is before it, failed as it may with any request, such as in an outage.

    Wrong counts and products that are not mentioned concern the rows that were sent.
    """
    return isinstance(error, TransportError | ApiError) or (isinstance(error, UnexpectedAnswer) and error.repeatable)


def find_refused_operations(error: SvcError, batch: Batch) -> Mapping[int, ErrorDetail]:
    """Return the operations of a batch that a refusal names, each with its first reason (contract ERR-05).

    A batch of a single row need not be named.
    """
    operation_errors = error.operation_errors if isinstance(error, ApiError) else {}
    within = range(batch.operations)
    named = {index: reasons[0] for index, reasons in operation_errors.items() if index in within and reasons}
    if named or batch.rows > 1:
        return named
    reasons = error.errors if isinstance(error, ApiError) else ()
    return {0: reasons[0] if reasons else ErrorDetail(code="REFUSED", message=summarize(error))}


def request_id_of(error: SvcError) -> str | None:
    """Return the id that the service gave to a failed request, if any."""
    return error.request_id if isinstance(error, ApiError | UnexpectedAnswer) else None


def add_missing_fields(reason: ErrorDetail) -> ErrorDetail:
    """Return a reason that has a code and a message."""
    return attrs.evolve(reason, code=reason.code or "REFUSED", message=reason.message or "refused without a reason")


def mark_as_repeat(reason: ErrorDetail) -> ErrorDetail:
    """Return a reason that mentions the attempt before: what it deleted, for example, cannot be deleted again."""
    return attrs.evolve(
        reason, message=f"{reason.message}; an earlier attempt had no conclusive answer and may have worked"
    )


def remove_hashes(words: str) -> str:
    """Remove what may be the hash of an identifier."""
    return _find_hashes(REMOVED, words)


def remove_hashes_from_error(error: Exception) -> Exception:
    """Return an error without what may be hashes of identifiers in the service's words."""
    if not isinstance(error, ApiError):
        return error
    return api_error(
        status=error.status,
        errors=[*map(_remove_hashes_from_reason, error.errors)],
        operation_errors={
            index: tuple(map(_remove_hashes_from_reason, reasons)) for index, reasons in error.operation_errors.items()
        },
        headers=error.headers,
        request_id=error.request_id,
        retry_at=error.retry_at,
        retry_after=error.retry_after,
    )


def _remove_hashes_from_reason(reason: ErrorDetail) -> ErrorDetail:
    return ErrorDetail(
        code=remove_hashes(reason.code) if isinstance(reason.code, str) else reason.code,
        message=remove_hashes(reason.message),
        parameter=None if reason.parameter is None else remove_hashes(reason.parameter),
    )


def name_failure(error: SvcError) -> str:
    """Return what failed in a few words, without the call: `HTTP 503`, `connection refused`."""
    if isinstance(error, ApiError):
        return f"HTTP {error.status}"
    if isinstance(error, TransportError):
        return error.reason
    return remove_hashes(SvcError.__str__(error).partition(": ")[0])


def summarize(error: Exception) -> str:
    """Describe an error without anything that might repeat a row."""
    if isinstance(error, ApiError):
        return remove_hashes(" ".join(["HTTP", str(error.status), *(str(reason.code) for reason in error.errors)]))
    return remove_hashes(str(error)) if isinstance(error, SvcError) else type(error).__name__
