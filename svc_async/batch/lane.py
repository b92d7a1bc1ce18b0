"""Decides what one lane does next: a state machine without I/O.

A lane is a queue of batches with at most one request in flight, so that rows with one key are applied in input order.
What happens is passed to `handle` as an event. It returns the one command to execute next, or None; the next event is
the result of that command; `Intended` and `Written` precede it if a request was sent. Time passes between, so it needs
no clock. Any other event in a phase is a defect.

    phase        event        next
    IDLE         Sealed       Send
                 Resumed      Wait for the rest of the quarantine of an earlier run
                 Stopped      nothing any more
    READY        Intended     nothing: the intent is recorded
                 Failed       by the table below: the request was not sent
    INTENDED     Intended     nothing
                 Written      nothing: the request is in flight
                 Answered     as in SENDING: where tests replace the connections, nothing is written
                 Failed       by the table below: the request was not sent
    SENDING      Intended     nothing: the request is sent again, after the token was renewed
                 Written      nothing, likewise
                 Answered     Settle the rows that the answer mentions
                 Failed       by the table below, after Release if the request had no effect
    RECORDING    Recorded     the next batch, after Settle; what follows the failure, after Release
    WAITING      Elapsed      Send; or Settle, if the batch is given up
                 Stopped      nothing any more
    not IDLE     Sealed       nothing: the batches are queued
                 Stopped      nothing: a request that is ready or in flight is still answered, and is the last one
                 Abandoned    nothing: nobody executes the last command, so its event never comes

What follows a failure:

    REPEAT       turned away, connection refused                   the same bytes again, after a delay
    WAIT         429                                               the same bytes again, as often as it takes
    QUARANTINE   no answer, that of a gateway, an unreadable one,  the same bytes again, after a delay and a quarantine:
                 wrong counts, rows not mentioned                  the request may be applied late, and must not undo
                                                                   newer rows
    ISOLATE      some operations are named                         the others again, the named ones with one user each
    HALVE        refused as a whole                                each half by itself, down to the row
    STOP         401, 403, 404                                     nothing more; the rows are pending

When the delays of a batch are used up, the job stops if the service has accepted no other request since the attempt
before: it is out of order. Otherwise, or if its answers are odd, the batch is given up: its rows have failed.

A batch is *in doubt* when an attempt to send it had no conclusive answer. Its bytes stay the same until it is settled,
given up, or refused when the quarantine is over.
"""

import enum
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar

import attrs

from svc_async.batch.destination import Verdict
from svc_async.batch.packing.batch import Batch
from svc_async.batch.recovery import (
    CountMismatch,
    Recovery,
    RecoveryPolicy,
    Unacknowledged,
    add_missing_fields,
    find_refused_operations,
    mark_as_repeat,
    recovery_for,
    request_id_of,
    says_nothing_of_rows,
    summarize,
)
from svc_async.batch.report import Failure, Receipt
from svc_async.errors import ErrorDetail, SvcError
from svc_async.wire.outcome import may_have_worked

__all__ = [
    "Abandoned",
    "Answered",
    "Command",
    "Elapsed",
    "Event",
    "Failed",
    "Intended",
    "Lane",
    "Pause",
    "Phase",
    "Recorded",
    "Release",
    "Resumed",
    "Sealed",
    "Send",
    "Settle",
    "Stop",
    "Stopped",
    "Written",
    "count_in_doubt",
    "count_pending",
]


@attrs.frozen
class Sealed:
    """Batches were sealed, newer than all before them."""

    batches: Sequence[Batch]


@attrs.frozen(kw_only=True)
class Resumed:
    """An earlier run left a batch unsettled.

    Attributes:
        superseded: positions of rows that are settled with it.
        in_doubt: whether it was sent and may have been applied.
        pause: seconds before it may be sent again.
    """

    batch: Batch
    superseded: "array[int]"
    in_doubt: bool
    pause: float


@attrs.frozen
class Recorded:
    """The ledger has recorded what it was asked to."""


@attrs.frozen
class Intended:
    """The request has its turn, and its intent is recorded next."""


