"""Makes a list equal to a source, by sending only the differences from the state that the last sync left.

    compare → plan → removals → additions, changes and refreshes → settle

Removals go first: the service removes whoever has an identifier, and a user who is added may share it. If requests of
an earlier run may still take effect, what could cross them is sent in a second stage, when the quarantine is over.
"""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

import attrs

from svc_async.batch.journal.journal import LedgerFactory
from svc_async.batch.lane import Lane
from svc_async.batch.ledger import Ledger
from svc_async.batch.recovery import summarize
from svc_async.batch.report import Failure, Progress, Receipt, Report
from svc_async.batch.sender import Sender
from svc_async.batch.settings import BatchSettings, Observers
from svc_async.batch.sync.course import SyncCourse
from svc_async.batch.sync.plan import STAGES, Entries, FindLinked, Part, Plan, Stage
from svc_async.batch.sync.report import SyncReport
from svc_async.batch.sync.sending import ClockReading
from svc_async.batch.sync.settings import SyncObservers, SyncSettings
from svc_async.batch.sync.store import Removals, SelectedRows, SyncStore
from svc_async.clock import Clock, find_boot, read_boottime
from svc_async.errors import BatchError, Sent, SvcError
from svc_async.wire.route import Request

__all__ = ["Sync", "SyncTarget", "UpsertObservers", "make_ledgers"]

T = TypeVar("T")

_NOT_SENT = frozenset({"INVALID_ROW", "TOO_LARGE"})
_RECORDED_TOGETHER = 10_000
"""Failed rows that are recorded in one statement."""


@attrs.frozen(kw_only=True)
class UpsertObservers(Observers):
    """Functions that are called as rows are sent.

    Attributes:
        on_service_keys: called with the service's own keys of rows, before the receipt that settles them.
    """

    on_service_keys: Callable[[Mapping[bytes, str]], object]


class SyncTarget(Protocol):
    """The list that is made equal to a source."""

    @property
    def settings(self) -> BatchSettings:
        """How rows are sent."""
        ...

    def find_expiry(self, now: datetime) -> datetime | None:
        """Return when rows that are sent now leave the list; None for never."""
        ...

    @property
    def removes_for_good(self) -> bool:
        """Whether a row that is removed is lost: rows are checked before that, and kept where one cannot be read."""
        ...

    @property
    def replaces(self) -> bool:
        """Whether a row with another content is removed before it is sent."""
        ...

    def entries(self) -> AsyncIterable[Entries]:
        """Read the source from its start; it is called once."""
        ...

    @property
    def find_linked(self) -> FindLinked | None:
        """Finds rows that the removal of others removes as well; None if a removal removes one row."""
        ...

    @property
    def find_invalid(self) -> Callable[[SelectedRows], AsyncIterator[int]] | None:
        """Yields which of the rows to send break a rule, of those that have a key; positions count all of them.

        None if rows are checked as they are read.
        """
        ...

    def locate(self, failure: Failure) -> Failure:
        """Return the failure of a row, whose position counts those of the source, with the place of the row."""
        ...

    async def remove(self, removals: Removals, observers: Observers) -> Report:
        """Remove rows; positions count them."""
        ...

    async def send(self, upserts: SelectedRows, observers: UpsertObservers, *, expires_at: datetime | None) -> Report:
        """Send rows, which expire at a time; positions count them."""
        ...


