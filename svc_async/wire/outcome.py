"""What a failed call means, in one table that errors, retries, batches, streams and the governor read.

The status of a refusal, with a few codes, decides which exception is raised and what its `Outcome` is. Failures without
an answer have an outcome by whether the call was sent. How many repeats there may be in all is a matter of a budget.
"""

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from types import MappingProxyType

import attrs

from svc_async.errors import (
    ApiError,
    BadRequest,
    Conflict,
    ErrorDetail,
    Forbidden,
    NotFound,
    RateLimited,
    Sent,
    ServerError,
    SvcError,
    TooManyConnections,
    Unauthorized,
    UnexpectedAnswer,
    UsageCapExceeded,
)

__all__ = [
    "Effect",
    "Outcome",
    "Repeat",
    "RetryBudget",
    "api_error",
    "is_usage_cap",
    "may_have_worked",
    "outcome_for_status",
    "outcome_of",
    "repeat_refusal",
]


class Effect(enum.Enum):
    """Whether a failed call changed anything at the service."""

    NONE = enum.auto()
    """It did not."""
    MAYBE = enum.auto()
    """Unknown: the answer was lost, or says only that something failed."""
    DONE = enum.auto()
    """The service acted on it."""


class Repeat(enum.Enum):
    """Which calls may be sent again after this failure."""

    NEVER = enum.auto()
    """None: the same call fails again."""
    SAFE = enum.auto()
    """Calls that are safe to repeat (`Request.safe_to_repeat`)."""
    ALWAYS = enum.auto()
    """Any call: the service did not act on it."""


@attrs.frozen
class Outcome:
    """What a failure means.

    Attributes:
        effect: whether the service may have acted on the call.
        repeat: which calls may be sent again.
        overload: the service is overloaded; fewer calls at a time help.
        throttled: a rate limit was exceeded; the same call helps once the limit opens.
    """

    effect: Effect
    repeat: Repeat
    overload: bool = attrs.field(default=False, kw_only=True)
    throttled: bool = attrs.field(default=False, kw_only=True)


_Row = tuple[type[ApiError], Outcome, bool]
"""The class of the exception, what it means, and whether `retry-after` makes of it that the call was turned away."""

# Unspecified: which refusals had no effect (contract UNS-error-catalog). Those of the second half may be the answers of
# a gateway that stopped waiting while the service goes on: the call may take effect later. With `retry-after` a 503 had
# no effect, since the service turned the call away; without, it may be a gateway's as well.
# fmt: off
_BY_STATUS: Mapping[int, _Row] = MappingProxyType({
    400: (BadRequest,   Outcome(Effect.NONE, Repeat.NEVER), False),
    401: (Unauthorized, Outcome(Effect.NONE, Repeat.NEVER), False),
    403: (Forbidden,    Outcome(Effect.NONE, Repeat.NEVER), False),
    404: (NotFound,     Outcome(Effect.NONE, Repeat.NEVER), False),
    409: (Conflict,     Outcome(Effect.NONE, Repeat.NEVER), False),
    420: (ApiError,     Outcome(Effect.NONE, Repeat.NEVER, throttled=True), False),  # an old name for 429
    423: (ApiError,     Outcome(Effect.NONE, Repeat.ALWAYS), False),
    429: (RateLimited,  Outcome(Effect.NONE, Repeat.ALWAYS, throttled=True), False),
    501: (ServerError,  Outcome(Effect.NONE, Repeat.NEVER), False),
    505: (ServerError,  Outcome(Effect.NONE, Repeat.NEVER), False),

    408: (ApiError,     Outcome(Effect.MAYBE, Repeat.SAFE), False),
    500: (ServerError,  Outcome(Effect.MAYBE, Repeat.SAFE), False),
    502: (ServerError,  Outcome(Effect.MAYBE, Repeat.SAFE, overload=True), False),
    503: (ServerError,  Outcome(Effect.MAYBE, Repeat.SAFE, overload=True), True),
    504: (ServerError,  Outcome(Effect.MAYBE, Repeat.SAFE, overload=True), False),
})
_OTHER_4XX: _Row = (ApiError,    Outcome(Effect.NONE,  Repeat.NEVER), False)
_OTHER_5XX: _Row = (ServerError, Outcome(Effect.MAYBE, Repeat.SAFE), False)

_BY_CODE: Mapping[tuple[int, str], tuple[type[ApiError], Outcome]] = MappingProxyType({
    (429, TooManyConnections.name): (TooManyConnections, Outcome(Effect.NONE, Repeat.ALWAYS)),  # no limit of requests
    (429, UsageCapExceeded.name):   (UsageCapExceeded,   Outcome(Effect.NONE, Repeat.NEVER)),
})
_LATER: frozenset[str] = frozenset({"TOO_MANY_JOBS"})
"""Codes that say "later", whatever the status says."""

