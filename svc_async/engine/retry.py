"""Decides whether and when a failed call is repeated, and repeats it.

A call is repeated if it certainly had no effect, or if sending it twice has the same effect as sending it once
(`Request.safe_to_repeat`); the table in `wire/outcome.py` says which failure allows what.

Waits grow exponentially with jitter, are never shorter than the service's `retry-after`, and stop at a deadline. If the
session is closed before a repeat, the failure of the last attempt that may have had an effect is raised. A budget
shared by all calls of a session keeps an outage from becoming a storm of repeats. A 429 waits in turn at the governor's
gate and so needs no wait here; that wait is limited by the governor's `max_wait`, not by the deadline.
"""

import itertools
import random
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import attrs

from svc_async.clock import Clock
from svc_async.errors import ApiError, Sent, SvcError, WouldWaitTooLong, WrongState
from svc_async.value_rules import COUNT, SECONDS, SECONDS_OR_INFINITE, SHARE
from svc_async.wire.outcome import Repeat, RetryBudget, may_have_worked, outcome_of

if TYPE_CHECKING:
    from tenacity import RetryCallState

__all__ = ["Retries", "decide", "run"]

T = TypeVar("T")

_MAX_DOUBLINGS = 64


@attrs.frozen(kw_only=True)
class Retries:
    """How often and how long a call is repeated.

    Attributes:
        attempts: the maximum number of times that a call is sent, the first included.
        first_wait: seconds before the first repeat; each further wait doubles.
        longest_wait: the maximum of one wait in seconds, unless the service asks for more.
        deadline: seconds from the first attempt, after which no further attempt starts.
        jitter: the random share of a wait, from 0 to 1.

    Raises:
        InvalidArgument: names the one that breaks its rule.
    """

    attempts: int = attrs.field(default=5, validator=COUNT)
    first_wait: float = attrs.field(default=0.5, validator=SECONDS)
    longest_wait: float = attrs.field(default=30.0, validator=SECONDS_OR_INFINITE)
    deadline: float = attrs.field(default=300.0, validator=SECONDS_OR_INFINITE)
    jitter: float = attrs.field(default=0.5, validator=SHARE)

    @classmethod
    def none(cls) -> "Retries":
        """Send every call once."""
        return cls(attempts=1)


def decide(
    error: SvcError, *, attempt: int, elapsed: float, now: datetime, safe: bool, retries: Retries, chance: float
) -> float | None:
    """Return the seconds to wait before a repeat, or None if the call must not be repeated.

    Args:
        error: how the attempt failed.
        attempt: its number, from 1.
        elapsed: seconds since the first attempt began.
        now: the time, to which `retry-after` is compared.
        safe: whether the call is safe to repeat.
        retries: the limits.
        chance: a random number from 0 to 1, for the jitter.
    """
    if _is_final(error, attempt=attempt, safe=safe, retries=retries):
        return None
    wait = 0.0  # after a 429 the governor's gate is closed and keeps the queue
    if not outcome_of(error).throttled:
        grown = min(retries.longest_wait, retries.first_wait * 2.0 ** min(attempt - 1, _MAX_DOUBLINGS))
        retry_at = error.retry_at if isinstance(error, ApiError) else None
        requested = 0.0 if retry_at is None else (retry_at - now).total_seconds()
        wait = max(grown * (1 - retries.jitter * chance), requested)
    return wait if elapsed + wait <= retries.deadline else None


def _is_final(error: SvcError, *, attempt: int, safe: bool, retries: Retries) -> bool:
    if isinstance(error, WouldWaitTooLong):  # a repeat would wait even longer than the caller is willing to
        return True
    repeat = outcome_of(error).repeat
    return attempt >= retries.attempts or repeat is Repeat.NEVER or (repeat is Repeat.SAFE and not safe)


async def run(
    call: Callable[[], Awaitable[T]],
    *,
    retries: Retries,
    safe: bool,
    clock: Clock,
    budget: RetryBudget,
    elapsed: Callable[[], float],
    on_repeat: Callable[[SvcError, float], object],
    is_closed: Callable[[], bool] = lambda: False,
) -> T:
    """Make a call, and repeat it as long as `decide` and the budget allow.

    Args:
        call: makes one attempt.
        retries: the limits.
        safe: whether the call is safe to repeat.
        clock: the source of time.
        budget: the repeats that the session has left.
        elapsed: returns the seconds since the first attempt began.
        on_repeat: called with a failure and the seconds to wait before the repeat.
        is_closed: returns whether no further attempt can be sent, because the session was closed.

    Tenacity is entered only after a failure that may be repeated: no other call pays for it, and no other error has its
    frames in the traceback.
    """
    try:
        result = await call()
    except SvcError as error:
        if _is_final(error, attempt=1, safe=safe, retries=retries) or (may_have_worked(error) and is_closed()):
            raise
        repeats = _Repeats(
            retries=retries,
            safe=safe,
            clock=clock,
            budget=budget,
            elapsed=elapsed,
            on_repeat=on_repeat,
            is_closed=is_closed,
        )
        result = await repeats.run(call, error)
    budget.earn()
    return result


@attrs.define(kw_only=True)
class _Repeats:
    """The repeats of one call."""

    retries: Retries
    safe: bool
    clock: Clock
    budget: RetryBudget
    elapsed: Callable[[], float]
    on_repeat: Callable[[SvcError, float], object]
    is_closed: Callable[[], bool]
    wait: float = 0.0
    in_doubt: SvcError | None = None
    """The failure of the last attempt that may have had an effect."""

    async def run(self, call: Callable[[], Awaitable[T]], failure: SvcError) -> T:
        """Repeat a call whose first attempt has failed."""
        from tenacity import AsyncRetrying  # noqa: PLC0415 - most programs never repeat a call

        attempts = itertools.count(1)

        async def attempt() -> T:
            if next(attempts) == 1:
                raise failure
            return await call()

        retrying = AsyncRetrying(retry=self._allows, wait=lambda _: self.wait, sleep=self.clock.sleep)
        try:
            return await retrying(attempt)
        except SvcError as error:
            if self.in_doubt is None or not (isinstance(error, WrongState) and self.is_closed()):
                if error.sent is Sent.NO and self.in_doubt is not None:
                    error.sent = Sent.MAYBE
                raise
        raise self.in_doubt  # the session was closed before the repeat, which says nothing about the call

    def _allows(self, state: "RetryCallState") -> bool:
        error = state.outcome.exception() if state.outcome else None
        if not isinstance(error, SvcError):
            return False
        if may_have_worked(error):
            self.in_doubt = error
        if self.in_doubt is not None and self.is_closed():
            return False
        wait = decide(
            error,
            attempt=state.attempt_number,
            elapsed=self.elapsed(),
            now=self.clock.now(),
            safe=self.safe,
            retries=self.retries,
            chance=random.random(),  # noqa: S311 - spreads load, guards nothing
        )
        if wait is None or not self.budget.spend():
            return False
        self.wait = wait
        self.on_repeat(error, wait)
        return True
