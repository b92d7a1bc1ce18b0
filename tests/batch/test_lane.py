"""The machine of a lane: each transition, and random schedules; without its protection, the schedules fail."""

import weakref
from array import array
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.batch import lane as lane_module
from svc_async.batch.destination import Verdict
from svc_async.batch.lane import (
    Abandoned,
    Answered,
    Command,
    Elapsed,
    Event,
    Failed,
    Intended,
    Lane,
    Pause,
    Phase,
    Recorded,
    Release,
    Resumed,
    Sealed,
    Send,
    Settle,
    Stop,
    Stopped,
    Written,
    count_in_doubt,
    count_pending,
)
from svc_async.batch.packing.batch import Limits
from svc_async.batch.recovery import RecoveryPolicy
from svc_async.errors import ErrorDetail, SvcError, UnexpectedAnswer
from svc_async.wire.outcome import RetryBudget
from tests.support.fake_service import LOST, REFUSED, make_error
from tests.support.lane_model import run_schedule, run_schedules, seal_rows

NO = ErrorDetail(code="NO", message="no")
ACCEPTED = Answered(Verdict(), "r-1")
SENT = (Intended(), Written())
LIMITS = Limits(operations=10, size=10_000)
RETRY_AFTER = {"retry-after": "7"}
TURNED_AWAY = make_error(503, headers=RETRY_AFTER)


def create_lane(*, repeats: int = 10, retry_delays: Sequence[float] = (5.0,)) -> Lane:
    budget = RetryBudget(most=repeats, earned=1.0)
    policy = RecoveryPolicy(
        limits=LIMITS, retry_delays=retry_delays, quarantine=45.0, redact=lambda reason, _: reason, budget=budget
    )
    return Lane(0, (0,), policy)


def seal(count: int, *, first: int = 0) -> Sealed:
    """Return one batch of rows with different keys."""
    return Sealed(seal_rows([(position, position, 0) for position in range(first, first + count)], LIMITS))


def handle(lane: Lane, *events: Event) -> list[Command | None]:
    return [lane.handle(event) for event in events]


def create_sending_lane(count: int = 4, **settings_: Any) -> Lane:
    lane = create_lane(**settings_)
    handle(lane, seal(count), *SENT)
    return lane


def fail(error: SvcError, pause: float | None = None) -> Failed:
    return Failed(error, pause)


def list_positions(lane: Lane) -> list[list[int]]:
    return [list(batch.positions) for batch in lane.queue]


def read_first_body(lane: Lane) -> bytes:
    return b"".join(lane.queue[0].write_body().blocks)


def test_a_request_is_in_flight_once_it_is_written() -> None:
    lane = create_lane()

    assert (lane.handle(seal(4)), lane.phase) == (Send(), Phase.READY)
    assert (lane.handle(Intended()), lane.phase) == (None, Phase.INTENDED)
    assert (lane.handle(Written()), lane.phase) == (None, Phase.SENDING)


def test_a_request_that_is_sent_again_with_a_new_token_stays_in_flight() -> None:
    lane = create_sending_lane()
    assert (handle(lane, Intended()), lane.phase) == ([None], Phase.SENDING)
    assert (handle(lane, Written()), lane.phase) == ([None], Phase.SENDING)


def test_a_request_that_failed_before_it_was_written_needs_no_release() -> None:
    lane = create_lane()
    assert handle(lane, seal(1), Intended(), fail(TURNED_AWAY)) == [Send(), None, Pause(5.0)]


def test_the_next_batch_is_sent_when_the_one_before_is_settled() -> None:
    lane = create_sending_lane()
    lane.handle(seal(2, first=4))

    settle = lane.handle(ACCEPTED)

    assert isinstance(settle, Settle)
    assert ([*settle.receipt.positions], settle.receipt.request_id, settle.receipt.attempts) == ([0, 1, 2, 3], "r-1", 1)
    assert handle(lane, Recorded(), *SENT, ACCEPTED)[:3] == [Send(), None, None]
    assert (lane.handle(Recorded()), lane.phase, count_pending([lane])) == (None, Phase.IDLE, 0)


