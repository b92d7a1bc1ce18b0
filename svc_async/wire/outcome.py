"""What a failed call means, in one table that errors, retries, batches, streams and the governor read.

The status of a refusal, with a few codes, decides which exception is raised and what its `Outcome` is. Failures without
an answer have an outcome by whether the call was sent.
"""

import enum
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
)

__all__ = ["Effect", "Outcome", "Repeat", "api_error", "outcome_for_status", "outcome_of"]


class Effect(enum.Enum):
    """Whether a failed call changed anything at the service."""

    NONE = "none"
    """It did not."""
    MAYBE = "maybe"
    """Unknown: the answer was lost."""
    DONE = "done"
    """The service acted on it."""


class Repeat(enum.Enum):
    """Which calls may be sent again after this failure."""

    NEVER = "never"
    """None: the same call fails again."""
    SAFE = "safe"
    """Calls that are safe to repeat (`Request.safe_to_repeat`)."""
    ALWAYS = "always"
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


_Row = tuple[type[ApiError], Outcome]

# Unspecified: which refusals had no effect (contract UNS-error-catalog). Only those that ask for patience are repeated
# whatever the call is.
# fmt: off
_BY_STATUS: Mapping[int, _Row] = MappingProxyType({
    400: (BadRequest,   Outcome(Effect.NONE, Repeat.NEVER)),
    401: (Unauthorized, Outcome(Effect.NONE, Repeat.NEVER)),
    403: (Forbidden,    Outcome(Effect.NONE, Repeat.NEVER)),
    404: (NotFound,     Outcome(Effect.NONE, Repeat.NEVER)),
    408: (ApiError,     Outcome(Effect.NONE, Repeat.SAFE)),
    409: (Conflict,     Outcome(Effect.NONE, Repeat.NEVER)),
    420: (ApiError,     Outcome(Effect.NONE, Repeat.NEVER, throttled=True)),  # an old name for 429
    423: (ApiError,     Outcome(Effect.NONE, Repeat.ALWAYS)),
    429: (RateLimited,  Outcome(Effect.NONE, Repeat.ALWAYS, throttled=True)),
    500: (ServerError,  Outcome(Effect.NONE, Repeat.SAFE)),
    502: (ServerError,  Outcome(Effect.NONE, Repeat.SAFE)),
    503: (ServerError,  Outcome(Effect.NONE, Repeat.ALWAYS, overload=True)),
    504: (ServerError,  Outcome(Effect.NONE, Repeat.SAFE)),
})
_OTHER_4XX: _Row = (ApiError,    Outcome(Effect.NONE, Repeat.NEVER))
_OTHER_5XX: _Row = (ServerError, Outcome(Effect.NONE, Repeat.NEVER))

_CLASS_BY_CODE: Mapping[tuple[int, str], type[ApiError]] = MappingProxyType({
    (429, TooManyConnections.name): TooManyConnections,
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


def outcome_for_status(status: int, codes: Iterable[str | int] = ()) -> Outcome:
    """Return what a refusal means.

    Args:
        status: the HTTP status, which is no success.
        codes: the codes of its reasons; some change what the status says.
    """
    _, outcome = _row(status, codes)
    return outcome


def outcome_of(error: SvcError) -> Outcome:
    """Return what an error means."""
    if isinstance(error, ApiError):
        return outcome_for_status(error.status, (reason.code for reason in error.errors))
    outcome = _UNREADABLE if isinstance(error, UnexpectedAnswer) else _BY_SENT[error.sent]
    return outcome if error.repeatable else attrs.evolve(outcome, repeat=Repeat.NEVER)


def api_error(
    *,
    status: int,
    errors: Sequence[ErrorDetail] = (),
    operation_errors: Mapping[int, tuple[ErrorDetail, ...]] | None = None,
    headers: Mapping[str, str] | None = None,
    request_id: str | None = None,
    retry_at: datetime | None = None,
) -> ApiError:
    """Build the exception of a refusal."""
    error, outcome = _row(status, (reason.code for reason in errors))
    return error(
        status=status,
        errors=errors,
        operation_errors=operation_errors,
        headers=headers,
        request_id=request_id,
        retry_at=retry_at,
        repeatable=outcome.repeat is not Repeat.NEVER,
    )


def _row(status: int, codes: Iterable[str | int]) -> _Row:
    names = set(map(str, codes))
    error, outcome = _BY_STATUS.get(status, _OTHER_5XX if status >= HTTPStatus.INTERNAL_SERVER_ERROR else _OTHER_4XX)
    error = next((_CLASS_BY_CODE[status, name] for name in names if (status, name) in _CLASS_BY_CODE), error)
    if names & _LATER:
        outcome = attrs.evolve(outcome, effect=Effect.NONE, repeat=Repeat.ALWAYS)
    return error, outcome
