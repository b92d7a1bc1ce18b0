import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import attrs
import pytest

from svc_async.engine import retry
from svc_async.engine.retry import Retries, decide
from svc_async.errors import (
    ApiError,
    ErrorDetail,
    InvalidArgument,
    Sent,
    SvcError,
    TimedOut,
    TooManyConnections,
    TransportError,
    UnexpectedAnswer,
    WouldWaitTooLong,
)
from svc_async.sandbox import VirtualClock
from svc_async.wire.outcome import RetryBudget, api_error

T = TypeVar("T")

UNREADABLE = UnexpectedAnswer("not JSON", status=200, repeatable=True)
ANOTHER_FORM = UnexpectedAnswer("another form", status=200)
TURNED_AWAY = api_error(status=503, headers={"retry-after": "0"})
TOO_MANY_JOBS = api_error(status=400, errors=[ErrorDetail(code="TOO_MANY_JOBS")])


def is_repeated(error: SvcError, *, safe: bool) -> bool:
    now = VirtualClock().now()
    return decide(error, attempt=1, elapsed=0, now=now, safe=safe, retries=Retries(), chance=0) is not None


@pytest.mark.parametrize(
    ("error", "safe", "unsafe"),
    [
        (TransportError("refused", sent=Sent.NO), True, True),
        (TransportError("reset", sent=Sent.MAYBE), True, False),
        (TimedOut("late", sent=Sent.MAYBE), True, False),
        (UNREADABLE, True, False),
        (ANOTHER_FORM, False, False),
        (api_error(status=429), True, True),
        (api_error(status=503), True, False),
        (TURNED_AWAY, True, True),
        (api_error(status=423), True, True),
        (TOO_MANY_JOBS, True, True),
        (api_error(status=500), True, False),
        (api_error(status=502), True, False),
        (api_error(status=504), True, False),
        (api_error(status=408), True, False),
        (api_error(status=400), False, False),
        (api_error(status=401), False, False),
        (api_error(status=404), False, False),
        (InvalidArgument("a", "b"), False, False),
    ],
)
def test_only_what_is_safe_to_repeat_is_repeated(error: SvcError, safe: bool, unsafe: bool) -> None:
    assert (is_repeated(error, safe=True), is_repeated(error, safe=False)) == (safe, unsafe)


async def make_call(
    call: Callable[[], Awaitable[T]],
    retries: Retries,
    clock: VirtualClock,
    *,
    safe: bool = True,
    budget: RetryBudget | None = None,
) -> T:
    started = clock.monotonic()
    return await retry.run(
        call,
        retries=retries,
        safe=safe,
        clock=clock,
        budget=budget or RetryBudget(),
        elapsed=lambda: clock.monotonic() - started,
        on_repeat=lambda _, __: None,
    )


async def test_an_error_that_is_not_ours_is_raised_at_once(clock: VirtualClock) -> None:
    async def fail() -> None:
        failures.append(1)
        raise ValueError

    failures: list[int] = []
    with pytest.raises(ValueError):  # noqa: PT011 - it has no message
        await make_call(fail, Retries(), clock)

    assert failures == [1]


@pytest.mark.parametrize(
    ("error", "retries"),
    [(api_error(status=404), Retries()), (api_error(status=503), Retries(attempts=1))],
)
async def test_the_traceback_of_an_error_that_is_not_repeated_ends_in_the_call(
    clock: VirtualClock, error: SvcError, retries: Retries
) -> None:
    async def call() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await make_call(call, retries, clock)

    assert [entry.name for entry in caught.traceback][2:] == ["run", "call"]


def test_a_caller_without_patience_is_not_made_to_wait_by_repeats() -> None:
    error = WouldWaitTooLong(until=VirtualClock().now(), limit="writes", max_wait=1)

    assert error.repeatable
    assert not is_repeated(error, safe=True)


class Calls:
    """A call that fails with the given errors in turn and then succeeds, and notes when it was made."""

    def __init__(self, clock: VirtualClock, *errors: SvcError) -> None:
        self.clock = clock
        self.errors: Iterator[SvcError] = iter(errors)
        self.times: list[float] = []

    async def __call__(self) -> str:
        self.times.append(self.clock.monotonic())
        error = next(self.errors, None)
        if error is not None:
            raise error
        return "done"

    @property
    def waits(self) -> list[float]:
        return [round(later - earlier, 6) for earlier, later in zip(self.times, self.times[1:], strict=False)]


async def run(calls: Calls, retries: Retries, *, safe: bool = True, budget: RetryBudget | None = None) -> str:
    return await make_call(calls, retries, calls.clock, safe=safe, budget=budget)


async def test_waits_double_up_to_the_longest(clock: VirtualClock) -> None:
    calls = Calls(clock, *[api_error(status=500)] * 5)

    assert await run(calls, Retries(attempts=6, first_wait=1, longest_wait=4, jitter=0)) == "done"
    assert calls.waits == [1, 2, 4, 4, 4]


