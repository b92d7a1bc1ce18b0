"""Makes a list equal to a source, by sending only the differences from the state that the last sync left.

    compare → plan → removals → additions, changes and refreshes → settle

Removals go first: the service removes whoever has an identifier, and a user who is added may share it. If requests of
an earlier run may still take effect, what could cross them is sent in a second stage, when the quarantine is over.
"""

import abc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

import attrs

from svc_async.batch.job import Job, import_cluster
from svc_async.batch.plan import STAGES, Part, Plan, Stage, SyncReport
from svc_async.batch.recovery import summarize
from svc_async.batch.report import Failure, JobPhase, Progress, Report, Wait
from svc_async.batch.settings import BatchSettings, SyncObservers, SyncSettings
from svc_async.clock import Clock
from svc_async.engine.pipeline import Pipeline
from svc_async.errors import BatchError, Sent, SvcError
from svc_async.sync.beside import remember_sync
from svc_async.sync.entries import Entries, Removal, SelectRows
from svc_async.sync.ledger import PartJob, SyncLedger, notify, read_clocks
from svc_async.sync.snapshot import SliceSpill, Snapshot
from svc_async.sync.state import OnPage, Removals, SyncState, check_location, check_shared, open_sync_state
from svc_async.wire.route import Request

__all__ = ["SyncTarget", "run_sync"]


@attrs.define
class SyncCourse:
    """How far a sync is.

    Attributes:
        observer: whom to tell.
        clock: the time.
        read: how many rows of the source were read.
    """

    observer: Callable[[Progress], object] | None
    clock: Clock
    read: int = attrs.field(default=0, init=False)
    _rows: int | None = attrs.field(default=None, init=False)
    _sent: Progress = attrs.field(factory=Progress, init=False)
    _began: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._began = self.clock.monotonic()

    def begin_sending(self, plan: Plan) -> None:
        """Note how many rows are to be removed and sent."""
        self._rows = plan.upserts + plan.all_removals

    def announce_sent(self, progress: Progress) -> None:
        """Announce what has become of all rows that were sent so far."""
        self._sent = progress
        self._announce(phase="sending", phase_done=progress.settled, phase_total=self._rows)

    def announce_wait(self, seconds: float) -> None:
        """Announce that nothing is sent for some seconds."""
        self._announce(phase="waiting", wait=Wait(until=self.clock.monotonic() + seconds))

    def count_pages(self, phase: JobPhase) -> OnPage:
        """Return what announces each page of the state in a phase."""
        return lambda done, total: self._announce(phase=phase, phase_done=done, phase_total=total)

    def announce_read(self, count: int) -> None:
        """Announce that some rows of the source were read."""
        self.read += count
        self._announce(phase="reading", phase_done=self.read)

    def _announce(self, **changes: Any) -> None:
        now = self.clock.monotonic()
        notify(self.observer, attrs.evolve(self._sent, seconds=now - self._began, at=now, **changes))


@attrs.frozen(kw_only=True)
class SyncTarget(abc.ABC):
    """The list that is made equal to a source.

    Attributes:
        removes_for_good: whether a row that is removed is lost: rows are checked before that, and kept where one cannot
            be read.
        replaces: whether a row with another content is removed before it is sent.
        snapshot: all rows that it is to have.
        spill: keeps them until they are sent.
        settings: how rows are sent.
    """

    removes_for_good: ClassVar[bool] = False
    replaces: ClassVar[bool] = False

    snapshot: Snapshot = attrs.field(repr=False)
    spill: SliceSpill
    settings: BatchSettings

    def find_expiry(self, now: datetime) -> datetime | None:  # noqa: ARG002 - rows of some lists do not expire
        """Return when rows that are sent now leave the list; None for never."""
        return None

    def find_linked(
        self,
        removals: Sequence[Removal],  # noqa: ARG002 - of most lists a removal removes one row
        select: SelectRows,  # noqa: ARG002 - likewise
    ) -> Iterator[int]:
        """Yield the positions of rows that the removal of others removes as well; see `FindLinked`."""
        return iter(())

    @abc.abstractmethod
    def name_key(self, kind: int) -> str:
        """Return the name of what identifies a row of this kind."""

    def find_invalid(self, select: SelectRows) -> AsyncIterator[int]:
        """Yield which of the rows to send break a rule, of those that have a key; positions count all of them.

        It is called only for lists that remove for good; rows of others are checked as they are read.
        """
        raise NotImplementedError

    @abc.abstractmethod
    async def remove(self, removals: Removals, job: PartJob) -> Report:
        """Remove rows; positions count them, unless the ledger of the job has their numbers."""

    @abc.abstractmethod
    async def send(self, select: SelectRows, job: PartJob, *, expires_at: datetime | None) -> Report:
        """Send rows, which expire at a time; positions count them."""


