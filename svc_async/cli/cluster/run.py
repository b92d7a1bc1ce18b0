"""Runs the job of a command on a cluster, shows its progress and reports how it ended."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from svc_async import profiles
from svc_async.batch.report import Failure, Progress, Report, Timeline
from svc_async.batch.settings import Observers
from svc_async.batch.sync.report import SyncReport
from svc_async.cli.cluster.work import ClusterRows, ClusterWork, make_work
from svc_async.cli.exit_codes import Interrupted, explain
from svc_async.cli.failures import FailureList, name_failures_file
from svc_async.cli.job_page import describe_target
from svc_async.cli.options import ClusterFlags, JournalFlags, RunFlags, WorkerFlags
from svc_async.cli.outcome import JobOutcome, check_report
from svc_async.cli.output.console import print_error, say, stderr
from svc_async.cli.output.json_output import show_json
from svc_async.cli.output.progress import Display, open_display
from svc_async.cli.sessions import open_session
from svc_async.cli.signals import run_until_stopped
from svc_async.clock import Clock, SystemClock
from svc_async.errors import BatchError, InvalidArgument
from svc_async.handles.cluster import import_cluster
from svc_async.jobs.limits import find_job_limit
from svc_async.jobs.run import check_access
from svc_async.jobs.spec import JobSpec, SyncSpec, UploadSpec
from svc_async.sources.detect import STANDARD_INPUT
from svc_async.state import SharedState

__all__ = ["run_on_cluster"]

_LOCAL = "local"
_STATE_VARIABLE = "SVC_STATE_URL"


def run_on_cluster(spec: JobSpec, file: str, options: RunFlags, journal: JournalFlags, cluster: WorkerFlags) -> int:
    """Run a job on a cluster and return the exit code.

    Raises:
        InvalidArgument: an option cannot be used, or an extra is missing; nothing was sent.
    """
    _check(spec, options, journal, cluster)
    if options.report is not None:
        check_report(options.report)
    shards = cluster.shards if isinstance(cluster, ClusterFlags) else None
    work = make_work(spec, options, shards=shards, job=journal.job)
    return asyncio.run(_ClusterJob(spec, file, options, cluster, work).run())


def _check(spec: JobSpec, options: RunFlags, journal: JournalFlags, cluster: WorkerFlags) -> None:
    spec.target.check()
    if cluster.cluster is None:
        options_given = "--workers and --shards" if isinstance(cluster, ClusterFlags) else "--workers"
        raise InvalidArgument("--cluster", f"must be given with {options_given}")
    if cluster.cluster != _LOCAL and ":" not in cluster.cluster:
        raise InvalidArgument("--cluster", "must be local, or the address of a scheduler: tcp://HOST:8786")
    if options.sandbox:
        raise InvalidArgument("--sandbox", "must not be given with --cluster: `svc-async sandbox` serves one for it")
    if journal.journal is not None or journal.journals is not None:
        raise InvalidArgument("--journal", "must not be given with --cluster: --job names the job in the shared state")
    if spec.source.path == STANDARD_INPUT:
        raise InvalidArgument("file", "must not be standard input with --cluster: the workers read files")
    if cluster.cluster != _LOCAL and cluster.workers is not None:
        raise InvalidArgument("--workers", "must be given with --cluster local only")
    if isinstance(spec, SyncSpec) and spec.state is not None:
        raise InvalidArgument("--state", "must not be given with --cluster: the state is in the database")
    if isinstance(spec, UploadSpec) and cluster.cluster != _LOCAL and journal.job is None:
        raise InvalidArgument("--job", "must be given with the address of a cluster")
    if cluster.workers is not None and cluster.workers < 1:
        raise InvalidArgument("--workers", "must be at least 1")


@attrs.define
class _JobObserver:
    """Keeps what a report needs, also of a job that is cut off.

    The time of a report begins when the command does: it starts a cluster first.
    """

    display: Display
    failures: FailureList
    clock: Clock
    began: float
    timeline: Timeline = attrs.field(factory=Timeline)

    @property
    def observers(self) -> Observers:
        return Observers(progress=self._on_progress, on_failure=self._on_failure)

    def _on_progress(self, progress: Progress) -> None:
        self.timeline.add(attrs.evolve(progress, seconds=self.clock.monotonic() - self.began))
        self.display.show(progress)

    def _on_failure(self, failure: Failure) -> None:
        self.failures.add(failure)


@attrs.frozen
class _ClusterJob:
    """The job of a command on a cluster."""

    spec: JobSpec
    file: str
    options: RunFlags
    cluster: WorkerFlags
    work: ClusterWork

    async def run(self) -> int:
        clock, source = SystemClock(), ClusterRows(self._name)
        begun_at = clock.now()
        operation = self.spec.operation if isinstance(self.spec, UploadSpec) else "upload"
        began, limit = clock.monotonic(), find_job_limit(self.spec.target.kind, operation)
        error: BatchError | None = None
        interrupted = False
        with (
            FailureList(self._failures_path, source) as failures,
            open_display(source, console=stderr(), clock=clock, limit=limit, as_json=self.options.as_json) as display,
        ):
            watch = _JobObserver(display, failures, clock, began)
            try:
                report = await run_until_stopped(self._work(watch))
                if report is not None:
                    failures.finish()
            except BatchError as early:
                error, report = early, _find_report(early)
            except Interrupted:
                interrupted, report = True, Report.from_progress(display.last)
        if report is None:
            return self.work.exit
        outcome = JobOutcome(
            title=self.spec.title,
            facts=describe_target(self.spec, urlsplit(profiles.find(self.options.profile).endpoints.ads_url).netloc),
            begun_at=begun_at,
            file=Path(self.file),
            name=self._name,
            journal=self.work.journal,
            finished_before=False,
            summary=self.work.summarize(report),
            report=report,
            seconds=clock.monotonic() - began,
            drops=self.spec.bad_identifiers == "drop",
            failures=failures,
            find_line=source.find_line,
            timeline=watch.timeline,
            requests_per_minute=limit.per_minute,
            more=self.work.more,
            compared=self.work.compared,
            error=error,
            interrupted=interrupted,
            advice=self.work.advice if interrupted or error is not None else None,
            options=self.options,
        )
        self._print(outcome)
        return outcome.save()

    @property
    def _name(self) -> str:
        return Path(self.spec.source.path).name

    @property
    def _failures_path(self) -> Path:
        return self.options.failures_file or name_failures_file(self.spec, self.file)

    async def _work(self, watch: _JobObserver) -> Report | None:
        _check_extra(self.options, self.cluster)
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(_open_state_url(self.options, self.cluster))
            session = await stack.enter_async_context(open_session(self.options.profile, state_url=url))
            await check_access(self.spec.target, session)
            client = await stack.enter_async_context(_open_client(self.cluster))
            state = session.state
            if state is None:
                raise InvalidArgument(_STATE_VARIABLE, "must be set with --cluster, or --state-url given")
            return await self.work.run(client, session, state, watch.observers, watch.failures)

    def _print(self, outcome: JobOutcome) -> None:
        if self.options.as_json:
            show_json(outcome.as_dict(), error=outcome.problem)
        else:
            outcome.print()
        if outcome.error is not None:
            print_error(explain(outcome.error))
        if outcome.failures.problem is not None:
            print_error(outcome.failures.explain())
        if outcome.advice is not None and not self.options.as_json:
            say(outcome.advice)


def _find_report(error: BatchError) -> Report:
    return error.report.total if isinstance(error.report, SyncReport) else error.report


def _check_extra(options: RunFlags, cluster: WorkerFlags) -> None:
    """Check that a cluster can be used, before anything is started.

    Raises:
        InvalidArgument: an extra is missing; its name is that of the one that brings everything.
    """
    embedded = cluster.cluster == _LOCAL and not (options.state_url or profiles.find_state_url(options.profile))
    import_cluster("clients", extra="local-cluster" if embedded else "cluster")


def _open_client(options: WorkerFlags) -> Any:
    clients = import_cluster("clients")
    logging.getLogger("distributed").setLevel(logging.ERROR)  # what happens to workers is no news to users
    if options.cluster == _LOCAL:
        return clients.start_local(options.workers)
    return clients.open_client(options.cluster)


@asynccontextmanager
async def _open_state_url(options: RunFlags, cluster: WorkerFlags) -> AsyncGenerator[str | None]:
    """Return the URL of the shared state; on this machine, of an embedded one if none is set.

    Workers on this machine find it in the environment.
    """
    url = options.state_url or profiles.find_state_url(options.profile)
    if cluster.cluster != _LOCAL:
        yield url
        return
    if url is not None:
        with _set_variable(url):
            _check_url_of_workers(options, url)
            yield url
        return
    async with AsyncExitStack() as stack:
        state = await _start_embedded_state(stack)
        with _set_variable(state.url):
            yield state.url


async def _start_embedded_state(stack: AsyncExitStack) -> SharedState:
    try:
        return await stack.enter_async_context(SharedState.embedded())
    except InvalidArgument as error:
        raise InvalidArgument("--cluster", f"local without --state-url {error.rule}") from None


def _check_url_of_workers(options: RunFlags, url: str) -> None:
    """Check that workers find the same URL, which they read from the profile that this process has found."""
    profile = profiles.find(options.profile).profile
    if profiles.find_state_url(profile) != url:
        rule = f"of the profile {profile!r} is what the workers use: give no other one by --state-url or SVC_STATE_URL"
        raise InvalidArgument("state_url", rule)


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
