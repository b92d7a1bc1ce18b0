"""Lanes, a service that they send to, and a clock: a model that runs random schedules and checks every step.

The service keeps the last value of each key. A request may be applied at once, late or not at all, and answered in
every way that a lane must deal with. After each step the model checks that

    every row is accounted for          read = accepted + coalesced + failed + pending, and no row is settled twice
    the quarantine is kept              nothing is sent before a request of unknown outcome can no longer be applied
    the bytes stay the same in doubt    until the request has a conclusive answer

and in the end that each key has the value of its last accepted row.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

import attrs

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
from svc_async.batch.packing.batch import Batch, Limits, OperationFrame, PackedRows
from svc_async.batch.packing.packer import Packer
from svc_async.batch.packing.positions import Positions
from svc_async.batch.recovery import RecoveryPolicy
from svc_async.batch.report import Accounting
from svc_async.counts import Counts
from svc_async.errors import ErrorDetail, Sent, TransportError, UnexpectedAnswer
from svc_async.users.packed import PLAIN, TextUsers
from svc_async.wire.outcome import RetryBudget, api_error

__all__ = ["LaneModel", "run_schedule", "run_schedules", "seal_rows"]

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_NO = ErrorDetail(code="NO", message="no")

Row = tuple[int, int, int]
"""Position, key and value."""


@attrs.frozen
class _Group:
    overhead: int = 2

    def build_frame(self, _: datetime) -> OperationFrame:
        return OperationFrame("[", "]")

    def to_plain(self) -> None:
        return None


def seal_rows(rows: Sequence[Row], limits: Limits) -> Sequence[Batch]:
    """Pack rows into batches, as the packer of a lane does."""
    packer = Packer(limits)
    users = [json.dumps([key, value], separators=(",", ":")) for _, key, value in rows]
    packed = PackedRows(
        _Group(),
        PLAIN,
        TextUsers.pack([key for _, key, _ in rows], users),
        Positions.pack([position for position, _, _ in rows]),
    )
    return [*packer.feed(packed, _NOW), *packer.flush(_NOW)]


@attrs.define(eq=False)
class _Sender:
    """A lane, and what the model knows about its requests.

    Attributes:
        command: what the lane commanded last; None if nothing is due.
        body: the body that was sent last, at `sent_at`.
        due: when the time to wait is over.
        doubtful: the bytes that were sent without a conclusive answer.
        blocked_until: until when a request of unknown outcome may be applied.
        later: batches that are sealed when what an earlier run left is settled.
    """

    lane: Lane
    command: Command | None = None
    body: bytes = b""
    sent_at: float = 0.0
    due: float = 0.0
    doubtful: bytes | None = None
    blocked_until: float = 0.0
    later: list[Batch] = attrs.field(factory=list)


@attrs.define
class LaneModel:
    """Lanes under a random schedule.

    Attributes:
        late: seconds after which a request of unknown outcome is not applied any more.
        quarantine: seconds for which the lanes wait; less than `late` for a control that must fail.
        sabotage: changes a lane after each event, for a control that must fail.
        trusts_counts: whether an answer with wrong counts is accepted, for a control that must fail.
        rows: every row that was read, by position.
        state: the value that the service keeps of each key.
        log: every event.
    """

    dice: Random
    late: float = 60.0
    quarantine: float = 60.0
    sabotage: Callable[[Lane], None] = lambda _: None
    trusts_counts: bool = False
    most_rows: int = 40
    rows: dict[int, Row] = attrs.field(factory=dict)
    state: dict[int, int] = attrs.field(factory=dict)
    log: list[str] = attrs.field(factory=list)
    _now: float = 0.0
    _effects: list[tuple[float, bytes]] = attrs.field(factory=list)
    _applied: set[tuple[int, int]] = attrs.field(factory=set)
    _settled: Counter[int] = attrs.field(factory=Counter)
    _accepted: set[int] = attrs.field(factory=set)
    _stopped: bool = False
    _calm: bool = False
    _accounting: Accounting = attrs.field(factory=Accounting)
    _senders: list[_Sender] = attrs.field(init=False)
    _policy: RecoveryPolicy = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._policy = RecoveryPolicy(
            limits=Limits(operations=4, size=10_000, per_operation=self.dice.choice([1, 1, 3])),
            retry_delays=(0.0, 5.0),
            quarantine=self.quarantine,
            redact=lambda reason, _: reason,
            budget=RetryBudget(most=self.dice.choice([3, 30]), earned=1.0),
        )
        self._senders = [self._create_sender(number) for number in range(self.dice.randint(1, 3))]

    def _create_sender(self, number: int) -> _Sender:
        return _Sender(Lane(number, (number,), self._policy))

    def run(self, steps: int) -> None:
        """Take random steps, then let every request succeed until nothing is left to do, and check the result."""
        for _ in range(steps):
            self._step()
        self._calm = True
        while self._step():
            pass
        self._pass_time(math.inf)
        self._check_end()

    def _step(self) -> bool:
        """Do one of the things that can happen next; return whether there is any."""
        choices = [*self._list_choices()]
        if choices:
            self.dice.choice(choices)()
        return bool(choices)

    def _list_choices(self) -> Iterator[Callable[[], None]]:
        for sender in self._senders:
            match sender.command:
                case Send() if sender.lane.phase in {Phase.READY, Phase.INTENDED}:
                    is_ready = sender.lane.phase is Phase.READY
                    yield partial(self._handle, sender, Intended()) if is_ready else partial(self._begin, sender)
                    if not self._calm:
                        yield partial(self._handle, sender, Failed(_NOT_SENT))
                case Send():
                    yield partial(self._answer, sender)
                case Release() | Settle():
                    yield partial(self._record, sender)
                case Pause():
                    yield self._elapse
            if not self._calm and not self._stopped and not sender.later:
                yield from self._list_disturbances(sender)

    def _list_disturbances(self, sender: _Sender) -> Iterator[Callable[[], None]]:
        if len(self.rows) < self.most_rows:
            yield partial(self._seal, sender)
        if not self.dice.randrange(20):
            yield self._stop
        if not self.dice.randrange(10) and isinstance(sender.command, Send | Pause):
            yield partial(self._restart, sender)

    def _seal(self, sender: _Sender) -> None:
        """Read rows of a few keys, some of them equal."""
        first = len(self.rows)
        keys = [10 * sender.lane.number + self.dice.randrange(4) for _ in range(self.dice.randint(1, 6))]
        rows = [(first + index, key, self.dice.randrange(3)) for index, key in enumerate(keys)]
        self.rows |= {row[0]: row for row in rows}
        batches = seal_rows(rows, self._policy.limits)
        superseded = sum(len(batch.superseded) for batch in batches)
        self._accounting.counts += Counts(read=len(rows), coalesced=superseded)
        self._handle(sender, Sealed(batches))

    def _handle(self, sender: _Sender, event: Event) -> None:
        lane = sender.lane
        self.log.append(f"{self._now:g} lane {lane.number} {lane.phase.name} {event}")
        command = lane.handle(event)
        if not isinstance(event, Sealed | Stopped | Intended | Written) or sender.command is None:
            sender.command = command
        self.sabotage(lane)
        if isinstance(command, Pause):
            sender.due = self._now + command.seconds
        elif isinstance(command, Stop):
            self._stop()
        elif lane.phase is Phase.IDLE and sender.later:
            later, sender.later = sender.later, []
            self._handle(sender, Sealed(later))
        self._check_step()

    def _begin(self, sender: _Sender) -> None:
        """Send the request that is intended."""
        body = b"".join(sender.lane.queue[0].write_body().blocks)
        assert self._now >= sender.blocked_until, "sent before a request of unknown outcome can no longer be applied"
        assert sender.doubtful in {None, body}, "other bytes were sent while the request was in doubt"
        sender.body, sender.sent_at = body, self._now
        self._handle(sender, Written())

    def _answer(self, sender: _Sender) -> None:
        names = ["ok"] if self._calm else _OUTCOME_NAMES
        event = _OUTCOMES[self.dice.choice(names)](self, sender)
        self._handle(sender, event)

    def _record(self, sender: _Sender) -> None:
        """Let the ledger record what the lane commanded."""
        if isinstance(sender.command, Release):
            assert sender.doubtful is None, "a request in doubt was released"
        if isinstance(sender.command, Settle):
            self._settle(sender, sender.command)
        self._handle(sender, Recorded())

    def _settle(self, sender: _Sender, settle: Settle) -> None:
        receipt = settle.receipt
        self._accounting.settle(receipt)
        self._settled.update([*receipt.positions, *settle.superseded, *(each.position for each in receipt.failures)])
        self._accepted.update(receipt.positions)
        assert max(self._settled.values()) == 1, "a row was settled twice"
        assert all(self.rows[position][1:] in self._applied for position in receipt.positions), "accepted, not applied"
        if settle.in_doubt is None:
            sender.doubtful = None

    def _elapse(self) -> None:
        """Let the lane that waits least go on."""
        sender = min((each for each in self._senders if isinstance(each.command, Pause)), key=lambda each: each.due)
        self._pass_time(max(self._now, sender.due))
        self._handle(sender, Elapsed())

    def _pass_time(self, until: float) -> None:
        self._now = until
        for _, body in sorted(effect for effect in self._effects if effect[0] <= until):
            self.apply(body)
        self._effects = [effect for effect in self._effects if effect[0] > until]

    def _stop(self) -> None:
        """End the job: lanes that wait are not asked again."""
        self._stopped = True
        for sender in self._senders:
            waits = sender.lane.phase is Phase.WAITING
            sender.lane.handle(Stopped())
            if waits or isinstance(sender.command, Stop):
                sender.command = None

    def _restart(self, sender: _Sender) -> None:
        """Kill the process of a lane, and resume what it left."""
        if sender.lane.phase is Phase.SENDING:
            self.lose(sender, applied_late=bool(self.dice.randrange(2)))
        old = sender.lane
        old.handle(Abandoned())
        batch, *sender.later = old.queue
        sender.lane, sender.command = Lane(old.number, old.members, self._policy), None
        in_doubt = sender.doubtful is not None
        pause = self.quarantine - (self._now - sender.sent_at) if in_doubt else 0.0
        resumed = Resumed(batch=batch, superseded=old.superseded_unsettled, in_doubt=in_doubt, pause=pause)
        self._handle(sender, resumed)

    def apply(self, body: bytes) -> None:
        """Apply a request."""
        users = _list_users(body)
        self.state.update(users)
        self._applied.update(users)

    def lose(self, sender: _Sender, *, applied_late: bool) -> None:
        """Lose the answer to a request."""
        sender.doubtful, sender.blocked_until = sender.body, sender.sent_at + self.late
        if applied_late and self._now < sender.blocked_until:
            self._effects.append((self.dice.uniform(self._now, sender.blocked_until), sender.body))

    def _check_step(self) -> None:
        lanes = [sender.lane for sender in self._senders]
        pending = count_pending(lanes) + sum(batch.rows for sender in self._senders for batch in sender.later)
        if not any(isinstance(sender.command, Settle) for sender in self._senders):  # it is not counted yet
            total = self._accounting.total(pending=pending, in_doubt=count_in_doubt(lanes))
            assert total.read == len(self.rows)
        for sender in self._senders:
            is_known = sender.doubtful is None or isinstance(sender.command, Settle)
            assert is_known or sender.lane.in_doubt, "a request in doubt was forgotten"

    def _check_end(self) -> None:
        if not self._stopped:
            assert self._settled.keys() == self.rows.keys(), "rows were lost"
        for key in {row[1] for row in self.rows.values()}:
            rows = [row for _, row in sorted(self.rows.items()) if row[1] == key]
            last = max((index for index, row in enumerate(rows) if row[0] in self._accepted), default=-1)
            if last >= 0:
                # Rows that came later and failed, or are pending, may have been applied.
                assert self.state[key] in {row[2] for row in rows[last:]}, "an older row was applied last"


def run_schedule(dice: Random, *, steps: int = 60, **control: Any) -> None:
    """Run one schedule; a failure lists its events."""
    model = LaneModel(dice, **control)
    try:
        model.run(steps)
    except (AssertionError, RuntimeError) as error:
        error.add_note("\n".join(model.log))
        raise


def run_schedules(count: int, *, first: int = 1, **control: Any) -> None:
    """Run the schedules of consecutive seeds."""
    for seed in range(first, first + count):
        run_schedule(Random(seed), **control)


def _list_users(body: bytes) -> list[tuple[int, int]]:
    return [(key, value) for operation in json.loads(body) for key, value in operation]


def _accept(model: LaneModel, sender: _Sender) -> Event:
    model.apply(sender.body)
    sender.doubtful = None
    return Answered(Verdict(), "r")


def _refuse_rows(model: LaneModel, sender: _Sender) -> Event:
    """Accept a request, apart from some rows that the answer names."""
    users = _list_users(sender.body)
    if _users_per_operation(sender) > 1:
        return _accept(model, sender)
    refused = _choose(model, range(len(users)))
    model.apply(_write_body([user for index, user in enumerate(users) if index not in refused]))
    sender.doubtful = None
    return Answered(Verdict(dict.fromkeys(refused, _NO)), "r")


def _leave_rows_out(model: LaneModel, sender: _Sender) -> Event:
    """Accept a request in an answer that does not mention some rows."""
    users = _list_users(sender.body)
    if _users_per_operation(sender) > 1:
        return _accept(model, sender)
    unknown = _choose(model, range(len(users)))
    model.apply(_write_body([user for index, user in enumerate(users) if index not in unknown]))
    sender.body = _write_body([user for index, user in enumerate(users) if index in unknown])
    model.lose(sender, applied_late=bool(model.dice.randrange(2)))
    return Answered(Verdict(unknown=sorted(unknown)), "r")


def _miscount(model: LaneModel, sender: _Sender) -> Event:
    """Apply a part of a request, and answer with its count; or give it the answer to another request."""
    users = _list_users(sender.body)
    is_foreign = bool(model.dice.randrange(2))
    if not is_foreign:
        model.apply(_write_body(users[: len(users) // 2]))
    if model.trusts_counts:
        return Answered(Verdict(), "r")
    model.lose(sender, applied_late=is_foreign)
    return Answered(None, "r")


def _lose(model: LaneModel, sender: _Sender) -> Event:
    applied = model.dice.choice(["at once", "late", "never"])
    if applied == "at once":
        model.apply(sender.body)
    model.lose(sender, applied_late=applied == "late")
    return Failed(model.dice.choice([_LOST, _UNREADABLE, api_error(status=504), api_error(status=500)]))


def _refuse_operations(model: LaneModel, sender: _Sender) -> Event:
    """Refuse a request and name some operations, perhaps one that it does not have."""
    sender.doubtful = None
    named = _choose(model, range(len(json.loads(sender.body)) + 1))
    return Failed(api_error(status=400, operation_errors=dict.fromkeys(named, (_NO,))))


def _refuse_whole(model: LaneModel, sender: _Sender) -> Event:
    sender.doubtful = None
    return Failed(api_error(status=model.dice.choice([400, 409, 413])))


def _turn_away(model: LaneModel, _: _Sender) -> Event:
    error = model.dice.choice([_TURNED_AWAY, api_error(status=429), _NOT_SENT])
    return Failed(error, model.dice.choice([None, 0.0, 7.0]))


def _refuse_for_good(_: LaneModel, __: _Sender) -> Event:
    return Failed(api_error(status=403))


def _users_per_operation(sender: _Sender) -> int:
    return max(block.per_operation for block in sender.lane.queue[0].operation_blocks)


def _write_body(users: Sequence[tuple[int, int]]) -> bytes:
    return json.dumps([[user] for user in users], separators=(",", ":")).encode()


def _choose(model: LaneModel, indexes: Sequence[int]) -> set[int]:
    """Return some of these indexes, at least one."""
    return {*model.dice.sample(indexes, model.dice.randint(1, len(indexes)))}


_LOST = TransportError("the connection broke", sent=Sent.MAYBE)
_NOT_SENT = TransportError("the connection was refused", sent=Sent.NO)
_TURNED_AWAY = api_error(status=503, headers={"retry-after": "7"})
_UNREADABLE = UnexpectedAnswer("no JSON", status=200)

_OUTCOMES: Mapping[str, Callable[[LaneModel, _Sender], Event]] = {
    "ok": _accept,
    "some rows refused": _refuse_rows,
    "some rows left out": _leave_rows_out,
    "wrong counts": _miscount,
    "lost": _lose,
    "operations refused": _refuse_operations,
    "refused as a whole": _refuse_whole,
    "turned away": _turn_away,
    "final": _refuse_for_good,
}
_WEIGHTS = {"ok": 8, "lost": 4, "turned away": 3, "wrong counts": 2}
_OUTCOME_NAMES = [name for name in _OUTCOMES for _ in range(_WEIGHTS.get(name, 1))]