@attrs.frozen
class Written:
    """The bytes of the request are written next; until then it certainly was not sent."""


@attrs.frozen
class Answered:
    """The request succeeded.

    Attributes:
        verdict: what the answer means for the rows; None if it counts other rows than were sent.
        request_id: the server-assigned request id, if any.
    """

    verdict: Verdict | None
    request_id: str | None = None


@attrs.frozen
class Failed:
    """The request failed.

    Attributes:
        error: the failure.
        pause: seconds that the service asks to wait, if it does.
    """

    error: SvcError
    pause: float | None = None


@attrs.frozen
class Elapsed:
    """The time to wait is over."""


@attrs.frozen
class Stopped:
    """The job ends; a request in flight is still answered."""


@attrs.frozen
class Abandoned:
    """Nobody executes the lane's command any more, because of a cancellation or a defect."""


@attrs.frozen
class Send:
    """Send the first batch: wait for its turn, record the intent, and then write the request."""


@attrs.frozen
class Release:
    """Record that the request had no effect."""


@attrs.frozen(kw_only=True)
class Settle:
    """Record the result of rows.

    Attributes:
        receipt: the rows.
        superseded: positions of rows that are settled with them, without having been sent.
        in_doubt: the rest of the batch, which the answer does not mention.
    """

    receipt: Receipt
    superseded: "array[int]"
    in_doubt: Batch | None = None


@attrs.frozen
class Pause:
    """Let time pass.

    Attributes:
        seconds: how much.
        after: the failure after which the first batch is sent again; None if an earlier run has sent it.
        gives_up: whether it is given up instead.
    """

    seconds: float
    after: SvcError | None = attrs.field(default=None, eq=False)
    gives_up: bool = attrs.field(default=False, eq=False)


@attrs.frozen
class Stop:
    """End the job.

    Attributes:
        cause: the failure.
    """

    cause: SvcError


Event = Sealed | Resumed | Recorded | Intended | Written | Answered | Failed | Elapsed | Stopped | Abandoned
Command = Send | Release | Settle | Pause | Stop


_Step = Callable[[], Command | None]


class Phase(enum.Enum):
    """What a lane is doing."""

    IDLE = enum.auto()
    """Nothing: its queue is empty."""
    READY = enum.auto()
    """A request waits for its turn at the rate limit."""
    INTENDED = enum.auto()
    """A request that has its turn waits for the record of its intent or for a connection."""
    SENDING = enum.auto()
    """A request is in flight."""
    RECORDING = enum.auto()
    """The ledger records a release or a settlement."""
    WAITING = enum.auto()
    """A delay or a quarantine passes."""
    STOPPED = enum.auto()
    """Nothing: the job ends, and what is in its queue stays pending."""

    @property
    def is_busy(self) -> bool:
        """Whether an event is due."""
        return self not in {Phase.IDLE, Phase.STOPPED}


