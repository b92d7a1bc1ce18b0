"""A sync on a cluster does what a sync in one process does, and removes nobody because a part could not be read."""

import asyncio
import pickle
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client, Scheduler, Worker

from svc_async import BatchError
from svc_async.batch.plan import SyncReport
from svc_async.batch.report import Failure, Progress
from svc_async.batch.settings import Reading
from svc_async.cluster.clients import ClusterFailed
from svc_async.cluster.files import SourceUnavailable
from svc_async.cluster.planning import plan_source
from svc_async.cluster.snapshot import count_parts, read_fragment
from svc_async.errors import TakenUpElsewhere, UnusableFile
from svc_async.lists.audience_users import AudienceUsers
from svc_async.sandbox import Fault
from svc_async.sandbox.server.exchange import Exchange
from svc_async.sandbox.server.rendering import Reply
from svc_async.state import SharedState
from svc_async.users.encoding import BadIdentifiers
from tests.support.cluster_jobs import Workbench, expect, mail, write_csv, write_parquet
from tests.support.contract import PRODUCT
from tests.support.errors import has
from tests.support.object_store import Bucket
from tests.support.plans import describe

COUNT = 300
LONG = pytest.mark.long("a sync on a cluster takes half a second")
Row = tuple[str, str]


@LONG
async def test_the_list_is_equal_to_the_files_each_night(workbench: Workbench, bucket: Bucket) -> None:
    async def sync(users: AudienceUsers, state: SharedState, numbers: range) -> SyncReport:
        write_bucket(bucket, numbers)
        source = f"{bucket.url}/customers/*.parquet"
        return await users.sync(source, state=state, cluster=workbench.client, max_removal_share=1.0)

    async with workbench.open_users() as (users, state):
        first = await sync(users, state, range(COUNT))
        assert workbench.list_members() == expect(range(COUNT))
        second = await sync(users, state, range(40, COUNT + 10))
        assert workbench.list_members() == expect(range(40, COUNT + 10))
        third = await sync(users, state, range(40, 41))
        assert workbench.list_members() == expect([40])

    plans = [(plan.additions, plan.removals, plan.unchanged) for plan in (first.plan, second.plan, third.plan)]
    assert plans == [(COUNT, 0, 0), (10, 40, COUNT - 40), (0, COUNT + 9 - 40, 1)]
    assert (second.sent.accepted, second.removed.accepted, second.complete) == (10, 40, True)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
