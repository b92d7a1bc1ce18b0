"""What helps after a request failed, and what its failure says of the rows; the uploader's docstring has the table."""

import enum
from collections.abc import Mapping

import attrs

from svc_async.batch.packing.batch import Batch
from svc_async.errors import ApiError, ErrorDetail, RateLimited, Sent, SvcError, UnexpectedAnswer

__all__ = [
    "CountsDiffer",
    "LeftOut",
    "Remedy",
    "after_doubt",
    "coded",
    "first_reason",
    "named_operations",
    "remedy_of",
    "request_id_of",
    "summary",
]


class Remedy(enum.Enum):
    """What helps after a request failed; the module's docstring has the table."""

    REPEAT = enum.auto()
    WAIT = enum.auto()
    QUARANTINE = enum.auto()
    TAKE_OUT = enum.auto()
    HALVE = enum.auto()
    STOP = enum.auto()


_FINAL = frozenset({401, 403, 404})


class CountsDiffer(SvcError):
    """The service counted other rows than were sent: not accepted (contract ERR-09, CAU-12)."""

    sent = Sent.YES
    repeatable = True


class LeftOut(SvcError):
    """The service says nothing of some rows; the others of their batch are settled."""

    sent = Sent.MAYBE
    repeatable = True


def remedy_of(error: SvcError) -> Remedy:
    """Choose what helps."""
    if isinstance(error, ApiError):
        return _for_refusal(error)
    if isinstance(error, UnexpectedAnswer) or error.sent is Sent.MAYBE:
        return Remedy.QUARANTINE
    return Remedy.REPEAT if error.repeatable else Remedy.STOP


def _for_refusal(error: ApiError) -> Remedy:
    if error.status in _FINAL:
        return Remedy.STOP
    if isinstance(error, RateLimited):
        return Remedy.WAIT
    if error.repeatable:
        return Remedy.REPEAT
    # Unspecified: which refusals name a size or a complexity, and which concern a row that is not named. Halves find
    # the one as well as the other; the budget ends it where every half is refused.
    return Remedy.TAKE_OUT if error.operation_errors else Remedy.HALVE


def named_operations(error: SvcError, batch: Batch) -> Mapping[int, ErrorDetail]:
    """Give the operations of a batch that a refusal names, each with its first reason (contract ERR-05)."""
    if not isinstance(error, ApiError):
        return {}
    within = range(batch.operations)
    return {index: reasons[0] for index, reasons in error.operation_errors.items() if index in within and reasons}


def first_reason(error: SvcError) -> ErrorDetail:
    """Give the service's first reason, or one that stands for it."""
    reasons = error.errors if isinstance(error, ApiError) else ()
    return reasons[0] if reasons else ErrorDetail(code="REFUSED", message=summary(error))


def request_id_of(error: SvcError) -> str | None:
    """Give the service's name for the request, if it gave one."""
    return error.request_id if isinstance(error, ApiError | UnexpectedAnswer) else None


def coded(reason: ErrorDetail) -> ErrorDetail:
    """Fill in what a reason leaves out."""
    return attrs.evolve(reason, code=reason.code or "REFUSED", message=reason.message or "refused without a reason")


def after_doubt(reason: ErrorDetail) -> ErrorDetail:
    """Say that a refusal is of a repeat: what was deleted, for example, cannot be deleted again."""
    return attrs.evolve(reason, message=f"{reason.message}; an attempt before had no clear answer and may have worked")


def summary(error: Exception) -> str:
    """Name an error without anything that might repeat a row."""
    if isinstance(error, ApiError):
        return " ".join(["HTTP", str(error.status), *(str(reason.code) for reason in error.errors)])
    return str(error) if isinstance(error, SvcError) else type(error).__name__
