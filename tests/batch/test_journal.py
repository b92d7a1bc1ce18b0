"""Jobs that are killed and taken up again: nothing is lost, nothing is out of order, nothing is sent twice in vain."""

import asyncio
import itertools
import os
import random
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_async.batch.journal.codec import decode_intent, encode_intent
from svc_async.batch.journal.ledger import LedgerFactory, create_ledger
from svc_async.batch.journal.schema import FORMAT
from svc_async.batch.lists.audience_users import AudienceUsers
from svc_async.batch.packing.limits import Limits
from svc_async.batch.report import Failure, Progress, Report
from svc_async.batch.settings import JobSizes
from svc_async.errors import BatchError, ErrorDetail, UnusableFile
from svc_async.handles import CustomAudienceHandle
from svc_async.sandbox import Fault, Sandbox, VirtualClock
from tests.support.fake_catalog import FakeCatalog, change_results, product
from tests.support.fake_service import (
    LOST,
    REFUSED,
    FakeService,
    Outcome,
    adds_up,
    answer_counts,
    apply_and_raise,
    make_error,
    make_members,
    wait_until,
)
from tests.support.journals import FULL_DISK, Death, create_ledgers

Row = dict[str, str]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "job.journal"


SMALL = JobSizes(slice_rows=3, partition_rows=7)
"""Lets a few rows be a long source of many requests, most of which are sent before it has ended."""


def users_of(
    service: FakeService, audience: str = "c1", *, operations: int = 4, create_ledger: LedgerFactory = create_ledger
) -> AudienceUsers:
    limits = Limits(operations=operations)
    return AudienceUsers(service, "a1", audience, limits=limits, sizes=SMALL, create_ledger=create_ledger)


def rows_with_repeats(count: int = 60, keys: int = 12, seed: int = 1) -> list[Row]:
    dice = random.Random(seed)
    return [{"partner_user_id": f"p{dice.randrange(keys)}", "svc_id": str(dice.randrange(count))} for _ in range(count)]


def hashed(row: Row) -> str:
    return sha256(row["svc_id"].encode()).hexdigest()


def expected(rows: Sequence[Row]) -> dict[str, str]:
    return {row["partner_user_id"]: hashed(row) for row in rows}


def held(service: FakeService) -> dict[str, str]:
    return {user["partner_user_id"][0]: user["svc_id"][0] for user in service.users}


def identities(body: bytes) -> list[tuple[str, str]]:
    return [
        (user["partner_user_id"][0], user["svc_id"][0])
        for operation in msgspec.json.decode(body)
        for user in operation["params"]["users"]
    ]


def written_in(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.iterdir())


def remove(path: Path) -> None:
    path.unlink()


async def run(
    service: FakeService,
    rows: Any,
    path: Path,
    *,
    operations: int = 4,
    create_ledger: LedgerFactory = create_ledger,
    **settings_: Any,
) -> Report:
    users = users_of(service, operations=operations, create_ledger=create_ledger)
    return await users.upload(rows, journal=path, **{"users_per_operation": 1, **settings_})


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("lanes", "per_operation"), [(1, 2), (3, 1), (5, 3)])
async def test_a_kill_at_any_commit_loses_nothing_and_repeats_only_what_was_in_doubt(
    tmp_path: Path, lanes: int, per_operation: int, *, after: bool
) -> None:
    rows = rows_with_repeats()
    for commit in range(1, 1000):
        path = tmp_path / f"{commit}"
        service = FakeService()
        how: dict[str, Any] = {"concurrency": lanes, "users_per_operation": per_operation}
        death = Death(commit, after=after)
        try:
            await run(service, rows, path, create_ledger=death.create_ledger, **how)
        except BatchError as error:
            assert adds_up(error.report)
        seen: list[Progress] = []
        report = await run(service, rows, path, progress=seen.append, **how)
        assert held(service) == expected(rows), f"killed at commit {commit}"
        assert (report.read, report.pending, report.failed) == (len(rows), 0, 0)
        assert adds_up(report)
        assert all(map(adds_up, seen))
        sent = Counter(itertools.chain.from_iterable(map(identities, dict.fromkeys(service.bodies))))
        assert sent <= Counter((row["partner_user_id"], hashed(row)) for row in rows)
        assert max(Counter(service.bodies).values()) <= 2
        if not death.happened:
            return
    pytest.fail("the job does not end")


