"""Measures speed and memory of a file upload with a journal, in a process of its own.

The service is another process that only counts. The source is `open_source`, which can be read again.
"""

import asyncio
import json
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmarks import sink
from benchmarks.fake_transport import CREDENTIALS, lift_limits
from benchmarks.measure import Figure, Scale, at_most
from benchmarks.memory import measure_peak_memory
from benchmarks.processes import run_python
from benchmarks.upload import write_customers
from svc_async import Endpoints, Governor, Session
from svc_async.sources.detect import open_source

__all__ = ["measure"]


def measure(scale: Scale) -> list[Figure]:
    """Measure a job and one of ten times the rows, one user an operation."""
    few = scale.pick(20_000, 200_000, 1_000_000)
    many = 10 * few
    with tempfile.TemporaryDirectory() as folder, sink.run_sink() as service:
        (small, _, _), (large, processor, seconds) = (
            _run_upload(service.url, Path(folder), rows) for rows in (few, many)
        )
    return [
        Figure(
            job=f"CSV → accepted with a journal, {many:,} rows", value=many / processor / 1e3, unit="k rows/s of CPU"
        ),
        Figure(job="the same by the clock", value=many / seconds / 1e3, unit="k rows/s"),
        Figure(
            job=f"its peak memory, {many:,} against {few:,} rows",
            value=large / small,
            target=at_most(1.05),
            floor=f"{few:,} rows",
        ),
        Figure(job="its peak memory, with interpreter and imports", value=large, unit="MiB"),
    ]


def _run_upload(url: str, folder: Path, rows: int) -> tuple[float, float, float]:
    """Return the peak memory in MiB, processor seconds and elapsed seconds."""
    file = folder / f"{rows}.csv"
    write_customers(file, rows)
    most, processor, seconds = run_python("-m", "benchmarks.journaled", url, str(file), str(rows))
    file.unlink()
    return most, processor, seconds


async def _upload(url: str, file: Path, rows: int) -> None:
    governor = Governor(limits=lift_limits())
    async with Session(CREDENTIALS, endpoints=Endpoints(base_url=url, ads_url=url), governor=governor) as session:
        audience = session.account("18ce54d4x5t").custom_audience("1nmth")
        with closing(open_source(file)) as source:
            report = await audience.users.upload(
                source.rows(), users_per_operation=1, journal=file.with_suffix(".journal")
            )
    assert report.accepted == rows


if __name__ == "__main__":
    started, began = time.process_time(), time.perf_counter()
    asyncio.run(_upload(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
    print(json.dumps([measure_peak_memory(), time.process_time() - started, time.perf_counter() - began]))