@pytest.mark.parametrize(
    ("failure", "commands"),
    [
        (fail(TURNED_AWAY), [Release(), Pause(5.0)]),
        (fail(TURNED_AWAY, 77.0), [Release(), Pause(77.0)]),
        (fail(TURNED_AWAY, 1.0), [Release(), Pause(5.0)]),
        (fail(make_error(423)), [Release(), Pause(5.0)]),
        *((fail(make_error(status)), [Pause(45.0)]) for status in (408, 500, 502, 503, 504, 520)),
        (fail(make_error(504), 77.0), [Pause(77.0)]),
        (fail(REFUSED), [Release(), Pause(5.0)]),
        (fail(make_error(429)), [Release(), Send()]),
        (fail(make_error(429), 7.0), [Release(), Send()]),
        (fail(make_error(429), 0.0), [Release(), Send()]),
        (fail(LOST), [Pause(45.0)]),
        (fail(UnexpectedAnswer("no JSON", status=200), 1.0), [Pause(45.0)]),
        (Answered(None), [Pause(45.0)]),
        (Answered(Verdict(unknown=range(4))), [Pause(45.0)]),
        (fail(make_error(400)), [Release(), Send()]),
        (fail(make_error(400, operation_errors={1: (NO,)})), [Release(), "Settle"]),
        *((fail(make_error(status)), [Release(), "Stop"]) for status in (401, 403, 404)),
    ],
    ids=repr,
)
def test_what_follows_a_failure(failure: Event, commands: Sequence[Command | str]) -> None:
    lane = create_sending_lane()

    followed = [lane.handle(failure)]
    if followed == [Release()]:
        followed.append(lane.handle(Recorded()))

    assert [type(each).__name__ if isinstance(each, Settle | Stop) else each for each in followed] == commands


def test_the_delay_of_the_next_repeat_is_used_up_by_a_quarantine_but_not_by_a_429() -> None:
    lane = create_sending_lane(retry_delays=(5.0, 100.0))
    handle(lane, fail(make_error(429)), Recorded(), *SENT)

    assert lane.handle(fail(LOST)) == Pause(45.0)
    handle(lane, Elapsed(), *SENT)
    assert lane.handle(fail(TURNED_AWAY)) == Pause(100.0)


def test_a_repeat_sends_the_same_bytes() -> None:
    lane = create_sending_lane()
    body = read_first_body(lane)

    assert handle(lane, fail(LOST), Elapsed()) == [Pause(45.0), Send()]
    assert read_first_body(lane) == body
    assert lane.attempts == 2


@pytest.mark.parametrize("status", [503, 429])
def test_a_failure_is_not_kept_when_the_batch_is_sent_again(status: int) -> None:
    lane = create_sending_lane()
    error = make_error(status, headers=RETRY_AFTER)
    kept = weakref.ref(error)  # its traceback holds the body

    handle(lane, fail(error), Recorded(), *([Elapsed()] if status == 503 else []))
    del error

    assert kept() is None


def test_a_batch_is_given_up_when_its_delays_are_used_up() -> None:
    lane = create_sending_lane(retry_delays=())
    lane.policy.budget.earn()  # another lane's request was accepted

    handle(lane, fail(make_error(503, headers=RETRY_AFTER, request_id="r-9")))
    settle = lane.handle(Recorded())

    assert isinstance(settle, Settle)
    assert {(failure.code, failure.reason) for failure in settle.receipt.failures} == {
        ("GAVE_UP", "gave up after 1 attempts: HTTP 503")
    }
    assert (settle.receipt.accepted, settle.receipt.request_id) == (0, "r-9")


def test_a_batch_of_unknown_outcome_is_given_up_after_its_quarantine() -> None:
    lane = create_sending_lane(retry_delays=())
    lane.policy.budget.earn()
    lane.handle(seal(1, first=4))

    assert lane.handle(fail(LOST)) == Pause(45.0)
    assert count_in_doubt([lane]) == 4
    settle = lane.handle(Elapsed())
    assert isinstance(settle, Settle)
    assert {failure.reason for failure in settle.receipt.failures} == {
        "gave up after 1 attempts: the connection broke (sent: maybe); one of them may have worked"
    }
    assert (list_positions(lane), count_in_doubt([lane])) == ([[4]], 0)


