"""Drives a job: rows are read, packed, sent many requests at a time, verified and accounted for to the last one.

    source → Slice → Spreader → Packer of a lane → Batch → queue of the lane → request → verdict → receipt

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
"""

import asyncio
import enum
import itertools
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import attrs

from svc_async.batch.packer import Batch, Limits, Load, Packer, Spreader
from svc_async.batch.report import Failure, Progress, Receipt, Report, Tally
from svc_async.clock import Clock
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
from svc_async.retry import RetryBudget
from svc_async.wire.endpoint import Request

__all__ = ["Destination", "Job", "Observers", "Receipts", "Sender", "Settings", "Slice", "Verdict", "in_parts"]

T = TypeVar("T")

_PART = 512
"""Rows between two turns of the event loop."""
_PARTS_A_PROGRESS = 16
# Unspecified: how long a 429 without a reset lasts; the limit is counted by the minute (contract CAU-03).
_WINDOW = 60.0


class Sender(Protocol):
    """What sends a request; a pipeline does."""

    @property
    def clock(self) -> Clock:
        """Where time comes from."""
        ...

    async def named(self, request: Request[T]) -> tuple[T, str | None]:
        """Send it once; give its answer and the service's name for the request."""
        ...


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

    def request(self, batch: Batch) -> Request[T]:
        """Make the request that carries a batch."""
        ...

    def judge(self, answer: T, batch: Batch) -> Verdict | None:
        """Say what the answer tells of the rows; None if it counts other rows than were sent."""
        ...

    def spare(self, reason: ErrorDetail, row: str) -> ErrorDetail:
        """Blot out what the service's words repeat of a row that must not be told; the row is in JSON."""
        ...


@attrs.frozen(kw_only=True)
class Settings:
    """How a job is done.

    Attributes:
        limits: what one request may hold.
        concurrency: the most requests under way, and so the number of lanes.
        ordered: whether rows of one key keep their order; if not, no key may come twice.
        quarantine: seconds for which a lane is held after an unknown outcome.
        retry_delays: seconds before each repeat of a request; when they are used up, its rows have failed.
        memory: bytes of users that are read and not yet accepted.
        repeats: repeats that are left to the job at its start; each accepted request gives one back.
    """

    limits: Limits
    concurrency: int = 32
    ordered: bool = True
    quarantine: float = 120.0
    retry_delays: Sequence[float] = (0, 60, 300)
    memory: int = 64 * 2**20
    repeats: int = 100

    def __attrs_post_init__(self) -> None:
        if self.concurrency < 1:
            raise InvalidArgument("concurrency", "must be at least 1")
        if self.limits.per_operation < 1:
            raise InvalidArgument("users_per_operation", "must be at least 1")
        if not self.quarantine >= 0:
            raise InvalidArgument("quarantine", "must be at least 0 seconds")
        if not all(delay >= 0 for delay in self.retry_delays):
            raise InvalidArgument("retry_delays", "must be seconds of at least 0")


@attrs.frozen(kw_only=True)
class Observers:
    """Who is told what, as it happens."""

    progress: Callable[[Progress], object] | None = None
    on_receipt: Callable[[Receipt], object] | None = None
    on_failure: Callable[[Failure], object] | None = None


@attrs.frozen
class Slice:
    """Some rows of a source.

    Attributes:
        rows: how many were read.
        load: those that can be sent.
        failures: the others.
    """

    rows: int
    load: Load
    failures: Sequence[Failure]


async def in_parts(rows: Iterable[T] | AsyncIterable[T], size: int = _PART) -> AsyncGenerator[list[T], None]:
    """Read rows some hundreds at a time; what came before a source failed is given before its exception."""
    source = aiter(rows) if isinstance(rows, AsyncIterable) else iter(rows)
    while True:
        part: list[T] = []
        failure: Exception | None = None
        try:
            if isinstance(source, AsyncIterator):
                await _read(source, part, size)
            else:
                part.extend(itertools.islice(source, size))
        except Exception as error:  # noqa: BLE001 - whatever a source may raise
            failure = error
        if part:
            yield part
        if failure is not None:
            raise failure
        if len(part) < size:
            return