async def test_jitter_only_shortens_waits(clock: VirtualClock) -> None:
    calls = Calls(clock, *[api_error(status=500)] * 4)
    await run(calls, Retries(first_wait=8, longest_wait=8, jitter=0.5))

    assert all(4 <= wait <= 8 for wait in calls.waits)
    assert len(set(calls.waits)) > 1


async def test_a_wait_never_ends_before_retry_after(clock: VirtualClock) -> None:
    asked = api_error(status=503, retry_at=clock.now() + timedelta(seconds=90))
    calls = Calls(clock, asked)
    await run(calls, Retries(first_wait=1, jitter=0))

    assert calls.waits == [90]


async def test_a_call_is_made_as_often_as_allowed_and_the_last_error_is_raised(clock: VirtualClock) -> None:
    errors = [api_error(status=500) for _ in range(9)]
    calls = Calls(clock, *errors)
    with pytest.raises(ApiError) as caught:
        await run(calls, Retries(attempts=3))

    assert len(calls.times) == 3
    assert caught.value is errors[2]


async def test_no_attempt_starts_after_the_deadline(clock: VirtualClock) -> None:
    await clock.advance(hours=1)
    calls = Calls(clock, *[api_error(status=500)] * 99)
    with pytest.raises(ApiError):
        await run(calls, Retries(attempts=99, first_wait=10, longest_wait=10, jitter=0, deadline=35))

    assert calls.waits == [10, 10, 10]


async def test_a_wait_that_would_pass_the_deadline_is_not_begun(clock: VirtualClock) -> None:
    started = clock.monotonic()
    calls = Calls(clock, api_error(status=503, retry_at=clock.now() + timedelta(hours=2)))
    with pytest.raises(ApiError):
        await run(calls, Retries(deadline=300))

    assert clock.monotonic() == started


async def test_what_does_not_help_is_raised_at_once(clock: VirtualClock) -> None:
    calls = Calls(clock, api_error(status=404))
    with pytest.raises(ApiError):
        await run(calls, Retries())

    assert len(calls.times) == 1


async def test_an_outage_is_not_answered_with_a_storm(clock: VirtualClock) -> None:
    budget = RetryBudget(most=10, earned=0.1)
    sent = 0
    for _ in range(100):
        calls = Calls(clock, *[api_error(status=500)] * 9)
        with pytest.raises(ApiError):
            await run(calls, Retries(attempts=5), budget=budget)
        sent += len(calls.times)

    assert sent == 100 + 10


async def test_successes_earn_repeats_back(clock: VirtualClock) -> None:
    budget = RetryBudget(most=1, earned=0.5)

    assert await run(Calls(clock, api_error(status=500)), Retries(), budget=budget) == "done"
    with pytest.raises(ApiError):
        await run(Calls(clock, api_error(status=500)), Retries(), budget=budget)
    await run(Calls(clock), Retries(), budget=budget)

    assert await run(Calls(clock, api_error(status=500)), Retries(), budget=budget) == "done"


async def test_many_calls_retry_at_the_same_time(clock: VirtualClock) -> None:
    calls = [Calls(clock, api_error(status=500), api_error(status=502)) for _ in range(20)]
    assert await asyncio.gather(*(run(call, Retries()) for call in calls)) == ["done"] * 20


async def test_a_cancelled_wait_makes_no_further_call() -> None:
    manual = VirtualClock()
    calls = Calls(manual, api_error(status=500))
    task = asyncio.ensure_future(run(calls, Retries()))
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert len(calls.times) == 1


@pytest.mark.parametrize(
    ("wrong", "parameter"),
    [
        ({"attempts": 0}, "attempts"),
        ({"first_wait": -0.1}, "first_wait"),
        ({"longest_wait": -0.1}, "longest_wait"),
        ({"deadline": -0.1}, "deadline"),
        ({"jitter": -0.1}, "jitter"),
        ({"jitter": 1.1}, "jitter"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float], parameter: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Retries(**wrong)  # type: ignore[arg-type]  # wrong on purpose

    assert caught.value.parameter == parameter


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"attempts": 1},
        {"first_wait": 0.0},
        {"longest_wait": 0.0},
        {"deadline": 0.0},
        {"jitter": 0.0},
        {"jitter": 1.0},
    ],
)
def test_the_bounds_of_settings_are_allowed(settings: dict[str, Any]) -> None:
    default = {"attempts": 5, "first_wait": 0.5, "longest_wait": 30.0, "deadline": 300.0, "jitter": 0.5}

    assert attrs.asdict(Retries(**settings)) == default | settings


UNAVAILABLE = api_error(status=503)


