"""A job on a cluster does what a job in one process does."""

import gc
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from svc_async import InvalidArgument, Session
from svc_async.batch.report import Failure, Progress, Report
from svc_async.batch.settings import Observers
from svc_async.cluster import runner
from svc_async.cluster.job import ShardOutcome
from svc_async.cluster.parts import ShardRows
from svc_async.errors import Hint, UnusableFile, UnusableState
from svc_async.store.records import compute_checksum, encode
from tests.support.cluster_jobs import (
    Workbench,
    expect,
    mail,
    open_workbench,
    write_csv,
    write_json_lines,
    write_parquet,
)
from tests.support.contract import PRODUCT
from tests.support.errors import has

COUNT = 600
LONG = pytest.mark.long("a job on a cluster takes half a second")


class NoWorkers:
    """A client of a cluster that a call needs only for its first checks."""

    asynchronous = True
    scheduler = SimpleNamespace(address="inproc://none")

    async def nthreads(self) -> dict[str, int]:
        return {}


@pytest.fixture
async def refusing(postgres_url: str, schema: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Workbench]:
    async with open_workbench(NoWorkers(), postgres_url, schema, monkeypatch) as workbench:
        yield workbench


@pytest.mark.parametrize(
    "write_file",
    [
        write_csv,
        pytest.param(write_json_lines, marks=pytest.mark.long),
        pytest.param(write_parquet, marks=pytest.mark.long),
    ],
)
async def test_an_upload_from_a_file(
    workbench: Workbench, tmp_path: Path, write_file: Callable[[Path, range], Path]
) -> None:
    path = write_file(tmp_path, range(COUNT))

    async with workbench.open_users() as (users, state):
        report = await users.upload(path, journal=state.journal("job"), cluster=workbench.client, shards=4)

    assert (report.read, report.accepted, report.failed, report.pending) == (COUNT, COUNT, 0, 0)
    assert workbench.list_members() == expect(range(COUNT))


@LONG
async def test_a_finished_job_gives_its_report_and_sends_nothing(workbench: Workbench, tmp_path: Path) -> None:
    path = write_parquet(tmp_path, range(COUNT))

    async with workbench.open_users() as (users, state):
        first = await users.upload(path, journal=state.journal("job"), cluster=workbench.client)
        sent = len(workbench.sandbox.requests)
        again = await users.upload(path, journal=state.journal("job"), cluster=workbench.client)

    assert again == first
    assert len(workbench.sandbox.requests) == sent


@LONG
async def test_a_worker_does_not_keep_the_rows_of_shards_that_are_finished(
    workbench: Workbench, tmp_path: Path
) -> None:
    def count_rows() -> int:
        return sum(len(each) for each in gc.get_objects() if isinstance(each, ShardRows))

    async with workbench.open_users() as (users, state):
        source = write_parquet(tmp_path, range(60))
        await users.upload(source, journal=state.journal("job"), cluster=workbench.client, shards=3)

    assert set((await workbench.client.run(count_rows)).values()) == {0}


@LONG
async def test_another_source_is_refused_under_the_name_of_a_job(workbench: Workbench, tmp_path: Path) -> None:
    path = write_parquet(tmp_path, range(COUNT))

    async with workbench.open_users() as (users, state):
        await users.upload(path, journal=state.journal("job"), cluster=workbench.client)
        write_parquet(tmp_path, range(COUNT + 1))
        with pytest.raises(UnusableFile, check=has(path=str(path), hint=Hint.RESTORE_THE_SOURCE)):
            await users.upload(path, journal=state.journal("job"), cluster=workbench.client)


@LONG
async def test_a_removal(workbench: Workbench, tmp_path: Path) -> None:
    path = write_parquet(tmp_path, range(COUNT))

    async with workbench.open_users() as (users, state):
        await users.upload(path, journal=state.journal("add"), cluster=workbench.client)
        with pytest.raises(UnusableState, check=has(name="add")):
            await users.remove(path, journal=state.journal("add"), cluster=workbench.client)
        some = write_csv(tmp_path, range(200))
        report = await users.remove(some, journal=state.journal("remove"), cluster=workbench.client)

    assert report.accepted == 200
    assert workbench.list_members() == expect(range(200, COUNT))


