"""Does a job with a file, shows how far it is, and says what became of it; whatever the job is."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs
from rich.text import Text

from svc_async.batch.report import KEPT_FAILURES, Failure, Progress, Report
from svc_async.batch.settings import Observers
from svc_async.batch.sync.sync import SyncReport
from svc_async.batch.timeline import Timeline
from svc_async.cli.console import complain, stderr, stdout
from svc_async.cli.exit_codes import Exit, exit_of, explain
from svc_async.cli.failures import FailureList
from svc_async.cli.job_journal import Journaling
from svc_async.cli.options import JobOptions
from svc_async.cli.progress import Display, clock_time, display_of
from svc_async.cli.sessions import open_session
from svc_async.cli.signals import Interrupted, run_until_stopped
from svc_async.clock import Clock, SystemClock
from svc_async.errors import BatchError, InvalidArgument, SvcError
from svc_async.governor.limits import LIMITS
from svc_async.jobs.html_report import JobRecord, report_page
from svc_async.session import Session
from svc_async.sources.detect import STANDARD_INPUT
from svc_async.sources.source import ReplayableSource

__all__ = ["Job", "Ready", "Work", "mapping_of", "moment_of", "opened", "requests_per_minute"]

_LISTED = 5
"""Reasons that are printed."""

Ready = Callable[[], Awaitable[object]]
"""Asks the service for something small, so that a wrong host, credential or id shows at once."""


@attrs.frozen(kw_only=True)
class Work:
    """What is to be done, once the session is open.

    Attributes:
        ready: asks the service for something small.
        do: does it; None if nothing was to be done but what it has said.
        more: further numbers for the reports.
    """

    ready: Ready
    do: Callable[[Observers, FailureList], Awaitable[Report | None]]
    more: Callable[[], Mapping[str, int]] = dict


@attrs.frozen(kw_only=True)
class _Outcome:
    """How a job ended."""

    report: Report
    seconds: float
    error: BatchError | None = None
    interrupted: bool = False

    @property
    def exit(self) -> Exit:
        if self.interrupted:
            return Exit.INTERRUPTED
        if self.error is not None:
            cause = self.error.__cause__
            return exit_of(cause) if isinstance(cause, SvcError) else Exit.FAILURE
        return Exit.SOME_FAILED if self.report.failed else Exit.DONE

    @property
    def speed(self) -> float:
        report = self.report
        return (report.accepted + report.coalesced + report.failed) / self.seconds if self.seconds else 0.0


@attrs.define
class _Watch:
    """Keeps what a report needs, also of a job that is cut off."""

    display: Display
    failures: FailureList
    timeline: Timeline
    kept: list[Failure] = attrs.field(factory=list[Failure])

    @property
    def observers(self) -> Observers:
        return Observers(progress=self._progress, on_failure=self._failure)

    @property
    def report(self) -> Report:
        return Report.from_progress(self.display.last, self.kept)

    def _progress(self, progress: Progress) -> None:
        self.timeline.add(progress)
        self.display.show(progress)

    def _failure(self, failure: Failure) -> None:
        self.failures.add(failure)
        if len(self.kept) < KEPT_FAILURES:
            self.kept.append(failure)


@attrs.frozen(kw_only=True)
class Job:
    """One file on its way.

    Attributes:
        file: its path, or `-`.
        what: what is done with it, for the report.
        origin: its rows.
        options: what all jobs have in common.
        limit: the service's requests a minute.
        again: what running the same command again does with what is left.
        journaling: its journal, if it keeps one.
    """

    file: Path
    what: str
    origin: ReplayableSource
    options: JobOptions
    limit: float
    again: str = "rows that are in already are not added twice."
    journaling: Journaling = attrs.field(factory=Journaling)
    clock: Clock = attrs.field(factory=SystemClock)

    async def run(self, opening: AbstractAsyncContextManager[Work]) -> int:
        """Do the whole job and give the exit code."""
        self._check_paths()
        timeline = Timeline()
        async with opening as work:
            lasting, again = self.journaling.path is not None, self.journaling.begun is not None
            with FailureList(self._failures_path, self.origin, lasting=lasting, again=again) as failures:
                outcome = await self._do(work, failures, timeline)
            if outcome is None:
                return Exit.DONE
            more = work.more()
        self._tell(outcome, failures, more)
        self._write(outcome, failures, timeline, more)
        return outcome.exit

    @property
    def title(self) -> str:
        """What people call the file."""
        return "stdin" if str(self.file) == STANDARD_INPUT else self.file.name

    @property
    def _failures_path(self) -> Path:
        return self.options.failures or self.file.with_name(f"{self.title}.failures.csv")

    def _check_paths(self) -> None:
        if self._failures_path.resolve() == self.file.resolve():
            raise InvalidArgument("failures", "must not be the file itself")
        journal = self.journaling.path and self.journaling.path.resolve()
        if journal in {self.file.resolve(), self._failures_path.resolve()}:
            raise InvalidArgument("--journal", "must be a file of its own")
        report = self.options.report
        if report is None:
            return
        if report.suffix not in {".html", ".json"}:
            raise InvalidArgument("report", "must end in .html or .json")
        if (
            report.resolve() in {self.file.resolve(), self._failures_path.resolve(), journal}
            or not report.parent.is_dir()
        ):
            raise InvalidArgument("report", "must be a file of its own, in a folder that is there")

    async def _do(self, work: Work, failures: FailureList, timeline: Timeline) -> _Outcome | None:
        began = self.clock.monotonic()
        error: BatchError | None = None
        with display_of(
            self.origin, console=stderr(), clock=self.clock, limit=self.limit, quiet=self.options.json
        ) as display:
            watch = _Watch(display, failures, timeline)
            interrupted = False
            try:
                report = await run_until_stopped(self._worked(work, watch))
            except BatchError as early:
                error, report = early, _report_of(early) or watch.report
            except Interrupted:
                interrupted, report = True, watch.report
        if report is None:
            return None
        seconds = self.clock.monotonic() - began
        return _Outcome(report=report, seconds=seconds, error=error, interrupted=interrupted)

    async def _worked(self, work: Work, watch: _Watch) -> Report | None:
        """See that the file is sound and the service answers, then do it."""
        if not self.journaling.finished:
            await self.origin.check()
            await work.ready()
        await self.journaling.begin(self.origin)
        if self.journaling.begun is not None:
            watch.failures.go_on(self.journaling.begun.report.failures, finished=self.journaling.finished)
        return await work.do(watch.observers, watch.failures)

    def _tell(self, outcome: _Outcome, failures: FailureList, more: Mapping[str, int]) -> None:
        if self.options.json:
            stdout().print(json.dumps(self._as_dict(outcome, failures, more)))
        else:
            _print_report(self.title, outcome, failures, more)
        if self.journaling.finished and not self.options.json:
            stderr().print("The job was finished before: nothing was sent. A new job needs a new journal.")
        if outcome.error is not None:
            complain(explain(outcome.error))
        if (outcome.interrupted or outcome.error is not None) and not self.options.json:
            stderr().print(self._still_to_do(outcome.report))

    def _as_dict(self, outcome: _Outcome, failures: FailureList, more: Mapping[str, int]) -> Mapping[str, Any]:
        return {
            "file": str(self.file),
            **outcome.report.as_dict(),
            **more,
            "journal": str(self.journaling.path) if self.journaling.path is not None else None,
            "failures_file": str(failures.path) if failures.count else None,
            "seconds": round(outcome.seconds, 3),
            "rows_per_second": round(outcome.speed, 1),
            "interrupted": outcome.interrupted,
            "error": explain(outcome.error) if outcome.error else None,
        }

    def _write(self, outcome: _Outcome, failures: FailureList, timeline: Timeline, more: Mapping[str, int]) -> None:
        """Write the report file; its form is told by its name."""
        path = self.options.report
        if path is None:
            return
        if path.suffix == ".json":
            samples = [attrs.asdict(sample) for sample in timeline.samples]
            reasons = dict(failures.reasons)
            told = {**self._as_dict(outcome, failures, more), "reasons": reasons, "timeline": samples}
            content = json.dumps({**told, "requests_per_minute_limit": self.limit}, indent=1)
        else:
            content = report_page(self._record(outcome, failures, timeline, more))
        path.write_text(content, encoding="utf-8")

    def _record(
        self, outcome: _Outcome, failures: FailureList, timeline: Timeline, more: Mapping[str, int]
    ) -> JobRecord:
        early = "it was interrupted" if outcome.interrupted else None
        return JobRecord(
            title=f"{self.what}: {self.title}",
            report=outcome.report,
            seconds=outcome.seconds,
            samples=timeline.samples,
            reasons=dict(failures.reasons.most_common()),
            requests_per_minute=self.limit,
            ended_early=explain(outcome.error) if outcome.error else early,
            more={name.replace("_", " "): number for name, number in more.items()},
        )

    def _still_to_do(self, report: Report) -> str:
        if self.journaling.path is not None:
            unread = "" if self.origin.exhausted else ", and the rest of the file"
            return (
                f"Still to do: {report.pending:,} rows that were read{unread}. Run the same command again, or "
                f"`svc-async job resume {self.journaling.path}`: it goes on where this run ended."
            )
        line = self.origin.find_line(report.read)
        place = f"row {report.read + 1:,}" if line is None else f"line {line:,}"
        unread = "" if self.origin.exhausted else f", and the file from {place} on"
        pending = f"Still to do: {report.pending:,} rows that were read{unread}. "
        return f"{pending}Run the same command again to finish: {self.again}"


def _report_of(error: BatchError) -> Report | None:
    report = error.report.total if isinstance(error.report, SyncReport) else error.report
    return report if isinstance(report, Report) else None


@asynccontextmanager
async def opened(options: JobOptions) -> AsyncGenerator[tuple[Session, Any]]:
    """Open the session; beside it stands the embedded sandbox, if it is one of these."""
    if options.sandbox:
        from svc_async.sandbox import Sandbox  # noqa: PLC0415 - a server is not loaded by those who need none

        if options.profile:
            raise InvalidArgument("profile", "must not be given with --sandbox, which brings credentials")
        async with Sandbox() as sandbox, Session.sandbox(sandbox) as session:
            yield session, sandbox
        return
    async with open_session(options.profile) as session:
        yield session, None


def mapping_of(pairs: Sequence[str]) -> Mapping[str, str]:
    """Read COLUMN=KEY pairs."""
    mapping: dict[str, str] = {}
    for pair in pairs:
        column, equals, key = pair.rpartition("=")
        if not equals or not column:
            raise InvalidArgument("map", "must be COLUMN=KEY, such as --map Mail=email")
        mapping[column] = key.strip()
    return mapping


def moment_of(name: str, text: str | None) -> datetime | None:
    """Read a time in ISO 8601."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(name, "must be a time in ISO 8601, such as 2030-12-31T23:59:59Z") from None
    if moment.tzinfo is None:
        raise InvalidArgument(name, "must say its time zone: add Z for UTC, or an offset such as +02:00")
    return moment


