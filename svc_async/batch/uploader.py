"""Drives a job: rows are read, packed, sent many requests at a time, verified and accounted for to the last one.

    source → Slice → Partitioner → Packer of a lane → Batch → queue of the lane → request → verdict → receipt

A row falls into a lane by its key, and a lane has one request under way, so rows of one key arrive in their order.
What becomes of a request decides what happens next:

    accepted        the answer counts what was sent                the rows are settled
    repeat          turned away, refused connection, wrong counts  the same bytes again, after a delay
    rate limited    429                                            likewise, as often as it takes
    unknown         no answer, or none that can be read            the lane is held first: the request may still be
                                                                   applied late, and must not undo newer rows
    left out        the answer does not speak of some rows         unknown, for these rows; the others are settled
    take out        some operations are named                      the others go again, the named ones user by user
    halve           refused as a whole                             each half by itself, down to the row
    stop            401, 403, 404                                  no further request; the rows are pending

Nobody but the uploader repeats a request, and a budget for the whole job keeps an outage from becoming a storm.

With a journal, every sending is written down before and every settlement after it, so that a job which was killed can
be taken up again; the journal's module says how.
"""

import asyncio
import itertools
from array import array
from collections import deque
from collections.abc import (
    AsyncGenerator,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import attrs

from svc_async.batch.journal.journal import Journal
from svc_async.batch.journal.resume import SettledRows, SourceDigest, SourceReplay, digest_of
from svc_async.batch.ledger import Intent, LaneState, Settlement, Tally
from svc_async.batch.packing.batch import Batch
from svc_async.batch.packing.limits import Limits
from svc_async.batch.packing.operations import OperationGroup
from svc_async.batch.packing.packer import Packer
from svc_async.batch.packing.partitioner import Partitioner
from svc_async.batch.recovery import (
    CountsDiffer,
    LeftOut,
    Remedy,
    after_doubt,
    coded,
    first_reason,
    named_operations,
    remedy_of,
    request_id_of,
    summary,
)
from svc_async.batch.report import Failure, Receipt, Report
from svc_async.batch.sender import Sender
from svc_async.batch.settings import BatchSettings, JobSizes, Observers
from svc_async.batch.source import RowSource, Slice, read_spool, spool
from svc_async.engine.retry import RetryBudget
from svc_async.errors import (
    ApiError,
    BatchError,
    ErrorDetail,
    InvalidArgument,
    RateLimited,
    Sent,
    SvcError,
    UnexpectedAnswer,
)
from svc_async.wire.route import Request

__all__ = [
    "Destination",
    "Job",
    "RowSource",
    "Slice",
    "Verdict",
]

T = TypeVar("T")

_PARTS_A_PROGRESS = 16
# Unspecified: how long a 429 without a reset lasts; the limit is counted by the minute (contract CAU-03).
_WINDOW = 60.0


@attrs.frozen
class Verdict:
    """What an answer tells of the rows of a batch, by their index in it; rows that are not named are accepted.

    Attributes:
        refused: the rows that were refused.
        unknown: the rows that it does not speak of.
    """

    refused: Mapping[int, ErrorDetail] = attrs.field(factory=dict)
    unknown: Collection[int] = ()


class Destination(Protocol[T]):
    """Where batches go, and what their answers mean."""

    @property
    def name(self) -> str:
        """What tells it from others; it is kept in journals."""
        ...

    @property
    def limits(self) -> Limits:
        """What one request may hold."""
        ...

    def parse_group(self, plain: Any) -> OperationGroup:
        """Make a group again of its plain values."""
        ...

    def build_request(self, batch: Batch) -> Request[T]:
        """Make the request that carries a batch."""
        ...

    def evaluate(self, answer: T, batch: Batch) -> Verdict | None:
        """Say what the answer tells of the rows; None if it counts other rows than were sent."""
        ...

    def redact(self, reason: ErrorDetail, row: str) -> ErrorDetail:
        """Blot out what the service's words repeat of a row that must not be told; the row is in JSON."""
        ...


@attrs.define(eq=False)
class _Lane:
    """Batches that must arrive one after the other; the first of the queue is being worked on.

    Attributes:
        busy: somebody works on the queue.
        held: it waits for its time.
        in_flight: its first batch is being sent.
        in_doubt: its first batch was sent and may have been applied.
        number: its name in the journal.
        packers: the packers whose rows it sends.
        pause: seconds before its first batch may be sent.
        settled_up_to: the highest position that it has sent, or that an earlier run has.
        unsettled: positions up to there that an earlier run has left to others.
        superseded_unsettled: positions of rows that gave way to equal ones, and are settled with the next answer.
        intent: what the journal holds of its first batch.
    """

    number: int
    packers: Sequence[int]
    pause: float = 0.0
    settled_up_to: int = -1
    unsettled: "array[int]" = attrs.field(factory=lambda: array("q"))
    superseded_unsettled: "array[int]" = attrs.field(factory=lambda: array("q"))
    intent: Intent | None = None
    queue: deque[Batch] = attrs.field(factory=deque[Batch])
    busy: bool = False
    held: bool = False
    in_flight: bool = False
    in_doubt: bool = False
    task: "asyncio.Task[None] | None" = None


class Job(Generic[T]):
    """One job, from its source to its report; `run` it once."""

    def __init__(
        self,
        source: RowSource,
        *,
        sender: Sender,
        destination: Destination[T],
        settings: BatchSettings,
        observers: Observers,
        journal: str | Path | None = None,
        sizes: JobSizes | None = None,
    ) -> None:
        self._source = source
        self._sender = sender
        self._destination = destination
        self._limits = destination.limits
        self._settings = settings
        self._sizes = sizes or JobSizes()
        self._observers = observers
        self._clock = sender.clock
        self._tally = Tally(observers.on_failure)
        self._budget = RetryBudget(most=self._sizes.repeats, earned=1.0)
        self._path = journal
        self._journal: Journal | None = None
        self._settled = SettledRows()
        self._reading = SourceDigest()
        self._doubts: Sequence[_Lane] = ()
        self._finished: Report | None = None
        self._keyed = settings.ordered or journal is not None
        self._lay_out(settings.concurrency)
        self._changed = asyncio.Event()
        self._cause: Exception | None = None
        self._stopped = False
        self._started = self._clock.monotonic()

    @property
    def report(self) -> Report:
        """What has become of the rows so far; it can be asked for at any time, and after a cancellation."""
        return self._finished or self._tally.report(pending=self._pending, in_doubt=self._in_doubt)

    async def run(self) -> Report:
        """Do the job.

        Raises:
            BatchError: the job could not be finished; it carries the report, and the reason is its cause.
            InvalidArgument: the journal cannot be used, or belongs to another job or source.
        """
        self._started = self._clock.monotonic()
        if self._path is None:
            return await self._run()
        settings = self._settings
        about = {"destination": self._destination.name, "ordered": settings.ordered}
        async with await Journal.open(
            self._path, about=about, lanes=settings.concurrency, now=self._clock.now
        ) as journal:
            self._finished = journal.finished
            if self._finished is None:
                self._journal = journal
                await self._take_up(journal)
                self._finished = await self._run()
                await asyncio.to_thread(self._aside.unlink, missing_ok=True)
            return self._finished

    @property
    def _aside(self) -> Path:
        """Where the rows are put that can be read only once."""
        return Path(f"{self._path}.rows")

    def _lay_out(self, lanes: int) -> None:
        """Make the lanes and the packers of as many requests under way."""
        self._lanes = [_Lane(index, (index,)) for index in range(lanes)]
        repeats = self._settings.ordered or self._limits.distinct
        self._packers = [Packer(self._limits, repeats=repeats) for _ in range(lanes if self._keyed else 1)]
        self._partitioner = Partitioner(self._packers, flush_at=self._sizes.partition_rows)
        self._lines = itertools.count(lanes)

    async def _run(self) -> Report:
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._guard(self._feed(tasks))
            await self._guard(self._conclude())
        except asyncio.CancelledError:
            with suppress(Exception):  # the cancellation wins
                self._tell()
            raise
        if self._cause is not None:
            raise self._failure(self._cause) from self._cause
        return self.report

    def _failure(self, cause: Exception) -> BatchError:
        report = self.report
        counts = f"of {report.read} rows {report.accepted} were accepted and {report.pending} are pending"
        return BatchError(f"the job ended early: {summary(cause)}; {counts}", report=report)

    async def _conclude(self) -> None:
        self._tell()
        if self._journal is not None and self._cause is None:
            await self._journal.finish(self.report)

    async def _take_up(self, journal: Journal) -> None:
        """Find out what earlier runs have left, and prove that the source is the same; nothing is sent."""
        self._lay_out(journal.lanes)
        self._tally.take_up(journal.totals)
        try:
            if not self._source.replayable:
                if not journal.aside:
                    await spool(self._source, self._aside)
                    await journal.put_aside()
                self._source = read_spool(self._aside, self._destination.parse_group)
            if journal.checkpoint.rows:
                again = SourceReplay(journal, self._limits)
                await again.read(self._source)
                self._settled.lane_of = again.lane_of
                self._doubts = [self._doubt(intent, again.batch(intent)) for intent in journal.intents]
        except Exception as error:
            if isinstance(error, InvalidArgument) and error.parameter == "journal":
                raise
            raise self._failure(error) from error

    def _doubt(self, intent: Intent, batch: Batch) -> _Lane:
        """Make the lane that sends again what an earlier run has left in doubt."""
        if digest_of(self._destination.build_request(batch)) != intent.digest:
            raise InvalidArgument("journal", f"{self._path} holds requests that this version builds in another way")
        lane = _Lane(intent.sender, intent.after.lanes, settled_up_to=intent.after.settled_up_to)
        lane.unsettled, lane.superseded_unsettled, lane.intent = intent.after.unsettled, intent.superseded, intent
        lane.queue.append(batch)
        if intent.sent_at is not None:
            lane.in_doubt = True
            lane.pause = self._quarantine - max(0.0, self._clock.now().timestamp() - intent.sent_at)
        return lane

    async def _settle_doubts(self, journal: Journal, tasks: asyncio.TaskGroup) -> None:
        """Send again what was in doubt, before anything that is newer; then go on from there."""
        self._lanes += self._doubts
        self._tally.coalesced += sum(len(lane.superseded_unsettled) for lane in self._doubts)
        self._tally.read += sum(len(lane.superseded_unsettled) + lane.queue[0].rows for lane in self._doubts)
        for lane in self._doubts:
            self._dispatch(lane, [], tasks)
        while any(lane.busy for lane in self._doubts):
            await self._change()
        if not self._stopped:
            await self._settled.load(journal)
            for lane in self._lanes:
                lane.settled_up_to = self._settled.settled_up_to.get(lane.number, -1)

    async def _feed(self, tasks: asyncio.TaskGroup) -> None:
        """Read the source to its end and hand its rows to the lanes."""
        if self._journal is not None and self._journal.checkpoint.rows:
            await self._settle_doubts(self._journal, tasks)
        async with aclosing(self._source.read()) as slices:
            await self._feed_from(slices, tasks)

    async def _feed_from(self, slices: AsyncGenerator[Slice, None], tasks: asyncio.TaskGroup) -> None:
        for number in itertools.count(1):
            if self._stopped:
                return
            try:
                part = await anext(slices)
            except StopAsyncIteration:
                self._reading.ended = True
                break
            except Exception as error:  # noqa: BLE001 - whatever a source may raise; what came before is finished
                self._cause = error
                break
            is_time = self._take(part)
            if number % _PARTS_A_PROGRESS == 0:
                self._tell()
            await asyncio.sleep(0)
            if is_time:
                await self._spread(tasks)
                await self._make_room(tasks)
        await self._spread(tasks)
        await self._send_tails(tasks)

    def _take(self, part: Slice) -> bool:
        """Take rows over; answers whether it is time to spread them over the lanes."""
        if self._journal is not None:
            part = self._unsettled(part)
        self._tally.read += part.count
        is_time = self._partitioner.add(part.rows)
        self._tally.fail(part.failures)
        return is_time

    def _unsettled(self, part: Slice) -> Slice:
        """Give the rows that earlier runs have not settled."""
        self._reading.follow(part.count, part.rows, part.failures)
        limits, rows = self._limits, part.rows
        failures = [*part.failures]
        # Told here, so that it is told again: a row of a lane counts as settled when the lane is beyond it.
        if not limits.allow_row(rows.group, rows.template, max(rows.users, key=len, default="")):
            fits = [limits.allow_row(rows.group, rows.template, user) for user in rows.users]
            failures += [_too_large(rows.positions[place]) for place, fitting in enumerate(fits) if not fitting]
            rows = rows.select([place for place, fitting in enumerate(fits) if fitting])
        self._reading.invalid_rows += len(failures)
        places = self._settled.open_places(rows, len(self._packers))
        if places is None:
            return Slice(part.count, rows, failures)
        return Slice(part.count - len(rows.keys) + len(places), rows.select(places), failures)

    async def _spread(self, tasks: asyncio.TaskGroup) -> None:
        for index, batches in self._partitioner.flush(self._clock.now()):
            self._dispatch(self._lane(index), batches, tasks)
            self._note(self._packers[index])
            if batches and not self._settled.in_hand:
                await asyncio.sleep(0)  # it is sent before the next is built: fewer bodies stand in memory
        self._settled.forget()

    def _lane(self, packer: int) -> _Lane:
        """Give the lane that a packer belongs to; without order there is one packer, and any lane will do."""
        if self._keyed:
            return self._lanes[packer]
        return min(self._lanes, key=lambda lane: len(lane.queue))

    def _note(self, packer: Packer) -> None:
        self._tally.coalesced += packer.coalesced
        too_large, packer.coalesced, packer.too_large = packer.too_large, 0, []
        self._tally.fail(list(map(_too_large, too_large)))

    def _dispatch(self, lane: _Lane, batches: Iterable[Batch], tasks: asyncio.TaskGroup) -> None:
        lane.queue.extend(batches)
        if lane.queue and not lane.busy and not self._stopped:
            lane.busy = True
            lane.task = tasks.create_task(self._guard(self._work_off(lane)))

    async def _make_room(self, tasks: asyncio.TaskGroup) -> None:
        """Wait until more may be read: drafts take up to half of the memory, sealed batches the rest."""
        while not self._stopped:
            while self._drafted > self._sizes.memory / 2:
                self._seal_fullest(tasks)
            sealed = sum(batch.size for lane in self._lanes for batch in lane.queue)
            waiting = sum(len(lane.queue) for lane in self._lanes if not lane.held)
            if sealed <= self._sizes.memory / 2 and waiting <= 2 * self._settings.concurrency:
                return
            await self._change()

    @property
    def _drafted(self) -> int:
        return sum(packer.payload_size for packer in self._packers)

    def _seal_fullest(self, tasks: asyncio.TaskGroup) -> None:
        index, packer = max(enumerate(self._packers), key=lambda each: each[1].payload_size)
        self._dispatch(self._lane(index), packer.flush(self._clock.now()), tasks)
        self._note(packer)

    async def _send_tails(self, tasks: asyncio.TaskGroup) -> None:
        """Send what the drafts still hold; lanes whose requests have come back share requests.

        A lane that is held keeps its tail back, since rows of the same keys are still on their way.
        """
        tails = [index for index, packer in enumerate(self._packers) if packer.rows]
        while tails and not self._stopped:
            lanes = {index: self._lane(index) for index in tails}
            ready = {index: self._packers[index] for index in tails if not lanes[index].busy}
            if not ready or any(lane.busy and not lane.held for lane in lanes.values()):
                await self._change()
                continue
            tails = [index for index in tails if index not in ready]
            for indexes in _shared(ready):
                packer = ready[indexes[0]]
                settled_up_to = max(self._lanes[index].settled_up_to for index in indexes)
                self._lanes.append(_Lane(next(self._lines), indexes, settled_up_to=settled_up_to))
                self._dispatch(self._lanes[-1], packer.flush(self._clock.now()), tasks)
                self._note(packer)

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _work_off(self, lane: _Lane) -> None:
        try:
            await self._hold(lane, lane.pause)
            while lane.queue and not self._stopped:
                await self._settle(lane)
        finally:
            lane.busy = False
            self._changed.set()

    async def _settle(self, lane: _Lane) -> None:
        """Send the first batch of a lane until its rows are accepted, failed, or in other batches of the lane."""
        delays = iter(self._settings.retry_delays)
        for attempts in itertools.count(1):
            try:
                await self._attempt(lane, lane.queue[0], attempts)
            except SvcError as error:
                if await self._recover(lane, lane.queue[0], error, attempts, delays):
                    continue
            return

    async def _attempt(self, lane: _Lane, batch: Batch, attempts: int) -> None:
        """Send a batch once and settle the rows that the answer speaks of."""
        request = self._destination.build_request(batch)
        if self._journal is not None:
            await self._intend(self._journal, lane, batch, request)
        self._tally.requests += 1
        before = lane.in_doubt
        lane.in_flight = lane.in_doubt = True
        try:
            answer, request_id = await self._sender.send_with_id(request)
        except SvcError as error:
            # Refusing a repeat says nothing of the first attempt, but its quarantine is over.
            lane.in_doubt = isinstance(error, UnexpectedAnswer) or error.sent is Sent.MAYBE or before
            if self._journal is not None and lane.intent is not None and not lane.in_doubt:
                self._journal.refused(lane.intent)
            raise
        finally:
            lane.in_flight = False
        verdict = self._destination.evaluate(answer, batch)
        if verdict is None:
            raise CountsDiffer("the service counted other rows than were sent")
        if before:
            verdict = attrs.evolve(verdict, refused={row: after_doubt(why) for row, why in verdict.refused.items()})
        self._conclude_batch(lane, batch, verdict, attempts, request_id)

    async def _intend(self, journal: Journal, lane: _Lane, batch: Batch, request: Request[T]) -> None:
        """Write down what is about to be sent."""
        highest = max(batch.positions)
        lane.settled_up_to = max(lane.settled_up_to, highest)
        lane.intent = self._intent(lane, batch, request, self._clock.now().timestamp())
        await journal.intend(lane.intent, self._reading.checkpoint)

    def _intent(self, lane: _Lane, batch: Batch, request: Request[T], sent_at: float | None) -> Intent:
        return Intent(
            sender=lane.number,
            after=self._standing(lane, list(lane.queue)[1:]),
            layout=[(block.per_operation, len(block.positions)) for block in batch.operation_blocks],
            positions=batch.positions,
            superseded=lane.superseded_unsettled + batch.superseded,
            pinned=batch.built,
            sent_at=sent_at,
            digest=digest_of(request),
        )

    def _standing(self, lane: _Lane, remaining: Iterable[Batch]) -> LaneState:
        """Say what is settled of the lanes that a lane speaks for, when it has only these batches left."""
        unsettled = array("q")
        for positions in self._outstanding(lane, remaining):
            if positions and min(positions) <= lane.settled_up_to:
                unsettled.extend(position for position in positions if position <= lane.settled_up_to)
        return LaneState(lanes=lane.packers, settled_up_to=lane.settled_up_to, unsettled=unsettled)

    def _outstanding(self, lane: _Lane, remaining: Iterable[Batch]) -> Iterator[Collection[int]]:
        yield lane.unsettled
        for batch in remaining:
            yield batch.positions
            yield batch.superseded
        for index in lane.packers:
            yield from self._packers[index].outstanding
            yield self._settled.unsettled.get(index, ())

    def _write_down(self, lane: _Lane, batch: Batch, failures: Sequence[Failure], in_doubt: Batch | None) -> None:
        """Write down what an answer has settled."""
        if self._journal is None:
            return
        superseded, lane.superseded_unsettled = lane.superseded_unsettled, array("q")
        doubt = None
        if in_doubt is not None and lane.intent is not None:
            doubt = self._intent(lane, in_doubt, self._destination.build_request(in_doubt), lane.intent.sent_at)
        lane.intent = doubt
        self._journal.settle(
            Settlement(
                sender=lane.number,
                after=self._standing(lane, lane.queue),
                accepted=batch.rows - len(failures),
                coalesced=len(superseded),
                failures=failures,
                in_doubt=doubt,
            )
        )

    def _conclude_batch(
        self, lane: _Lane, batch: Batch, verdict: Verdict, attempts: int, request_id: str | None
    ) -> None:
        if not verdict.unknown:
            self._close(lane, batch, verdict.refused, attempts, request_id)
            return
        unknown, known = batch.split(verdict.unknown)
        self._replace(lane, [unknown])
        lane.in_doubt = True
        if known.rows:
            indexes = [index for index in range(batch.rows) if index not in frozenset(verdict.unknown)]
            refused = {place: verdict.refused[index] for place, index in enumerate(indexes) if index in verdict.refused}
            self._receipt(lane, known, refused, attempts, request_id, in_doubt=unknown)
        raise LeftOut(f"the answer does not speak of {unknown.rows} rows")

    async def _recover(
        self, lane: _Lane, batch: Batch, error: SvcError, attempts: int, delays: Iterator[float]
    ) -> bool:
        """Do what helps; answers whether to send the batch again."""
        remedy = remedy_of(error)
        self._tally.rate_limited += isinstance(error, RateLimited)
        if remedy is Remedy.STOP:
            self._stop(error)
        elif remedy is Remedy.TAKE_OUT or remedy is Remedy.HALVE:
            self._part(lane, batch, error, attempts)
        else:
            return await self._repeat(lane, batch, error, attempts, delays)
        return False

    async def _repeat(self, lane: _Lane, batch: Batch, error: SvcError, attempts: int, delays: Iterator[float]) -> bool:
        remedy = remedy_of(error)
        delay = 0.0 if remedy is Remedy.WAIT else next(delays, None)
        if delay is None:
            await self._give_up(lane, batch, error, attempts)
            return False
        await self._hold(lane, max(delay, self._pause_after(error, remedy)))
        if not self._budget.spend():
            self._stop(error)
        return not self._stopped

    async def _give_up(self, lane: _Lane, batch: Batch, error: SvcError, attempts: int) -> None:
        if remedy_of(error) is Remedy.QUARANTINE:  # newer rows must still not be undone
            await self._hold(lane, self._quarantine)
        why = ErrorDetail(code="GAVE_UP", message=f"gave up after {attempts} attempts: {summary(error)}")
        self._close(lane, batch, dict.fromkeys(range(batch.rows), why), attempts, request_id_of(error))

    def _pause_after(self, error: SvcError, remedy: Remedy) -> float:
        """Give the seconds before which a repeat would do harm or no good."""
        if remedy is Remedy.QUARANTINE:
            return self._quarantine
        asked = error.retry_at if isinstance(error, ApiError) else None
        if asked is not None:
            return (asked - self._clock.now()).total_seconds()
        return _WINDOW if remedy is Remedy.WAIT else 0.0

    @property
    def _quarantine(self) -> float:
        # Without order no key comes twice, so a request that is applied late undoes nothing.
        return self._settings.quarantine if self._settings.ordered else 0.0

    async def _hold(self, lane: _Lane, seconds: float) -> None:
        if seconds <= 0 or self._stopped:
            return
        lane.held = True
        self._changed.set()
        self._tell()
        try:
            await self._clock.sleep(seconds)
        finally:
            lane.held = False

    def _part(self, lane: _Lane, batch: Batch, error: SvcError, attempts: int) -> None:
        """Replace a refused batch by batches that isolate what was refused; a row that stands alone has failed."""
        named = named_operations(error, batch)
        if named:
            self._take_out(lane, batch, named, attempts, request_id_of(error))
        elif batch.rows == 1:
            self._take_out(lane, batch, {0: first_reason(error)}, attempts, request_id_of(error))
        elif self._budget.spend():
            self._replace(lane, batch.split_in_half())
        else:
            self._stop(error)

    def _take_out(
        self, lane: _Lane, batch: Batch, named: Mapping[int, ErrorDetail], attempts: int, request_id: str | None
    ) -> None:
        operations = sorted(named)
        refused, others = batch.split(operations)
        alone = [index for index, operation in enumerate(operations) if len(batch.positions_of(operation)) == 1]
        condemned, suspects = refused.split(alone)
        self._replace(lane, [others, *suspects.one_user_each(self._limits)])
        redact = self._destination.redact
        reasons = [coded(redact(named[operations[index]], batch.users_of(operations[index]))) for index in alone]
        if reasons:
            self._receipt(lane, condemned, dict(enumerate(reasons)), attempts, request_id)

    def _replace(self, lane: _Lane, batches: Sequence[Batch]) -> None:
        lane.superseded_unsettled.extend(lane.queue.popleft().superseded)
        lane.in_doubt = False
        lane.queue.extendleft(batch for batch in reversed(batches) if batch.rows)

    def _close(
        self, lane: _Lane, batch: Batch, refused: Mapping[int, ErrorDetail], attempts: int, request_id: str | None
    ) -> None:
        self._replace(lane, [])
        self._receipt(lane, batch, refused, attempts, request_id)

    def _receipt(
        self,
        lane: _Lane,
        batch: Batch,
        refused: Mapping[int, ErrorDetail],
        attempts: int,
        request_id: str | None,
        *,
        in_doubt: Batch | None = None,
    ) -> None:
        """Settle the rows of a batch."""
        positions = batch.positions.tolist()
        failures = [
            Failure(positions[index], why.message, str(why.code), why.parameter)
            for index, why in sorted(refused.items())
        ]
        receipt = Receipt(
            first=min(positions),
            last=max(positions),
            rows=batch.rows,
            accepted=batch.rows - len(failures),
            failures=failures,
            request_id=request_id,
            attempts=attempts,
            positions=[position for index, position in enumerate(positions) if index not in refused]
            if refused
            else positions,
        )
        self._write_down(lane, batch, failures, in_doubt)
        self._tally.accepted += receipt.accepted
        if receipt.accepted:
            self._budget.earn()
        self._changed.set()
        self._tally.fail(failures)
        if self._observers.on_receipt is not None:
            self._observers.on_receipt(receipt)
        self._tell()

    def _stop(self, cause: Exception) -> None:
        """Send nothing more; what is under way comes to its end, and who only waits is called off."""
        self._cause = self._cause or cause
        self._stopped = True
        for lane in self._lanes:
            if lane.held and lane.task is not None:
                lane.task.cancel()
        self._changed.set()

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        """Let an exception of an observer, or a defect, end the job with its books closed."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - it is the cause of the BatchError that `run` raises
            self._stop(error)

    @property
    def _pending(self) -> int:
        sealed = sum(batch.rows for lane in self._lanes for batch in lane.queue)
        return self._partitioner.rows + sum(packer.rows for packer in self._packers) + sealed

    @property
    def _in_doubt(self) -> int:
        return sum(lane.queue[0].rows for lane in self._lanes if lane.in_doubt and not lane.in_flight)

    def _tell(self) -> None:
        if self._observers.progress is not None:
            self._observers.progress(
                self._tally.progress(
                    pending=self._pending,
                    in_flight=sum(lane.in_flight for lane in self._lanes),
                    in_doubt=self._in_doubt,
                    seconds=self._clock.monotonic() - self._started,
                )
            )


def _shared(packers: Mapping[int, Packer]) -> list[list[int]]:
    """Put drafts together into as few requests as the largest-first rule finds; the first of each holds the rows."""
    shared: list[list[int]] = []
    for index in sorted(packers, key=lambda index: packers[index].payload_size, reverse=True):
        taken_over = next((indexes for indexes in shared if packers[indexes[0]].absorb(packers[index])), None)
        if taken_over is None:
            shared.append([index])
        else:
            taken_over.append(index)
    return shared


def _too_large(position: int) -> Failure:
    return Failure(position, "must fit into one request", "TOO_LARGE")