async def _read(source: AsyncIterator[T], part: list[T], size: int) -> None:
    while len(part) < size:
        try:
            part.append(await anext(source))
        except StopAsyncIteration:
            return


class _Remedy(enum.Enum):
    """What helps after a request failed; the module's docstring has the table."""

    REPEAT = enum.auto()
    WAIT = enum.auto()
    QUARANTINE = enum.auto()
    TAKE_OUT = enum.auto()
    HALVE = enum.auto()
    STOP = enum.auto()


_FINAL = frozenset({401, 403, 404})


class _CountsDiffer(SvcError):
    """The service counted other rows than were sent: not accepted (contract ERR-09, CAU-12)."""

    sent = Sent.YES
    repeatable = True


class _LeftOut(SvcError):
    """The service says nothing of some rows; the others of their batch are settled."""

    sent = Sent.MAYBE
    repeatable = True


def _remedy(error: SvcError) -> _Remedy:
    if isinstance(error, ApiError):
        return _remedy_for_refusal(error)
    if isinstance(error, UnexpectedAnswer) or error.sent is Sent.MAYBE:
        return _Remedy.QUARANTINE
    return _Remedy.REPEAT if error.repeatable else _Remedy.STOP


def _remedy_for_refusal(error: ApiError) -> _Remedy:
    if error.status in _FINAL:
        return _Remedy.STOP
    if isinstance(error, RateLimited):
        return _Remedy.WAIT
    if error.repeatable:
        return _Remedy.REPEAT
    # Unspecified: which refusals name a size or a complexity, and which concern a row that is not named. Halves find
    # the one as well as the other; the budget ends it where every half is refused.
    return _Remedy.TAKE_OUT if error.operation_errors else _Remedy.HALVE


