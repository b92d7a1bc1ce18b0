"""Measures what shared rate limits cost: the time of a lease on loopback, and how many leases a request takes."""

import asyncio
import statistics
import time
from uuid import uuid4

from benchmarks.measure import Figure, Scale, at_most
from svc_async.state import SharedState
from svc_async.state.limits.holding import LeaseReport, LeaseRequest, SharedLimit
from svc_async.state.limits.postgres_leases import fetch_lease
from tests.campaigns.limits.controls import lease_by_model
from tests.campaigns.limits.simulation import Simulation, simulate
from tests.support.postgres import start_postgres

__all__ = ["measure"]

_LIMIT = 1_500
_MINUTE = 60_000_000
_PAUSES = {"one after another": 0.0, "each after 20 ms": 0.02}
"""What is between two leases. The processes of an idle machine wake up slowly, so a pause is measured as well."""
_FAST_LIMIT = 600_000
"""Requests a minute at which each lease is granted, also without a pause."""


def measure(scale: Scale) -> list[Figure]:
    """Measure leases of a database of this machine, and count those of one process and of several."""
    figures = [asyncio.run(_measure_time(job, pause, scale.pick(20, 1_000))) for job, pause in _PAUSES.items()]
    for processes, target in ((1, 0.3), (4, 1.0), (20, 1.0)):
        simulation = Simulation(
            processes=processes, seconds=scale.pick(10, 600), senders=32, latencies=(0.02, 0.1, 0.4)
        )
        result = asyncio.run(simulate(simulation, lease_by_model()))
        job = f"leases a request, {processes} {'process' if processes == 1 else 'processes'} at 1,500 a minute"
        figures.append(Figure(job=job, value=result.leases, unit="", target=at_most(target)))
    return figures


def _make_report(answered: int, new: int) -> LeaseReport:
    """Return a report with the rate-limit headers of the latest answer."""
    if not new:
        return LeaseReport(answered=answered)
    return LeaseReport(
        answered=answered,
        ages=[0],
        counts=[new],
        succeeded=new,
        limit=_FAST_LIMIT,
        remaining=_FAST_LIMIT // 2,
        reset=1_780_000_060,
        reset_in=_MINUTE // 2,
    )


async def _measure_time(job: str, pause: float, count: int) -> Figure:
    with start_postgres() as url:
        async with SharedState.open(url, schema=f"bench_{uuid4().hex}") as state:
            limit = SharedLimit(bucket=uuid4(), name="benchmark", limit=_FAST_LIMIT, period=_MINUTE, headroom=970_000)
            processes = [uuid4() for _ in range(4)]
            answered = dict.fromkeys(processes, 0)
            unanswered = dict.fromkeys(processes, 0)
            times, round_trips = [], []
            for turn in range(count):
                process = processes[turn % len(processes)]
                new = unanswered[process]
                answered[process] += new
                report = _make_report(answered[process], new)
                began = time.perf_counter()
                lease = await fetch_lease(
                    state.connect, LeaseRequest(limit=limit, process=process, bulk=5, report=report)
                )
                times.append(1_000 * (time.perf_counter() - began))
                unanswered[process] = lease.granted
                await asyncio.sleep(pause)
                began = time.perf_counter()
                await state.database.fetch_row_often("SELECT 1")
                round_trips.append(1_000 * (time.perf_counter() - began))
                await asyncio.sleep(pause)
    quantiles = statistics.quantiles(times, n=100)
    return Figure(
        job=f"a lease on loopback, {job}, p50",
        value=statistics.median(times),
        unit="ms",
        target=at_most(1.0),
        notes={"p95": quantiles[94], "leases": count, "SELECT 1, p50": statistics.median(round_trips)},
    )