@LONG
async def test_failures_name_their_file_and_row(workbench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("email\nfirst@example.com\nnot an address\n")
    (tmp_path / "b.csv").write_text("email\nnobody\nsecond@example.com\n")
    listed: list[Failure] = []

    async with workbench.open_users() as (users, state):
        report = await users.upload(
            str(tmp_path / "*.csv"), journal=state.journal("job"), cluster=workbench.client, on_failure=listed.append
        )

    places = [(Path(str(failure.file)).name, failure.position, failure.code) for failure in report.failures]
    assert places == [("a.csv", 3, "INVALID_ROW"), ("b.csv", 2, "INVALID_ROW")]
    assert (report.read, report.accepted, report.failed) == (4, 2, 2)
    assert sorted(listed, key=lambda failure: str(failure.file)) == list(report.failures)


@LONG
async def test_progress_goes_through_the_phases_and_ends_with_the_report(workbench: Workbench, tmp_path: Path) -> None:
    path = write_parquet(tmp_path, range(COUNT))
    seen: list[Progress] = []

    async with workbench.open_users() as (users, state):
        await users.upload(path, journal=state.journal("job"), cluster=workbench.client, progress=seen.append, shards=4)

    assert list(dict.fromkeys(progress.phase for progress in seen)) == ["planning", "encoding", "exchanging", "sending"]
    assert (seen[-1].accepted, seen[-1].phase_done, seen[-1].phase_total) == (COUNT, COUNT, COUNT)
    sending = [progress for progress in seen if progress.phase == "sending"]
    assert all(progress.phase_total == COUNT for progress in sending if progress.phase_done == progress.phase_total)


@LONG
async def test_without_order_a_fragment_is_a_shard(workbench: Workbench, tmp_path: Path) -> None:
    path = write_parquet(tmp_path, range(COUNT))

    async with workbench.open_users() as (users, state):
        report = await users.upload(path, journal=state.journal("job"), cluster=workbench.client, ordering="none")

    assert report.accepted == COUNT
    assert workbench.list_members() == expect(range(COUNT))


async def test_credentials_that_were_given_are_refused(refusing: Workbench, tmp_path: Path) -> None:
    path = write_csv(tmp_path, range(1))

    async with refusing.open_session() as (_, state), Session.sandbox(refusing.sandbox) as session:
        users = session.account(refusing.sandbox.account_id).custom_audience(refusing.sandbox.audience_id).users
        with pytest.raises(InvalidArgument, check=has(parameter="credentials")):
            await users.upload(path, journal=state.journal("job"), cluster=refusing.client)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
async def test_a_file_whose_name_no_message_can_carry_is_refused(refusing: Workbench, tmp_path: Path) -> None:
    path = write_csv(tmp_path, range(3)).rename(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.csv"))
    async with refusing.open_users() as (users, state):
        with pytest.raises(UnusableFile, check=has(path=str(path))):
            await users.upload(path, cluster=refusing.client, journal=state.journal("job"))


def test_no_number_of_failures_takes_memory_without_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "KEPT_FAILURES", 150)
    monkeypatch.setattr("svc_async.batch.report.KEPT_FAILURES", 150)
    totals = runner._ShardTotals(Observers(), parts=[range(100)])
    for number in range(100):
        failures = tuple(Failure(100 * position + number, "bad", "X", file="a") for position in range(100))
        totals.finish(ShardOutcome(number=number, report=Report(read=100, failed=100, failures=failures)))
        assert sum(len(each.report.failures) for each in totals.outcomes.values()) <= 400
    report = totals.sum_reports(range(100))
    assert (report.failed, [failure.position for failure in report.failures]) == (10_000, [*range(150)])


@LONG
async def test_of_the_failures_of_all_shards_those_are_kept_that_a_report_lists(
    workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svc_async.cluster.runner.KEPT_FAILURES", 2)
    monkeypatch.setattr("svc_async.batch.report.KEPT_FAILURES", 2)
    path = tmp_path / "people.csv"
    path.write_text("email\n" + "no mail\n" * 40)
    heard: list[Failure] = []
    async with workbench.open_users() as (users, state):
        for _ in range(2):
            call = users.upload(
                path, cluster=workbench.client, journal=state.journal("job"), shards=5, on_failure=heard.append
            )
            report = await call
            assert (report.failed, [failure.position for failure in report.failures]) == (40, [2, 3])
    assert len(heard) == 80


@LONG
async def test_each_failure_is_announced_also_of_a_shard_that_is_finished(workbench: Workbench, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("email\n" + "no mail\n" * 20_005)
    async with workbench.open_users() as (users, state):
        for _ in range(2):
            heard: list[Failure] = []
            report = await users.upload(
                path, cluster=workbench.client, journal=state.journal("job"), shards=1, on_failure=heard.append
            )
            assert (report.failed, len(report.failures)) == (20_005, 10_000)
            assert sorted(failure.position for failure in heard) == [*range(2, 20_007)]
            assert {Path(str(failure.file)).name for failure in heard} == {"people.csv"}


@LONG
async def test_what_is_stored_of_a_job_and_damaged_is_refused(workbench: Workbench, tmp_path: Path) -> None:
    path = write_csv(tmp_path, range(3))
    async with workbench.open_users() as (users, state):
        await users.upload(path, cluster=workbench.client, journal=state.journal("job"))
        for kind, text in (("report", '{"read": "x"}'), ("plan", "{}")):
            body = encode(text)
            statement = "UPDATE records SET body = $1, checksum = $2 WHERE kind = $3"
            await state.database.execute(statement, body, compute_checksum(kind, 0, body), kind)
            with pytest.raises(UnusableState, check=has(name="job", hint=Hint.RENAME_THE_JOB)):
                await users.upload(path, cluster=workbench.client, journal=state.journal("job"))


async def test_a_job_without_a_journal_in_the_state_is_refused(refusing: Workbench, tmp_path: Path) -> None:
    path = write_csv(tmp_path, range(1))

    async with refusing.open_users() as (users, _):
        with pytest.raises(InvalidArgument, check=has(parameter="journal")):
            await users.upload(path, journal=tmp_path / "journal", cluster=refusing.client)


async def test_rows_in_memory_are_refused(refusing: Workbench) -> None:
    async with refusing.open_users() as (users, state):
        with pytest.raises(InvalidArgument, check=has(parameter="members")):
            await users.upload([{"email": mail(1)}], journal=state.journal("job"), cluster=refusing.client)


async def test_a_client_that_is_not_asynchronous_is_refused(refusing: Workbench, tmp_path: Path) -> None:
    class Blocking:
        asynchronous = False

    async with refusing.open_users() as (users, state):
        with pytest.raises(InvalidArgument, check=has(parameter="cluster")):
            await users.upload(write_csv(tmp_path, range(1)), journal=state.journal("job"), cluster=Blocking())


async def test_a_missing_package_is_named(refusing: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("svc_async.cluster.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dask.delayed", None)

    async with refusing.open_users() as (users, state):
        with pytest.raises(InvalidArgument, match=r"\[cluster\]", check=has(parameter="cluster")):
            await users.upload(write_csv(tmp_path, range(1)), journal=state.journal("job"), cluster=refusing.client)


@LONG
async def test_products_are_upserted_and_deleted(workbench: Workbench, tmp_path: Path) -> None:
    feed, keys = tmp_path / "feed.csv", tmp_path / "keys.csv"
    products = [{**PRODUCT, "id": f"p{number}"} for number in range(60)]
    rows = [*products, {**PRODUCT, "id": "p60", "title": ""}]
    feed.write_text("\n".join([",".join(PRODUCT), *(",".join(row.values()) for row in rows)]) + "\n")

    async with workbench.open_session() as (session, state):
        catalog = await session.product_catalogs.create(name="Shop")
        service = session.product_catalog(catalog.id).products
        report = await service.upsert(feed, journal=state.journal("upsert"), cluster=workbench.client, shards=3)
        found = await service.list().collect()
        keys.write_text("product_key\n" + "".join(f"{each.product_key}\n" for each in found))
        deleted = await service.delete(keys, journal=state.journal("delete"), cluster=workbench.client)
        rest = await service.list().collect()

    assert (report.read, report.accepted, report.failed) == (61, 60, 1)
    assert [(Path(str(each.file)).name, each.position) for each in report.failures] == [("feed.csv", 62)]
    assert (len(found), deleted.accepted, len(rest)) == (60, 60, 0)