@attrs.define(eq=False)
class _Lane:
    """Batches that must arrive one after the other; the first of the queue is being worked on.

    Attributes:
        busy: somebody works on the queue.
        held: it waits for its time.
        in_flight: its first batch is being sent.
        in_doubt: its first batch was sent and may have been applied.
    """

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
        source: AsyncGenerator[Slice, None],
        *,
        sender: Sender,
        destination: Destination[T],
        settings: Settings,
        observers: Observers,
    ) -> None:
        self._source = source
        self._sender = sender
        self._destination = destination
        self._settings = settings
        self._observers = observers
        self._clock = sender.clock
        self._tally = Tally(observers.on_failure)
        self._budget = RetryBudget(most=settings.repeats, earned=1.0)
        self._lanes = [_Lane() for _ in range(settings.concurrency)]
        packers = settings.concurrency if settings.ordered else 1
        repeats = settings.ordered or settings.limits.distinct
        self._packers = [Packer(settings.limits, repeats=repeats) for _ in range(packers)]
        self._spreader = Spreader(self._packers)
        self._changed = asyncio.Event()
        self._cause: Exception | None = None
        self._stopped = False
        self._started = self._clock.monotonic()

    @property
    def report(self) -> Report:
        """What has become of the rows so far; it can be asked for at any time, and after a cancellation."""
        return self._tally.report(pending=self._pending, in_doubt=self._in_doubt)

    async def run(self) -> Report:
        """Do the job.

        Raises:
            BatchError: the job could not be finished; it carries the report, and the reason is its cause.
        """
        self._started = self._clock.monotonic()
        try:
            async with aclosing(self._source), asyncio.TaskGroup() as tasks:
                await self._guard(self._feed(tasks))
            await self._guard(self._conclude())
        except asyncio.CancelledError:
            with suppress(Exception):  # the cancellation wins
                self._tell()
            raise
        report = self.report
        if self._cause is not None:
            counts = f"of {report.read} rows {report.accepted} were accepted and {report.pending} are pending"
            raise BatchError(f"the job ended early: {_summary(self._cause)}; {counts}", report=report) from self._cause
        return report

    async def _conclude(self) -> None:
        self._tell()

    async def _feed(self, tasks: asyncio.TaskGroup) -> None:
        """Read the source to its end and hand its rows to the lanes."""
        for number in itertools.count(1):
            try:
                part = await anext(self._source)
            except StopAsyncIteration:
                break
            except Exception as error:  # noqa: BLE001 - whatever a source may raise; what came before is finished
                self._cause = error
                break
            spread = self._take(part, tasks)
            if number % _PARTS_A_PROGRESS == 0:
                self._tell()
            await asyncio.sleep(0)
            if spread:
                await self._make_room(tasks)
            if self._stopped:
                return
        self._spread(tasks)
        await self._send_tails(tasks)

    def _take(self, part: Slice, tasks: asyncio.TaskGroup) -> bool:
        """Take rows over; answers whether some reached the lanes."""
        self._tally.read += part.rows
        is_time = self._spreader.add(part.load)
        self._tally.fail(part.failures)
        if is_time:
            self._spread(tasks)
        return is_time

    def _spread(self, tasks: asyncio.TaskGroup) -> None:
        for index, batch in self._spreader.spread(self._clock.now()):
            self._dispatch(self._lane(index), [batch], tasks)
        for packer in self._packers:
            self._note(packer)

    def _lane(self, packer: int) -> _Lane:
        """Give the lane that a packer belongs to; without order there is one packer, and any lane will do."""
        if self._settings.ordered:
            return self._lanes[packer]
        return min(self._lanes, key=lambda lane: len(lane.queue))

    def _note(self, packer: Packer) -> None:
        self._tally.coalesced += packer.coalesced
        too_large, packer.coalesced, packer.too_large = packer.too_large, 0, []
        self._tally.fail([Failure(position, "must fit into one request", "TOO_LARGE") for position in too_large])

    def _dispatch(self, lane: _Lane, batches: Iterable[Batch], tasks: asyncio.TaskGroup) -> None:
        lane.queue.extend(batches)
        if lane.queue and not lane.busy and not self._stopped:
            lane.busy = True
            lane.task = tasks.create_task(self._guard(self._work_off(lane)))

    async def _make_room(self, tasks: asyncio.TaskGroup) -> None:
        """Wait until more may be read: drafts take up to half of the memory, sealed batches the rest."""
        while not self._stopped:
            while self._drafted > self._settings.memory / 2:
                self._seal_fullest(tasks)
            sealed = sum(batch.size for lane in self._lanes for batch in lane.queue)
            waiting = sum(len(lane.queue) for lane in self._lanes if not lane.held)
            if sealed <= self._settings.memory / 2 and waiting <= 2 * self._settings.concurrency:
                return
            await self._change()

    @property
    def _drafted(self) -> int:
        return sum(packer.letters for packer in self._packers)

    def _seal_fullest(self, tasks: asyncio.TaskGroup) -> None:
        index, packer = max(enumerate(self._packers), key=lambda each: each[1].letters)
        self._dispatch(self._lane(index), packer.seal(self._clock.now()), tasks)
        self._note(packer)

    async def _send_tails(self, tasks: asyncio.TaskGroup) -> None:
        """Send what the drafts still hold; lanes whose requests have come back share requests.

        A lane that is held keeps its tail back, since rows of the same keys are still on their way.
        """
        tails = [(self._lane(index), packer) for index, packer in enumerate(self._packers) if packer.rows]
        while tails and not self._stopped:
            ready = [packer for lane, packer in tails if not lane.busy]
            if not ready or any(lane.busy and not lane.held for lane, _ in tails):
                await self._change()
                continue
            tails = [(lane, packer) for lane, packer in tails if lane.busy]
            for packer in _shared(ready):
                self._lanes.append(_Lane())
                self._dispatch(self._lanes[-1], packer.seal(self._clock.now()), tasks)
                self._note(packer)

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _work_off(self, lane: _Lane) -> None:
        try:
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
        self._tally.requests += 1
        before = lane.in_doubt
        lane.in_flight = lane.in_doubt = True
        try:
            answer, request_id = await self._sender.named(self._destination.request(batch))
        except SvcError as error:
            # Refusing a repeat says nothing of the first attempt, but its quarantine is over.
            lane.in_doubt = isinstance(error, UnexpectedAnswer) or error.sent is Sent.MAYBE or before
            raise
        finally:
            lane.in_flight = False
        verdict = self._destination.judge(answer, batch)
        if verdict is None:
            raise _CountsDiffer("the service counted other rows than were sent")
        if before:
            verdict = attrs.evolve(verdict, refused={row: _after_doubt(why) for row, why in verdict.refused.items()})
        self._conclude_batch(lane, batch, verdict, attempts, request_id)

    def _conclude_batch(
        self, lane: _Lane, batch: Batch, verdict: Verdict, attempts: int, request_id: str | None
    ) -> None:
        if not verdict.unknown:
            self._close(lane, batch, verdict.refused, attempts, request_id)
            return
        unknown, known = batch.parted(verdict.unknown)
        self._replace(lane, [unknown])
        lane.in_doubt = True
        if known.rows:
            indexes = [index for index in range(batch.rows) if index not in frozenset(verdict.unknown)]
            refused = {place: verdict.refused[index] for place, index in enumerate(indexes) if index in verdict.refused}
            self._receipt(known, refused, attempts, request_id)
        raise _LeftOut(f"the answer does not speak of {unknown.rows} rows")

    async def _recover(
        self, lane: _Lane, batch: Batch, error: SvcError, attempts: int, delays: Iterator[float]
    ) -> bool:
        """Do what helps; answers whether to send the batch again."""
        remedy = _remedy(error)
        self._tally.rate_limited += isinstance(error, RateLimited)
        if remedy is _Remedy.STOP:
            self._stop(error)
        elif remedy is _Remedy.TAKE_OUT or remedy is _Remedy.HALVE:
            self._part(lane, batch, error, attempts)
        else:
            return await self._repeat(lane, batch, error, attempts, delays)
        return False

    async def _repeat(self, lane: _Lane, batch: Batch, error: SvcError, attempts: int, delays: Iterator[float]) -> bool:
        remedy = _remedy(error)
        delay = 0.0 if remedy is _Remedy.WAIT else next(delays, None)
        if delay is None:
            await self._give_up(lane, batch, error, attempts)
            return False
        await self._hold(lane, max(delay, self._pause_after(error, remedy)))
        if not self._budget.spend():
            self._stop(error)
        return not self._stopped

    async def _give_up(self, lane: _Lane, batch: Batch, error: SvcError, attempts: int) -> None:
        if _remedy(error) is _Remedy.QUARANTINE:  # newer rows must still not be undone
            await self._hold(lane, self._quarantine)
        why = ErrorDetail(code="GAVE_UP", message=f"gave up after {attempts} attempts: {_summary(error)}")
        self._close(lane, batch, dict.fromkeys(range(batch.rows), why), attempts, _request_id(error))

    def _pause_after(self, error: SvcError, remedy: _Remedy) -> float:
        """Give the seconds before which a repeat would do harm or no good."""
        if remedy is _Remedy.QUARANTINE:
            return self._quarantine
        asked = error.retry_at if isinstance(error, ApiError) else None
        if asked is not None:
            return (asked - self._clock.now()).total_seconds()
        return _WINDOW if remedy is _Remedy.WAIT else 0.0

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
        named = _named(error, batch)
        if named:
            self._take_out(lane, batch, named, attempts, _request_id(error))
        elif batch.rows == 1:
            self._take_out(lane, batch, {0: _first_reason(error)}, attempts, _request_id(error))
        elif self._budget.spend():
            self._replace(lane, batch.halved())
        else:
            self._stop(error)

    def _take_out(
        self, lane: _Lane, batch: Batch, named: Mapping[int, ErrorDetail], attempts: int, request_id: str | None
    ) -> None:
        operations = sorted(named)
        refused, others = batch.parted(operations)
        alone = [index for index, operation in enumerate(operations) if len(batch.rows_of(operation)) == 1]
        condemned, suspects = refused.parted(alone)
        self._replace(lane, [others, *suspects.singles(self._settings.limits)])
        spare = self._destination.spare
        reasons = [_coded(spare(named[operations[index]], batch.users_of(operations[index]))) for index in alone]
        if reasons:
            self._receipt(condemned, dict(enumerate(reasons)), attempts, request_id)

    def _replace(self, lane: _Lane, batches: Sequence[Batch]) -> None:
        lane.queue.popleft()
        lane.in_doubt = False
        lane.queue.extendleft(batch for batch in reversed(batches) if batch.rows)

    def _close(
        self, lane: _Lane, batch: Batch, refused: Mapping[int, ErrorDetail], attempts: int, request_id: str | None
    ) -> None:
        self._replace(lane, [])
        self._receipt(batch, refused, attempts, request_id)

    def _receipt(self, batch: Batch, refused: Mapping[int, ErrorDetail], attempts: int, request_id: str | None) -> None:
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
        )
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
        return self._spreader.rows + sum(packer.rows for packer in self._packers) + sealed

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


