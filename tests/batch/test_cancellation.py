"""A job that is cancelled at any turn of the event loop releases everything and loses nothing."""

import asyncio
import threading
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.batch.report import Report
from svc_async.lists.audience_users import AudienceUsers
from tests.support.fake_service import LOST, FakeService, Outcome, adds_up
from tests.support.properties import FEWER

ROWS = [{"partner_user_id": f"p{number % 40}", "svc_id": str(number + 1)} for number in range(120)]
LAST = {row["partner_user_id"]: sha256(row["svc_id"].encode()).hexdigest() for row in ROWS}

TURNS = st.integers(0, 300)
LANES = st.integers(1, 4)
AGAIN = st.integers(0, 9)
LATENCIES = st.sampled_from([0.0, 0.5])
LOSSES = st.sets(st.integers(1, 8), max_size=3)


def create_service(losses: set[int], latency: float) -> FakeService:
    script: dict[int, Outcome] = dict.fromkeys(losses, LOST)
    return FakeService(latency=latency, script=script)


async def cancel_after(turns: int, service: FakeService, lanes: int, journal: Path | None, *, again: int = 0) -> Report:
    """Cancel an upload after some turns and again in the next ones; check that nothing is left running."""
    users = AudienceUsers(service.pipeline, "a1", "c1")
    stream = users.stream(ROWS, concurrency=lanes, users_per_operation=1, quarantine=5, journal=journal)

    async def read() -> None:
        async with stream:
            async for _ in stream:
                pass

    task = asyncio.create_task(read())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    for _ in range(again):
        await asyncio.sleep(0)
        task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert "svc-async sqlite" not in {thread.name for thread in threading.enumerate()}
    return stream.report


@FEWER
@pytest.mark.usefixtures("examples")
@given(turns=TURNS, lanes=LANES, latency=LATENCIES, losses=LOSSES)
async def test_rows_add_up_whenever_a_job_is_cancelled(
    turns: int, lanes: int, latency: float, losses: set[int]
) -> None:
    service = create_service(losses, latency)

    report = await cancel_after(turns, service, lanes, None)

    assert adds_up(report)
    assert report.accepted <= len(service.users)
    assert report.in_doubt <= report.pending


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.long)])
@FEWER
@pytest.mark.usefixtures("examples")
@given(turns=TURNS, lanes=LANES, latency=LATENCIES, losses=LOSSES, again=AGAIN)
async def test_a_job_with_a_journal_is_resumed_however_often_it_is_cancelled(  # noqa: PLR0917 - hypothesis gives them
    times: int, turns: int, lanes: int, latency: float, losses: set[int], again: int
) -> None:
    service = create_service(losses, latency)

    with TemporaryDirectory() as folder:
        journal = Path(folder) / "journal"
        for _ in range(times):
            await cancel_after(turns, service, lanes, journal, again=again)
        users = AudienceUsers(service.pipeline, "a1", "c1")
        report = await users.upload(ROWS, concurrency=lanes, users_per_operation=1, quarantine=5, journal=journal)

    assert (report.read, report.pending, report.failed) == (len(ROWS), 0, 0)
    assert report.accepted + report.coalesced == len(ROWS)
    assert service.svc_ids == LAST
