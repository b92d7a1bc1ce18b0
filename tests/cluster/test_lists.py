"""Lists of every kind, sources of every kind, and many of them in one job."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from svc_async.batch.job import Job, SourceSpec, TargetSpec
from svc_async.cluster.runner import run_jobs
from svc_async.engine.origin import SessionOrigin
from tests.support.cluster_jobs import Workbench, expect, mail, write_csv
from tests.support.object_store import Bucket

pytestmark = pytest.mark.long("a job on a cluster takes half a second")

COUNT = 300
LIST = "dnr7k1"


async def test_a_do_not_reach_list(workbench: Workbench, tmp_path: Path) -> None:
    path = write_csv(tmp_path, range(COUNT))

    async with workbench.open_session() as (session, state):
        users = session.account(workbench.sandbox.account_id).do_not_reach_list(LIST).users
        added = await users.upload(path, journal=state.journal("add"), cluster=workbench.client)
        removed = await users.remove(path, journal=state.journal("remove"), cluster=workbench.client)

    assert (added.accepted, removed.accepted) == (COUNT, COUNT)


async def test_files_on_an_object_store(workbench: Workbench, bucket: Bucket) -> None:
    for part in range(3):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"email": [mail(number) for number in range(part * 100, part * 100 + 100)]}), sink)
        bucket.write(f"customers/part-{part}.parquet", sink.getvalue().to_pybytes())

    async with workbench.open_users() as (users, state):
        report = await users.upload(
            f"{bucket.url}/customers/*.parquet", journal=state.journal("job"), cluster=workbench.client, shards=4
        )

    assert (report.read, report.accepted) == (COUNT, COUNT)
    assert workbench.list_members() == expect(range(COUNT))


async def test_many_lists_in_one_job(workbench: Workbench, tmp_path: Path) -> None:
    audiences = [workbench.sandbox.add_audience() for _ in range(40)]
    jobs = []
    for number, audience in enumerate(audiences):
        path = tmp_path / f"{number}.csv"
        path.write_text("email\n" + "".join(f"{mail(row)}\n" for row in range(number, number + 5)))
        target = TargetSpec(kind="audience", account_id=workbench.sandbox.account_id, list_id=audience)
        jobs.append(Job(target=target, source=SourceSpec(path=str(path))))

    async with workbench.open_session() as (_, state):
        reports = await run_jobs(jobs, cluster=workbench.client, journal=state.journal("all"), origin=SessionOrigin())

    assert [report.accepted for report in reports] == [5] * 40
    assert all(
        workbench.list_members(audience) == expect(range(number, number + 5))
        for number, audience in enumerate(audiences)
    )