async def run_sync(
    job: Job,
    rows: Any,
    open_here: Callable[[Any], AbstractAsyncContextManager[Snapshot]],
    create: Callable[[Snapshot, SliceSpill], SyncTarget],
    *,
    parameter: str,
    name: str,
    sender: Pipeline,
    requests: Mapping[Part, Request[Any]],
) -> SyncReport:
    """Run the sync that a job describes.

    Args:
        job: the job.
        rows: the rows of its source.
        open_here: opens them in this process; on a cluster, the workers read them.
        create: returns the list, given its rows and what keeps them until they are sent.
        parameter: the argument that gives the rows.
        name: the list and its host.
        sender: what the list sends its requests with.
        requests: a request like those of each part.
    """
    state = check_location(job.state)
    if job.cluster is None:
        opening = open_here(rows)
    else:
        check_shared(state)
        opening = import_cluster("snapshot").open_snapshot(job.name_files(parameter, rows))
    del rows  # they must not be among the locals of a traceback
    async with opening as snapshot, open_sync_state(state, name) as store:
        with SliceSpill(store.folder) as spill:
            return await Sync(
                target=create(snapshot, spill),
                state=store,
                settings=job.sync,
                observers=job.observers,
                sender=sender,
                requests=requests,
                course=SyncCourse(job.observers.progress, sender.clock),
            ).run()


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
        course: how far it is.
    """

    target: SyncTarget
    state: SyncState
    settings: SyncSettings
    observers: SyncObservers
    sender: Pipeline = attrs.field(repr=False)
    requests: Mapping[Part, Request[Any]]
    course: SyncCourse

    async def run(self) -> SyncReport:
        """Compare, and apply the plan unless this is a dry run.

        Raises:
            InvalidArgument: the source cannot be read, or too much would be removed; nothing was sent.
            SvcError: the state cannot be used; nothing was sent.
            BatchError: it could not be finished, or the source raised what is not a `SvcError`; its report is a
                `SyncReport`. The next sync resumes it.
        """
        try:
            plan = await self._compare()
        except SvcError:
            raise
        except Exception as error:  # whatever the source may raise
            message = f"the sync ended early: {summarize(error)}; nothing was sent"
            raise BatchError(message, report=SyncReport(plan=Plan()), sent=Sent.NO) from error
        notify(self.observers.on_plan, plan)
        if self.settings.dry_run:
            return SyncReport(plan=plan)
        plan.check(self.settings.max_removal_share)
        if self.target.removes_for_good:
            plan.check_before_deletion(self.settings.max_removal_share)
        return await self._apply(plan)

    async def _compare(self) -> Plan:
        plan = await self.state.compare(
            self._read(),
            now=read_clocks(self.sender.clock),
            soon=self.sender.clock.now() + self.settings.refresh_within,
            quarantine=self.target.settings.quarantine,
            replace=self.target.replaces,
            find_linked=self.target.find_linked,
            keep_unread=self.target.removes_for_good,
            on_settled=self.course.count_pages("settling"),
            on_compared=self.course.count_pages("comparing"),
        )
        repeated = self.course.read - plan.listed - plan.invalid_rows
        plan = attrs.evolve(plan, repeated=repeated, clashing_key=self._tell_clashing())
        if not self.target.removes_for_good:
            return plan  # rows were checked as they were read
        if not self.settings.dry_run and not plan.all_removals:
            return attrs.evolve(plan, is_checked=False)  # each row is checked as it is sent
        self.course.count_pages("checking")(0, 0)
        found = {True: 0, False: 0}
        for stage in STAGES:
            if plan.count("upserts", stage):
                first = plan.count_before("upserts", stage)
                async for number in self.target.find_invalid(partial(self.state.find_upserts, stage=stage)):
                    found[self.state.is_change(self.state.find_position(first + number))] += 1
        return plan.count_invalid(additions=found[False], changes=found[True])

    def _tell_clashing(self) -> str | None:
        """Report the rows that have one key and nothing else in common; return what the key of the first is."""
        first: str | None = None
        for position, kind in self.state.find_clashing():
            name = self.target.name_key(kind)
            first = first or name
            failure = Failure(position, f"{name} is that of other rows, which differ", "REPEATED_KEY", name)
            notify(self.observers.on_failure, self.target.snapshot.locate(failure))
        return first

    async def _read(self) -> AsyncIterator[Entries]:
        """Read the rows of the source, and keep them as they are sent."""
        self.course.announce_read(0)
        async with aclosing(self.target.snapshot.slices()) as slices:
            async for each in slices:
                yield self.target.spill.add(each)
                self.course.announce_read(each.count)

    async def _apply(self, plan: Plan) -> SyncReport:
        clock = self.sender.clock
        remember_sync(self.state.target, self.sender)
        expires_at = self.target.find_expiry(clock.now())
        await self.state.begin(expires=expires_at, on_page=self.course.count_pages("recording"))
        self.course.begin_sending(plan)
        if plan.upserts or plan.all_removals:
            for part, sent_at in (await self.state.find_sent(self.sender.governor_id)).items():
                self.sender.restore(self.requests[part], sent_at)
        observers = attrs.evolve(self.observers, progress=self.course.announce_sent)
        run = _PlanRun(self.target, self.state, clock, observers, plan, expires_at)
        try:
            for stage in STAGES:
                if plan.count("removals", stage) + plan.count("upserts", stage):
                    if stage == "later":
                        rest = self.state.find_rest(read_clocks(clock), self.target.settings.quarantine)
                        self.course.announce_wait(rest)
                        notify(self.observers.on_wait, rest)
                        await clock.sleep(rest)
                    await run.send(stage)
            self.state.forget_late(read_clocks(clock), self.target.settings.quarantine)
            await self.state.settle(on_page=self.course.count_pages("settling"))
        except BatchError as error:
            raise run.describe_failure(str(error)) from error.__cause__
        except SvcError as error:
            raise run.describe_failure(f"the sync ended early: {summarize(error)}") from error
        return run.report


@attrs.define
class _PlanRun:
    """Carries out a plan, stage by stage."""

    target: SyncTarget
    state: SyncState
    clock: Clock
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
            await self._run("removals", stage, lambda job: self.target.remove(removals, job))
        if self.plan.count("upserts", stage):
            select = partial(self.state.find_upserts, stage=stage)
            await self._run("upserts", stage, lambda job: self.target.send(select, job, expires_at=self.expires_at))

    def describe_failure(self, message: str) -> BatchError:
        """Return the error of a sync that ended early."""
        return BatchError(message, report=self.report, sent=self.report.total.find_sent())

    async def _run(self, part: Part, stage: Stage, work: Callable[[PartJob], Awaitable[Report]]) -> None:
        job = PartJob(
            # Every key comes once; but a request that is applied late could undo a later part if nobody waited for it.
            settings=attrs.evolve(self.target.settings, ordering="key"),
            ledger=SyncLedger(self.state, self.clock, part, self.plan.count_before(part, stage)),
            tells=self.observers,
            locate=self.target.snapshot.locate,
            before=self._progress,
        )
        self.state.start(part, stage)
        try:
            await job.run(work)
        finally:
            self._progress = job.before + job.progress
            name = "removed" if part == "removals" else "sent"
            self.report = attrs.evolve(self.report, **{name: getattr(self.report, name) + job.report})