@pytest.mark.parametrize(
    ("error", "in_doubt"),
    [
        (make_error(503, headers=RETRY_AFTER), 0),
        (make_error(503), 4),
        (REFUSED, 0),
        (LOST, 4),
        (UnexpectedAnswer("not JSON", status=200, repeatable=True), 4),
    ],
)
@pytest.mark.parametrize("was_well", [False, True])  # before the last delay
def test_the_job_stops_if_the_service_accepts_nothing_until_the_delays_are_used_up(
    error: SvcError, in_doubt: int, was_well: bool
) -> None:
    lane = create_sending_lane(retry_delays=(5.0,))
    if was_well:
        lane.policy.budget.earn()
    release = [] if in_doubt else [Recorded()]
    handle(lane, fail(error), *release, Elapsed(), *SENT)

    assert handle(lane, fail(error), *release)[-1] == Stop(error)
    assert (list_positions(lane), count_in_doubt([lane])) == ([[0, 1, 2, 3]], in_doubt)


def test_a_batch_is_given_up_if_another_request_was_accepted_during_its_last_delay() -> None:
    lane = create_sending_lane(retry_delays=(5.0,))
    handle(lane, fail(TURNED_AWAY), Recorded())
    lane.policy.budget.earn()

    assert isinstance(handle(lane, Elapsed(), *SENT, fail(TURNED_AWAY), Recorded())[-1], Settle)


@pytest.mark.parametrize(
    "odd", [Answered(None), fail(UnexpectedAnswer("not a count", status=200)), Answered(Verdict(unknown=(0, 1, 2, 3)))]
)
def test_a_batch_with_odd_answers_is_given_up_though_nothing_else_was_accepted(odd: Event) -> None:
    lane = create_sending_lane(retry_delays=())

    assert lane.handle(odd) == Pause(45.0)
    assert isinstance(lane.handle(Elapsed()), Settle)


def test_the_refusal_of_a_repeat_says_that_the_attempt_before_may_have_worked() -> None:
    lane = create_sending_lane(1)
    handle(lane, fail(LOST), Elapsed(), *SENT)

    settle = lane.handle(Answered(Verdict({0: NO})))

    assert isinstance(settle, Settle)
    (failure,) = settle.receipt.failures
    assert failure.reason == "no; an earlier attempt had no conclusive answer and may have worked"


def test_a_turned_away_repeat_is_still_in_doubt_and_not_released() -> None:
    lane = create_sending_lane()
    handle(lane, fail(LOST), Elapsed(), *SENT)

    assert lane.handle(fail(make_error(429))) == Send()
    assert lane.in_doubt


@pytest.mark.parametrize(("error", "command"), [(REFUSED, Pause(5.0)), (LOST, Pause(45.0))], ids=["refused", "lost"])
def test_a_request_that_fails_before_it_is_written_is_neither_in_doubt_nor_released(
    error: SvcError, command: Command
) -> None:
    lane = create_lane()

    assert handle(lane, seal(4), fail(error)) == [Send(), command]
    assert not lane.in_doubt


def test_rows_that_an_answer_does_not_mention_stay_in_doubt_and_the_others_are_settled() -> None:
    lane = create_sending_lane()

    settle = lane.handle(Answered(Verdict({0: NO}, unknown=[1, 3])))

    assert isinstance(settle, Settle)
    assert (settle.receipt.positions, [failure.position for failure in settle.receipt.failures]) == ([2], [0])
    assert settle.in_doubt is lane.queue[0]
    assert (list_positions(lane), count_in_doubt([lane])) == ([[1, 3]], 2)
    assert lane.handle(Recorded()) == Pause(45.0)


def test_named_rows_fail_and_the_others_are_sent_again() -> None:
    lane = create_sending_lane()
    reasons = {1: (NO,), 3: (ErrorDetail(),), 9: (NO,)}  # 9 is not an operation of the batch

    handle(lane, fail(make_error(400, operation_errors=reasons)))
    settle = lane.handle(Recorded())

    assert isinstance(settle, Settle)
    assert [(failure.position, failure.code, failure.reason) for failure in settle.receipt.failures] == [
        (1, "NO", "no"),
        (3, "REFUSED", "refused without a reason"),
    ]
    assert list_positions(lane) == [[0, 2]]


def test_named_operations_of_several_users_are_sent_with_one_user_each() -> None:
    lane = create_lane()
    limits = attrs.evolve(LIMITS, per_operation=2)
    handle(lane, Sealed(seal_rows([(position, position, 0) for position in range(6)], limits)), *SENT)

    handle(lane, fail(make_error(400, operation_errors={1: (NO,)})))

    assert lane.handle(Recorded()) == Send()
    assert list_positions(lane) == [[0, 1, 4, 5], [2, 3]]
    assert [batch.operations for batch in lane.queue] == [2, 2]


