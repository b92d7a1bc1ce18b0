"""A request that waits for the rate limit was not sent: it is neither counted nor in doubt, however the job ends."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from svc_async import Session
from svc_async.batch.journal.file import JournalFile
from svc_async.batch.journal.journal import JournalLocation
from svc_async.batch.journal.record import Doubt, JournalRecord
from svc_async.batch.packing.batch import Limits
from svc_async.batch.report import Progress, Report
from svc_async.batch.settings import JobSizes
from svc_async.batch.uploader import Receipts
from svc_async.errors import BatchError, Forbidden
from svc_async.sandbox import Fault, RateRule, Sandbox, SandboxConfig, VirtualClock
from tests.support.errors import because
from tests.support.fake_service import LOST, REFUSED, FakeService, make_error, make_members
from tests.support.journaled_uploads import create_users, upload
from tests.support.journals import hold_clock, read_record
from tests.support.tasks import let_threads_run, wait_until

PRODUCTS = "*/product_catalogs/*/products"
USERS = "*/custom_audiences/*/users"


@attrs.define
class LimitedService(FakeService):
    """Admits some requests; the others wait.

    Attributes:
        admitted: how many it admits.
        waiting: how many wait.
        unsendable: the numbers of those that are refused once they are admitted, before they are sent.
    """

    admitted: int = 0
    waiting: int = 0
    unsendable: set[int] = attrs.field(factory=set)
    _number: int = 0

    async def send_with_answer(self, request: Any) -> Any:
        self.waiting += 1
        try:
            await wait_until(lambda: self._number < self.admitted)
        finally:
            self.waiting -= 1
        self._number += 1
        if self._number in self.unsendable and self._before_sending is not None:
            await self._before_sending(request)
            raise REFUSED
        return await super().send_with_answer(request)


@asynccontextmanager
async def run_until_waiting(
    service: LimitedService, journal: JournalLocation | None, *, waiting: int = 3, **settings: Any
) -> AsyncIterator[Receipts[Any]]:
    """Run an upload of 60 rows, four a request, until some requests wait; cancel it in the end."""
    where = None if journal is None else hold_clock(journal, service.clock)
    options = {"users_per_operation": 1, "concurrency": 3, **settings}
    stream = create_users(service).stream(make_members(60), journal=where, **options)

    async def read() -> None:
        async with stream:
            async for _ in stream:
                pass

    task = asyncio.create_task(read())
    await wait_until(lambda: service.waiting == waiting or task.done())
    yield stream
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def make_product(number: int) -> dict[str, Any]:
    link = f"https://shop.example.org/{number}.png"
    text = {"id": f"{number}", "title": "T", "description": "D", "price": "9.90 EUR", "brand": "B"}
    return {**text, "availability": "in stock", "condition": "new", "inventory": 1, "link": link, "image_link": link}


def count_waiting(session: Session) -> int:
    """Return how many requests of a session wait for a limit."""
    return sum(bucket.waiting for bucket in session.governor.snapshot())


def check(report: Report, *, requests: int, in_doubt: int = 0) -> None:
    accepted = 4 * requests - in_doubt
    assert (report.requests, report.accepted, report.in_doubt) == (requests, accepted, in_doubt)
    assert report.pending == report.read - accepted


async def wait_for_settlements(journal: JournalLocation, *, accepted: int) -> JournalRecord:
    """Return what a journal says once the answers are in it, which nobody waits for."""
    while (record := await read_record(journal)).report.accepted < accepted:
        let_threads_run()
    return record


async def test_requests_that_wait_are_neither_counted_nor_in_doubt(journal: JournalLocation) -> None:
    service = LimitedService(admitted=5)

    async with run_until_waiting(service, journal) as stream:
        live = await wait_for_settlements(journal, accepted=20)
        check(stream.report, requests=5)
    ended = await read_record(journal)

    for record in (live, ended):
        check(record.report, requests=5)
        assert (record.doubts, record.timeline[-1].requests) == ((), 5)
    check(stream.report, requests=5)


async def test_without_a_journal_requests_that_wait_are_not_in_doubt_either() -> None:
    async with run_until_waiting(LimitedService(admitted=5), None) as stream:
        pass

    check(stream.report, requests=5)


async def test_a_job_that_was_stopped_while_requests_waited_continues_at_once(journal: JournalLocation) -> None:
    service = LimitedService(admitted=5)
    async with run_until_waiting(service, journal):
        pass
    began, service.admitted = service.clock.monotonic(), 99

    report = await upload(service, make_members(60), journal, quarantine=100)

    assert (report.accepted, report.requests) == (60, len(service.bodies))
    assert service.clock.monotonic() == began
    assert [len(moments) for _, moments in service.restored] == [0, 5]


async def test_what_only_waited_when_a_job_was_killed_is_not_in_doubt(tmp_path: Path) -> None:
    journal, copy = JournalFile(tmp_path / "journal"), JournalFile(tmp_path / "copy")
    service = LimitedService(admitted=5)
    async with run_until_waiting(service, journal):
        await wait_for_settlements(journal, accepted=20)
        for each in tmp_path.glob("journal*"):  # what a killed process leaves
            shutil.copy(each, tmp_path / each.name.replace("journal", "copy"))
    seen: list[Progress] = []
    service.admitted = 99

    report = await upload(service, make_members(60), copy, quarantine=100, progress=seen.append)

    assert {(progress.in_doubt, progress.requests) for progress in seen if not progress.in_flight} >= {(0, 5)}
    assert max(progress.in_doubt for progress in seen) == 0
    assert (report.accepted, report.requests) == (60, len(service.bodies))
    assert [len(moments) for _, moments in service.restored] == [0, 5]


async def test_a_repeat_that_waits_leaves_the_attempt_before_in_doubt(journal: JournalLocation) -> None:
    service = LimitedService(admitted=1, script={1: LOST})
    began = service.clock.now()

    async with run_until_waiting(service, journal, concurrency=1, waiting=1, quarantine=50) as stream:
        await wait_until(lambda: service.bodies != [] and service.waiting == 1)
        live = await read_record(journal)
        check(stream.report, requests=1, in_doubt=4)
    ended = await read_record(journal)

    for record in (live, ended):
        check(record.report, requests=1, in_doubt=4)
        assert record.doubts == (Doubt(4, began),)
    check(stream.report, requests=1, in_doubt=4)


async def test_a_repeat_that_could_not_be_sent_leaves_the_attempt_before_in_doubt(journal: JournalLocation) -> None:
    service = LimitedService(admitted=2, script={1: LOST}, unsendable={2})
    began = service.clock.now()

    with pytest.raises(BatchError) as caught:
        await upload(service, make_members(3), journal, concurrency=1, retry_delays=[0], quarantine=50)
    record = await read_record(journal)

    assert (caught.value.report.in_doubt, record.doubts) == (3, (Doubt(3, began),))
    assert caught.value.report.requests == record.report.requests == 1


async def test_a_request_that_could_not_be_sent_is_not_counted(journal: JournalLocation) -> None:
    service = LimitedService(admitted=99, script={3: make_error(403)}, unsendable={1, 3})

    with pytest.raises(BatchError) as caught:
        await upload(service, make_members(60), journal, concurrency=1, retry_delays=[0])
    record = await read_record(journal)

    assert caught.value.report.requests == record.report.requests == len(service.bodies) == 3
    assert (caught.value.report.in_doubt, record.doubts) == (0, ())
    await upload(service, make_members(60), journal)
    assert [len(moments) for _, moments in service.restored] == [0, 3]


@pytest.mark.parametrize("journaled", [False, True])
async def test_a_job_that_ends_with_an_error_does_not_wait_for_the_limit_of_the_service(
    tmp_path: Path, journaled: bool
) -> None:
    config = SandboxConfig(rate_rules={"audience_users": RateRule(3, 900)})
    path, clock = tmp_path / "journal", VirtualClock()
    async with Sandbox(config=config, clock=clock) as sandbox, Session.sandbox(sandbox) as session:
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        sandbox.faults.on(path=USERS).nth(2).do(Fault.http(403))
        users = attrs.evolve(users, limits=Limits(operations=40), sizes=JobSizes(slice_rows=16, partition_rows=64))
        task = asyncio.create_task(
            users.upload(make_members(600), users_per_operation=1, concurrency=6, journal=path if journaled else None)
        )
        await wait_until(lambda: task.done() or count_waiting(session) == 5)
        while count_waiting(session) == 5:
            let_threads_run()
            await clock.advance(seconds=1)
        with pytest.raises(BatchError, check=because(Forbidden)) as caught:
            await task
        sent = sandbox.requests.count(USERS)

    report: Report = caught.value.report
    assert (sent, report.requests, report.in_doubt, report.failed) == (2, 2, 0, 0)
    assert report.read == report.accepted + report.pending
    if journaled:
        assert JournalRecord.read(path).report.in_doubt == 0


@pytest.mark.parametrize("journaled", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["users", "products"])
async def test_a_job_that_waits_for_the_limit_of_the_service_claims_no_more_than_it_has_sent(
    tmp_path: Path, kind: str, journaled: bool
) -> None:
    rules = {"product_upserts": RateRule(2, 900, "user"), "audience_users": RateRule(2, 900)}
    config, path, seen = SandboxConfig(rate_rules=rules), tmp_path / "journal", list[Progress]()
    async with Sandbox(config=config, clock=VirtualClock()) as sandbox, Session.sandbox(sandbox) as session:
        settings: dict[str, Any] = {"journal": path if journaled else None, "concurrency": 2, "progress": seen.append}
        if kind == "products":
            products = session.product_catalog(sandbox.add_catalog()).products
            work = products.upsert(map(make_product, range(120)), **settings)
        else:
            users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
            users = attrs.evolve(users, limits=Limits(operations=40), sizes=JobSizes(slice_rows=16, partition_rows=64))
            work = users.upload(make_members(600), users_per_operation=1, **settings)
        task = asyncio.create_task(work)
        await wait_until(lambda: task.done() or count_waiting(session) == 2)
        live = await wait_for_settlements(JournalFile(path), accepted=seen[-1].accepted) if journaled else None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        sent = sandbox.requests.count(PRODUCTS) + sandbox.requests.count(USERS)

    assert min(sent, seen[-1].pending) > 0
    assert (seen[-1].in_doubt, seen[-1].requests) == (0, sent)
    if live is not None:
        ended = JournalRecord.read(path)
        assert {(record.report.in_doubt, record.report.requests) for record in (live, ended)} == {(0, sent)}
