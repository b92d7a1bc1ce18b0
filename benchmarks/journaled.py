"""Measures what a journal costs: the same upload of the same file with one and without."""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import sink
from benchmarks.data import write_customers
from benchmarks.fake_transport import CREDENTIALS, lift_limits
from benchmarks.measure import USERS_PER_OPERATION, Bound, Figure, Scale, at_least, describe_settings, measure_pairs
from svc_async import Endpoints, Governor, Session

__all__ = ["measure"]


def measure(scale: Scale) -> list[Figure]:
    """Measure with 25 users an operation and with one."""
    rows = scale.pick(20_000, 400_000, 1_000_000)
    with tempfile.TemporaryDirectory() as folder, sink.run_sink() as service:
        file = Path(folder) / "customers.csv"
        write_customers(file, rows)
        return [
            _measure_pairs(service.url, file, scale, users_per_operation, target)
            for users_per_operation, target in ((USERS_PER_OPERATION, at_least(0.85)), (1, None))
        ]


def _measure_pairs(url: str, file: Path, scale: Scale, users_per_operation: int, target: Bound | None) -> Figure:
    journal = file.with_suffix(".journal")

    def run(path: Path | None) -> float:
        started = time.process_time()
        asyncio.run(_upload(url, file, path, users_per_operation))
        return time.process_time() - started

    def with_journal() -> float:
        journal.unlink(missing_ok=True)
        return run(journal)

    pairs = measure_pairs(with_journal, lambda: run(None), scale)
    journal.unlink()
    return pairs.report_speed(
        "CSV → accepted with a journal",
        target,
        settings=describe_settings(users_per_operation),
        floor="the same without",
        notes={"seconds": statistics.median(pairs.ours)},
    )


async def _upload(url: str, file: Path, journal: Path | None, users_per_operation: int) -> None:
    governor = Governor(limits=lift_limits())
    async with Session(CREDENTIALS, endpoints=Endpoints(base_url=url, ads_url=url), governor=governor) as session:
        users = session.account(sink.ACCOUNT_ID).custom_audience("1nmth").users
        report = await users.upload(file, journal=journal, users_per_operation=users_per_operation)
    assert report.accepted == report.read