async def cancelled_in_flight(service: FakeService, rows: Any, path: Path, **settings_: Any) -> float:
    """End a job as a kill would while a request is under way; give the time at which that was sent."""
    task = asyncio.create_task(run(service, rows, path, **settings_))
    await wait_until(lambda: service.in_flight == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return service.times[-1]


async def test_an_intent_waits_out_its_quarantine_then_sends_the_same_bytes(path: Path) -> None:
    service = FakeService(latency=1)
    rows = rows_with_repeats(20)
    sent_at = await cancelled_in_flight(service, rows, path, concurrency=1, quarantine=100)
    await service.clock.sleep(30)
    await run(service, rows, path, concurrency=1, quarantine=100)
    assert service.bodies[1] == service.bodies[0]
    assert service.times[1] - sent_at == pytest.approx(100)
    assert held(service) == expected(rows)


async def test_rows_that_were_left_behind_and_are_not_read_again_yet_stay_left_behind(tmp_path: Path) -> None:
    rows = rows_with_repeats(90, keys=20)
    for commit in range(1, 40):
        path = tmp_path / f"{commit}"
        service = FakeService()
        with suppress(BatchError):
            create_ledger = Death(3).create_ledger
            await run(service, rows, path, concurrency=1, users_per_operation=25, create_ledger=create_ledger)
        with suppress(BatchError):
            await run(service, rows, path, users_per_operation=1, create_ledger=Death(commit).create_ledger)
        report = await run(service, rows, path, users_per_operation=1)
        assert (report.read, report.pending) == (90, 0)
        assert held(service) == expected(rows), f"killed at commit {commit}"


async def test_rows_that_gave_way_in_a_request_that_was_halved_are_counted_once(tmp_path: Path) -> None:
    rows = [{"partner_user_id": f"p{n % 3}", "svc_id": f"{n % 3}"} for n in range(24)]
    for commit in range(1, 20):
        path = tmp_path / f"{commit}"
        service = FakeService()
        service.script[1] = make_error(400)
        with suppress(BatchError):
            await run(service, rows, path, concurrency=1, create_ledger=Death(commit, after=True).create_ledger)
        seen: list[Progress] = []
        report = await run(service, rows, path, progress=seen.append)
        assert all(map(adds_up, seen))
        assert (report.read, report.failed, report.pending) == (24, 0, 0), f"killed at commit {commit}"
        assert held(service) == expected(rows)


async def test_what_is_older_than_the_quarantine_is_sent_at_once(path: Path) -> None:
    service = FakeService(latency=1)
    await cancelled_in_flight(service, make_members(3), path)
    await service.clock.sleep(1000)
    before = service.clock.monotonic()
    await run(service, make_members(3), path)
    assert service.times[1] == before


async def test_what_was_certainly_refused_is_not_in_doubt(path: Path) -> None:
    service = FakeService()
    service.script[1] = make_error(401)
    with pytest.raises(BatchError):
        await run(service, make_members(3), path)
    before = service.clock.monotonic()
    report = await run(service, make_members(3), path)
    assert (report.accepted, report.requests, service.times[-1]) == (3, 2, before)


async def test_a_finished_job_says_so_at_once(path: Path) -> None:
    service = FakeService()
    rows: list[Any] = [*make_members(20), {"email": "no"}, {"partner_user_id": "p1"}]
    report = await run(service, rows, path)
    sent = len(service.bodies)
    again = await run(service, rows, path)
    assert again == report
    assert again.failures[0].position == 20
    assert len(service.bodies) == sent
    stream = users_of(service).stream(rows, journal=path)
    assert [receipt async for receipt in stream] == []
    assert stream.report == report


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: [{**rows[0], "svc_id": "7777"}, *rows[1:]],
        lambda rows: rows[1:],
        lambda rows: [{"email": "bad"}, *rows[1:]],
        lambda _: [],
    ],
    ids=["another value", "a row less", "a bad row", "nothing"],
)
async def test_a_changed_source_is_refused_and_nothing_is_sent(path: Path, change: Callable[[Any], Any]) -> None:
    service = FakeService()
    rows = rows_with_repeats()
    service.script[9] = make_error(403)
    with pytest.raises(BatchError):
        await run(service, rows, path, concurrency=2)
    sent = len(service.bodies)
    with pytest.raises(UnusableFile, match="belongs to a job with another source, or the source has changed"):
        await run(service, change(rows), path)
    assert len(service.bodies) == sent
    await run(service, rows, path)
    assert held(service) == expected(rows)


