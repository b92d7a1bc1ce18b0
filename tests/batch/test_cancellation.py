"""A job that an adversary cancels, at whatever turn of the event loop, lets go of everything and loses nothing."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_async.batch.lists.audience_users import AudienceUsers
from svc_async.batch.report import Report
from svc_async.errors import Sent, TransportError
from tests.batch.conftest import Outcome, Service

ROWS = [{"partner_user_id": f"p{number % 40}", "svc_id": str(number)} for number in range(120)]
LAST = {row["partner_user_id"]: sha256(row["svc_id"].encode()).hexdigest() for row in ROWS}
LOST = TransportError("lost", sent=Sent.MAYBE)

TURNS = st.integers(0, 300)
LANES = st.integers(1, 4)
LATENCIES = st.sampled_from([0.0, 0.5])
LOSSES = st.sets(st.integers(1, 8), max_size=3)


def service_that_loses(losses: set[int], latency: float) -> Service:
    script: dict[int, Outcome] = dict.fromkeys(losses, LOST)
    return Service(latency=latency, script=script)


async def cancelled_after(turns: int, service: Service, lanes: int, journal: Path | None) -> Report:
    """Cancel an upload after so many turns, and give its report; nothing of it is left running."""
    users = AudienceUsers(service, "a1", "c1")
    stream = users.stream(ROWS, concurrency=lanes, users_per_operation=1, quarantine=5, journal=journal)

    async def read() -> None:
        async with stream:
            async for _ in stream:
                pass

    task = asyncio.create_task(read())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return stream.report


def held(service: Service) -> Mapping[str, str]:
    """Give what the service holds of each person."""
    return {user["partner_user_id"][0]: user["svc_id"][0] for user in service.users}


@settings(max_examples=60)
@given(turns=TURNS, lanes=LANES, latency=LATENCIES, losses=LOSSES)
async def test_the_books_balance_whenever_a_job_is_cancelled(
    turns: int, lanes: int, latency: float, losses: set[int]
) -> None:
    service = service_that_loses(losses, latency)
    report = await cancelled_after(turns, service, lanes, None)
    assert report.read == report.accepted + report.coalesced + report.failed + report.pending
    assert report.accepted <= len(service.users)
    assert report.in_doubt <= report.pending


@pytest.mark.parametrize("times", [1, 3])
@settings(max_examples=25)
@given(turns=TURNS, lanes=LANES, latency=LATENCIES, losses=LOSSES)
async def test_a_job_with_a_journal_goes_on_however_often_it_is_cancelled(
    times: int, turns: int, lanes: int, latency: float, losses: set[int]
) -> None:
    service = service_that_loses(losses, latency)
    with TemporaryDirectory() as folder:
        journal = Path(folder) / "journal"
        for _ in range(times):
            await cancelled_after(turns, service, lanes, journal)
        users = AudienceUsers(service, "a1", "c1")
        report = await users.upload(ROWS, concurrency=lanes, users_per_operation=1, quarantine=5, journal=journal)
    assert (report.read, report.pending, report.failed) == (len(ROWS), 0, 0)
    assert report.accepted + report.coalesced == len(ROWS)
    assert held(service) == LAST