@attrs.define(eq=False)
class Lane:
    """A queue of batches with at most one request in flight.

    Attributes:
        number: identifies it.
        members: the lanes whose rows it sends: itself, or those that share its requests at the end of the source.
        policy: the rules.
        phase: what it is doing.
        queue: its batches; the first is being worked on.
        in_doubt: whether the first batch was sent without a conclusive answer.
        attempts: how often the first batch was to be sent.
        superseded_unsettled: positions of superseded rows that are settled with the next answer.
    """

    number: int
    members: Sequence[int]
    policy: RecoveryPolicy
    phase: Phase = Phase.IDLE
    queue: deque[Batch] = attrs.field(factory=deque[Batch])
    in_doubt: bool = False
    attempts: int = 0
    superseded_unsettled: "array[int]" = attrs.field(factory=lambda: array("q"))
    _stopping: bool = attrs.field(init=False, default=False)
    _delays: Iterator[float] = attrs.field(init=False, repr=False)
    _successes: int = attrs.field(init=False, default=0)
    _next_step: _Step = attrs.field(init=False, repr=False)

    def handle(self, event: Event) -> Command | None:
        """Return the command that follows an event, if any.

        Raises:
            RuntimeError: the event cannot happen in this phase.
        """
        transition = self.TRANSITIONS.get((self.phase, type(event)))
        if transition is None:
            raise RuntimeError(f"{type(event).__name__} cannot happen to a lane that is {self.phase.name}")
        return transition(self, event)

    def _enqueue(self, event: Sealed) -> Command | None:
        self.queue.extend(event.batches)
        return self._send_first() if self.phase is Phase.IDLE else None

    def _resume(self, event: Resumed) -> Command | None:
        self.queue.append(event.batch)
        self.in_doubt, self.superseded_unsettled = event.in_doubt, event.superseded
        return self._wait(event.pause, self._send_first)

    def _continue(self, _: Recorded | Elapsed) -> Command | None:
        step, self._next_step = self._next_step, self._send_first  # it may hold a failure, and so the body
        return step()

    def _stop(self, _: Stopped) -> None:
        self._stopping = True
        if self.phase in {Phase.IDLE, Phase.WAITING}:
            self.phase = Phase.STOPPED

    def _abandon(self, _: Abandoned) -> None:
        self.in_doubt = self.in_doubt or self.phase is Phase.SENDING
        self.phase = Phase.STOPPED

    def _send_first(self) -> Command | None:
        """Begin with the first batch of the queue, or with nothing if there is none."""
        self.attempts, self._delays = 0, iter(self.policy.retry_delays)
        self._successes = self.policy.budget.successes
        if self.queue:
            return self._send()
        self.phase = Phase.STOPPED if self._stopping else Phase.IDLE
        return None

    def _send(self) -> Command | None:
        if self._stopping:
            self.phase = Phase.STOPPED
            return None
        self.attempts += 1
        self.phase = Phase.READY
        return Send()

    def _intend(self, _: Intended) -> None:
        self.phase = Phase.INTENDED

    def _keep(self, _: Intended) -> None:
        """Stay in the phase: the token was renewed, and the request is sent again."""

    def _write(self, _: Written) -> None:
        self.phase = Phase.SENDING

    def _record(self, command: Command, then: _Step) -> Command:
        self.phase, self._next_step = Phase.RECORDING, then
        return command

    def _wait(
        self, seconds: float, then: _Step, *, after: SvcError | None = None, gives_up: bool = False
    ) -> Command | None:
        if self._stopping:  # what follows the wait is left to a later run
            self.phase = Phase.STOPPED
            return None
        if seconds <= 0:
            return then()
        self.phase, self._next_step = Phase.WAITING, then
        return Pause(seconds, after, gives_up)

    def _evaluate(self, event: Answered) -> Command | None:
        """Settle what the answer mentions, if it counts what was sent."""
        verdict, batch = event.verdict, self.queue[0]
        if verdict is None:
            self.in_doubt = True
            return self._recover(Failed(CountMismatch("the service counted other rows than were sent")))
        refused = verdict.refused
        if self.in_doubt:
            refused = {row: mark_as_repeat(reason) for row, reason in refused.items()}
        if verdict.unknown:
            return self._settle_mentioned(verdict.unknown, refused, event.request_id)
        self._replace_first([])
        return self._settle(batch, refused, event.request_id, self._send_first)

    def _settle_mentioned(
        self, unknown: Collection[int], refused: Mapping[int, ErrorDetail], request_id: str | None
    ) -> Command | None:
        """Settle a part of the first batch; the outcome of the rest is unknown."""
        batch, left_out = self.queue[0], frozenset(unknown)
        rest, mentioned = batch.split(left_out)
        self._replace_first([rest])
        self.in_doubt = True
        failure = Failed(Unacknowledged(f"the answer does not mention {rest.rows} rows"))
        if not mentioned.rows:
            return self._recover(failure)
        indexes = [index for index in range(batch.rows) if index not in left_out]
        refused = {place: refused[index] for place, index in enumerate(indexes) if index in refused}
        return self._settle(mentioned, refused, request_id, partial(self._recover, failure), in_doubt=rest)

    def _settle(
        self,
        batch: Batch,
        refused: Mapping[int, ErrorDetail],
        request_id: str | None,
        then: _Step,
        *,
        in_doubt: Batch | None = None,
    ) -> Command:
        names = self.policy.name_rows(batch) if refused else ()
        receipt = _write_receipt(batch, refused, names, request_id=request_id, attempts=self.attempts)
        if receipt.accepted:
            self.policy.budget.earn()
        superseded, self.superseded_unsettled = self.superseded_unsettled, array("q")
        return self._record(Settle(receipt=receipt, superseded=superseded, in_doubt=in_doubt), then)

    def _fail(self, event: Failed) -> Command | None:
        # The refusal of a repeat says nothing about the attempt before it.
        self.in_doubt = self.in_doubt or may_have_worked(event.error)
        return self._recover(event) if self.in_doubt else self._record(Release(), partial(self._recover, event))

    def _recover(self, failure: Failed) -> Command | None:
        return self._RECOVERY[recovery_for(failure.error)](self, failure)

    def _send_again(self, failure: Failed) -> Command | None:
        """Send the same bytes after the next delay, and after a quarantine if newer rows could be undone.

        When no delay is left, stop the job if the service has accepted nothing since the attempt before; otherwise give
        up the batch.
        """
        pause = self.policy.quarantine if may_have_worked(failure.error) else 0.0
        delay = next(self._delays, None)
        if delay is None:
            if says_nothing_of_rows(failure.error) and self.policy.budget.successes == self._successes:
                return self._stop_job(failure)
            return self._wait(pause, partial(self._give_up, failure), gives_up=True)
        self._successes = self.policy.budget.successes
        wait = max(delay, pause, failure.pause or 0.0)
        if not self._stopping:
            self.policy.on_repeat(failure.error, wait)
        return self._wait(wait, partial(self._repeat, failure), after=failure.error)

    def _repeat(self, failure: Failed) -> Command | None:
        return self._send() if self.policy.budget.spend() else self._stop_job(failure)

    def _give_up(self, failure: Failed) -> Command:
        batch, error = self.queue[0], failure.error
        doubt = "; one of them may have worked" if self.in_doubt else ""
        reason = ErrorDetail(
            code="GAVE_UP", message=f"gave up after {self.attempts} attempts: {summarize(error)}{doubt}"
        )
        self._replace_first([])
        return self._settle(batch, dict.fromkeys(range(batch.rows), reason), request_id_of(error), self._send_first)

    def _isolate(self, failure: Failed) -> Command | None:
        """Send the other operations again, and the refused ones with one user each; a single refused row has failed."""
        batch, policy = self.queue[0], self.policy
        reasons = find_refused_operations(failure.error, batch)
        if not reasons:
            return self._halve(failure)
        named = sorted(reasons)
        refused, others = batch.split(named)
        single = [index for index, operation in enumerate(named) if batch.count_users(operation) == 1]
        failed, suspects = refused.split(single)
        written = failed.write_users() if single else ()
        final = [policy.redact(reasons[named[index]], user) for index, user in zip(single, written, strict=True)]
        final = [*map(add_missing_fields, final)]
        if self.in_doubt:
            final = [*map(mark_as_repeat, final)]
        self._replace_first([others, *suspects.one_user_each(policy.limits)])
        if not single:
            return self._send_first()
        return self._settle(failed, dict(enumerate(final)), request_id_of(failure.error), self._send_first)

    def _halve(self, failure: Failed) -> Command | None:
        batch = self.queue[0]
        if batch.rows == 1:
            return self._isolate(failure)
        if not self.policy.budget.spend():
            return self._stop_job(failure)
        self._replace_first(batch.split_in_half())
        return self._send_first()

    def _replace_first(self, batches: Sequence[Batch]) -> None:
        self.superseded_unsettled.extend(self.queue.popleft().superseded)
        self.in_doubt = False
        self.queue.extendleft(batch for batch in reversed(batches) if batch.rows)

    def _stop_job(self, failure: Failed) -> Command:
        self.phase = Phase.STOPPED
        return Stop(failure.error)

    # fmt: off
    # Each step takes the lane and the failure.
    _RECOVERY: ClassVar[Mapping[Recovery, Callable[..., Command | None]]] = {
        Recovery.REPEAT:     _send_again,
        Recovery.WAIT:       _repeat,  # the governor has closed the limit, and keeps the request until it opens
        Recovery.QUARANTINE: _send_again,
        Recovery.ISOLATE:    _isolate,
        Recovery.HALVE:      _halve,
        Recovery.STOP:       _stop_job,
    }

    # Each transition takes the lane and the event of its row.
    TRANSITIONS: ClassVar[Mapping[tuple[Phase, type[Event]], Callable[..., Command | None]]] = {
        (Phase.IDLE,      Sealed):    _enqueue,
        (Phase.IDLE,      Resumed):   _resume,
        (Phase.IDLE,      Stopped):   _stop,
        (Phase.READY,     Intended):  _intend,
        (Phase.READY,     Failed):    _recover,
        (Phase.READY,     Sealed):    _enqueue,
        (Phase.READY,     Stopped):   _stop,
        (Phase.READY,     Abandoned): _abandon,
        (Phase.INTENDED,  Intended):  _keep,
        (Phase.INTENDED,  Written):   _write,
        (Phase.INTENDED,  Answered):  _evaluate,
        (Phase.INTENDED,  Failed):    _recover,
        (Phase.INTENDED,  Sealed):    _enqueue,
        (Phase.INTENDED,  Stopped):   _stop,
        (Phase.INTENDED,  Abandoned): _abandon,
        (Phase.SENDING,   Intended):  _keep,
        (Phase.SENDING,   Written):   _write,
        (Phase.SENDING,   Answered):  _evaluate,
        (Phase.SENDING,   Failed):    _fail,
        (Phase.SENDING,   Sealed):    _enqueue,
        (Phase.SENDING,   Stopped):   _stop,
        (Phase.SENDING,   Abandoned): _abandon,
        (Phase.RECORDING, Recorded):  _continue,
        (Phase.RECORDING, Sealed):    _enqueue,
        (Phase.RECORDING, Stopped):   _stop,
        (Phase.RECORDING, Abandoned): _abandon,
        (Phase.WAITING,   Elapsed):   _continue,
        (Phase.WAITING,   Sealed):    _enqueue,
        (Phase.WAITING,   Stopped):   _stop,
        (Phase.WAITING,   Abandoned): _abandon,
        (Phase.STOPPED,   Sealed):    _enqueue,
        (Phase.STOPPED,   Stopped):   _stop,
        (Phase.STOPPED,   Abandoned): _abandon,
    }
    # fmt: on