def _shared(packers: Iterable[Packer]) -> list[Packer]:
    """Put drafts together into as few requests as the largest-first rule finds."""
    shared: list[Packer] = []
    for packer in sorted(packers, key=lambda packer: packer.letters, reverse=True):
        if not any(other.absorb(packer) for other in shared):
            shared.append(packer)
    return shared


def _named(error: SvcError, batch: Batch) -> Mapping[int, ErrorDetail]:
    """Give the operations of a batch that a refusal names, each with its first reason (contract ERR-05)."""
    if not isinstance(error, ApiError):
        return {}
    within = range(batch.operations)
    return {index: reasons[0] for index, reasons in error.operation_errors.items() if index in within and reasons}


def _first_reason(error: SvcError) -> ErrorDetail:
    reasons = error.errors if isinstance(error, ApiError) else ()
    return reasons[0] if reasons else ErrorDetail(code="REFUSED", message=_summary(error))


def _request_id(error: SvcError) -> str | None:
    return error.request_id if isinstance(error, ApiError | UnexpectedAnswer) else None


def _coded(reason: ErrorDetail) -> ErrorDetail:
    return attrs.evolve(reason, code=reason.code or "REFUSED", message=reason.message or "refused without a reason")


def _after_doubt(reason: ErrorDetail) -> ErrorDetail:
    """Say that a refusal is of a repeat: what was deleted, for example, cannot be deleted again."""
    return attrs.evolve(reason, message=f"{reason.message}; an attempt before had no clear answer and may have worked")


