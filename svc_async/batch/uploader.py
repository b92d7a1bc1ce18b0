"""Uploads the rows of a source: many requests in flight, each verified, every row accounted for.

    Feeder      reads the source and gives batches to the lanes
    Lane        decides what to do next with its batches
    Uploader    does it: a task for each lane that is busy executes its commands and returns their events
    Ledger      records what is about to be sent and what is settled, and counts the rows
    Receipts    runs an uploader, and yields its receipts

Only the uploader repeats a request, and a budget for the whole job keeps an outage from becoming a storm.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import attrs

from svc_async.batch.destination import Destination
from svc_async.batch.feeder import Feeder
from svc_async.batch.job import Job, to_plain
from svc_async.batch.journal.journal import JournalLedger
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
    Send,
    Settle,
    Stop,
    Stopped,
    Written,
    count_in_doubt,
)
from svc_async.batch.ledger import Ledger, Resumption
from svc_async.batch.packing.packer import count_lanes
from svc_async.batch.recovery import RecoveryPolicy, name_failure, remove_hashes_from_error, summarize
from svc_async.batch.report import Failure, JobPhase, Progress, Receipt, Report, Wait
from svc_async.batch.settings import BatchSettings, JobSizes
from svc_async.batch.source import RowSource, Slice
from svc_async.cancellation import wait_through_cancellation
from svc_async.counts import Counts
from svc_async.engine.call import log_repeat
from svc_async.engine.pipeline import Pipeline
from svc_async.engine.retry import Retries
from svc_async.errors import ApiError, BatchError, RateLimited, SvcError
from svc_async.governor.governor import Priority
from svc_async.monitoring import RowsEvent, Subscribers
from svc_async.wire.envelope import CallAnswer
from svc_async.wire.outcome import RetryBudget
from svc_async.wire.route import Request

__all__ = ["Receipts", "Uploader"]

T = TypeVar("T")

_LONGEST_PAUSE = 3_600.0
"""Seconds for which an answer may hold a lane; then one request finds out whether it was right."""
_RECORDED = Recorded()
_ELAPSED = Elapsed()
_INTENDED = Intended()
_WRITTEN = Written()
_IN_FLIGHT = frozenset({Phase.READY, Phase.INTENDED, Phase.SENDING})


@attrs.define(eq=False, repr=False)  # it has rows
class _Flight:
    """The request of a busy lane, and the task that executes its commands.

    Attributes:
        task: executes the commands of the lane.
        request: what is being sent, if it is.
        answer: the last answer, until its rows are settled; kept only for observers.
        wait: the delay or quarantine that passes, if one does.
    """

    task: "asyncio.Task[None]"
    request: Request[Any] | None = None
    answer: CallAnswer | None = None
    wait: Wait | None = None


class Uploader(Generic[T]):
    """One job, from its source to its report; `run` it once."""

    def __init__(
        self,
        source: RowSource,
        *,
        job: Job,
        sender: Pipeline,
        destination: Destination[T],
        ledger: Ledger | None,
        sizes: JobSizes,
        notes: Ledger | None = None,
    ) -> None:
        """Prepare to do a job.

        Args:
            source: its rows.
            job: how they are sent.
            sender: sends the requests of the session.
            destination: where they are sent.
            ledger: keeps what becomes of the rows, if the journal of the job does not.
            sizes: the amounts in which the job works.
            notes: another ledger, which notes what is sent in the state of a sync of the list.

        Raises:
            InvalidArgument: no journal can be kept where the job says.
        """
        self._source = source if sender.dialect is None else source.write_in(sender.dialect)
        self._sender = sender.but(
            retries=Retries.none(),
            priority=Priority.BULK,
            max_wait=None,
            before_sending=self._intend,  # a request may wait at the rate limit for minutes
            at_sending=self._begin,  # opening a connection may take seconds
        )
        self._destination = destination
        self._observers = job.observers
        self._clock = sender.clock
        if ledger is None and job.journal is not None:
            note = None if job.source is None else to_plain(job)  # a new journal describes a job with a file
            ledger = JournalLedger(
                job.journal, destination=destination, settings=job.settings, clock=sender.clock, note=note
            )
        self._ledger = ledger or Ledger()
        self._ledgers = [self._ledger] if notes is None else [notes, self._ledger]
        self._ledger.lanes = count_lanes(
            destination.limits,
            job.settings.concurrency,
            memory=sender.memory.total,
            pace=sender.find_pace(destination.empty),
        )
        self._started = self._clock.monotonic()
        self._memory = sender.memory.create_share()
        self._rows = _RowsReporter(sender.subscribers, destination.empty)
        self._feeder = self._create_feeder(job.settings, sizes)
        self._task_group = asyncio.TaskGroup()
        self._flights: dict[Lane, _Flight] = {}
        self._cause: Exception | None = None
        self._finished: Report | None = None
        self._phase: JobPhase = "sending"
        self._rows_read = 0

    def _create_feeder(self, settings: BatchSettings, sizes: JobSizes) -> Feeder:
        policy = RecoveryPolicy(
            limits=self._destination.limits,
            retry_delays=settings.retry_delays,
            # Without order no key comes twice, so a request that is applied late undoes nothing.
            quarantine=settings.quarantine if settings.ordered else 0.0,
            redact=self._destination.redact,
            name_rows=self._destination.name_rows,
            budget=RetryBudget(most=sizes.repeats, earned=1.0),
            on_repeat=partial(log_repeat, self._destination.empty),
        )
        return Feeder(
            ledger=self._ledger,
            settings=settings,
            sizes=sizes,
            memory=self._memory,
            policy=policy,
            clock=self._clock,
            execute=self._start,
            on_failures=self._fail,
            on_progress=self._notify_progress,
        )

    @property
    def report(self) -> Report:
        """The result of the rows so far; available at any time, and after a cancellation."""
        return self._finished or self._ledger.accounting.report(
            pending=self._feeder.pending, in_doubt=count_in_doubt(self._feeder.lanes)
        )

    async def run(self) -> Report:
        """Do the job.

        Raises:
            BatchError: the job could not be finished; it carries the report, and the reason is its cause.
            UnusableFile: the journal cannot be used, or belongs to another job or source; `UnusableState`, if it is in
                a shared state.
        """
        self._started = self._clock.monotonic()
        try:
            async with self._source.open(), self._ledger as ledger:
                resumption = await self._resume()
                self._finished = ledger.finished or await self._upload(resumption)
        finally:
            self._rows.end()
        return self._finished

    async def _resume(self) -> Resumption:
        """Find out what earlier runs left; nothing is sent."""
        try:
            if self._ledger.finished is not None:
                return await self._ledger.resume(self._source)
            self._notify_failures(self._ledger.accounting.failures)
            if not self._ledger.accounting.counts.read:
                self._notify_progress()
            self._phase = "reading"
            return await self._ledger.resume(attrs.evolve(self._source, read=self._read))
        except Exception as error:
            if isinstance(error, SvcError) and getattr(error, "parameter", None) == "journal":
                raise
            raise self._describe_failure(error) from error

    async def _read(self) -> AsyncGenerator[Slice, None]:
        """Yield the rows of the source; while they are spooled or read again, announce how many were read."""
        self._rows_read = 0
        async with aclosing(self._source.read()) as slices:
            async for part in slices:
                if self._phase == "reading":
                    self._notify_progress()
                self._rows_read += part.count
                yield part

    async def _upload(self, resumption: Resumption) -> Report:
        self._phase = "sending"
        self._sender.restore(self._destination.empty, self._ledger.sent_at)
        self._feeder.create_lanes()
        try:
            with self._memory:
                async with self._task_group:
                    await self._stop_on_error(self._feed(resumption))
            await self._stop_on_error(self._conclude())
        except asyncio.CancelledError:
            with suppress(Exception):  # the cancellation wins
                self._notify_progress()
            raise
        if self._cause is not None:
            raise self._describe_failure(self._cause) from remove_hashes_from_error(self._cause)
        return self.report

    async def _feed(self, resumption: Resumption) -> None:
        await self._feeder.resend(resumption)
        self._cause = await self._feeder.feed(resumption.source) or self._cause

    async def _conclude(self) -> None:
        self._notify_progress()
        if self._cause is None:
            for ledger in self._ledgers:
                await ledger.finish(self.report)

    def _start(self, lane: Lane, command: Command) -> None:
        self._flights[lane] = _Flight(self._task_group.create_task(self._stop_on_error(self._drive(lane, command))))

    async def _drive(self, lane: Lane, command: Command | None) -> None:
        """Execute the commands of a lane until it has none."""
        try:
            while command is not None:
                event = await self._execute(lane, command)
                command = None if event is None else lane.handle(event)
        except BaseException:
            lane.handle(Abandoned())
            raise
        finally:
            self._feeder.wake()

    async def _execute(self, lane: Lane, command: Command) -> Event | None:
        match command:
            case Send() if self._feeder.stopped:  # before its task began
                return Abandoned()
            case Send():
                return await self._send(lane)
            case Release():
                await self._ledger.release(lane)
            case Settle():
                await self._settle(lane, command)
            case Pause():
                await self._wait(lane, command)
                return _ELAPSED
            case Stop():
                self._stop(command.cause)
                return None
        return _RECORDED

    async def _send(self, lane: Lane) -> Event:
        accounting, flight = self._ledger.accounting, self._flights[lane]
        flight.request = request = self._destination.build_request(lane.queue[0])
        try:
            value, answer = await self._sender.send_with_answer(request)
        except SvcError as error:
            accounting.rate_limited += isinstance(error, RateLimited)
            retry_at = error.retry_at if isinstance(error, ApiError) else None
            asked = None if retry_at is None else (retry_at - self._clock.now()).total_seconds()
            return Failed(error, None if asked is None else min(asked, _LONGEST_PAUSE))
        finally:
            flight.request = None
            del request  # the traceback of a failure would keep it while the lane waits
            if lane.phase is Phase.INTENDED:
                await self._ledger.retract(lane)
        if self._observers.on_receipt is not None:
            flight.answer = answer
        return Answered(self._destination.evaluate(value, lane.queue[0]), answer.request_id)

    async def _intend(self, request: Request[Any]) -> None:
        """Record that a request is about to be sent: it has its turn; the job ends if that cannot be stored."""
        lane = self._find_lane(request)
        lane.handle(_INTENDED)
        try:
            for ledger in self._ledgers:
                await ledger.intend(lane, self._feeder.list_packed(lane))
        except SvcError as error:
            self._stop(error)
            raise

    def _begin(self, request: Request[Any]) -> None:
        """Make sure that a request may be sent at this moment, and count it: its bytes are written next."""
        for ledger in self._ledgers:
            ledger.check_sendable()
        self._find_lane(request).handle(_WRITTEN)
        self._ledger.accounting.counts += Counts(requests=1)

    def _find_lane(self, request: Request[Any]) -> Lane:
        return next(lane for lane, flight in self._flights.items() if flight.request is request)

    async def _settle(self, lane: Lane, settle: Settle) -> None:
        self._ledger.accounting.settle(settle.receipt)
        self._feeder.wake()
        await self._ledger.settle(lane, settle, self._feeder.list_packed(lane))
        self._notify_failures(settle.receipt.failures)
        if self._observers.on_receipt is not None:
            flight = self._flights[lane]
            answer, flight.answer = flight.answer, None
            self._observers.on_receipt(attrs.evolve(settle.receipt, answer=answer))
        self._notify_progress()

    async def _wait(self, lane: Lane, pause: Pause) -> None:
        flight = self._flights[lane]
        flight.wait = Wait(
            until=self._clock.monotonic() + pause.seconds,
            requests=0 if pause.gives_up else 1,
            after=None if pause.after is None else name_failure(pause.after),
            attempts=0 if pause.after is None else lane.attempts,
        )
        self._feeder.wake()
        self._notify_progress()
        try:
            await self._clock.sleep(pause.seconds)
        finally:
            flight.wait = None

    def _stop(self, cause: Exception) -> None:
        """Send nothing more; requests in flight are answered, and lanes that wait are cancelled."""
        self._cause = self._cause or cause
        self._feeder.stop()
        for lane in self._feeder.lanes:
            flight = self._flights.get(lane)
            # A task that has not begun would tell nobody that it was cancelled; `_execute` ends it.
            waits_for_turn = lane.phase is Phase.READY and flight is not None and flight.request is not None
            if flight is not None and (waits_for_turn or lane.phase is Phase.WAITING):
                flight.task.cancel()
            lane.handle(Stopped())

    async def _stop_on_error(self, work: Coroutine[Any, Any, None]) -> None:
        """Await work; an exception of an observer, of the ledger, or a defect ends the job with a complete report."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - it is the cause of the BatchError that `run` raises
            self._stop(error)

    def _describe_failure(self, cause: Exception) -> BatchError:
        report = self.report
        counts = f"rows: {report.read} read, {report.accepted} accepted, {report.pending} pending"
        return BatchError(f"the job ended early: {summarize(cause)}; {counts}", report=report, sent=report.find_sent())

    def _fail(self, failures: Sequence[Failure]) -> None:
        self._ledger.fail(failures)
        self._notify_failures(failures)

    def _notify_failures(self, failures: Sequence[Failure]) -> None:
        if self._observers.on_failure is not None:
            for failure in failures:
                self._observers.on_failure(failure)

    def _notify_progress(self) -> None:
        if self._observers.progress is None and not self._rows.subscribers.functions:
            return
        lanes, now = self._feeder.lanes, self._clock.monotonic()
        accounting = self._ledger.accounting
        progress = Progress(
            in_flight=sum(lane.phase in _IN_FLIGHT for lane in lanes),
            rate_limited=accounting.rate_limited,
            seconds=now - self._started,
            phase=self._phase,
            phase_done=self._rows_read if self._phase == "reading" else 0,
            wait=Wait.merge([*(flight.wait for flight in self._flights.values()), self._feeder.wait]),
            at=now,
        )
        progress += accounting.total(pending=self._feeder.pending, in_doubt=count_in_doubt(lanes))
        if self._observers.progress is not None:
            self._observers.progress(progress)
        if self._rows.subscribers.functions:
            self._rows.report(progress)