class Ending(list[Row]):
    """Rows that know whether they were read to their end."""

    ended = False

    def __iter__(self) -> Iterator[Row]:
        yield from super().__iter__()
        self.ended = True


async def test_a_source_that_has_grown_behind_its_end_is_refused(path: Path) -> None:
    service = FakeService()
    rows = Ending(rows_with_repeats())
    answers = itertools.count()

    def refuse(_: object) -> None:
        if rows.ended and next(answers):  # the first may have been sent before
            raise make_error(403)

    service.always = refuse
    with pytest.raises(BatchError):
        await run(service, rows, path, concurrency=1)
    with pytest.raises(UnusableFile, match="belongs to a job with another source, or the source has changed"):
        await run(service, [*rows, {"partner_user_id": "new"}], path)
    service.always = None
    await run(service, rows, path)
    assert held(service) == expected(rows)


async def test_a_journal_of_another_job_is_refused(path: Path) -> None:
    service = FakeService()
    await run(service, make_members(3), path)
    other = users_of(service, "c2")
    with pytest.raises(UnusableFile, match="another job: destination is 'POST .*/c1/users' there"):
        await other.upload(make_members(3), journal=path)
    with pytest.raises(UnusableFile, match="ordered"):
        await run(service, make_members(3), path, ordering="none")


async def test_a_removal_is_not_taken_for_an_upload(path: Path) -> None:
    service = FakeService()
    service.script[2] = make_error(403)
    with pytest.raises(BatchError):
        await run(service, make_members(60), path, concurrency=1, users_per_operation=1)
    with pytest.raises(UnusableFile, match="another job"):
        await users_of(service).remove(make_members(60), journal=path)
    await run(service, make_members(60), path)
    with pytest.raises(UnusableFile, match="another job"):
        await users_of(service).remove(make_members(60), journal=path)


async def test_journals_of_other_versions_and_other_files_are_refused(tmp_path: Path) -> None:
    service = FakeService()
    path = tmp_path / "newer"
    await run(service, make_members(3), path)
    for version, which in ((FORMAT.version + 1, "a newer"), (FORMAT.version - 1, "an earlier")):
        database = sqlite3.connect(path)
        database.execute(f"PRAGMA user_version={version}")
        database.close()
        with pytest.raises(UnusableFile, match=f"was written by {which} version of this SDK"):
            await run(service, make_members(3), path)
    other = tmp_path / "other"
    database = sqlite3.connect(other)
    database.execute("CREATE TABLE mine (x)")
    database.commit()
    database.close()
    with pytest.raises(UnusableFile, match="is not a journal"):
        await run(service, make_members(3), other)
    text = tmp_path / "text"
    text.write_text("a customer file, long enough to be no database" * 100)
    with pytest.raises(UnusableFile, match="not a database"):
        await run(service, make_members(3), text)
    with pytest.raises(UnusableFile, match="unable to open"):
        await run(service, make_members(3), tmp_path / "no" / "folder")


