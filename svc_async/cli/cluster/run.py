"""Runs the job of a command on a cluster, shows its progress and reports how it ended."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs

from svc_async import profiles
from svc_async.batch.report import Failure, Progress, Report
from svc_async.batch.settings import Observers
from svc_async.batch.timeline import Timeline
from svc_async.cli.exit_codes import Interrupted, explain
from svc_async.cli.failures import FailureList
from svc_async.cli.job_journal import describe_ids
from svc_async.cli.options import ClusterOptions, JournalOptions, RunOptions
from svc_async.cli.outcome import JobOutcome
from svc_async.cli.output.console import complain, say, stderr
from svc_async.cli.output.json_output import show_json
from svc_async.cli.output.progress import Display, open_display
from svc_async.cli.output.wording import count
from svc_async.cli.sessions import open_session
from svc_async.cli.signals import run_until_stopped
from svc_async.clock import SystemClock
from svc_async.engine.origin import SessionOrigin
from svc_async.errors import BatchError, InvalidArgument
from svc_async.jobs.limits import requests_per_minute
from svc_async.jobs.run import check_access
from svc_async.jobs.spec import JobSpec, UploadSpec
from svc_async.sources.detect import STANDARD_INPUT
from svc_async.state import SharedState

__all__ = ["run_on_cluster"]

_LOCAL = "local"
_STATE_VARIABLE = "SVC_STATE_URL"


def run_on_cluster(
    spec: JobSpec, file: Path, options: RunOptions, journal: JournalOptions, cluster: ClusterOptions
) -> int:
    """Run a job on a cluster and return the exit code.

    Raises:
        InvalidArgument: an option cannot be used, or an extra is missing; nothing was sent.
    """
    _check(spec, options, journal, cluster)
    if not isinstance(spec, UploadSpec):
        raise InvalidArgument("--cluster", "runs uploads and removals")
    return asyncio.run(_ClusterJob(spec, file, options, cluster, journal.job).run())


def _check(spec: JobSpec, options: RunOptions, journal: JournalOptions, cluster: ClusterOptions) -> None:
    spec.target.check()
    if cluster.cluster is None:
        raise InvalidArgument("--cluster", "must be given with --workers and --shards")
    if options.sandbox:
        raise InvalidArgument("--sandbox", "must not be given with --cluster: `svc-async sandbox` serves one for it")
    if journal.journal is not None or journal.journals is not None:
        raise InvalidArgument("--journal", "must not be given with --cluster: --job names the job in the shared state")
    if spec.source.path == STANDARD_INPUT:
        raise InvalidArgument("file", "must not be standard input with --cluster: the workers read files")
    if cluster.cluster != _LOCAL and cluster.workers is not None:
        raise InvalidArgument("--workers", "must be given with --cluster local only")
    if cluster.cluster != _LOCAL and journal.job is None:
        raise InvalidArgument("--job", "must be given with the address of a cluster")
    if cluster.workers is not None and cluster.workers < 1:
        raise InvalidArgument("--workers", "must be at least 1")


def _import_cluster(name: str) -> Any:
    """Import a module of the package of clusters.

    Raises:
        InvalidArgument: the extra is missing.
    """
    try:
        return import_module(f"svc_async.cluster.{name}")
    except ImportError as error:
        if error.name and error.name.startswith("svc_async"):
            raise
        advice = f'needs the package {error.name}: pip install "svc-async[cluster]"'
        raise InvalidArgument("--cluster", advice) from None


class _ClusterRows:
    """Stands for the source of a job that workers read.

    Attributes:
        size: one unit, so that the share that is done is that of the rows which are read.
    """

    size = bytes_read = 1
    exhausted = True
    ignored = columns = ()

    def __init__(self, name: str) -> None:
        self.name = name

    async def check(self) -> None:
        """Accept it: the workers check it."""

    async def fingerprint(self) -> str:
        return ""

    def find_line(self, position: int) -> int:
        """Return the position, which is the line already."""
        return position

    def close(self) -> None:
        """Do nothing: it holds no file."""


@attrs.define
class _JobObserver:
    """Keeps what a report needs, also of a job that is cut off."""

    display: Display
    failures: FailureList
    timeline: Timeline = attrs.field(factory=Timeline)

    @property
    def observers(self) -> Observers:
        return Observers(progress=self._on_progress, on_failure=self._on_failure)

    def _on_progress(self, progress: Progress) -> None:
        self.timeline.add(progress)
        self.display.show(progress)

    def _on_failure(self, failure: Failure) -> None:
        self.failures.add(failure)


@attrs.frozen
class _ClusterJob:
    """The job of a command on a cluster."""

    spec: UploadSpec
    file: Path
    options: RunOptions
    cluster: ClusterOptions
    job: str | None

    async def run(self) -> int:
        clock, source = SystemClock(), _ClusterRows(self._name)
        began, limit = clock.monotonic(), requests_per_minute(self.spec.target.kind, self.spec.operation)
        error: BatchError | None = None
        interrupted = False
        with (
            FailureList(self._failures_path, source) as failures,
            open_display(source, console=stderr(), clock=clock, limit=limit, quiet=self.options.as_json) as display,
        ):
            watch = _JobObserver(display, failures)
            try:
                report = await run_until_stopped(self._work(watch))
                failures.finish()
            except BatchError as early:
                error, report = early, early.report
            except Interrupted:
                interrupted, report = True, Report.from_progress(display.last)
        outcome = JobOutcome(
            title=self.spec.title,
            file=self.file,
            name=self._name,
            journal=self._job_name,
            finished_before=False,
            summary=f"{count(report.read, 'row')} read",
            report=report,
            seconds=clock.monotonic() - began,
            drops=self.spec.bad_identifiers == "drop",
            failures=failures,
            find_line=source.find_line,
            timeline=watch.timeline,
            requests_per_minute=limit,
            more={},
            error=error,
            interrupted=interrupted,
            options=self.options,
        )
        self._print(outcome)
        return outcome.exit

    @property
    def _name(self) -> str:
        return Path(self.spec.source.path).name

    @property
    def _job_name(self) -> str:
        if self.job is not None:
            return self.job
        ids = " ".join(filter(None, describe_ids(self.spec.target).values()))
        return f"{self.spec.operation} {ids} {self.spec.source.path}"[-200:]

    @property
    def _failures_path(self) -> Path:
        safe = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in self._name)
        return self.options.failures_file or Path(f"{safe}.cluster.failures.csv")

    async def _work(self, watch: _JobObserver) -> Report:
        runner = _import_cluster("runner")
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(_open_state_url(self.options, self.cluster))
            session = await stack.enter_async_context(open_session(self.options.profile, state_url=url))
            await check_access(self.spec.target, session)
            client = await stack.enter_async_context(_open_client(self.cluster))
            state = session.state
            if state is None:
                raise InvalidArgument(_STATE_VARIABLE, "must be set with --cluster, or --state-url given")
            reports = await runner.run_jobs(
                [self.spec],
                cluster=client,
                journal=state.journal(self._job_name),
                origin=SessionOrigin(profiles.find(self.options.profile).profile),
                shards=self.cluster.shards,
                observers=watch.observers,
            )
        report: Report = reports[0]
        return report

    def _print(self, outcome: JobOutcome) -> None:
        if self.options.as_json:
            show_json(outcome.as_dict(), error=outcome.problem)
        else:
            outcome.print()
        if outcome.error is not None:
            complain(explain(outcome.error))
        if self.options.report is not None:
            outcome.write(self.options.report)
        if outcome.is_early and not self.options.as_json:
            say("Run the same command again to resume the job: what is finished is not sent again.")


def _open_client(options: ClusterOptions) -> Any:
    clients = _import_cluster("clients")
    logging.getLogger("distributed").setLevel(logging.ERROR)  # what happens to workers is no news to users
    if options.cluster == _LOCAL:
        return clients.start_local(options.workers)
    return clients.open_client(options.cluster)


@asynccontextmanager
async def _open_state_url(options: RunOptions, cluster: ClusterOptions) -> AsyncGenerator[str | None]:
    """Return the URL of the shared state; on this machine, of an embedded one if none is set.

    Workers on this machine find it in the environment.
    """
    url = options.state_url or profiles.find_state_url(options.profile)
    if cluster.cluster != _LOCAL:
        yield url
        return
    if url is not None:
        with _set_variable(url):
            yield url
        return
    async with SharedState.embedded() as state:
        with _set_variable(state.url):
            yield state.url


@contextmanager
def _set_variable(url: str) -> Generator[None]:
    """Set the URL of the shared state in the environment of the processes that are started meanwhile."""
    before = os.environ.get(_STATE_VARIABLE)
    os.environ[_STATE_VARIABLE] = url
    try:
        yield
    finally:
        if before is None:
            del os.environ[_STATE_VARIABLE]
        else:
            os.environ[_STATE_VARIABLE] = before
