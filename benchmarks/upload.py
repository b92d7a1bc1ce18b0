"""A customer file becomes accepted rows over TLS; the service is another process that only counts.

The limit of 1,500 requests a minute is lifted, or the processor would have nothing to do. Both ways parse the same
file with `csv.reader`; the floor hashes, joins and posts with aiohttp, one request after the other, and checks nothing.
"""

import asyncio
import csv
import ssl
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp

from benchmarks import sink
from benchmarks.data import make_emails
from benchmarks.encode_rows import join_emails
from benchmarks.fake_transport import CREDENTIALS, lift_limits
from benchmarks.measure import Figure, Pairs, Scale, at_least, measure_pairs
from svc_async import Endpoints, Governor, Rows, Session

__all__ = ["measure", "write_customers"]


def measure(scale: Scale) -> list[Figure]:
    """Measure a file of e-mails, one user and 25 users an operation."""
    rows = scale.pick(20_000, 250_000)
    with tempfile.TemporaryDirectory() as folder, sink.run_sink(tls=True) as service:
        path = Path(folder) / "customers.csv"
        write_customers(path, rows)
        return [
            _make_figure(_measure_uploads(path, rows, service, users_per_operation, scale), rows, users_per_operation)
            for users_per_operation in (1, 25)
        ]


def write_customers(path: Path, rows: int) -> None:
    """Write a file of e-mails."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("email",))
        writer.writerows((email,) for email in make_emails(rows))


def _make_figure(pairs: Pairs, rows: int, users_per_operation: int) -> Figure:
    return pairs.report_speed(
        f"CSV → accepted over TLS, {users_per_operation} an operation, limit lifted",
        at_least(0.7),
        floor="csv, template join, aiohttp",
        rows_per_second=rows / statistics.median(pairs.ours),
        floor_rows_per_second=rows / statistics.median(pairs.floor),
    )


def _measure_uploads(path: Path, rows: int, service: sink.Sink, users_per_operation: int, scale: Scale) -> Pairs:
    def cost(way: Callable[[Path, sink.Sink, int], Awaitable[int]]) -> Callable[[], float]:
        async def run() -> float:
            started = time.process_time()
            accepted = await way(path, service, users_per_operation)
            assert accepted == rows
            return time.process_time() - started

        return lambda: asyncio.run(run())

    return measure_pairs(cost(_upload_with_sdk), cost(_upload_with_floor), scale.pick(1, 7))


async def _upload_with_sdk(path: Path, service: sink.Sink, users_per_operation: int) -> int:
    endpoints = Endpoints(base_url=service.url, ads_url=service.url)
    governor = Governor(limits=lift_limits())
    async with Session(CREDENTIALS, endpoints=endpoints, governor=governor, connector=service.trust) as session:
        audience = session.account("18ce54d4x5t").custom_audience("1nmth")
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file)
            columns = next(reader)
            report = await audience.users.upload(Rows(columns, reader), users_per_operation=users_per_operation)
    return report.accepted


async def _upload_with_floor(path: Path, service: sink.Sink, users_per_operation: int) -> int:
    url = f"{service.url}/12/accounts/18ce54d4x5t/custom_audiences/1nmth/users"
    accepted = 0
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=_require_trust(service))) as client:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file)
            next(reader)
            for body in join_emails(reader, users_per_operation):
                async with client.post(url, data=body, headers={"Content-Type": "application/json"}) as response:
                    accepted += (await response.json())["data"]["success_count"]
    return accepted


def _require_trust(service: sink.Sink) -> ssl.SSLContext:
    assert service.trust is not None
    return service.trust