def count_pending(lanes: Iterable[Lane]) -> int:
    """Return how many rows of the lanes are not settled."""
    return sum(batch.rows for lane in lanes for batch in lane.queue)


def count_in_doubt(lanes: Iterable[Lane]) -> int:
    """Return how many of these rows were sent without a conclusive answer, apart from requests in flight."""
    return sum(lane.queue[0].rows for lane in lanes if lane.in_doubt and lane.phase is not Phase.SENDING)


def _write_receipt(
    batch: Batch,
    refused: Mapping[int, ErrorDetail],
    names: Sequence[str | None],
    *,
    request_id: str | None,
    attempts: int,
) -> Receipt:
    """Return the receipt of a batch, given its refused rows and what failures call all of its rows, if anything."""
    positions = batch.positions
    failures: Sequence[Failure] = ()
    accepted: Sequence[int] = positions
    if refused:
        listed, named = list(positions), names or [None] * batch.rows
        failures = [
            Failure(listed[index], reason.message, str(reason.code), reason.parameter, id=named[index])
            for index, reason in sorted(refused.items())
        ]
        accepted = [position for index, position in enumerate(listed) if index not in refused]
    return Receipt(
        rows=batch.rows,
        accepted=batch.rows - len(failures),
        failures=failures,
        request_id=request_id,
        attempts=attempts,
        positions=accepted,
        settled=positions,
    )
