"""Whatever ends early on a cluster is named, and finished by the next call."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from svc_async import BatchError, InvalidArgument
from svc_async.batch.report import Progress, Report
from svc_async.sandbox import Fault
from tests.support.cluster_jobs import Workbench, expect, write_csv, write_parquet

pytestmark = pytest.mark.timeout(300)  # workers import for seconds on a busy machine

COUNT = 600


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
            with pytest.raises(BatchError, match="the disk of a worker is full: free space") as caught:
                await upload()
        finally:
            await workbench.client.run(limit_files, None)
        assert isinstance(caught.value.report, Report)
        assert caught.value.report.accepted == 0
        report = await upload()

    assert report.accepted == COUNT
    assert workbench.list_members() == expect(range(COUNT))


async def test_a_job_that_was_cancelled_is_resumed(workbench: Workbench, tmp_path: Path) -> None:
    path = write_parquet(tmp_path, range(COUNT))
    workbench.sandbox.faults.on("POST").nth(1).do(Fault.http(503))  # its shard waits for a repeat
    sent = asyncio.Event()

    def note(progress: Progress) -> None:
        if progress.accepted:
            sent.set()

    async with workbench.open_users() as (users, state):
        job = asyncio.create_task(
            users.upload(
                path,
                journal=state.journal("job"),
                cluster=workbench.client,
                shards=4,
                retry_delays=[50],
                progress=note,
            )
        )
        await sent.wait()
        job.cancel()
        with suppress(asyncio.CancelledError):
            await job
        report = await users.upload(path, journal=state.journal("job"), cluster=workbench.client, quarantine=0)

    assert (report.read, report.accepted, report.pending) == (COUNT, COUNT, 0)
    assert workbench.list_members() == expect(range(COUNT))


async def test_shards_that_are_refused_end_the_job_with_a_report(workbench: Workbench, tmp_path: Path) -> None:
    path = write_parquet(tmp_path, range(COUNT))
    workbench.sandbox.faults.on("POST").nth(1).do(Fault.http(403))

    async with workbench.open_users() as (users, state):
        with pytest.raises(BatchError, match=r"ended early in 1 of 4 shards") as caught:
            await users.upload(path, journal=state.journal("job"), cluster=workbench.client, shards=4)
        early = caught.value.report
        report = await users.upload(path, journal=state.journal("job"), cluster=workbench.client)

    assert 0 < early.accepted < COUNT
    assert early.read == early.accepted + early.pending
    assert report.accepted == COUNT


async def test_a_poisoned_fragment_is_named_and_the_others_are_sent(workbench: Workbench, tmp_path: Path) -> None:
    path = write_parquet(tmp_path, range(COUNT))
    content = path.read_bytes()
    path.with_name("poison.parquet").write_bytes(content[:8] + bytes(200) + content[208:])  # its first row group

    async with workbench.open_users() as (users, state):
        report = await users.upload(
            str(tmp_path / "*.parquet"), journal=state.journal("job"), cluster=workbench.client, shards=3
        )

    assert (report.accepted + report.coalesced, report.failed) == (2 * COUNT - 100, 1)
    assert [Path(str(failure.file)).name for failure in report.failures] == ["poison.parquet"]
    assert "is left out" in report.failures[0].reason
    assert workbench.list_members() == expect(range(COUNT))


async def test_workers_without_a_state_say_so(workbench: Workbench, tmp_path: Path) -> None:
    path = write_csv(tmp_path, range(1))
    await workbench.set_variables(SVC_STATE_URL=None)

    async with workbench.open_users() as (users, state):
        with pytest.raises(BatchError, match="SVC_STATE_URL is not set on a worker"):
            await users.upload(path, journal=state.journal("job"), cluster=workbench.client)


async def test_workers_of_another_version_are_refused(
    workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svc_async.cluster.clients.__version__", "0.0.1")

    async with workbench.open_users() as (users, state):
        with pytest.raises(InvalidArgument, match=r"must have the same version of svc-async everywhere"):
            await users.upload(write_csv(tmp_path, range(1)), journal=state.journal("job"), cluster=workbench.client)
