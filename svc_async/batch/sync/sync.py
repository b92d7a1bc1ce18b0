"""Makes a list equal to a source, by sending only the differences from the state that the last sync left.

    compare → plan → removals → additions, changes and refreshes → settle

Removals go first: the service removes whoever has an identifier, and a user who is added may share it.
"""

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol, TypeVar

import attrs

from svc_async.batch.report import Failure, Progress, Receipt, Report
from svc_async.batch.settings import Observers
from svc_async.batch.sync.plan import Entries, Part, Plan
from svc_async.batch.sync.report import SyncReport
from svc_async.batch.sync.settings import SyncObservers, SyncSettings
from svc_async.batch.sync.store import SyncStore
from svc_async.clock import Clock
from svc_async.errors import BatchError

__all__ = ["Sync", "SyncTarget"]

T = TypeVar("T")

_NOT_SENT = frozenset({"INVALID_ROW", "TOO_LARGE"})
_RECORDED_TOGETHER = 10_000
"""Failed rows that are recorded in one statement."""


class SyncTarget(Protocol):
    """The list that is made equal to a source."""

    def find_expiry(self, now: datetime) -> datetime | None:
        """Return when rows that are sent now leave the list; None for never."""
        ...

    @property
    def replaces(self) -> bool:
        """Whether a row with another content is removed before it is sent."""
        ...

    def entries(self) -> AsyncIterable[Entries]:
        """Read the source from its start."""
        ...

    def rows(self) -> Iterable[Any]:
        """Read the rows of the source from its start."""
        ...

    async def remove(self, state: SyncStore, observers: Observers) -> Report:
        """Remove the rows that the state lists as removals."""
        ...

    async def send(
        self,
        upserts: Iterable[Any],
        observers: Observers,
        *,
        expires_at: datetime | None,
        on_service_keys: Callable[[Mapping[int, str]], None],
    ) -> Report:
        """Send rows, which expire at a time; `on_service_keys` is called with the service's own keys of them."""
        ...


@attrs.frozen(kw_only=True)
class Sync:
    """One run of a sync.

    Attributes:
        target: the list and its source.
        state: what the list contains, as far as earlier syncs know.
        settings: what the sync may do.
        observers: functions that are called as it proceeds.
        clock: where time comes from.
    """

    target: SyncTarget
    state: SyncStore
    settings: SyncSettings = attrs.field(factory=SyncSettings)
    observers: SyncObservers = attrs.field(factory=SyncObservers)
    clock: Clock

    async def run(self) -> SyncReport:
        """Compare, and apply the plan unless this is a dry run.

        Raises:
            InvalidArgument: the source cannot be read again, or too much would be removed; nothing was sent.
            UnusableFile: the state cannot be used; nothing was sent.
            BatchError: a part could not be finished; its report is a `SyncReport`. The next sync resumes it.
        """
        plan = await self._compare()
        _notify(self.observers.on_plan, plan)
        if self.settings.dry_run:
            return SyncReport(plan=plan)
        plan.check(self.settings.max_removal_share)
        return await self._apply(plan)

    async def _compare(self) -> Plan:
        now = self.clock.now()
        return await self.state.compare(
            self.target.entries(), now=now, soon=now + self.settings.refresh_within, replace=self.target.replaces
        )

    async def _apply(self, plan: Plan) -> SyncReport:
        expires_at = self.target.find_expiry(self.clock.now())
        self.state.begin(expires=expires_at)
        observers = self.observers
        removal = _PartRecorder(
            self.state, "removals", attrs.evolve(observers, on_failure=observers.on_removal_failure)
        )
        sending = _PartRecorder(self.state, "upserts", observers)
        try:
            if plan.all_removals:
                await removal.run(lambda recorder: self.target.remove(self.state, recorder))
            if plan.upserts:
                sending.before = removal.progress
                await sending.run(lambda recorder: self._send(recorder, expires_at))
        except BatchError as error:
            report = SyncReport(plan=plan, sent=sending.report, removed=removal.report)
            raise BatchError(str(error), report=report) from error.__cause__
        await self.state.settle()
        return SyncReport(plan=plan, sent=sending.report, removed=removal.report)

    async def _send(self, observers: Observers, expires_at: datetime | None) -> Report:
        upserts = self.state.upserts(self.target.rows())
        return await self.target.send(
            upserts, observers, expires_at=expires_at, on_service_keys=self.state.record_service_keys
        )


@attrs.define
class _PartRecorder:
    """Records what becomes of one part of a plan, and passes it on to the observers."""

    state: SyncStore
    part: Part
    observers: Observers
    before: Progress = attrs.field(factory=Progress, init=False)
    progress: Progress = attrs.field(factory=Progress, init=False)
    report: Report = attrs.field(factory=Report, init=False)
    _not_sent: list[int] = attrs.field(factory=list[int], init=False)

    async def run(self, work: Callable[[Observers], Awaitable[Report]]) -> None:
        observers = Observers(progress=self._on_progress, on_receipt=self._on_receipt, on_failure=self._on_failure)
        try:
            self.report = await work(observers)
        except BatchError as error:
            self.report = error.report if isinstance(error.report, Report) else self.report
            raise
        finally:
            self._record_failures()

    def _on_progress(self, progress: Progress) -> None:
        self.progress = progress
        self.report = Report.from_progress(progress)
        _notify(self.observers.progress, self.before + progress)

    def _on_receipt(self, receipt: Receipt) -> None:
        self.state.record_accepted(self.part, receipt.positions)
        _notify(self.observers.on_receipt, receipt)

    def _on_failure(self, failure: Failure) -> None:
        # A row that was sent may have been applied before it was refused: nothing is recorded, so it is in doubt.
        if failure.code in _NOT_SENT:
            self._not_sent.append(failure.position)
        if len(self._not_sent) >= _RECORDED_TOGETHER:
            self._record_failures()
        position = self.state.find_position(failure.position) if self.part == "upserts" else failure.position
        _notify(self.observers.on_failure, attrs.evolve(failure, position=position))

    def _record_failures(self) -> None:
        self.state.record_failed(self.part, self._not_sent)
        self._not_sent = []


def _notify(observer: Callable[[T], object] | None, news: T) -> None:
    if observer is not None:
        observer(news)
