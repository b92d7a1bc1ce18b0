"""What only workers in processes of their own can show: those that die, stand still or have another environment."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from distributed import Client, LocalCluster, Worker, WorkerPlugin

from svc_async import BatchError, InvalidArgument, Session
from svc_async.batch.report import Progress, Report
from svc_async.cluster.clients import ClusterFailed
from svc_async.errors import UnusableState
from tests.support.cluster_jobs import Workbench, expect, open_workbench, write_csv, write_parquet
from tests.support.errors import because, has

pytestmark = [
    pytest.mark.long("worker processes import for seconds"),
    pytest.mark.timeout(300),  # on a busy machine
]

COUNT = 600


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of the scheduler of two worker processes, which end with this process however it ends."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=False) as cluster:
        yield str(cluster.scheduler_address)


@pytest.fixture
async def workbench(
    cluster: str, postgres_url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Workbench]:
    async with (
        Client(cluster, asynchronous=True) as client,
        open_workbench(client, postgres_url, schema, monkeypatch) as workbench,
    ):
        await set_variables(workbench)
        yield workbench


class _Environment(WorkerPlugin):
    """Sets the variables of workers, also of those that are started later."""

    name = "environment"

    def __init__(self, variables: dict[str, str | None]) -> None:
        self.variables = variables

    def setup(self, worker: Worker) -> None:
        del worker
        for variable, value in self.variables.items():
            if value is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = value


async def set_variables(workbench: Workbench, **more: str | None) -> None:
    """Set the variables of the workers, also of those that are started later; None removes one."""
    await workbench.client.register_plugin(_Environment({**workbench.environment, **more}))


async def test_a_job_goes_on_when_a_worker_is_killed(workbench: Workbench, tmp_path: Path) -> None:
    path = write_parquet(tmp_path, range(COUNT))
    processes = await workbench.client.run(os.getpid)
    victims = [next(iter(processes.values()))]

    def kill_once(progress: Progress) -> None:
        if progress.phase == "encoding" and victims:
            os.kill(victims.pop(), signal.SIGKILL)

    async with workbench.open_users() as (users, state):
        report = await users.upload(
            path, journal=state.journal("job"), cluster=workbench.client, shards=4, progress=kill_once
        )

    assert not victims
    assert (report.read, report.accepted) == (COUNT, COUNT)
    assert workbench.list_members() == expect(range(COUNT))


async def test_a_worker_that_stands_still_keeps_no_job_from_beginning(
    workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = await workbench.client.run(os.getpid)
    stopped = next(iter(processes.values()))
    monkeypatch.setattr("svc_async.cluster.clients._CONNECT_SECONDS", 0.5)

    def go_on(progress: Progress) -> None:
        if progress.phase == "encoding":
            os.kill(stopped, signal.SIGCONT)

    os.kill(stopped, signal.SIGSTOP)
    try:
        async with workbench.open_users() as (users, state):
            report = await users.upload(
                write_csv(tmp_path, range(1)), journal=state.journal("job"), cluster=workbench.client, progress=go_on
            )
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert report.accepted == 1


async def test_a_sync_goes_on_when_a_worker_is_killed(workbench: Workbench, tmp_path: Path) -> None:
    path = write_parquet(tmp_path, range(COUNT))
    processes = await workbench.client.run(os.getpid)
    victims = [next(iter(processes.values()))]
    phases: list[str | None] = []

    def kill_once(progress: Progress) -> None:
        phases.append(progress.phase)
        if progress.phase == "reading" and progress.phase_done and victims:
            os.kill(victims.pop(), signal.SIGKILL)

    async with workbench.open_users() as (users, state):
        report = await users.sync(path, state=state, cluster=workbench.client, progress=kill_once)

    assert not victims
    assert report.sent.accepted == COUNT
    assert workbench.list_members() == expect(range(COUNT))
    assert list(dict.fromkeys(phases)) == ["planning", "reading", "comparing", "recording", "sending", "settling"]


def limit_files(size: int | None) -> None:
    """Have the process write no files that are larger; None lifts the limit."""
    import resource  # noqa: PLC0415 - not on Windows

    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most if size is None else size, most))


@pytest.mark.skipif(sys.platform == "win32", reason="no limit for the size of files")
async def test_a_full_disk_ends_the_job_and_the_next_call_finishes_it(workbench: Workbench, tmp_path: Path) -> None:
    path = write_parquet(tmp_path, range(COUNT))
    async with workbench.open_users() as (users, state):
        upload = partial(users.upload, path, journal=state.journal("job"), cluster=workbench.client)
        await workbench.client.run(limit_files, 10)
        try:
            with pytest.raises(BatchError, check=because(ClusterFailed)) as caught:
                await upload()
        finally:
            await workbench.client.run(limit_files, None)
        assert isinstance(caught.value.report, Report)
        assert caught.value.report.accepted == 0
        report = await upload()

    assert report.accepted == COUNT
    assert workbench.list_members() == expect(range(COUNT))


async def test_workers_without_a_state_say_so(workbench: Workbench, tmp_path: Path) -> None:
    path = write_csv(tmp_path, range(1))
    await set_variables(workbench, SVC_STATE_URL=None)

    async with workbench.open_users() as (users, state):
        with pytest.raises(BatchError, check=because(InvalidArgument, parameter="SVC_STATE_URL")):
            await users.upload(path, journal=state.journal("job"), cluster=workbench.client)


async def test_workers_with_another_database_say_so(workbench: Workbench, tmp_path: Path, postgres_url: str) -> None:
    server = await asyncpg.connect(postgres_url)
    try:
        await server.execute(f"CREATE DATABASE {workbench.schema}")
        another = urlsplit(postgres_url)._replace(path=f"/{workbench.schema}").geturl()
        await set_variables(workbench, SVC_STATE_URL=another)
        async with workbench.open_users() as (users, state):
            with pytest.raises(BatchError, check=because(UnusableState)):
                await users.upload(
                    write_csv(tmp_path, range(1)), journal=state.journal("job"), cluster=workbench.client
                )
    finally:
        await server.execute(f"DROP DATABASE {workbench.schema} WITH (FORCE)")
        await server.close()


async def test_workers_need_no_credentials_and_no_state(workbench: Workbench, tmp_path: Path) -> None:
    path = write_csv(tmp_path, range(3))
    await set_variables(workbench, SVC_STATE_URL=None, SVC_CONSUMER_KEY=None)

    async with workbench.open_session() as (_, state), Session.sandbox(workbench.sandbox) as session:
        users = session.account(workbench.sandbox.account_id).custom_audience(workbench.sandbox.audience_id).users
        with pytest.raises(InvalidArgument, check=has(parameter="state")):
            await users.sync(path, state=tmp_path / "state", cluster=workbench.client)
        planned = await users.sync(path, state=state, cluster=workbench.client, dry_run=True)
        assert not workbench.sandbox.requests
        report = await users.sync(path, state=state, cluster=workbench.client)

    assert (planned.plan.additions, report.sent.accepted) == (3, 3)