@attrs.define
class _RowsReporter:
    """Reports what has become of the rows of a job."""

    subscribers: Subscribers
    request: Request[Any]
    _last: Progress | None = None

    def report(self, now: Progress) -> None:
        """Report what has changed since the last time."""
        last, self._last = self._last or attrs.evolve(now, in_doubt=0), now
        change = now - last
        if change.settled or change.requests or change.in_doubt:
            self.subscribers.notify(
                RowsEvent(
                    **{**change.counts, "in_doubt": now.in_doubt},
                    path=self.request.public_path,
                    account=self.request.scope.get("account_id"),
                    in_doubt_change=change.in_doubt,
                )
            )

    def end(self) -> None:
        """Report that the job has ended."""
        if self._last is not None and self._last.in_doubt:
            self.report(attrs.evolve(self._last, in_doubt=0))


class Receipts(Generic[T]):
    """The receipts of a job in the order of their answers, and its `report`.

    Use it as a context manager, or iterate to the end. `aclose` ends the job; what was in flight is pending then.
    """

    def __init__(self, create_uploader: Callable[[Callable[[Receipt], None]], Uploader[T]]) -> None:
        """Prepare a job.

        Args:
            create_uploader: returns the uploader that calls a function with each receipt.
        """
        self._receipts: asyncio.Queue[Receipt | None] = asyncio.Queue()
        self._uploader = create_uploader(self._receipts.put_nowait)
        self._task: asyncio.Task[Report] | None = None

    @property
    def report(self) -> Report:
        """The outcome of the rows so far."""
        return self._uploader.report

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Receipt:
        """Return the next receipt.

        Raises:
            BatchError: the job could not be finished; all its receipts were returned before.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._uploader.run())
            self._task.add_done_callback(lambda _: self._receipts.put_nowait(None))
        try:
            receipt = await self._receipts.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if receipt is not None:
            return receipt
        self._receipts.put_nowait(None)  # for the next call
        self._task.result()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the job, if it runs, and wait until it has released everything, even if the caller is cancelled."""
        if self._task is None:
            return
        self._task.cancel()
        cancelled = await wait_through_cancellation(self._task)
        if cancelled is not None:
            raise cancelled

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