@attrs.frozen(kw_only=True)
class Sync:
    """One run of a sync.

    Attributes:
        target: the list and its source.
        state: what the list contains, as far as earlier syncs know.
        settings: what the sync may do.
        observers: functions that are called as it proceeds.
        sender: what the target sends its requests with.
        requests: a request like those of each part.
    """

    target: SyncTarget
    state: SyncStore
    settings: SyncSettings = attrs.field(factory=SyncSettings)
    observers: SyncObservers = attrs.field(factory=SyncObservers)
    sender: Sender = attrs.field(repr=False)
    requests: Mapping[Part, Request[Any]]
    _course: SyncCourse = attrs.field(
        default=attrs.Factory(
            lambda self: SyncCourse(self.observers.progress or _ignore, self.sender.clock), takes_self=True
        ),
        init=False,
    )

    async def run(self) -> SyncReport:
        """Compare, and apply the plan unless this is a dry run.

        Raises:
            InvalidArgument: the source cannot be read, or too much would be removed; nothing was sent.
            SvcError: the state cannot be used; nothing was sent.
            BatchError: it could not be finished, or the source raised what is no `SvcError`; its report is a
                `SyncReport`. The next sync resumes it.
        """
        try:
            plan = await self._compare()
        except SvcError:
            raise
        except Exception as error:  # whatever the source may raise
            message = f"the sync ended early: {summarize(error)}; nothing was sent"
            raise BatchError(message, report=SyncReport(plan=Plan()), sent=Sent.NO) from error
        _notify(self.observers.on_plan, plan)
        if self.settings.dry_run:
            return SyncReport(plan=plan)
        plan.check(self.settings.max_removal_share)
        if self.target.removes_for_good:
            plan.check_before_deletion(self.settings.max_removal_share)
        return await self._apply(plan)

    async def _compare(self) -> Plan:
        plan = await self.state.compare(
            self._course.count_rows(self.target.entries()),
            now=_read_clocks(self.sender.clock),
            soon=self.sender.clock.now() + self.settings.refresh_within,
            quarantine=self.target.settings.quarantine,
            replace=self.target.replaces,
            find_linked=self.target.find_linked,
            keep_unread=self.target.removes_for_good,
            on_settled=self._course.count_pages("settling"),
            on_compared=self._course.count_pages("comparing"),
        )
        plan = attrs.evolve(plan, repeated=self._course.read - plan.listed - plan.invalid_rows)
        if self.target.removes_for_good and not self.settings.dry_run and not plan.all_removals:
            return attrs.evolve(plan, is_checked=False)  # each row is checked as it is sent
        return await self._check_rows(plan)

    async def _check_rows(self, plan: Plan) -> Plan:
        """Check the rows that are to be sent, and return the plan without those that cannot be."""
        find_invalid = self.target.find_invalid
        if find_invalid is None:
            return plan
        self._course.count_pages("checking")(0, 0)
        found = {True: 0, False: 0}
        for stage in STAGES:
            if plan.count("upserts", stage):
                first = plan.count_before("upserts", stage)
                async for number in find_invalid(SelectedRows(self.state, stage)):
                    found[self.state.is_change(self.state.find_position(first + number))] += 1
        return plan.count_invalid(additions=found[False], changes=found[True])

    async def _apply(self, plan: Plan) -> SyncReport:
        clock = self.sender.clock
        expires_at = self.target.find_expiry(clock.now())
        await self.state.begin(expires=expires_at, on_page=self._course.count_pages("recording"))
        self._course.begin_sending(plan)
        if plan.upserts or plan.all_removals:
            for part, sent_at in (await self.state.find_sent(self.sender.governor_id)).items():
                self.sender.restore(self.requests[part], sent_at)
        observers = attrs.evolve(self.observers, progress=self._course.announce_sent)
        run = _PlanRun(self.target, self.state, observers, plan, expires_at)
        try:
            for stage in STAGES:
                if plan.count("removals", stage) + plan.count("upserts", stage):
                    await self._wait(stage)
                    await run.send(stage)
            self.state.forget_late(_read_clocks(clock), self.target.settings.quarantine)
            await self.state.settle(on_page=self._course.count_pages("settling"))
        except BatchError as error:
            raise run.describe_failure(str(error)) from error.__cause__
        except SvcError as error:
            raise run.describe_failure(f"the sync ended early: {summarize(error)}") from error
        return run.report

    async def _wait(self, stage: Stage) -> None:
        """Wait until what is sent in a stage cannot be crossed by requests of earlier runs."""
        if stage == "later":
            clock = self.sender.clock
            rest = self.state.find_rest(_read_clocks(clock), self.target.settings.quarantine)
            self._course.announce_wait(rest)
            _notify(self.observers.on_wait, rest)
            await clock.sleep(rest)


@attrs.define
class _PlanRun:
    """Carries out a plan, stage by stage."""

    target: SyncTarget
    state: SyncStore
    observers: SyncObservers
    plan: Plan
    expires_at: datetime | None
    report: SyncReport = attrs.field(init=False)
    _progress: Progress = attrs.field(factory=Progress, init=False)

    def __attrs_post_init__(self) -> None:
        self.report = SyncReport(plan=self.plan)

    async def send(self, stage: Stage) -> None:
        """Remove and send the rows of a stage.

        Raises:
            BatchError: it could not be finished.
        """
        if self.plan.count("removals", stage):
            removals = Removals(self.state, stage, self.plan.count_before("removals", stage))
            await self._run("removals", stage, lambda observers: self.target.remove(removals, observers))
        if self.plan.count("upserts", stage):
            upserts = SelectedRows(self.state, stage)
            await self._run(
                "upserts", stage, lambda observers: self.target.send(upserts, observers, expires_at=self.expires_at)
            )

    def describe_failure(self, message: str) -> BatchError:
        """Return the error of a sync that ended early."""
        return BatchError(message, report=self.report, sent=self.report.total.find_sent())

    async def _run(self, part: Part, stage: Stage, work: Callable[[UpsertObservers], Awaitable[Report]]) -> None:
        observers = self.observers
        if part == "removals":
            observers = attrs.evolve(observers, on_failure=observers.on_removal_failure)
        recorder = _PartRecorder(
            self.state,
            part,
            observers,
            locate=self.target.locate,
            first=self.plan.count_before(part, stage),
            before=self._progress,
        )
        self.state.start(part, stage)
        try:
            await recorder.run(work)
        finally:
            self._progress = recorder.before + recorder.progress
            name = "removed" if part == "removals" else "sent"
            self.report = attrs.evolve(self.report, **{name: getattr(self.report, name) + recorder.report})


