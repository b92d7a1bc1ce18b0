"""What helps to repeat, and when.

A call is repeated when it certainly had no effect, or when doing it twice is the same as doing it once:

    not sent                                   any call
    429, 423, 503, or code TOO_MANY_JOBS       any call: the service turned it away
    408, 500, 502, 504, no answer, unreadable  calls that are safe to repeat (`Request.safe_to_repeat`)

Waits grow with jitter, never end before the service's `retry-after`, and stop at a deadline. A budget shared by
all calls of a session keeps an outage from being answered with a storm. A 429 waits at the governor's gate, in
turn, and so needs no wait of its own here; the governor's `max_wait` ends that wait, not the deadline.
"""

import itertools
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from svc_async.clock import Clock
from svc_async.errors import ApiError, InvalidArgument, RateLimited, Sent, SvcError, WouldWaitTooLong
from svc_async.wire.outcome import Repeat, outcome_of

__all__ = ["Retries", "RetryBudget", "helps", "run"]

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Retries:
    """How often and how long a call is repeated.

    Attributes:
        attempts: the most times that a call is sent, the first time included.
        first_wait: seconds before the first repeat; each further wait doubles.
        longest_wait: seconds that one wait grows to, unless the service asks for more.
        deadline: seconds after which no further attempt starts, counted from the first.
        jitter: the share of a wait that is left to chance, from 0 to 1.
    """

    attempts: int = attrs.field(default=5)
    first_wait: float = attrs.field(default=0.5)
    longest_wait: float = attrs.field(default=30.0)
    deadline: float = attrs.field(default=300.0)
    jitter: float = attrs.field(default=0.5)

    def __attrs_post_init__(self) -> None:
        if self.attempts < 1:
            raise InvalidArgument("attempts", "must be at least 1")
        if min(self.first_wait, self.longest_wait, self.deadline) < 0 or not 0 <= self.jitter <= 1:
            raise InvalidArgument("retries", "must have waits and a deadline of at least 0 and a jitter from 0 to 1")

    @classmethod
    def none(cls) -> "Retries":
        """Send every call once."""
        return cls(attempts=1)


@attrs.define
class RetryBudget:
    """Repeats that a session may still spend; successes earn them back.

    Attributes:
        most: repeats in a full budget.
        earned: what one success gives back.
    """

    most: float = 100.0
    earned: float = 0.1
    _left: float = attrs.field(init=False, default=attrs.Factory(lambda self: self.most, takes_self=True))

    def earn(self) -> None:
        """Note a success."""
        self._left = min(self.most, self._left + self.earned)

    def spend(self) -> bool:
        """Take one repeat, if there is one left."""
        if self._left < 1:
            return False
        self._left -= 1
        return True


def helps(error: BaseException, *, safe: bool) -> bool:
    """Whether repeating a call that failed so may help now and can do no harm."""
    if not isinstance(error, SvcError) or isinstance(error, WouldWaitTooLong):
        return False
    repeat = outcome_of(error).repeat
    return repeat is Repeat.ALWAYS or (safe and repeat is Repeat.SAFE)


async def run(
    call: Callable[[], Awaitable[T]], *, retries: Retries, safe: bool, clock: Clock, budget: RetryBudget
) -> T:
    """Make a call, and again while it helps.

    Tenacity is entered only after a failure, so that calls that succeed do not pay for it.
    """
    started = clock.monotonic()
    try:
        result = await call()
    except SvcError as error:
        if retries.attempts == 1 or not helps(error, safe=safe):
            raise
        result = await _repeat(call, error, started, retries=retries, safe=safe, clock=clock, budget=budget)
    budget.earn()
    return result


async def _repeat(
    call: Callable[[], Awaitable[T]],
    failure: SvcError,
    started: float,
    *,
    retries: Retries,
    safe: bool,
    clock: Clock,
    budget: RetryBudget,
) -> T:
    attempts = itertools.count(1)
    in_doubt = False

    async def attempt() -> T:
        if next(attempts) == 1:  # has been made and has failed
            raise failure
        return await call()

    def repeats(error: BaseException) -> bool:
        nonlocal in_doubt
        in_doubt = in_doubt or (isinstance(error, SvcError) and outcome_of(error).repeat is Repeat.SAFE)
        return helps(error, safe=safe)

    def stop(state: RetryCallState) -> bool:
        too_late = clock.monotonic() - started + state.upcoming_sleep > retries.deadline
        return state.attempt_number >= retries.attempts or too_late or not budget.spend()

    retrying = AsyncRetrying(
        retry=retry_if_exception(repeats),
        wait=lambda state: _wait(state, retries, clock),
        stop=stop,
        sleep=clock.sleep,
        reraise=True,
    )
    try:
        return await retrying(attempt)
    except SvcError as error:
        if error.sent is Sent.NO and in_doubt:  # an earlier attempt may have done what the last one did not
            error.sent = Sent.MAYBE
        raise


def _wait(state: RetryCallState, retries: Retries, clock: Clock) -> float:
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, RateLimited):
        return 0.0  # the governor's gate is closed and keeps the line
    grown: float = min(retries.longest_wait, retries.first_wait * 2.0 ** min(state.attempt_number - 1, 64))
    spread = grown * (1 - retries.jitter * random.random())  # noqa: S311 - spreads load, guards nothing
    return max(spread, _asked_for(error, clock))


def _asked_for(error: BaseException | None, clock: Clock) -> float:
    if not isinstance(error, ApiError) or error.retry_at is None:
        return 0.0
    return (error.retry_at - clock.now()).total_seconds()