def requests_per_minute(limit: str) -> float:
    """Give a limit of the service by its name."""
    row = next(each for each in LIMITS if each.name == limit)
    return row.requests * 60 / row.period


def _print_report(title: str, outcome: _Outcome, failures: FailureList, more: Mapping[str, int]) -> None:
    report, out = outcome.report, stdout()
    requests = f"{report.requests:,} request{'' if report.requests == 1 else 's'}"
    out.print(
        Text.assemble(
            (title, "bold"),
            f": {report.read:,} rows read in {clock_time(outcome.seconds)}",
            (f" ({outcome.speed:,.0f} rows/s, {requests})", "dim"),
        )
    )
    for number, style, what in _rows(report):
        out.print(Text.assemble((f"{number:>13,} ", style), what))
        if what == "failed":
            _print_reasons(failures)
    for name, count in more.items():
        out.print(Text.assemble((f"{count:>13,} ", "dim"), name.replace("_", " ")))


def _rows(report: Report) -> list[tuple[int, str, str]]:
    rows = [(report.accepted, "bold green", "accepted")]
    if report.coalesced:
        rows.append((report.coalesced, "cyan", "repeated: an equal row travelled in the same request"))
    if report.failed:
        rows.append((report.failed, "bold red", "failed"))
    if report.pending:
        rows.append((report.pending, "bold yellow", "pending: read and without an outcome"))
    if report.in_doubt:
        rows.append((report.in_doubt, "yellow", "  of these in doubt: sent, and maybe applied"))
    return rows


def _print_reasons(failures: FailureList) -> None:
    out = stdout()
    for reason, count in failures.reasons.most_common(_LISTED):
        out.print(Text.assemble((f"{count:>17,} ", "red"), (reason, "dim")))
    out.print(Text.assemble(" " * 14, ("listed in ", "dim"), str(failures.path)))
