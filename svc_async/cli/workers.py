"""Opens the cluster that does the job of a command, and the shared state that it needs."""

import logging
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

from svc_async import profiles
from svc_async.batch.job import Job, TargetSpec, import_cluster
from svc_async.cli.job_journal import describe_ids
from svc_async.cli.options import ClusterFlags, JournalFlags, RunFlags, WorkerFlags
from svc_async.cli.sessions import open_session
from svc_async.errors import InvalidArgument
from svc_async.jobs.run import check_access
from svc_async.session import Session
from svc_async.sources.detect import STANDARD_INPUT
from svc_async.state import SharedState

__all__ = ["check_cluster_options", "name_cluster_job", "open_workers"]

_LOCAL = "local"
_STATE_VARIABLE = "SVC_STATE_URL"


def check_cluster_options(job: Job, options: RunFlags, journal: JournalFlags, cluster: WorkerFlags) -> None:
    """Check the options of a job on a cluster.

    Raises:
        InvalidArgument: one cannot be used with another.
    """
    job.target.check()
    if cluster.cluster is None:
        options_given = "--workers and --shards" if isinstance(cluster, ClusterFlags) else "--workers"
        raise InvalidArgument("--cluster", f"must be given with {options_given}")
    if cluster.cluster != _LOCAL and ":" not in cluster.cluster:
        raise InvalidArgument("--cluster", "must be local, or the address of a scheduler: tls://HOST:8786")
    if options.sandbox:
        raise InvalidArgument("--sandbox", "must not be given with --cluster: `svc-async sandbox` serves one for it")
    if journal.journal is not None or journal.journals is not None:
        raise InvalidArgument("--journal", "must not be given with --cluster: --job names the job in the shared state")
    if job.file.path == STANDARD_INPUT:
        raise InvalidArgument("file", "must not be standard input with --cluster: the workers read files")
    if cluster.cluster != _LOCAL and cluster.workers is not None:
        raise InvalidArgument("--workers", "must be given with --cluster local only")
    if job.state is not None:
        raise InvalidArgument("--state", "must not be given with --cluster: the state is in the database")
    if job.operation != "sync" and cluster.cluster != _LOCAL and journal.job is None:
        raise InvalidArgument("--job", "must be given with the address of a cluster")
    if cluster.workers is not None and cluster.workers < 1:
        raise InvalidArgument("--workers", "must be at least 1")


def name_cluster_job(job: Job, journal: JournalFlags) -> str | None:
    """Return the name of a job in the shared state; a sync has none."""
    if job.operation == "sync" or journal.job is not None:
        return journal.job
    ids = " ".join(filter(None, describe_ids(job.target).values()))
    return f"{job.operation} {ids} {job.file.path}"[-200:]


@asynccontextmanager
async def open_workers(
    target: TargetSpec, options: RunFlags, workers: WorkerFlags
) -> AsyncGenerator[tuple[Session, Any, SharedState]]:
    """Open a session with a shared state and, once it has access to a list, a client of the cluster.

    Raises:
        InvalidArgument: an extra is missing, or no shared state is named.
        SvcError: something cannot be reached.
    """
    is_embedded = workers.cluster == _LOCAL and not (options.state_url or profiles.find_state_url(options.profile))
    # Before anything is started; the error names the extra that brings everything.
    clients = import_cluster("clients", extra="local-cluster" if is_embedded else "cluster")
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(_open_state_url(options, workers))
        session = await stack.enter_async_context(open_session(options.profile, state_url=url))
        await check_access(target, session)
        logging.getLogger("distributed").setLevel(logging.ERROR)  # users need not hear of each worker
        is_local = workers.cluster == _LOCAL
        opened = clients.start_local(workers.workers) if is_local else clients.open_client(workers.cluster)
        client = await stack.enter_async_context(opened)
        if session.state is None:
            raise InvalidArgument(_STATE_VARIABLE, "must be set with --cluster, or --state-url given")
        yield session, client, session.state


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
            profile = profiles.find(options.profile).profile  # in which workers find the URL
            if profiles.find_state_url(profile) != url:
                rule = "is what the workers use: give no other one by --state-url or SVC_STATE_URL"
                raise InvalidArgument("state_url", f"of the profile {profile!r} {rule}")
            yield url
        return
    async with AsyncExitStack() as stack:
        try:
            state = await stack.enter_async_context(SharedState.embedded())
        except InvalidArgument as error:
            raise InvalidArgument("--cluster", f"local without --state-url {error.rule}") from None
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