def test_a_refused_batch_is_halved_down_to_the_row() -> None:
    lane = create_sending_lane(3)
    refusal = fail(make_error(413, errors=[ErrorDetail(code="TOO_LARGE", message="too large")]))

    handle(lane, refusal, Recorded())
    assert list_positions(lane) == [[0, 1], [2]]
    handle(lane, *SENT, refusal, Recorded())
    assert list_positions(lane) == [[0], [1], [2]]
    handle(lane, *SENT, refusal)
    settle = lane.handle(Recorded())

    assert isinstance(settle, Settle)
    assert [(failure.position, failure.code) for failure in settle.receipt.failures] == [(0, "TOO_LARGE")]
    assert list_positions(lane) == [[1], [2]]


@pytest.mark.parametrize("failure", [fail(TURNED_AWAY), fail(make_error(400)), fail(LOST)], ids=repr)
def test_without_a_budget_the_job_stops_instead_of_repeating(failure: Failed) -> None:
    lane = create_sending_lane(repeats=0)

    command = lane.handle(failure)
    while command != Stop(failure.error):
        command = lane.handle(Elapsed() if isinstance(command, Pause) else Recorded())

    assert (lane.phase, count_pending([lane])) == (Phase.STOPPED, 4)


def test_an_accepted_batch_earns_a_repeat() -> None:
    lane = create_sending_lane(repeats=1)
    handle(lane, seal(1, first=4), fail(TURNED_AWAY), Recorded(), Elapsed(), *SENT, ACCEPTED, Recorded())

    handle(lane, *SENT, fail(TURNED_AWAY), Recorded())

    assert lane.handle(Elapsed()) == Send()


def test_superseded_rows_are_settled_with_the_next_answer() -> None:
    lane = create_lane()
    batches = seal_rows([(0, 7, 1), (1, 7, 1), (2, 8, 1)], LIMITS)  # rows 0 and 1 are equal
    handle(lane, Sealed(batches), *SENT, fail(make_error(400)), Recorded(), *SENT)

    first = lane.handle(ACCEPTED)
    handle(lane, Recorded(), *SENT)
    second = lane.handle(ACCEPTED)

    assert isinstance(first, Settle)
    assert isinstance(second, Settle)
    assert (first.superseded, second.superseded) == (array("q", [0]), array("q"))


def test_a_resumed_batch_waits_for_the_rest_of_its_quarantine() -> None:
    lane = create_lane()
    (batch,) = seal(2).batches

    command = lane.handle(Resumed(batch=batch, superseded=array("q", [9]), in_doubt=True, pause=30.0))

    assert command == Pause(30.0)
    assert count_in_doubt([lane]) == 2
    assert handle(lane, Elapsed(), *SENT) == [Send(), None, None]
    settle = lane.handle(ACCEPTED)
    assert isinstance(settle, Settle)
    assert settle.superseded == array("q", [9])


def test_a_resumed_batch_without_effect_is_sent_at_once() -> None:
    lane = create_lane()
    (batch,) = seal(2).batches

    assert lane.handle(Resumed(batch=batch, superseded=array("q"), in_doubt=False, pause=0.0)) == Send()
    assert count_in_doubt([lane]) == 0


@pytest.mark.parametrize("before", [[], [seal(1), *SENT, fail(TURNED_AWAY), Recorded()]], ids=["idle", "waiting"])
def test_a_lane_without_a_request_stops_at_once(before: Sequence[Event]) -> None:
    lane = create_lane()
    handle(lane, *before)

    lane.handle(Stopped())

    assert lane.phase is Phase.STOPPED
    assert lane.handle(seal(1, first=1)) is None


@pytest.mark.parametrize(
    ("last", "pending"), [(ACCEPTED, 1), (fail(TURNED_AWAY), 2), (fail(LOST), 2)], ids=["accepted", "503", "lost"]
)
def test_a_lane_that_sends_stops_after_its_request(last: Event, pending: int) -> None:
    lane = create_sending_lane(1)
    handle(lane, seal(1, first=1), Stopped())

    command = lane.handle(last)
    while command is not None:
        assert not isinstance(command, Send | Pause)
        command = lane.handle(Recorded())

    assert (lane.phase, count_pending([lane])) == (Phase.STOPPED, pending)


