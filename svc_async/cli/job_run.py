"""Runs the job of a command, here or on a cluster: shows its progress, lists its failures and reports how it ended."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from svc_async import profiles
from svc_async.batch.job import Job, TargetSpec
from svc_async.batch.report import KEPT_FAILURES, Failure, Progress, Report, Timeline
from svc_async.batch.settings import SyncObservers
from svc_async.cli.exit_codes import Interrupted, explain
from svc_async.cli.failures import FailureList, name_failures_file
from svc_async.cli.job_journal import AbsentSource, JobJournal, find_journal
from svc_async.cli.job_page import describe_target
from svc_async.cli.options import ClusterFlags, JournalFlags, RunFlags, WorkerFlags
from svc_async.cli.outcome import JobOutcome, check_report, describe_unused, list_unused
from svc_async.cli.output.console import count, print_error, say, show_json, stderr
from svc_async.cli.output.progress import Display, choose_form
from svc_async.cli.sessions import open_session
from svc_async.cli.signals import run_until_stopped
from svc_async.cli.sync_plan import SyncPlan, open_state
from svc_async.cli.workers import check_cluster_options, name_cluster_job, open_workers
from svc_async.clock import Clock, SystemClock
from svc_async.errors import BatchError, InvalidArgument, NotFound, SvcError, UnusableFile
from svc_async.jobs.limits import JobLimit, find_job_limit
from svc_async.jobs.run import check_access, open_rows, run
from svc_async.session import Session
from svc_async.sources.detect import STANDARD_INPUT
from svc_async.sources.source import Source

__all__ = ["run_job"]

_FINISHED_BEFORE = (
    "The job was finished before: nothing was sent. A new job needs a new journal; --journals FOLDER keeps one a run."
)

_RESTORE = "The journal belongs to the file as it was when the job began: restore that"
_ANOTHER_ID = "No row was accepted. If the id is wrong, run the command with the right one."
_ANOTHER_JOURNAL = " It takes a journal of its own then: this one belongs to the wrong id."
_START_AGAIN = "For a file with other rows, run the command with a new journal, or without one."


def run_job(job: Job, file: str, options: RunFlags, journal: JournalFlags, workers: WorkerFlags | None = None) -> int:
    """Run a job and return the exit code.

    Args:
        job: the job.
        file: its file as it was typed; `-` is standard input.
        options: where it runs, and where its results go.
        journal: how it can be resumed.
        workers: the cluster that does it, if this process does not.

    Raises:
        InvalidArgument: an option or the file cannot be used, or an extra is missing; nothing was sent.
    """
    if workers is not None:
        check_cluster_options(job, options, journal, workers)
        source = AbsentSource(name=Path(job.file.path).name, has_lines=True)
        name = name_cluster_job(job, journal)
        return asyncio.run(
            _CommandRun(job=job, file=file, options=options, source=source, workers=workers, cluster_job=name).run()
        )
    if not options.sandbox:
        job.target.check()
    elif journal != JournalFlags():
        raise InvalidArgument("--journal", "must not be given with --sandbox, which forgets what it was sent")
    elif options.profile:
        raise InvalidArgument("profile", "must not be given with --sandbox, which brings credentials")
    elif options.state_url:
        raise InvalidArgument("--state-url", "must not be given with --sandbox, whose limits are its own")
    kept = JobJournal.open(find_journal(journal, job, options), job, options)
    as_typed = attrs.evolve(job, source=attrs.evolve(job.file, path=file))  # messages name the file so
    # Standard input is read here: in the event loop, waiting for it would delay the handling of signals.
    with closing(kept.spooled or open_rows(as_typed)) as opened:
        return asyncio.run(_CommandRun(job=job, file=file, options=options, source=opened, journal=kept).run())


@attrs.define
class _Watch:
    """Keeps what a report needs, also of a job that is cut off.

    The time of a report begins when the command does: it may start a cluster first.
    """

    display: Display
    failures: FailureList
    clock: Clock
    known: Report | None
    """The result of earlier runs."""
    begun_at: datetime = attrs.field(init=False)
    timeline: Timeline = attrs.field(factory=Timeline, init=False)
    report: Report | None = attrs.field(default=None, init=False)
    """The final report; None if only a plan was printed."""
    error: BatchError | None = attrs.field(default=None, init=False)
    interrupted: bool = attrs.field(default=False, init=False)
    _began: float = attrs.field(init=False)
    _kept: list[Failure] = attrs.field(factory=list[Failure], init=False)

    def __attrs_post_init__(self) -> None:
        self.begun_at, self._began = self.clock.now(), self.clock.monotonic()

    @property
    def seconds(self) -> float:
        """How long the command has run."""
        return self.clock.monotonic() - self._began

    @property
    def is_early(self) -> bool:
        """True if the job ended before it was finished."""
        return self.interrupted or self.error is not None

    def count(self) -> Report:
        """Return what has become of the rows so far."""
        if self.known is not None and self.display.last == Progress():  # the job has announced nothing yet
            return self.known
        return Report.from_progress(self.display.last, self._kept)

    def on_progress(self, progress: Progress) -> None:
        self.timeline.add(attrs.evolve(progress, seconds=self.seconds))
        self.display.show(progress)

    def on_failure(self, failure: Failure) -> None:
        self.failures.add(failure)
        if len(self._kept) < KEPT_FAILURES:
            self._kept.append(failure)


@attrs.define(kw_only=True)
class _CommandRun:
    """A run of a job.

    Attributes:
        job: the job, first as the command describes it, then as it is run.
        file: its file as it was typed.
        options: where it runs, and where its results go.
        source: its rows, or a stand-in for them.
        journal: its journal.
        workers: the cluster that does it; None if this process does.
        cluster_job: its name in the shared state, if a cluster does it and it is not a sync.
        clock: where time comes from.
    """

    job: Job
    file: str
    options: RunFlags
    source: Source
    journal: JobJournal = attrs.field(factory=JobJournal)
    workers: WorkerFlags | None = None
    cluster_job: str | None = None
    clock: Clock = attrs.field(factory=SystemClock)
    _plan: SyncPlan = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._plan = SyncPlan(self.job, self.source, self.options)

    async def run(self) -> int:
        """Run it and return the exit code."""
        self._check_paths()
        known = None if self.journal.record is None else self.journal.record.report
        console = stderr()
        form = choose_form(console, as_json=self.options.as_json)
        with (
            FailureList(self._failures_path, self.source, lasting=self.journal.is_kept) as failures,
            Display(self.source, form=form, console=console, clock=self.clock, limit=self._limit) as display,
        ):
            watch = _Watch(display, failures, self.clock, known)
            try:
                await run_until_stopped(self._work(watch))
            except Interrupted:
                watch.interrupted = True
                watch.report = watch.report or watch.count()
            if watch.report is not None and not watch.is_early:
                failures.finish()
        if watch.report is None:
            return self._plan.exit
        outcome = self._conclude(watch, watch.report)
        self._print(outcome)
        return outcome.save()

    @property
    def _limit(self) -> JobLimit:
        return find_job_limit(self.job.target.kind, self.job.operation)

    @property
    def _failures_path(self) -> Path:
        sandbox = self.options.sandbox
        return self.options.failures_file or name_failures_file(self.job, self.file, sandbox=sandbox)

    def _check_paths(self) -> None:
        file, failures = Path(self.file).resolve(), self._failures_path.resolve()
        if failures == file:
            raise InvalidArgument("failures_file", "must not be the file itself")
        journal = self.journal.path and self.journal.path.resolve()
        if journal in {file, failures}:
            raise InvalidArgument("--journal", "must be a file of its own")
        report = self.options.report
        if report is None:
            return
        if report.resolve() in {file, failures, journal}:
            raise InvalidArgument("report", "must be a file of its own")
        check_report(report)

    async def _work(self, watch: _Watch) -> None:
        """Check that the file is sound and the service answers, then run the job."""
        async with self._open() as session:
            if self.workers is None:
                await self._check(session, watch)
                self.job = await self.journal.begin(self.source, self.job, self.options, session)
            if self.journal.record is not None:
                watch.failures.resume(self.journal.record.report.failures, finished=self.journal.is_finished)
            observers = SyncObservers(
                progress=watch.on_progress,
                on_failure=watch.on_failure,
                on_plan=self._plan.on_plan,
                on_removal_failure=watch.failures.add_removal,
            )
            try:
                async with open_state(self.job, session, self.options) as state:
                    job = attrs.evolve(self.job, state=state, observers=observers)
                    report = (await run(job, session, source=self.source)).total
                watch.report = None if job.operation == "sync" and job.sync.dry_run else report
            except BatchError as error:
                watch.error = error
                found = getattr(error.report, "total", None)
                watch.report = await self._recount(found if isinstance(found, Report) else watch.count(), session)
            except asyncio.CancelledError:
                watch.report = await self._recount(watch.count(), session)
                raise

    async def _check(self, session: Session, watch: _Watch) -> None:
        limits = [self._limit]
        if self.job.operation == "sync":
            limits.append(find_job_limit(self.job.target.kind, "remove"))
        watch.display.follow(session.governor, limits)
        if not self.journal.is_finished:
            _ = session.accounts  # an app is refused before the file is read
            watch.display.begin("checking")
            await self.source.check()
            if (unused := describe_unused(self.job, self.source)) and not self.options.as_json:
                say(unused)
            await check_access(self.job.target, session)

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Session]:
        """Open the session, and the cluster or the sandbox that the job gets."""
        if self.workers is not None:
            async with open_workers(self.job.target, self.options, self.workers) as (session, client, state):
                shards = self.workers.shards if isinstance(self.workers, ClusterFlags) else None
                journal = None if self.cluster_job is None else state.journal(self.cluster_job)
                self.job = attrs.evolve(self.job, cluster=client, shards=shards, journal=journal)
                yield session
        elif self.options.sandbox:
            async with _open_sandbox(self.job.target) as (session, target):
                self.job = attrs.evolve(self.job, target=target)
                yield session
        else:
            async with open_session(self.options.profile, state_url=self.options.state_url) as session:
                yield session

    async def _recount(self, report: Report, session: Session) -> Report:
        """Return the counts that the journal has of a job that ended early, which `job status` shows as well.

        A journal that could not be written lacks failures that are listed; the counts of this process include them.
        """
        record = await self.journal.read_end(session)
        if record is None or record.begun_at is None or record.report.failed < report.failed:
            return report
        return attrs.evolve(record.report, partly_valid=report.partly_valid, failures=report.failures)

    def _conclude(self, watch: _Watch, report: Report) -> JobOutcome:
        host = "an embedded sandbox"
        if not self.options.sandbox:
            host = urlsplit(profiles.find(self.options.profile).endpoints.ads_url).netloc
        return JobOutcome(
            title=self.job.title,
            facts=describe_target(self.job, host),
            begun_at=watch.begun_at,
            file=self.file,
            name="stdin" if self.file == STANDARD_INPUT else Path(self.file).name,
            journal=self.cluster_job or self.journal.name,
            finished_before=self.journal.is_finished,
            report=report,
            seconds=watch.seconds,
            drops=self.job.reading.bad_identifiers == "drop",
            failures=watch.failures,
            find_line=self.source.find_line,
            timeline=watch.timeline,
            requests_per_minute=self._limit.per_minute,
            more=self._plan.counts,
            compared=self._plan.rows,
            unused=list_unused(self.job, self.source) if self.workers is None else {},
            error=watch.error,
            interrupted=watch.interrupted,
            advice=self._describe_rest(report, watch.error) if watch.is_early else None,
            report_command=self.journal.report_command,
            options=self.options,
        )

    def _print(self, outcome: JobOutcome) -> None:
        if self.options.as_json:
            show_json(outcome.as_dict(), error=outcome.problem)
        else:
            outcome.print()
        if self.journal.is_finished:
            say(_FINISHED_BEFORE)
        if outcome.error is not None:
            print_error(explain(outcome.error))
        if outcome.failures.problem is not None:
            print_error(outcome.failures.explain())
        if outcome.advice is not None and not self.options.as_json:
            say(outcome.advice)

    def _describe_rest(self, report: Report, error: BatchError | None) -> str:
        cause: BaseException | None = error
        while isinstance(cause, BatchError):  # a sync raises one whose cause is the error of its upload
            cause = cause.__cause__
        if isinstance(cause, NotFound) and not report.accepted:
            return _ANOTHER_ID + (_ANOTHER_JOURNAL if self.journal.is_kept else "")
        run = "When that is corrected, run" if isinstance(cause, SvcError) and not cause.repeatable else "Run"
        if self.job.operation == "sync":  # what is left of a plan is known to the next one only
            return f"{run} the same command again to finish: it sends only what is still missing."
        if self.workers is not None:
            return f"{run} the same command again to resume the job: what is finished is not sent again."
        rest = f"Still to do: {count(report.pending, 'row')} that {'was' if report.pending == 1 else 'were'} read"
        if self.journal.is_kept:
            rest += "." if self.source.exhausted else ", and the rest of the file."
            resume = f"run the same command again, or `{self.journal.resume_command}`, to resume the job"
            if isinstance(cause, UnusableFile) and cause.parameter == "file":
                return f"{rest} {_RESTORE} and {resume}. {_START_AGAIN}"
            return f"{rest} {run} {resume.removeprefix('run ')}."
        line = self.source.find_line(report.read)
        place = f"row {report.read + 1:,}" if line is None else f"line {line:,}"
        rest += "." if self.source.exhausted else f", and the file from {place} on."
        is_deletion = (self.job.target.kind, self.job.operation) == ("catalog", "remove")
        effect = (
            "products that were deleted fail then" if is_deletion else "rows that were accepted are not added twice"
        )
        return f"{rest} {run} the same command again to finish: {effect}."


@asynccontextmanager
async def _open_sandbox(target: TargetSpec) -> AsyncGenerator[tuple[Session, TargetSpec]]:
    """Start a sandbox, and fill in the ids that are not given."""
    from svc_async.sandbox import Sandbox  # noqa: PLC0415 - a server is loaded only where one is asked for

    async with Sandbox() as sandbox, Session.sandbox(sandbox) as session:
        ids = {"account_id": sandbox.account_id}
        if target.kind == "audience":
            ids["list_id"] = sandbox.audience_id
        elif target.kind == "do_not_reach_list":
            ids["list_id"] = sandbox.do_not_reach_list_id
        elif target.list_id is None:  # a catalog
            ids["list_id"] = sandbox.add_catalog()
        missing: dict[str, Any] = {name: value for name, value in ids.items() if getattr(target, name) is None}
        filled = attrs.evolve(target, **missing)
        filled.check()
        yield session, filled
