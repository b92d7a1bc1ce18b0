"""The ledger of the jobs that send a plan: the state of the list notes each request, and what became of its rows."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from types import TracebackType
from typing import TypeVar

import attrs

from svc_async.batch.lane import Lane, Settle
from svc_async.batch.ledger import Ledger
from svc_async.batch.plan import Part
from svc_async.batch.report import Failure, Progress, Receipt, Report
from svc_async.batch.settings import BatchSettings, SyncObservers
from svc_async.clock import Clock, find_boot, read_boottime
from svc_async.errors import BatchError
from svc_async.sync.sending import ClockReading
from svc_async.sync.state import SyncState

__all__ = ["PartJob", "SyncLedger", "notify", "read_clocks"]

T = TypeVar("T")

_NOT_SENT = frozenset({"INVALID_ROW", "TOO_LARGE"})


@attrs.define(eq=False, slots=False)
class SyncLedger(Ledger):
    """Records a job in the state of a list.

    Attributes:
        state: the state.
        clock: the time.
        part: the part of the plan to which the rows of the job belong.
        first: how many rows of the part come before those of the stage.
        numbers: for each row of the job its number among those of the stage; None if the job has all of these.
        failed: the numbers of the rows that failed, if `numbers` is given.
        service_keys: the service's own keys of rows, until they are recorded with the next request.
    """

    state: SyncState
    clock: Clock
    part: Part
    first: int
    numbers: Sequence[int] | None = attrs.field(default=None, init=False)
    failed: set[int] = attrs.field(factory=set[int], init=False)
    service_keys: dict[bytes, str] = attrs.field(factory=dict[bytes, str], init=False)
    _recorded: int = attrs.field(default=0, init=False)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Note how the part ended; if the job was cut off, nobody knows."""
        if isinstance(error, BatchError):
            await self._end(error.report, complete=False)

    def number(self, positions: Iterable[int]) -> Sequence[int]:
        """Return the numbers in the part of rows of the job."""
        if self.numbers is not None:
            positions = map(self.numbers.__getitem__, positions)
        return [self.first + position for position in positions]

    async def intend(self, _lane: Lane, _packed: Iterable[Collection[int]], /) -> None:
        """Store that a request is about to be sent, and the outcomes that wait."""
        await self.state.admit(lambda: read_clocks(self.clock))

    def check_sendable(self) -> None:
        """Make sure that the request goes out soon after the note."""
        self.state.check_sendable(read_clocks(self.clock))

    async def settle(self, _lane: Lane, settle: Settle, _packed: Iterable[Collection[int]], /) -> None:
        """Record the rows of a request; they are stored with the next one."""
        self.state.record_service_keys(self.service_keys)
        self.service_keys = {}
        accepted = self.number(settle.receipt.positions)
        self.state.record_accepted(self.part, accepted)
        self._recorded += len(accepted)
        self._record_failures(settle.receipt.failures)

    def fail(self, failures: Sequence[Failure], /) -> None:
        """Record rows that failed before they were sent."""
        super().fail(failures)
        self._record_failures(failures)

    def _record_failures(self, failures: Sequence[Failure]) -> None:
        """Record rows that failed; one that was sent may have been applied before it was refused, so it is in doubt."""
        unsent = [failure.position for failure in failures if failure.code in _NOT_SENT]
        sent = [failure.position for failure in failures if failure.code not in _NOT_SENT]
        self.state.record_failed(self.part, self.number(unsent))
        self.state.record_unknown(self.part, self.number(sent))
        self._recorded += len(failures)
        if self.numbers is not None:
            self.failed.update(self.numbers[failure.position] for failure in failures)

    async def finish(self, report: Report, /) -> None:
        """Note that each row of the part has a result."""
        await self._end(report, complete=True)

    async def _end(self, report: Report, *, complete: bool) -> None:
        # What could not be recorded, because memory ran out, may have been sent.
        in_doubt = report.in_doubt > 0 or self._recorded != report.settled
        await self.state.finish(in_doubt=in_doubt, complete=complete)


@attrs.define(kw_only=True)
class PartJob:
    """A part of a plan in one stage: how its rows are sent, and how far that is.

    Attributes:
        settings: how they are sent.
        ledger: records them.
        tells: whom to tell.
        locate: finds the place of a row of the source.
        before: the progress of what was sent before.
        progress: how far the job is.
        report: what has become of the rows.
    """

    settings: BatchSettings
    ledger: SyncLedger
    tells: SyncObservers
    locate: Callable[[Failure], Failure]
    before: Progress
    progress: Progress = attrs.field(factory=Progress, init=False)
    report: Report = attrs.field(factory=Report, init=False)

    async def run(self, work: Callable[["PartJob"], Awaitable[Report]]) -> None:
        """Await the job that does the work.

        Raises:
            SvcError: it could not be finished; `report` says how far it came.
        """
        try:
            report = await work(self)
        except BatchError as error:
            self._keep(error.report)
            raise
        self._keep(report)

    @property
    def observers(self) -> SyncObservers:
        """The observers of the job, whose positions count its rows."""
        return SyncObservers(progress=self._on_progress, on_receipt=self._on_receipt, on_failure=self._on_failure)

    def _keep(self, report: Report) -> None:
        self.report = attrs.evolve(report, failures=tuple(map(self._locate, report.failures)))

    def _on_progress(self, progress: Progress) -> None:
        self.progress, self.report = progress, Report.from_progress(progress)
        notify(self.tells.progress, self.before + progress)

    def _on_receipt(self, receipt: Receipt) -> None:
        if self.ledger.numbers is not None:
            receipt = attrs.evolve(receipt, positions=[self.ledger.numbers[each] for each in receipt.positions])
        notify(self.tells.on_receipt, receipt)

    def _on_failure(self, failure: Failure) -> None:
        is_removal = self.ledger.part == "removals"
        notify(self.tells.on_removal_failure if is_removal else self.tells.on_failure, self._locate(failure))

    def _locate(self, failure: Failure) -> Failure:
        """Return a failure with the number of the removal, or with the place of its row in the source."""
        (number,) = self.ledger.number([failure.position])
        if self.ledger.part == "removals":
            return attrs.evolve(failure, position=number)
        return self.locate(attrs.evolve(failure, position=self.ledger.state.find_position(number)))


def read_clocks(clock: Clock) -> ClockReading:
    """Return what the clocks show now."""
    return ClockReading(clock.now(), clock.monotonic(), find_boot(clock), read_boottime(clock))


def notify(observer: Callable[[T], object] | None, news: T) -> None:
    """Tell an observer, if there is one."""
    if observer is not None:
        observer(news)