@attrs.define
class _PartRecorder:
    """Records what becomes of a part in one stage, and passes it on to the observers.

    Attributes:
        locate: finds the place of a row of the source.
        first: how many rows of the part were sent in the stage before.
        before: the progress of what was done before.
    """

    state: SyncStore
    part: Part
    observers: Observers
    locate: Callable[[Failure], Failure]
    first: int
    before: Progress
    progress: Progress = attrs.field(factory=Progress, init=False)
    report: Report = attrs.field(factory=Report, init=False)
    _accepted: int = attrs.field(default=0, init=False)
    _failed: int = attrs.field(default=0, init=False)
    _waiting: dict[bool, list[int]] = attrs.field(factory=lambda: {True: [], False: []}, init=False)

    async def run(self, work: Callable[[UpsertObservers], Awaitable[Report]]) -> None:
        observers = UpsertObservers(
            progress=self._on_progress,
            on_receipt=self._on_receipt,
            on_failure=self._on_failure,
            on_service_keys=self.state.record_service_keys,
        )
        try:
            await self._finish(await work(observers), complete=True)
        except BatchError as error:
            if isinstance(error.report, Report):
                await self._finish(error.report, complete=False)
            raise
        finally:
            self._record_failures()

    async def _finish(self, report: Report, *, complete: bool) -> None:
        self._record_failures()
        self.report = attrs.evolve(report, failures=tuple(map(self._locate, report.failures)))
        # An error of an observer or of the state may have kept results from being recorded.
        is_recorded = (self._accepted, self._failed, 0) == (report.accepted, report.failed, report.coalesced)
        await self.state.finish(in_doubt=bool(report.in_doubt) or not is_recorded, complete=complete)

    def _on_progress(self, progress: Progress) -> None:
        self.progress = progress
        self.report = Report.from_progress(progress)
        _notify(self.observers.progress, self.before + progress)

    def _on_receipt(self, receipt: Receipt) -> None:
        self.state.record_accepted(self.part, _shift(receipt.positions, self.first))
        self._accepted += len(receipt.positions)
        _notify(self.observers.on_receipt, receipt)

    def _on_failure(self, failure: Failure) -> None:
        # A row that was sent may have been applied before it was refused, so it is in doubt.
        numbers = self._waiting[failure.code in _NOT_SENT]
        numbers.append(self.first + failure.position)
        if len(numbers) >= _RECORDED_TOGETHER:
            self._record_failures()
        _notify(self.observers.on_failure, self._locate(failure))

    def _locate(self, failure: Failure) -> Failure:
        number = self.first + failure.position
        if self.part == "removals":
            return attrs.evolve(failure, position=number)
        return self.locate(attrs.evolve(failure, position=self.state.find_position(number)))

    def _record_failures(self) -> None:
        records = {True: self.state.record_failed, False: self.state.record_unknown}
        for not_sent, numbers in self._waiting.items():
            records[not_sent](self.part, numbers)
            self._failed += len(numbers)
            numbers.clear()


@attrs.define(eq=False, slots=False)
class SyncLedger(Ledger):
    """The ledger of the jobs of a sync: its state notes each request before it is sent."""

    state: SyncStore
    clock: Clock

    async def intend(self, _lane: Lane, _packed: Iterable[Collection[int]], /) -> None:
        """Store that a request is about to be sent."""
        await self.state.admit(lambda: _read_clocks(self.clock))

    def check_sendable(self) -> None:
        """Make sure that the request goes out soon after the note."""
        self.state.check_sendable(_read_clocks(self.clock))


def make_ledgers(state: SyncStore) -> LedgerFactory:
    """Return what creates the ledgers of the jobs of a sync, in place of `create_ledger`."""
    return lambda _journal, *, lanes, clock, **_: SyncLedger(lanes, state, clock)


def _read_clocks(clock: Clock) -> ClockReading:
    return ClockReading(clock.now(), clock.monotonic(), find_boot(clock), read_boottime(clock))


def _shift(positions: Sequence[int], first: int) -> Sequence[int]:
    return [first + position for position in positions] if first else positions


def _ignore(_: Progress) -> None:
    """Tell nobody."""


def _notify(observer: Callable[[T], object] | None, news: T) -> None:
    if observer is not None:
        observer(news)