_UNREADABLE = Outcome(Effect.MAYBE, Repeat.SAFE)
_BY_SENT: Mapping[Sent, Outcome] = MappingProxyType({
    Sent.NO:    Outcome(Effect.NONE,  Repeat.ALWAYS),
    Sent.MAYBE: Outcome(Effect.MAYBE, Repeat.SAFE, overload=True),
    Sent.YES:   Outcome(Effect.DONE,  Repeat.SAFE),
})
# fmt: on


def outcome_for_status(
    status: int, codes: Iterable[str | int] = (), headers: Mapping[str, str] = MappingProxyType({})
) -> Outcome:
    """Return what a refusal means.

    Args:
        status: the HTTP status, which is no success.
        codes: the codes of its reasons; some change what the status says.
        headers: its headers, with names in lower case (or looked up without regard to case).
    """
    return _find(status, codes, headers)[1]


def outcome_of(error: SvcError) -> Outcome:
    """Return what an error means."""
    if isinstance(error, ApiError):
        return outcome_for_status(error.status, (reason.code for reason in error.errors), error.headers)
    outcome = _UNREADABLE if isinstance(error, UnexpectedAnswer) else _BY_SENT[error.sent]
    return outcome if error.repeatable else attrs.evolve(outcome, repeat=Repeat.NEVER)


# Unspecified: how a 429 says that it is a cap of the plan, and no rate limit (contract UNS-error-catalog).
_USAGE_CAP = re.compile(r"(?:usage|monthly|product)[-_ ]?cap(?:ped|s?\b|[-_ ]|e)", re.IGNORECASE)


def is_usage_cap(name: object) -> bool:
    """Return whether a code, a title or the type of a problem says that what the plan includes is used up."""
    return isinstance(name, str) and _USAGE_CAP.search(name) is not None


def may_have_worked(error: SvcError) -> bool:
    """Return whether the service may have applied a request that failed."""
    return outcome_of(error).effect is not Effect.NONE


def api_error(
    *,
    status: int,
    errors: Sequence[ErrorDetail] = (),
    operation_errors: Mapping[int, tuple[ErrorDetail, ...]] | None = None,
    headers: Mapping[str, str] | None = None,
    request_id: str | None = None,
    body: bytes = b"",
    retry_at: datetime | None = None,
    retry_after: float | None = None,
) -> ApiError:
    """Build the exception of a refusal."""
    lowered = {name.lower(): value for name, value in (headers or {}).items()}
    error, outcome = _find(status, (reason.code for reason in errors), lowered)
    return error(
        status=status,
        errors=errors,
        operation_errors=operation_errors,
        headers=lowered,
        request_id=request_id,
        body=body,
        retry_at=retry_at,
        retry_after=retry_after,
        repeatable=outcome.repeat is not Repeat.NEVER,
        sent=Sent.MAYBE if outcome.effect is Effect.MAYBE else Sent.YES,
    )


def repeat_refusal(refusal: ApiError, reason: str, *, retry_at: datetime | None = None) -> ApiError:
    """Build the exception of a call that is not sent because of an earlier refusal; it has the same class and codes.

    Args:
        refusal: the earlier one.
        reason: why it is not sent, for the message.
        retry_at: when the call may be sent; None if it never helps.
    """
    error = type(refusal)(
        status=refusal.status,
        errors=refusal.errors,
        headers=refusal.headers,
        request_id=refusal.request_id,
        body=refusal.body,
        retry_at=retry_at,
        repeatable=retry_at is not None,
        sent=Sent.NO,
    )
    error.args = (f"{error.args[0]}; {reason}",)
    return error


@attrs.define
class RetryBudget:
    """Limits the repeats of a session or of a job, so that an outage does not become a storm; successes refill it.

    Attributes:
        most: repeats in a full budget.
        earned: the share of a repeat that one success adds.
        successes: how many successes were recorded.
    """

    most: float = 100.0
    earned: float = 0.1
    successes: int = attrs.field(init=False, default=0)
    _left: float = attrs.field(init=False, default=attrs.Factory(lambda self: self.most, takes_self=True))

    def earn(self) -> None:
        """Record a success."""
        self.successes += 1
        self._left = min(self.most, self._left + self.earned)

    def spend(self) -> bool:
        """Take one repeat; return False if none is left."""
        if self._left < 1:
            return False
        self._left -= 1
        return True


def _find(status: int, codes: Iterable[str | int], headers: Mapping[str, str]) -> tuple[type[ApiError], Outcome]:
    names = {UsageCapExceeded.name if is_usage_cap(name) else name for name in map(str, codes)}
    other = _OTHER_5XX if status >= HTTPStatus.INTERNAL_SERVER_ERROR else _OTHER_4XX
    error, outcome, may_say_later = _BY_STATUS.get(status, other)
    error, outcome = next((_BY_CODE[status, name] for name in names if (status, name) in _BY_CODE), (error, outcome))
    if names & _LATER or (may_say_later and headers.get("retry-after", "").strip()):
        outcome = attrs.evolve(outcome, effect=Effect.NONE, repeat=Repeat.ALWAYS)
    return error, outcome