async def test_it_does_what_one_process_does(workbench: Workbench, tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    other = workbench.sandbox.add_audience()
    nights = [make_night(source) for _ in range(2)]

    async with workbench.open_session() as (session, state):
        account = session.account(workbench.sandbox.account_id)
        here, there = account.custom_audience(other).users, account.custom_audience(workbench.sandbox.audience_id).users
        for number, parts in enumerate(nights):
            folder = tmp_path / str(number)
            places = write_night(folder, parts)
            keywords: dict[str, Any] = {"max_removal_share": 1.0, "bad_identifiers": "drop" if seed else "fail"}
            one = await here.sync(folder / "_all.csv", state=tmp_path / "state", **keywords)
            many = await there.sync(str(folder), state=state, cluster=workbench.client, **keywords)

            assert attrs.evolve(many.plan, size=0) == attrs.evolve(one.plan, size=0)
            assert workbench.list_members() == workbench.list_members(other)
            assert counts(many) == counts(one)
            found = [(Path(str(each.file)).name, each.position, each.reason) for each in many.sent.failures]
            assert found == [(*places[each.position], each.reason) for each in one.sent.failures]


@LONG
async def test_a_large_fragment_is_fetched_in_parts(workbench: Workbench, tmp_path: Path) -> None:
    count, bad = 1_500, (10, 1_100, 1_400)
    names = ["nobody" if number in bad else mail(number) for number in range(count)]
    path = tmp_path / "people.csv"
    path.write_text("email\n" + "".join(f"{name:11000}\n" for name in names))
    (fragment,) = plan_source(describe(path)).fragments
    assert count_parts(fragment) == 2

    async with workbench.open_users() as (users, state):
        report = await users.sync(path, state=state, cluster=workbench.client)

    assert workbench.list_members() == expect([number for number in range(count) if number not in bad])
    assert [each.position for each in report.sent.failures] == [number + 2 for number in bad]


@LONG
async def test_a_sync_that_begins_ends_another_one_of_the_same_list(workbench: Workbench, tmp_path: Path) -> None:
    hold = HeldAnswer()
    async with workbench.open_users() as (users, state), workbench.open_users() as (others, other_state):
        await users.sync(write_csv(tmp_path, range(COUNT)), state=state, cluster=workbench.client)
        workbench.sandbox.faults.on("POST").once().do(hold.fault)
        path = write_csv(tmp_path, range(40, COUNT + 10))
        first = asyncio.create_task(users.sync(path, state=state, cluster=workbench.client, max_removal_share=1.0))
        await hold.begun.wait()  # it removes 40 people, and has ten to add

        path = write_csv(tmp_path, range(20, COUNT + 5))
        second = await others.sync(
            path, state=other_state, cluster=workbench.client, max_removal_share=1.0, quarantine=0
        )
        sent = len(workbench.sandbox.requests)
        hold.end.set()
        with pytest.raises(BatchError) as caught:
            await first
        third = await others.sync(path, state=other_state, cluster=workbench.client)

    assert isinstance(caught.value.__cause__, TakenUpElsewhere)
    assert second.complete
    assert len(workbench.sandbox.requests) == sent
    assert workbench.list_members() == expect(range(20, COUNT + 5))
    assert (third.plan.unchanged, third.plan.upserts, third.plan.all_removals) == (COUNT - 15, 0, 0)


@LONG
@pytest.mark.parametrize("phase", ["reading", "sending"])
async def test_a_sync_that_was_cancelled_is_repaired_by_the_next(
    workbench: Workbench, tmp_path: Path, phase: str
) -> None:
    hold = HeldAnswer()
    async with workbench.open_users() as (users, state):
        await users.sync(write_csv(tmp_path, range(COUNT)), state=state, cluster=workbench.client)
        workbench.sandbox.faults.on("POST").once().do(hold.fault)
        path = write_csv(tmp_path, range(40, COUNT + 10))
        reached = hold.begun if phase == "sending" else asyncio.Event()

        def note(progress: Progress) -> None:
            if progress.phase == phase == "reading":
                reached.set()

        settings: dict[str, Any] = {"state": state, "cluster": workbench.client, "max_removal_share": 1.0}
        sync = asyncio.create_task(users.sync(path, progress=note, **settings))
        await reached.wait()
        sync.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sync
        hold.end.set()
        report = await users.sync(path, quarantine=0, **settings)

    assert report.complete
    assert report.plan.all_removals == 40
    assert workbench.list_members() == expect(range(40, COUNT + 10))


@LONG
async def test_nothing_is_sent_if_a_fragment_cannot_be_read(workbench: Workbench, tmp_path: Path) -> None:
    path = write_parquet(tmp_path, range(COUNT))
    async with workbench.open_users() as (users, state):
        await users.sync(path, state=state, cluster=workbench.client)
        sent = len(workbench.sandbox.requests)
        content = path.read_bytes()
        path.write_bytes(content[:8] + bytes(200) + content[208:])  # the first row group

        with pytest.raises(UnusableFile, check=has(path=str(path))):
            await users.sync(path, state=state, cluster=workbench.client, max_removal_share=1.0)

    assert len(workbench.sandbox.requests) == sent


@LONG
async def test_nothing_is_sent_if_a_file_changes_while_it_is_read(workbench: Workbench, tmp_path: Path) -> None:
    path = write_csv(tmp_path, range(COUNT))

    def truncate(progress: Progress) -> None:
        if progress.phase == "reading" and not progress.phase_done:
            write_csv(tmp_path, range(3))

    async with workbench.open_users() as (users, state):
        await users.sync(path, state=state, cluster=workbench.client)
        sent = len(workbench.sandbox.requests)
        with pytest.raises(SourceUnavailable, check=has(name=str(path))):
            await users.sync(path, state=state, cluster=workbench.client, max_removal_share=1.0, progress=truncate)

    assert len(workbench.sandbox.requests) == sent
    assert workbench.list_members() == expect(range(COUNT))


@LONG
async def test_nothing_is_sent_if_the_scheduler_is_lost(workbench: Workbench, tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table({"email": [mail(number) for number in range(COUNT)]}), path, row_group_size=5)
    closing: list[asyncio.Task[None]] = []

    async with (
        Scheduler(port=0, dashboard_address="127.0.0.1:0") as scheduler,
        Worker(scheduler.address),
        Client(scheduler.address, asynchronous=True, timeout=1) as client,
    ):

        def close_once(progress: Progress) -> None:
            if progress.phase == "reading" and not closing:
                closing.append(asyncio.create_task(scheduler.close()))

        async with workbench.open_users() as (users, state):
            with pytest.raises(ClusterFailed):
                await users.sync(path, state=state, cluster=client, progress=close_once)
        await asyncio.gather(*closing)

    assert not workbench.sandbox.requests


@LONG
async def test_products_are_made_equal_to_feeds(workbench: Workbench, tmp_path: Path) -> None:
    failures: list[Failure] = []

    async with workbench.open_session() as (session, state):
        catalog = await session.product_catalogs.create(name="Shop")
        service = session.product_catalog(catalog.id).products
        for prices in ({1: "9.90", 2: "9.90", 3: "9.90"}, {2: "9.90", 3: "8.00", 4: "7.00"}):
            write_feeds(tmp_path, prices)
            report = await service.sync(
                str(tmp_path / "*.csv"),
                state=state,
                cluster=workbench.client,
                max_removal_share=1.0,
                on_failure=failures.append,
            )
            found = await service.list().collect()

            expected = sorted((f"p{number}", f"{price} EUR") for number, price in prices.items())
            assert sorted((str(each.id), str(each.price)) for each in found) == expected

    plan = report.plan
    assert (plan.removals, plan.additions, plan.changes, plan.unchanged, plan.invalid_rows) == (1, 1, 1, 1, 1)
    assert (report.sent.read, report.sent.accepted) == (3, 2)
    assert [(Path(str(each.file)).name, each.position) for each in report.sent.failures] == [("z.csv", 3)]
    assert failures[-1] == report.sent.failures[0]


def test_nothing_raw_leaves_a_worker(tmp_path: Path) -> None:
    path = write_csv(tmp_path, range(3))
    path.write_text(f"{path.read_text()}secret person\n")
    jobs = [describe(path, reading=Reading(bad_identifiers=choice)) for choice in get_args(BadIdentifiers)]

    found = [read_fragment(each, job=job) for job in jobs for each in plan_source(job).fragments]

    assert [sum(part.count for part in parts) for parts in found] == [4, 4]
    assert not any(text in pickle.dumps(found) for text in (b"example", b"secret"))


class HeldAnswer:
    """Lets a request take effect, and holds its answer."""

    def __init__(self) -> None:
        self.begun, self.end = asyncio.Event(), asyncio.Event()

    @property
    def fault(self) -> Fault:
        async def act(_: Exchange, reply: Reply | None) -> Reply | None:
            self.begun.set()
            await self.end.wait()
            return reply

        return Fault("held", act, stage="after")


def counts(report: SyncReport) -> Sequence[tuple[int, ...]]:
    return [
        (each.read, each.accepted, each.failed, each.pending, each.partly_valid)
        for each in (report.sent, report.removed)
    ]


def make_night(source: random.Random) -> Sequence[Sequence[Row]]:
    """Return rows for several files: people who come again, also without their phone number, and rows that fail."""
    phone = f"+4930{1000000 + source.randrange(3)}"

    def make_row() -> Row:
        number = source.randrange(60)
        emails = [mail(number)] * 8 + ["nobody", ""]
        return source.choice(emails), source.choice(["", phone, "no phone"])

    return [[make_row() for _ in range(source.randrange(1, 60))] for _ in range(3)]


def write_night(folder: Path, parts: Sequence[Sequence[Row]]) -> Sequence[tuple[str, int]]:
    """Write the rows as files of several formats and as one that a folder leaves out; return the place of each row."""
    folder.mkdir()
    places: list[tuple[str, int]] = []
    for number, rows in enumerate(parts):
        if number % 2:
            path = folder / f"{number}.parquet"
            table = pa.table({"email": [email for email, _ in rows], "phone": [phone for _, phone in rows]})
            pq.write_table(table, path, row_group_size=7)
            places += [(path.name, row) for row in range(1, len(rows) + 1)]
        else:
            path = folder / f"{number}.csv"
            path.write_text(write_rows(rows))
            places += [(path.name, line) for line in range(2, len(rows) + 2)]
    (folder / "_all.csv").write_text(write_rows([row for rows in parts for row in rows]))
    return places


def write_rows(rows: Iterable[Row]) -> str:
    return "email,phone\n" + "".join(f'"{email}","{phone}"\n' for email, phone in rows)


def write_bucket(bucket: Bucket, numbers: range) -> None:
    """Write people as three files, each of several row groups."""
    for part in range(3):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"email": [mail(number) for number in numbers[part::3]]}), sink, row_group_size=50)
        bucket.write(f"customers/part-{part}.parquet", sink.getvalue().to_pybytes())


def write_feeds(folder: Path, prices: dict[int, str]) -> None:
    """Write products, and another file that repeats the last of them and has one that cannot be sent."""
    rows = [{**PRODUCT, "id": f"p{number}", "price": f"{price} EUR"} for number, price in prices.items()]
    for name, some in (("a.csv", rows), ("z.csv", [rows[-1], {**PRODUCT, "id": "p9", "title": ""}])):
        (folder / name).write_text("".join(f"{','.join(row)}\n" for row in (PRODUCT, *(row.values() for row in some))))