_OTHER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA locking_mode=EXCLUSIVE")
database.execute("BEGIN IMMEDIATE")
database.execute("UPDATE job SET requests = requests")
database.execute("COMMIT")
print("locked", flush=True)
sys.stdin.read()
"""


async def test_a_journal_in_use_by_another_process_is_refused(path: Path) -> None:
    service = FakeService()
    service.script[1] = make_error(403)
    with pytest.raises(BatchError):
        await run(service, make_members(3), path)
    pipe = asyncio.subprocess.PIPE
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", _OTHER, str(path), stdin=pipe, stdout=pipe)
    assert other.stdout is not None
    await other.stdout.readline()
    with pytest.raises(UnusableFile, match="is locked by another job"):
        await run(service, make_members(3), path)
    await other.communicate(b"")
    assert (await run(service, make_members(3), path)).accepted == 3


async def test_two_jobs_of_one_process_do_not_share_a_journal(path: Path) -> None:
    clock = VirtualClock(mode="manual")
    service = FakeService(clock=clock, latency=5)
    task = asyncio.create_task(run(service, make_members(3), path))
    await wait_until(lambda: service.in_flight == 1)
    with pytest.raises(UnusableFile, match="is locked by another job"):
        await run(FakeService(), make_members(3), path)
    await clock.advance(seconds=5)
    assert (await task).accepted == 3


async def test_a_full_disk_is_a_clear_stop_and_the_job_can_go_on(path: Path) -> None:
    service = FakeService()
    rows = rows_with_repeats(6000, keys=5000)
    create_ledger = create_ledgers(*FULL_DISK)
    with pytest.raises(BatchError, match=r"journal .* cannot be written: database or disk is full") as caught:
        await run(service, rows, path, operations=2_500, concurrency=1, create_ledger=create_ledger)
    assert adds_up(caught.value.report)
    assert service.bodies == []
    report = await run(service, rows, path, operations=2_500)
    assert (report.read, report.pending) == (6000, 0)
    assert held(service) == expected(rows)


async def test_no_identifier_and_no_token_is_in_the_journal(path: Path, tmp_path: Path) -> None:
    service = FakeService()
    service.script[2] = make_error(403)
    rows = [{"email": f"someone{n}@example.org", "partner_user_id": f"partner-{n}"} for n in range(100)]
    with pytest.raises(BatchError):
        await run(service, rows, path, concurrency=1)
    written = written_in(tmp_path)
    for word in (b"example.org", b"partner-", sha256(b"someone1@example.org").hexdigest().encode()):
        assert word not in written


async def test_the_size_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    sizes: list[int] = []
    for count in (2_000, 20_000):
        path = tmp_path / str(count)
        await run(FakeService(), make_members(count), path, users_per_operation=10, concurrency=4)
        sizes.append(path.stat().st_size)
    assert sizes[1] <= sizes[0] * 1.2


async def test_an_iterator_is_put_aside_and_taken_from_there(path: Path) -> None:
    service = FakeService()
    service.script[3] = make_error(403)
    rows: list[Any] = [{"email": "no"}, *rows_with_repeats(), {"partner_user_id": "x" * 5_000_000}]
    with pytest.raises(BatchError):
        await run(service, iter(rows), path, concurrency=2)
    aside = path.with_name("job.journal.rows")
    assert os.stat(aside).st_mode & 0o777 == 0o600  # noqa: PTH116 - the file is local
    report = await run(service, iter([]), path)
    assert (report.read, report.failed) == (62, 2)
    assert [(failure.position, failure.code) for failure in report.failures] == [(0, "INVALID_ROW"), (61, "TOO_LARGE")]
    assert held(service) == expected(rows[1:-1])
    assert not aside.exists()


async def test_rows_that_were_put_aside_for_a_job_that_is_gone_are_not_taken(path: Path) -> None:
    service = FakeService()
    service.script[1] = make_error(403)
    with pytest.raises(BatchError):
        await run(service, iter(make_members(5)), path, concurrency=1)
    remove(path)
    report = await run(service, iter(make_members(3, first=90)), path)
    assert (report.read, {user["partner_user_id"][0] for user in service.users}) == (3, {"p90", "p91", "p92"})


async def test_rows_that_were_put_aside_and_are_gone_are_missed(path: Path) -> None:
    service = FakeService()
    service.script[1] = make_error(403)
    with pytest.raises(BatchError):
        await run(service, iter(make_members(5)), path)
    remove(path.with_name("job.journal.rows"))
    with pytest.raises(UnusableFile, match=r"job.journal.rows is missing"):
        await run(service, iter(make_members(5)), path)


async def test_an_iterator_that_fails_sends_nothing_and_is_read_anew(path: Path) -> None:
    service = FakeService()

    async def failing() -> AsyncIterator[Row]:
        for row in rows_with_repeats():
            yield row
        raise LookupError("p7")

    with pytest.raises(BatchError, match="LookupError") as caught:
        await run(service, failing(), path)
    assert "p7" not in str(caught.value)
    assert service.bodies == []
    assert (await run(service, iter(make_members(10)), path)).accepted == 10


async def test_operations_that_were_put_aside_keep_their_types_and_times(path: Path) -> None:
    service = FakeService()
    users = users_of(service)
    end = service.clock.now() + timedelta(days=3)
    operations = [
        {"operation_type": "Update", "params": {"users": [{"svc_id": "1"}], "expires_at": end}},
        {"operation_type": "Delete", "params": {"users": [{"svc_id": "2"}]}},
        {"operation_type": "Update", "params": {"users": [{"svc_id": "3"}]}},
    ]
    service.script[1] = make_error(403)
    with pytest.raises(BatchError):
        await users.apply(iter(operations), journal=path)
    await users.apply(iter(operations), journal=path)
    kinds = {operation["operation_type"] for operation in service.accepted}
    ends = {operation["params"].get("expires_at") for operation in service.accepted}
    assert kinds == {"Update", "Delete"}
    assert len(ends) == 3


async def test_times_stay_pinned_over_a_restart(path: Path) -> None:
    service = FakeService()
    with pytest.raises(BatchError):
        await run(service, make_members(3), path, create_ledger=Death(2).create_ledger)
    await service.clock.sleep(10_000)
    await run(service, make_members(3), path)
    assert len(service.bodies) == 2
    assert service.bodies[0] == service.bodies[1]


async def test_a_body_that_would_be_built_in_another_way_stops_the_job(path: Path) -> None:
    service = FakeService()
    with pytest.raises(BatchError):
        await run(service, make_members(3), path, create_ledger=Death(2).create_ledger)
    with closing(sqlite3.connect(path)) as database, database:
        ((blob,),) = database.execute("SELECT intent FROM intents").fetchall()
        intent = attrs.evolve(decode_intent(blob), digest=sha256(b"another body").hexdigest())
        database.execute("UPDATE intents SET intent = ?", [encode_intent(intent)])
    message = "was written by a version that encodes requests differently; finish it with that version"
    with pytest.raises(UnusableFile, match=message):
        await run(service, make_members(3), path)
    assert len(service.bodies) == 1


async def test_other_settings_go_on_with_the_lanes_of_the_first_run(path: Path) -> None:
    service = FakeService()
    rows = rows_with_repeats(200, keys=60)
    service.script[7] = make_error(403)
    with pytest.raises(BatchError):
        await run(service, rows, path, concurrency=3, users_per_operation=1)
    service.latency = 1
    service.most_in_flight = 0
    await run(service, rows, path, concurrency=50, users_per_operation=2, retry_delays=[1])
    assert service.most_in_flight <= 3
    assert held(service) == expected(rows)


async def test_failures_are_told_again_and_counted_once(path: Path) -> None:
    service = FakeService()
    bad = make_error(400, errors=[ErrorDetail(code="BAD", message="no")])
    rows: list[Any] = [{"email": "no"}, *make_members(30)]
    service.script = {1: bad, 2: bad, 3: bad, 12: make_error(403)}
    with pytest.raises(BatchError) as caught:
        await run(service, rows, path, concurrency=1, users_per_operation=1)
    (known,) = [failure for failure in caught.value.report.failures if failure.code == "BAD"]
    told: list[Failure] = []
    report = await run(service, rows, path, on_failure=told.append)
    assert sorted(failure.position for failure in told) == [0, known.position]
    assert (report.failed, report.accepted, report.read) == (2, 29, 31)
    assert report.requests == len(service.bodies)


async def test_without_order_a_job_can_be_taken_up_as_well(path: Path) -> None:
    service = FakeService()
    service.script = {4: make_error(403)}
    with pytest.raises(BatchError):
        await run(service, make_members(100), path, concurrency=3, users_per_operation=1, ordering="none")
    report = await run(service, make_members(100), path, ordering="none")
    assert (report.accepted, len(service.users)) == (100, 100)


async def test_a_cancelled_job_can_be_taken_up(path: Path) -> None:
    service = FakeService(latency=5)
    rows = rows_with_repeats(100, keys=80)
    task = asyncio.create_task(run(service, rows, path, concurrency=2))
    await wait_until(lambda: len(service.bodies) >= 4)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not [thread for thread in threading.enumerate() if thread.name == "svc-async sqlite"]
    report = await run(service, rows, path)
    assert report.pending == 0
    assert held(service) == expected(rows)


async def test_products_can_be_taken_up(path: Path) -> None:
    shop = FakeCatalog()
    dice = random.Random(2)
    rows = [product(dice.randrange(60), title=f"t{number}") for number in range(300)]
    products = shop.products(SMALL)
    for commit in (2, 3, 5, 8):
        dying = shop.products(SMALL, create_ledger=Death(commit, after=True).create_ledger)
        with pytest.raises(BatchError):
            await dying.upsert(rows, journal=path, concurrency=4)
    report = await products.upsert(rows, journal=path)
    assert (report.read, report.pending, report.failed) == (300, 0, 0)
    assert {name: row["title"] for name, row in shop.held.items()} == {row["id"]: row["title"] for row in rows}
    again = shop.products(SMALL)
    with pytest.raises(UnusableFile, match="another job"):
        await again.delete(["k"], journal=path)


async def test_products_that_an_answer_leaves_out_stay_in_doubt_over_a_restart(path: Path) -> None:
    shop = FakeCatalog()
    shop.script[1] = change_results(lambda found: found[2:])
    products = shop.products(SMALL)
    rows = [product(number) for number in range(10)]
    death = Death(10**9)
    dying = shop.products(SMALL, create_ledger=death.create_ledger)
    task = asyncio.create_task(dying.upsert(rows, journal=path, concurrency=1, quarantine=10**6))
    await wait_until(lambda: len(shop.requests) == 1)
    death.commit = 0  # from now on
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    report = await products.upsert(rows, journal=path, quarantine=50)
    assert (report.accepted, report.read) == (10, 10)


async def _killed_and_taken_up(audience: CustomAudienceHandle, path: Path, commit: int, *, after: bool) -> None:
    rows: list[dict[str, object]] = [
        {"partner_user_id": f"p{n % 37}", "email": f"u{n}@b.de", "handle": f"h{n % 5}"} for n in range(150)
    ]
    users = attrs.evolve(audience.users, limits=Limits(operations=4), sizes=SMALL)
    dying = attrs.evolve(users, create_ledger=Death(commit, after=after).create_ledger)
    with suppress(BatchError):
        await dying.upload(rows, journal=path, concurrency=3, users_per_operation=2)
    report = await users.upload(rows, journal=path, concurrency=3, users_per_operation=2)
    assert (report.read, report.pending, report.failed) == (150, 0, 0)


@pytest.mark.parametrize("after", [False, True])
async def test_the_sandbox_holds_the_same_audience_whenever_the_job_was_killed(
    sandbox: Sandbox, audience: CustomAudienceHandle, tmp_path: Path, *, after: bool
) -> None:
    whole: set[str] | None = None
    for commit in (1, 2, 3, 5, 8, 13, 21, 10**6):
        await audience.users.remove([{"partner_user_id": f"p{n}"} for n in range(37)])
        sandbox.faults.on("POST", "*/users").probability(0.1, seed=commit).do(Fault.drop_connection(), stage="after")
        await _killed_and_taken_up(audience, tmp_path / str(commit), commit, after=after)
        sandbox.faults.clear()
        found = {value for user in sandbox.audience(sandbox.audience_id).users for value in user["email"]}
        whole = whole or found
        assert found == whole


OUTCOMES = ["fine", "fine", "503", "lost", "lost after", "refused", "429", "counts", "400", "403"]


@settings(max_examples=60)
@given(
    keys=st.lists(st.integers(0, 25), max_size=120),
    values=st.integers(1, 200),
    outcomes=st.lists(st.sampled_from(OUTCOMES), max_size=10),
    kills=st.lists(st.tuples(st.integers(1, 25), st.booleans()), max_size=4),
    shape=st.tuples(st.sampled_from([1, 3]), st.integers(1, 5), st.booleans()),
)
async def test_any_faults_and_any_kills_leave_the_last_of_each_key(  # noqa: PLR0917 - hypothesis gives them
    tmp_path_factory: pytest.TempPathFactory,
    keys: list[int],
    values: int,
    outcomes: list[str],
    kills: list[tuple[int, bool]],
    shape: tuple[int, int, bool],
) -> None:
    per_operation, lanes, replayable = shape
    path = tmp_path_factory.mktemp("job") / "journal"
    service = FakeService()
    errors: dict[str, Outcome | None] = {
        "fine": None,
        "503": make_error(503),
        "lost": LOST,
        "lost after": apply_and_raise(service, LOST),
        "refused": REFUSED,
        "429": make_error(429),
        "counts": answer_counts(0, 0),
        "400": make_error(400),
        "403": make_error(403),
    }
    service.script = {number: outcome for number, each in enumerate(outcomes, 1) if (outcome := errors[each])}
    rows = [
        {"partner_user_id": f"p{key}", "svc_id": str(number % values)} if key else {"email": "no"}
        for number, key in enumerate(keys)
    ]
    how: dict[str, Any] = {"users_per_operation": per_operation, "concurrency": lanes, "retry_delays": [0] * 9}
    failed: set[str] = set()
    for commit, after in [*kills, *[(10**9, False)] * 8]:
        seen: list[Progress] = []
        create_ledger = Death(commit, after=after).create_ledger
        try:
            source = rows if replayable else iter(rows)
            report = await run(service, source, path, progress=seen.append, create_ledger=create_ledger, **how)
        except BatchError as error:
            report = error.report
            assert adds_up(report)
        assert all(map(adds_up, seen))
        failed |= {rows[each.position]["partner_user_id"] for each in report.failures if each.code != "INVALID_ROW"}
        if not report.pending and report.read == len(rows) and commit == 10**9:
            break
    assert (report.read, report.pending) == (len(rows), 0)
    assert adds_up(report)
    assert report.failed == keys.count(0) + len([each for each in report.failures if each.code != "INVALID_ROW"])
    # A kill between the intent and the request cannot be told from one behind it.
    assert len(service.bodies) - lanes * len(kills) <= report.requests <= len(service.bodies) + lanes * len(kills)
    wanted = expected([row for row in rows if "svc_id" in row])
    assert {name: value for name, value in held(service).items() if name not in failed} == {
        name: value for name, value in wanted.items() if name not in failed
    }
