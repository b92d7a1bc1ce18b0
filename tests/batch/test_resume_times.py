"""No wait and no clock shortens the quarantine of a resumed job, and its rate limit knows what was sent before."""

import asyncio
import time
from datetime import timedelta
from typing import Any, cast

import attrs
import pytest

from svc_async.batch.journal.journal import JournalLocation
from svc_async.errors import BatchError
from tests.support.clock import MachineClock
from tests.support.fake_service import LOST, FakeService, make_error, make_members
from tests.support.journaled_uploads import upload
from tests.support.journals import EVERYWHERE, Death, Place, read_record
from tests.support.tasks import wait_until

QUARANTINE = 100.0


def create_service(boot_id: str | None = "a", latency: float = 1) -> FakeService:
    """Return a service, and the clock of a machine."""
    return FakeService(clock=MachineClock(boot_id), latency=latency)


def restart(service: FakeService, boot_id: str | None) -> None:
    """Start the machine again, if its id is another one."""
    cast("MachineClock", service.clock).boot_id = boot_id


@attrs.define
class WaitingService(FakeService):
    """Lets requests wait at a rate limit before they are sent."""

    wait: float = 0.0

    async def send_with_answer(self, request: Any) -> Any:
        if self.wait:
            await self.clock.sleep(self.wait)
        return await super().send_with_answer(request)


async def stop_in_flight(service: FakeService, journal: JournalLocation) -> None:
    """End a job in good order while its first request is in flight."""
    task = asyncio.create_task(upload(service, make_members(3), journal))
    await wait_until(lambda: service.in_flight == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def resume(service: FakeService, journal: JournalLocation) -> float:
    """Resume a job; return after how many seconds its request was sent again."""
    began = service.clock.monotonic()
    service.latency = 0
    report = await upload(service, make_members(3), journal, quarantine=QUARANTINE)
    assert (report.accepted, service.bodies[-1]) == (3, service.bodies[0])
    return service.times[-1] - began


def check_wait(waited: float, place: Place, began: float) -> None:
    """Check that a whole quarantine was waited for, less the real time that a database has counted meanwhile."""
    whole = QUARANTINE + place.grace
    assert whole - (time.monotonic() - began) <= waited <= whole


async def test_after_an_orderly_end_the_time_since_then_counts(journal: JournalLocation) -> None:
    service = create_service()
    await stop_in_flight(service, journal)
    await service.clock.sleep(30)

    assert await resume(service, journal) == QUARANTINE - 30


@pytest.mark.parametrize("passed", [99.0, 100.0, 10**6])
async def test_when_a_whole_quarantine_has_passed_nothing_is_waited_for(
    journal: JournalLocation, passed: float
) -> None:
    service = create_service()
    await stop_in_flight(service, journal)
    await service.clock.sleep(passed)

    assert await resume(service, journal) == max(0, QUARANTINE - passed)


@pytest.mark.parametrize(
    ("before", "after"),
    [("a", "b"), (None, None), *(pytest.param(*each, marks=pytest.mark.long) for each in (("a", None), (None, "a")))],
)
async def test_after_a_restart_of_the_machine_a_whole_quarantine_is_waited_for(
    journal: JournalLocation, before: str | None, after: str | None
) -> None:
    service = create_service(before)
    await stop_in_flight(service, journal)
    await service.clock.sleep(10**6)
    restart(service, after)

    assert await resume(service, journal) == QUARANTINE


@EVERYWHERE
async def test_after_a_kill_a_whole_quarantine_is_waited_for(journal: JournalLocation, place: Place) -> None:
    service, began = create_service(latency=0), time.monotonic()
    service.script[1] = LOST
    death = Death(2, after=True)  # the second intent
    with pytest.raises(BatchError):
        await upload(service, make_members(3), journal, quarantine=0, retry_delays=[0], death=death)
    await service.clock.sleep(10**6)

    check_wait(await resume(service, journal), place, began)


async def test_an_orderly_end_counts_only_until_the_next_run_is_killed(journal: JournalLocation, place: Place) -> None:
    service, began = create_service(), time.monotonic()
    await stop_in_flight(service, journal)
    await service.clock.sleep(10**6)
    dying = Death(1, after=True)
    with pytest.raises(BatchError):
        await upload(service, make_members(3), journal, quarantine=0, death=dying)

    check_wait(await resume(service, journal), place, began)


@pytest.mark.parametrize("jump", [timedelta(days=400), timedelta(hours=-3)])
async def test_a_wall_clock_that_is_set_shortens_nothing(journal: JournalLocation, jump: timedelta) -> None:
    service = create_service()
    await stop_in_flight(service, journal)
    cast("MachineClock", service.clock).ahead = jump

    assert await resume(service, journal) == QUARANTINE


async def test_the_time_of_sending_is_that_after_the_wait_at_the_rate_limit(journal: JournalLocation) -> None:
    service = WaitingService(wait=500)
    began = service.clock.now()
    service.script = {1: LOST, 2: make_error(403)}
    with pytest.raises(BatchError):
        await upload(service, make_members(3), journal, quarantine=0, retry_delays=[0])

    (doubt,) = (await read_record(journal)).doubts

    assert doubt.sent_at - began == timedelta(seconds=1000)  # of the repeat, which was refused


async def test_a_resumed_job_reports_what_was_sent_to_the_rate_limit(journal: JournalLocation) -> None:
    service = create_service(latency=2)
    service.script[4] = make_error(403)
    began = service.clock.now()
    with pytest.raises(BatchError):
        await upload(service, make_members(20), journal, concurrency=1, users_per_operation=1)
    await service.clock.sleep(3)
    await upload(service, make_members(20), journal)

    (first, second) = service.restored

    assert first == ("/12/accounts/{account_id}/custom_audiences/{custom_audience_id}/users", [])
    # By the second, and never earlier than it was.
    assert [(moment - began).total_seconds() for moment in second[1]] == pytest.approx([1, 3, 5, 7], abs=1)
    assert all(0 <= (moment - began).total_seconds() - 2 * index <= 1 for index, moment in enumerate(second[1]))


async def test_the_last_request_of_a_killed_run_counts_from_when_it_was_sent(journal: JournalLocation) -> None:
    service = FakeService()
    began = service.clock.now()
    with pytest.raises(BatchError):  # killed at the settlement
        await upload(service, make_members(3), journal, death=Death(2))
    await service.clock.sleep(7)

    await upload(service, make_members(3), journal)

    assert [moments for _, moments in service.restored] == [[], [began + timedelta(seconds=1)]]


async def test_what_was_sent_longer_ago_than_any_limit_counts_is_forgotten(journal: JournalLocation) -> None:
    service = FakeService(latency=100)
    service.script[20] = make_error(403)
    with pytest.raises(BatchError):
        await upload(service, make_members(30), journal, concurrency=1, operations=1)

    await upload(service, make_members(30), journal, operations=1_000)

    assert len(service.restored[1][1]) == 10  # of the last 900 seconds