@pytest.mark.parametrize("events", [(Stopped(), fail(LOST)), (fail(LOST), Stopped())], ids=["before", "in it"])
def test_a_batch_stays_in_doubt_when_the_job_stops_in_its_last_quarantine(events: Sequence[Event]) -> None:
    lane = create_sending_lane(1, retry_delays=())

    handle(lane, *events)

    assert (lane.phase, count_pending([lane]), count_in_doubt([lane])) == (Phase.STOPPED, 1, 1)


@pytest.mark.parametrize(
    ("events", "in_doubt"),
    [
        ([seal(2)], 0),
        ([seal(2), Intended()], 0),
        ([seal(2), *SENT], 2),
        ([seal(2), *SENT, fail(LOST)], 2),
        ([seal(2), *SENT, fail(LOST), Elapsed()], 2),
        ([seal(2), *SENT, fail(TURNED_AWAY)], 0),
    ],
    ids=["ready", "intended", "sending", "waiting", "ready again", "recording"],
)
def test_an_abandoned_request_is_in_doubt_once_it_was_sent(events: Sequence[Event], in_doubt: int) -> None:
    lane = create_lane()
    handle(lane, *events, Abandoned())

    assert (lane.phase, count_pending([lane]), count_in_doubt([lane])) == (Phase.STOPPED, 2, in_doubt)


def read_documented_transitions() -> set[tuple[str, str]]:
    """Return the phases and events of the table in the docstring of the module."""
    table = str(lane_module.__doc__).partition("    phase        event        next\n")[2].partition("\n\n")[0]
    phase, found = "", set[tuple[str, str]]()
    for line in table.splitlines():
        phase, event = line[4:17].strip() or phase, line[17:30].strip()
        phases = [each.name for each in Phase if each is not Phase.IDLE] if phase == "not IDLE" else [phase]
        found |= {(name, event) for name in phases if event}
    return found


def test_the_docstring_has_every_transition_and_no_other() -> None:
    assert read_documented_transitions() == {(phase.name, event.__name__) for phase, event in Lane.TRANSITIONS}


@pytest.mark.parametrize("phase", Phase, ids=lambda phase: phase.name)
def test_events_that_cannot_happen_in_a_phase_are_defects(phase: Phase) -> None:
    (batch,) = seal(1).batches
    resumed = Resumed(batch=batch, superseded=array("q"), in_doubt=False, pause=0.0)
    known = read_documented_transitions()
    happened: list[Event] = [
        seal(1),
        resumed,
        Recorded(),
        *SENT,
        ACCEPTED,
        fail(LOST),
        Elapsed(),
        Stopped(),
        Abandoned(),
    ]
    impossible = [event for event in happened if (phase.name, type(event).__name__) not in known]
    assert impossible
    for event in impossible:
        lane = create_lane()
        lane.phase = phase
        with pytest.raises(RuntimeError, match=rf"^{type(event).__name__} cannot happen to a lane .* {phase.name}$"):
            lane.handle(event)


@pytest.mark.usefixtures("examples")
@given(seed=st.integers(0, 2**64 - 1))
def test_under_any_schedule_rows_are_accounted_for_and_applied_in_order(seed: int) -> None:
    run_schedule(Random(seed))


@pytest.mark.long("a schedule that does damage is rare")
def test_under_many_schedules_rows_are_accounted_for_and_applied_in_order() -> None:
    run_schedules(1_000)


def change_bytes_in_doubt(lane: Lane) -> None:
    if lane.queue and lane.in_doubt and lane.queue[0].rows > 1:
        lane.queue.extendleft(reversed(lane.queue.popleft().split_in_half()))


def lose_batch(lane: Lane) -> None:
    if len(lane.queue) > 3:
        lane.queue.pop()


CONTROLS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "quarantine": ({"quarantine": 0.0}, "can no longer be applied"),
    "a whole quarantine": ({"quarantine": 50.0}, "can no longer be applied"),
    "the same bytes": ({"sabotage": change_bytes_in_doubt}, "other bytes were sent"),
    "counts": ({"trusts_counts": True}, "accepted, not applied"),
    "accounting": ({"sabotage": lose_batch}, "do not add up"),
}


@pytest.mark.parametrize("without", CONTROLS)
def test_without_protection_a_schedule_fails(without: str) -> None:
    control, message = CONTROLS[without]

    with pytest.raises((AssertionError, RuntimeError), match=message):
        run_schedules(200, **control)
