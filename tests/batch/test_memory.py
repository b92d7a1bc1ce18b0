"""Jobs that share an amount of memory: they stay within it, and every job proceeds."""

import asyncio

import attrs
import pytest

from svc_async.batch.report import Progress, Report
from svc_async.batch.settings import JobSizes
from svc_async.engine.memory import MEMORY, MemoryBudget
from svc_async.errors import InvalidArgument
from svc_async.lists.audience_users import AudienceUsers
from svc_async.sandbox import Sandbox, VirtualClock
from svc_async.session import Session
from svc_async.users.tables import Rows
from tests.support.errors import has
from tests.support.fake_service import LOST, FakeService
from tests.support.tasks import wait_until


async def test_a_job_that_is_cancelled_gives_its_share_back() -> None:
    service = FakeService(always=LOST)
    users = AudienceUsers(service.pipeline, "a1", "c1")
    task = asyncio.create_task(users.upload(make_rows(1_000)))
    await wait_until(lambda: len(service.bodies) > 0)

    task.cancel()
    await asyncio.wait([task])

    with service.memory.create_share() as share:
        assert share.allowance == MEMORY


@pytest.mark.parametrize(("jobs", "rows"), [(4, 1_000), pytest.param(16, 4_000, marks=pytest.mark.long)])
async def test_jobs_at_once_finish_at_about_the_same_time_within_the_memory(jobs: int, rows: int) -> None:
    sizes = JobSizes(slice_rows=16, partition_rows=64)
    budget = MemoryBudget(25_000 * jobs)
    services = [FakeService(latency=0.4, pace=24.25, memory=budget) for _ in range(jobs)]
    for service in services[1:]:
        service.clock = services[0].clock
    pending = dict.fromkeys(range(jobs), 0)
    most = 0

    def watch(number: int, progress: Progress) -> None:
        nonlocal most
        pending[number] = progress.pending
        most = max(most, sum(pending.values()))

    async def upload(number: int) -> tuple[Report, float]:
        users = AudienceUsers(services[number].pipeline, "a1", f"c{number}", sizes=sizes)
        report = await users.upload(
            make_rows(rows), users_per_operation=1, progress=lambda progress: watch(number, progress)
        )
        return report, services[number].clock.monotonic()

    results = await asyncio.gather(*map(upload, range(jobs)))

    assert all(report.accepted == rows for report, _ in results)
    finished = [moment for _, moment in results]
    assert max(finished) <= 1.1 * min(finished)
    assert most * 33 <= 1.1 * budget.total  # bytes that a user takes


async def test_a_job_proceeds_while_another_waits_with_all_of_the_memory() -> None:
    budget = MemoryBudget(100_000)
    stuck = FakeService(VirtualClock(), always=LOST, memory=budget)  # its quarantine never ends
    other = FakeService(memory=budget)
    first = asyncio.create_task(AudienceUsers(stuck.pipeline, "a1", "c1").upload(make_rows(20_000)))
    await wait_until(lambda: len(stuck.bodies) > 0)

    report = await AudienceUsers(other.pipeline, "a1", "c2").upload(make_rows(20_000))

    assert report.accepted == 20_000
    assert not first.done()
    first.cancel()
    await asyncio.wait([first])


@pytest.mark.parametrize("memory", [20_000, MEMORY])
async def test_the_memory_is_a_setting_of_the_session(sandbox: Sandbox, memory: int) -> None:
    most = 0

    def watch(progress: Progress) -> None:
        nonlocal most
        most = max(most, progress.pending)

    async with Session.sandbox(sandbox, memory=memory) as session:
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        users = attrs.evolve(users, sizes=JobSizes(slice_rows=16, partition_rows=64))
        report = await users.upload(make_rows(2_000), progress=watch)

    assert report.accepted == 2_000
    assert (most < 1_000) is (memory < MEMORY)


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_memory_without_a_byte_is_refused(wrong: int) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="memory")):
        Session.sandbox(memory=wrong)


def make_rows(count: int) -> Rows:
    return Rows(("email",), [(f"u{number}@b.de",) for number in range(count)])
