"""The database says when a run last confirmed that it has a journal; after a kill, the time since then counts."""

import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

from svc_async.batch.ledger import GRACE
from svc_async.errors import BatchError
from svc_async.state import SharedState
from tests.support.fake_service import LOST, FakeService, make_members
from tests.support.journaled_uploads import upload
from tests.support.journals import Death

QUARANTINE = 100.0


@pytest.fixture
async def state(postgres_url: str, schema: str) -> AsyncIterator[SharedState]:
    async with SharedState.open(postgres_url, schema=schema) as opened:
        yield opened


async def die(service: FakeService, state: SharedState, death: Death, **settings: Any) -> None:
    """Run a job until it is killed at a commit."""
    with pytest.raises(BatchError):
        await upload(service, make_members(3), state.journal("job"), death=death, **settings)


async def leave_in_doubt(service: FakeService, state: SharedState) -> None:
    """Run a job that is killed when its first request is repeated."""
    service.script[1] = LOST
    await die(service, state, Death(2, after=True), quarantine=0, retry_delays=[0])


async def resume(service: FakeService, state: SharedState) -> float:
    """Finish the job; return after how many seconds its first request was sent."""
    began, sent = service.clock.monotonic(), len(service.times)
    report = await upload(service, make_members(3), state.journal("job"), quarantine=QUARANTINE)
    assert report.accepted == 3
    return service.times[sent] - began


async def find_confirmation(state: SharedState) -> datetime:
    row = await state.database.fetch_row("SELECT confirmed_at FROM stores")
    assert row is not None
    found: datetime = row["confirmed_at"]
    return found


async def test_the_time_since_the_last_confirmation_counts(state: SharedState) -> None:
    service, began = FakeService(), time.monotonic()
    await leave_in_doubt(service, state)
    await state.database.execute("UPDATE stores SET confirmed_at = confirmed_at - interval '60 s'")

    waited = await resume(service, state)

    assert QUARANTINE + GRACE - 60 - (time.monotonic() - began) <= waited <= QUARANTINE + GRACE - 60


async def test_a_run_that_has_only_waited_does_not_prolong_the_wait(state: SharedState) -> None:
    service = FakeService()
    await leave_in_doubt(service, state)
    confirmed, sent = await find_confirmation(state), len(service.bodies)

    await die(service, state, Death(1), quarantine=QUARANTINE)

    assert len(service.bodies) == sent
    assert await find_confirmation(state) == confirmed


async def test_what_is_sent_again_is_confirmed_first(state: SharedState) -> None:
    service = FakeService()
    await leave_in_doubt(service, state)
    await state.database.execute("UPDATE stores SET confirmed_at = confirmed_at - interval '1 day'")

    service.script[2], began = LOST, time.monotonic()
    await die(service, state, Death(2), quarantine=QUARANTINE, retry_delays=[0])
    assert len(service.bodies) == 2  # at once: a day has passed

    assert await resume(service, state) >= QUARANTINE + GRACE - (time.monotonic() - began)


async def test_nothing_is_waited_for_if_no_run_has_ever_confirmed(state: SharedState) -> None:
    service = FakeService()
    await die(service, state, Death(1))

    assert await resume(service, state) == 0