def _summary(error: Exception) -> str:
    """Name an error without anything that might repeat a row."""
    if isinstance(error, ApiError):
        return " ".join(["HTTP", str(error.status), *(str(reason.code) for reason in error.errors)])
    return str(error) if isinstance(error, SvcError) else type(error).__name__


class Receipts(Generic[T]):
    """The receipts of a job as they come, and its `report`.

    Use it as a context manager, or iterate to the end: `aclose` ends the job, and what was under way is pending.
    """

    def __init__(self, make: Callable[[Callable[[Receipt], None]], Job[T]]) -> None:
        self._receipts: asyncio.Queue[Receipt | None] = asyncio.Queue()
        self._job = make(self._receipts.put_nowait)
        self._task: asyncio.Task[Report] | None = None

    @property
    def report(self) -> Report:
        """What has become of the rows so far."""
        return self._job.report

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Receipt:
        """Give the next receipt.

        Raises:
            BatchError: the job could not be finished; all receipts were given before.
        """
        task = self._running()
        try:
            receipt = await self._receipts.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if receipt is not None:
            return receipt
        self._receipts.put_nowait(None)  # for whoever asks again
        task.result()
        raise StopAsyncIteration

    def _running(self) -> "asyncio.Task[Report]":
        if self._task is None:
            self._task = asyncio.create_task(self._job.run())
            self._task.add_done_callback(lambda _: self._receipts.put_nowait(None))
        return self._task

    async def aclose(self) -> None:
        """End the job, if it runs, and wait until it has let go of everything."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
