"""Runs the job of a command: shows its progress, lists its failures and reports how it ended."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import attrs

from svc_async import profiles
from svc_async.batch.report import KEPT_FAILURES, Failure, Progress, Report, Timeline
from svc_async.batch.settings import Observers
from svc_async.batch.sync.report import SyncReport
from svc_async.cli.exit_codes import Exit, Interrupted, explain
from svc_async.cli.failures import FailureList, name_failures_file
from svc_async.cli.job_journal import JobJournal, find_journal
from svc_async.cli.job_page import describe_target
from svc_async.cli.options import JournalFlags, RunFlags
from svc_async.cli.outcome import JobOutcome, Work, check_report
from svc_async.cli.output.console import print_error, say, stderr
from svc_async.cli.output.json_output import show_json
from svc_async.cli.output.progress import Display, open_display
from svc_async.cli.output.unused_columns import describe_unused, list_unused
from svc_async.cli.output.wording import count
from svc_async.cli.sessions import open_session
from svc_async.cli.signals import run_until_stopped
from svc_async.cli.sync_command import SyncWork
from svc_async.clock import Clock, SystemClock
from svc_async.errors import BatchError, InvalidArgument, NotFound, SvcError, UnusableFile
from svc_async.jobs.limits import JobLimit, find_job_limit
from svc_async.jobs.run import check_access, open_rows, run
from svc_async.jobs.spec import JobSpec, SyncSpec, TargetSpec, UploadSpec
from svc_async.session import Session
from svc_async.sources.detect import STANDARD_INPUT
from svc_async.sources.source import ReplayableSource

__all__ = ["run_job"]

_FINISHED_BEFORE = (
    "The job was finished before: nothing was sent. A new job needs a new journal; --journals FOLDER keeps one a run."
)

_RESTORE = "The journal belongs to the file as it was when the job began: restore that"
_ANOTHER_ID = "No row was accepted. If the id is wrong, run the command with the right one."
_ANOTHER_JOURNAL = " It takes a journal of its own then: this one belongs to the wrong id."
_START_AGAIN = "For a file with other rows, run the command with a new journal, or without one."


def run_job(spec: JobSpec, file: str, options: RunFlags, journal: JournalFlags) -> int:
    """Run a job and return the exit code.

    Raises:
        InvalidArgument: an option or the file cannot be used; nothing was sent.
    """
    if not options.sandbox:
        spec.target.check()
    elif journal != JournalFlags():
        raise InvalidArgument("--journal", "must not be given with --sandbox, which forgets what it was sent")
    elif options.profile:
        raise InvalidArgument("profile", "must not be given with --sandbox, which brings credentials")
    elif options.state_url:
        raise InvalidArgument("--state-url", "must not be given with --sandbox, whose limits are its own")
    kept = JobJournal.open(find_journal(journal, spec, options), spec, options)
    as_typed = attrs.evolve(spec, source=attrs.evolve(spec.source, path=file))  # messages name the file so
    # Standard input is read here: in the event loop, waiting for it would delay the handling of signals.
    with closing(kept.spooled or open_rows(as_typed)) as source:
        work: _FileWork = (
            SyncWork(spec, source, options) if isinstance(spec, SyncSpec) else _UploadWork(spec, source, kept)
        )
        job = _FileJob(spec=spec, file=Path(file), options=options, source=source, journal=kept, work=work)
        return asyncio.run(job.run())


class _FileWork(Work, Protocol):
    """What a job with a file does, once its session is open and the file is checked."""

    async def run(
        self, target: TargetSpec, session: Session, observers: Observers, failures: FailureList
    ) -> Report | None:
        """Do it with a list whose ids are complete; None if only a plan was printed."""
        ...


@attrs.frozen
class _UploadWork:
    """Uploads rows, or removes them."""

    spec: UploadSpec
    source: ReplayableSource
    journal: JobJournal
    more: Mapping[str, int] = attrs.field(factory=dict, init=False)
    compared: None = attrs.field(default=None, init=False)
    exit: Exit = attrs.field(default=Exit.DONE, init=False)

    @property
    def advice(self) -> str:
        if (self.spec.target.kind, self.spec.operation) == ("catalog", "remove"):
            return "products that were deleted fail then."
        return "rows that were accepted are not added twice."

    def summarize(self, report: Report) -> str:
        return f"{count(report.read, 'row')} read"

    async def run(
        self,
        target: TargetSpec,
        session: Session,
        observers: Observers,
        failures: FailureList,  # noqa: ARG002 - an upload removes nothing that is not in the file
    ) -> Report:
        spec = attrs.evolve(self.spec, target=target)
        return await run(spec, session, source=self.source, journal=self.journal.locate(session), observers=observers)


@attrs.define
class _Watch:
    """Keeps what a report needs, also of a job that is cut off."""

    display: Display
    failures: FailureList
    timeline: Timeline
    known: Report | None = None
    """What the journal knows."""
    kept: list[Failure] = attrs.field(factory=list[Failure])

    @property
    def observers(self) -> Observers:
        return Observers(progress=self._on_progress, on_failure=self._on_failure)

    @property
    def report(self) -> Report:
        if self.known is not None and self.display.last == Progress():  # the job has announced nothing yet
            return self.known
        return Report.from_progress(self.display.last, self.kept)

    def _on_progress(self, progress: Progress) -> None:
        self.timeline.add(progress)
        self.display.show(progress)

    def _on_failure(self, failure: Failure) -> None:
        self.failures.add(failure)
        if len(self.kept) < KEPT_FAILURES:
            self.kept.append(failure)


@attrs.frozen(kw_only=True)
class _FileJob:
    """A job with a file.

    Attributes:
        spec: the job.
        file: the file as it was typed; `-` is standard input.
        options: where it runs, and where its results go.
        source: its rows.
        journal: its journal.
        work: what it does.
        clock: where time comes from.
    """

    spec: JobSpec
    file: Path
    options: RunFlags
    source: ReplayableSource
    journal: JobJournal
    work: _FileWork
    clock: Clock = attrs.field(factory=SystemClock)

    async def run(self) -> int:
        self._check_paths()
        async with _open_target(self.spec.target, self.options) as (session, target):
            with FailureList(
                self._failures_path,
                self.source,
                lasting=self.journal.is_kept,
            ) as failures:
                outcome = await self._run(target, session, failures)
                if outcome is not None and not outcome.is_early:
                    failures.finish()
        if outcome is None:
            return self.work.exit
        self._print(outcome)
        return outcome.save()

    @property
    def _host(self) -> str:
        if self.options.sandbox:
            return "an embedded sandbox"
        return urlsplit(profiles.find(self.options.profile).endpoints.ads_url).netloc

    @property
    def _name(self) -> str:
        return "stdin" if str(self.file) == STANDARD_INPUT else self.file.name

    @property
    def _failures_path(self) -> Path:
        sandbox = self.options.sandbox
        return self.options.failures_file or name_failures_file(self.spec, str(self.file), sandbox=sandbox)

    @property
    def _limit(self) -> JobLimit:
        operation = self.spec.operation if isinstance(self.spec, UploadSpec) else "upload"
        return find_job_limit(self.spec.target.kind, operation)

    @property
    def _limits(self) -> Sequence[JobLimit]:
        """The limits of all that it sends; a sync also removes."""
        if isinstance(self.spec, UploadSpec):
            return (self._limit,)
        return (self._limit, find_job_limit(self.spec.target.kind, "remove"))

    def _check_paths(self) -> None:
        file, failures = self.file.resolve(), self._failures_path.resolve()
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

    async def _run(self, target: TargetSpec, session: Session, failures: FailureList) -> JobOutcome | None:
        began, begun_at, limit = self.clock.monotonic(), self.clock.now(), self._limit
        error: BatchError | None = None
        interrupted = False
        with open_display(
            self.source, console=stderr(), clock=self.clock, limit=limit, as_json=self.options.as_json
        ) as display:
            display.follow(session.governor, self._limits)
            known = None if self.journal.record is None else self.journal.record.report
            watch = _Watch(display, failures, Timeline(), known)
            try:
                report = await run_until_stopped(self._work(target, session, watch))
            except BatchError as early:
                error, report = early, _find_report(early) or watch.report
            except Interrupted:
                interrupted, report = True, watch.report
        if report is None:
            return None
        if interrupted or error is not None:
            report = await self._recount(report, session)
        return JobOutcome(
            title=self.spec.title,
            facts=describe_target(attrs.evolve(self.spec, target=target), self._host),
            begun_at=begun_at,
            file=self.file,
            name=self._name,
            journal=self.journal.name,
            finished_before=self.journal.is_finished,
            summary=self.work.summarize(report),
            report=report,
            seconds=self.clock.monotonic() - began,
            drops=self.spec.bad_identifiers == "drop",
            failures=failures,
            find_line=self.source.find_line,
            timeline=watch.timeline,
            requests_per_minute=limit.per_minute,
            more=self.work.more,
            compared=self.work.compared,
            unused=list_unused(self.spec, self.source),
            error=error,
            interrupted=interrupted,
            advice=self._describe_rest(report, error) if interrupted or error is not None else None,
            report_command=self.journal.report_command,
            options=self.options,
        )

    async def _recount(self, report: Report, session: Session) -> Report:
        """Return the counts that the journal has of a job that ended early, which `job status` shows as well.

        A journal that could not be written lacks failures that are listed; the counts of this process include them.
        """
        record = await self.journal.read_end(session)
        if record is None or record.begun_at is None or record.report.failed < report.failed:
            return report
        return attrs.evolve(record.report, partly_valid=report.partly_valid, failures=report.failures)

    async def _work(self, target: TargetSpec, session: Session, watch: _Watch) -> Report | None:
        """Check that the file is sound and the service answers, then do the work."""
        if not self.journal.is_finished:
            watch.display.begin("checking")
            await self.source.check()
            if (unused := describe_unused(self.spec, self.source)) and not self.options.as_json:
                say(unused)
            await check_access(target, session)
        await self.journal.begin(self.source, self.spec, self.options, self.journal.locate(session))
        if self.journal.record is not None:
            watch.failures.resume(self.journal.record.report.failures, finished=self.journal.is_finished)
        return await self.work.run(target, session, watch.observers, watch.failures)

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
        cause = _find_cause(error)
        if isinstance(cause, NotFound) and not report.accepted:
            return _ANOTHER_ID + (_ANOTHER_JOURNAL if self.journal.is_kept else "")
        run = "When that is corrected, run" if isinstance(cause, SvcError) and not cause.repeatable else "Run"
        was = "was" if report.pending == 1 else "were"
        if self.journal.is_kept:
            unread = "" if self.source.exhausted else ", and the rest of the file"
            rest = f"Still to do: {count(report.pending, 'row')} that {was} read{unread}."
            resume = f"run the same command again, or `{self.journal.resume_command}`, to resume the job"
            if isinstance(cause, UnusableFile) and cause.parameter == "file":
                return f"{rest} {_RESTORE} and {resume}. {_START_AGAIN}"
            return f"{rest} {run} {resume.removeprefix('run ')}."
        again = f"{run} the same command again to finish: {self.work.advice}"
        if not isinstance(self.spec, UploadSpec):  # what is left of a plan is known to the next one only
            return again
        line = self.source.find_line(report.read)
        place = f"row {report.read + 1:,}" if line is None else f"line {line:,}"
        unread = "" if self.source.exhausted else f", and the file from {place} on"
        return f"Still to do: {count(report.pending, 'row')} that {was} read{unread}. {again}"


def _find_cause(error: BaseException | None) -> BaseException | None:
    """Return what ended a job early; the error of a sync has that of its upload as its cause."""
    while isinstance(error, BatchError):
        error = error.__cause__
    return error


def _find_report(error: BatchError) -> Report | None:
    report = error.report.total if isinstance(error.report, SyncReport) else error.report
    return report if isinstance(report, Report) else None


@asynccontextmanager
async def _open_target(target: TargetSpec, options: RunFlags) -> AsyncGenerator[tuple[Session, TargetSpec]]:
    """Open the session. With `--sandbox`, start one, and fill in the ids that are not given."""
    if not options.sandbox:
        async with open_session(options.profile, state_url=options.state_url) as session:
            yield session, target
        return
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
