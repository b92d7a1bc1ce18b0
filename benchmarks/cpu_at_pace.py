"""Measures what a job leaves to others at the service's own pace: 1,500 requests of 2,500 operations a minute."""

import asyncio
import statistics
import time
from collections.abc import Iterator

from benchmarks import sink
from benchmarks.data import make_emails
from benchmarks.fake_transport import CREDENTIALS
from benchmarks.measure import Figure, Scale, at_most, describe_settings
from svc_async import Endpoints, Governor, Rows, Session

__all__ = ["measure"]

_RATE = 62_500
_TICK = 0.01


def measure(scale: Scale) -> list[Figure]:
    """Measure the share of a core and how late a timer of the same loop is."""
    seconds = scale.pick(2, 12)
    with sink.run_sink(tls=True) as service:
        rows, share, stalls = asyncio.run(_measure(service, seconds))
    return [
        Figure(
            job="share of a core at 62,500 operations/s, over TLS",
            settings=f"{describe_settings(1)}, headroom 1",
            value=100 * share,
            unit="%",
            target=at_most(16),
            notes={"operations_per_second": rows},
        ),
        Figure(
            job="loop stall at that pace, 99th percentile",
            settings=f"{describe_settings(1)}, headroom 1",
            value=1e3 * statistics.quantiles(stalls, n=100)[-1],
            unit="ms",
            target=at_most(10),
            notes={"longest_ms": 1e3 * max(stalls)},
        ),
    ]


async def _measure(service: sink.Sink, seconds: int) -> tuple[float, float, list[float]]:
    """Return rows a second, the share of a core at the full rate, and the delays of the timer in seconds."""
    endpoints = Endpoints(base_url=service.url, ads_url=service.url)
    governor = Governor(headroom=1.0)
    late: list[float] = []
    count = seconds * _RATE
    source = list(make_emails(count))
    async with Session(CREDENTIALS, endpoints=endpoints, governor=governor, connector=service.trust) as session:
        users = session.account("18ce54d4x5t").custom_audience("1nmth").users
        ticker = asyncio.create_task(_tick(late))
        started, spent = time.perf_counter(), time.process_time()
        report = await users.upload(Rows(("email",), _make_rows(source)), users_per_operation=1)
        spent, elapsed = time.process_time() - spent, time.perf_counter() - started
        ticker.cancel()
    assert report.accepted == count
    rate = count / elapsed
    return rate, spent / elapsed * _RATE / rate, late


def _make_rows(source: list[str]) -> Iterator[tuple[str]]:
    return ((email,) for email in source)


async def _tick(late: list[float]) -> None:
    while True:
        due = time.perf_counter() + _TICK
        await asyncio.sleep(_TICK)
        late.append(time.perf_counter() - due)
