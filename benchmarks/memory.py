"""Measures the peak memory of an upload to a service that only counts, in a process of its own."""

import asyncio
import json
import re
import resource
import sys
from pathlib import Path

from benchmarks import sink
from benchmarks.data import make_emails
from benchmarks.fake_transport import CREDENTIALS, lift_limits
from benchmarks.measure import Figure, Scale, at_most
from benchmarks.processes import run_python
from svc_async import Endpoints, Governor, Rows, Session

__all__ = ["measure", "measure_peak_memory"]


def measure(scale: Scale) -> list[Figure]:
    """Measure a job and one of ten times the rows, one user an operation."""
    few = scale.pick(20_000, 200_000, 1_000_000)
    with sink.run_sink() as service:
        (_, small), (before, large) = (_measure_peaks(service.url, rows) for rows in (few, 10 * few))
    return [
        Figure(
            job=f"peak memory, {10 * few:,} against {few:,} rows",
            value=large / small,
            target=at_most(1.05),
            floor=f"{few:,} rows",
        ),
        Figure(
            job=f"peak memory, {10 * few:,} rows, with interpreter and imports",
            value=large,
            unit="MiB",
            target=at_most(64),
            notes={"before_the_job_MiB": before},
        ),
    ]


def _measure_peaks(url: str, rows: int) -> tuple[float, float]:
    """Return the MiB before the job and at its peak."""
    before, most = run_python("-m", "benchmarks.memory", url, str(rows))
    return before, most


async def _upload(url: str, rows: int) -> None:
    governor = Governor(limits=lift_limits())
    async with Session(CREDENTIALS, endpoints=Endpoints(base_url=url, ads_url=url), governor=governor) as session:
        audience = session.account("18ce54d4x5t").custom_audience("1nmth")
        members = Rows(("email",), ((email,) for email in make_emails(rows)))
        report = await audience.users.upload(members, users_per_operation=1)
    assert report.accepted == rows


def measure_peak_memory() -> float:
    """Return this process's peak in MiB; getrusage would count the parent's, from before the exec."""
    status = Path("/proc/self/status")
    if status.exists():
        (kibibytes,) = re.findall(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="ascii"))
        return int(kibibytes) / 1_024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


if __name__ == "__main__":
    at_start = measure_peak_memory()
    asyncio.run(_upload(sys.argv[1], int(sys.argv[2])))
    print(json.dumps([at_start, measure_peak_memory()]))