@pytest.mark.parametrize(
    ("attempt", "elapsed", "chance", "wait"),
    [
        (1, 0.0, 0.0, 0.5),
        (1, 0.0, 1.0, 0.25),
        (1, 0.0, 0.4, 0.4),
        (2, 0.0, 0.0, 1.0),
        (4, 0.0, 0.0, 4.0),
        (4, 96.0, 0.0, 4.0),
        (4, 96.1, 0.0, None),
        (9, 0.0, 0.0, 30.0),
        (9, 0.0, 1.0, 15.0),
        (10, 0.0, 0.0, None),
        (11, 0.0, 0.0, None),
    ],
)
def test_when_a_call_is_repeated(attempt: int, elapsed: float, chance: float, wait: float | None) -> None:
    now, retries = VirtualClock().now(), Retries(attempts=10, deadline=100.0)

    found = decide(UNAVAILABLE, attempt=attempt, elapsed=elapsed, now=now, safe=True, retries=retries, chance=chance)

    assert found == wait


@pytest.mark.parametrize(("attempt", "doublings"), [(2, 1), (64, 63), (65, 64), (66, 64), (5_000, 64)])
def test_a_wait_doubles_64_times(attempt: int, doublings: int) -> None:
    endless = Retries(attempts=10_000, first_wait=1.0, longest_wait=float("inf"), deadline=float("inf"))

    wait = decide(
        UNAVAILABLE, attempt=attempt, elapsed=0, now=VirtualClock().now(), safe=True, retries=endless, chance=0
    )

    assert wait == 2.0**doublings


def test_a_budget_is_spent_one_by_one_and_earned_back_in_tenths() -> None:
    assert (RetryBudget().most, RetryBudget().earned) == (100.0, 0.1)
    budget = RetryBudget(most=2.0, earned=0.5)

    assert [budget.spend() for _ in range(3)] == [True, True, False]
    budget.earn()
    assert budget.spend() is False
    budget.earn()
    assert [budget.spend() for _ in range(2)] == [True, False]
    for _ in range(9):
        budget.earn()
    assert [budget.spend() for _ in range(3)] == [True, True, False]


@pytest.mark.long("more repetitions than Python allows recursions")
async def test_a_call_may_be_repeated_for_ever(clock: VirtualClock) -> None:
    calls = Calls(clock, *[api_error(status=500)] * 1_100)
    patient = Retries(attempts=10_000, deadline=float("inf"))

    assert await run(calls, patient, budget=RetryBudget(most=10_000)) == "done"


NOT_SENT = TransportError("connection refused", sent=Sent.NO)


@pytest.mark.parametrize(
    ("first", "sent"),
    [
        (TimedOut("request timed out", sent=Sent.MAYBE), Sent.MAYBE),
        (api_error(status=500), Sent.MAYBE),
        (UNREADABLE, Sent.MAYBE),
        (api_error(status=503), Sent.MAYBE),
        (TURNED_AWAY, Sent.NO),
        (NOT_SENT, Sent.NO),
    ],
)
async def test_a_call_that_may_have_had_an_effect_is_never_said_to_be_unsent(
    clock: VirtualClock, first: SvcError, sent: Sent
) -> None:
    last = TransportError("connection refused", sent=Sent.NO)
    with pytest.raises(TransportError) as caught:
        await run(Calls(clock, first, NOT_SENT, last), Retries(attempts=3))

    assert caught.value.sent is sent


async def test_a_repeat_that_would_wait_too_long_tells_that_the_first_attempt_may_have_had_an_effect(
    clock: VirtualClock,
) -> None:
    too_long = WouldWaitTooLong(until=clock.now(), limit="writes", max_wait=1)
    with pytest.raises(WouldWaitTooLong) as caught:
        await run(Calls(clock, TimedOut("request timed out", sent=Sent.MAYBE), too_long), Retries())

    assert caught.value.sent is Sent.MAYBE


async def test_a_429_waits_at_the_governor_and_not_here(clock: VirtualClock) -> None:
    refused = api_error(status=429, retry_at=clock.now() + timedelta(seconds=90))
    calls = Calls(clock, refused, refused)
    await run(calls, Retries(first_wait=1, jitter=0))

    assert calls.waits == [0, 0]


async def test_too_many_streams_close_no_gate_so_the_wait_is_here(clock: VirtualClock) -> None:
    calls = Calls(clock, api_error(status=429, errors=[ErrorDetail(code=TooManyConnections.name, message="No.")]))
    assert await run(calls, Retries(first_wait=2, jitter=0)) == "done"
    assert calls.waits == [2]


async def test_successes_do_not_save_up_more_than_a_full_budget(clock: VirtualClock) -> None:
    budget = RetryBudget(most=1, earned=1)
    for _ in range(5):
        await run(Calls(clock), Retries(), budget=budget)

    assert budget.spend()
    assert not budget.spend()
