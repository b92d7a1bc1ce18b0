"""Whatever ends early on a cluster is named, and finished by the next call."""

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from distributed import Client, Scheduler, Worker

from svc_async import BatchError, InvalidArgument
from svc_async.batch.report import Progress, Report
from svc_async.cluster.clients import ClusterFailed
from svc_async.errors import Sent
from svc_async.sandbox import Fault
from tests.support.cluster_jobs import Workbench, expect, write_csv, write_parquet
from tests.support.errors import because, has

LONG = pytest.mark.long("a job that is resumed takes a second")

COUNT = 600


@LONG
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


@LONG
async def test_shards_that_are_refused_end_the_job_with_a_report(workbench: Workbench, tmp_path: Path) -> None:
    path = write_parquet(tmp_path, range(COUNT))
    workbench.sandbox.faults.on("POST").nth(1).do(Fault.http(403))

    async with workbench.open_users() as (users, state):
        with pytest.raises(BatchError) as caught:
            await users.upload(path, journal=state.journal("job"), cluster=workbench.client, shards=4)
        early = caught.value.report
        report = await users.upload(path, journal=state.journal("job"), cluster=workbench.client)

    assert 0 < early.accepted < COUNT
    assert early.read == early.accepted + early.pending
    assert report.accepted == COUNT


@LONG
async def test_the_report_of_a_job_whose_scheduler_is_lost_has_what_the_journals_say(
    workbench: Workbench, tmp_path: Path
) -> None:
    path = write_parquet(tmp_path, range(3_000))
    workbench.sandbox.faults.on("POST").nth(2).do(Fault.http(403))
    closing: list[asyncio.Task[None]] = []

    async with (
        workbench.open_users() as (users, state),
        Scheduler(port=0, dashboard_address="127.0.0.1:0") as scheduler,
        Worker(scheduler.address),
        Client(scheduler.address, asynchronous=True, timeout=1) as client,
    ):
        upload = partial(
            users.upload, path, journal=state.journal("job"), shards=1, concurrency=1, users_per_operation=1
        )
        with pytest.raises(BatchError) as first:
            await upload(cluster=workbench.client)

        def close_once(progress: Progress) -> None:
            if progress.phase == "encoding" and not closing:
                closing.append(asyncio.create_task(scheduler.close()))

        with pytest.raises(BatchError, check=because(ClusterFailed)) as second:
            await upload(cluster=client, progress=close_once)
        await asyncio.gather(*closing)

    assert isinstance(first.value.report, Report)
    assert isinstance(second.value.report, Report)
    assert 0 < first.value.report.accepted < 3_000
    assert second.value.report.accepted == first.value.report.accepted
    assert second.value.sent is Sent.MAYBE


@LONG
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


async def test_workers_of_another_version_are_refused(
    workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svc_async.cluster.clients.__version__", "0.0.1")

    async with workbench.open_users() as (users, state):
        with pytest.raises(InvalidArgument, check=has(parameter="cluster")):
            await users.upload(write_csv(tmp_path, range(1)), journal=state.journal("job"), cluster=workbench.client)
