"""Measures the peak memory of uploads of a file, each in a process of its own, to a service that only counts."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import sink
from benchmarks.data import write_customers
from benchmarks.job_process import run_job
from benchmarks.measure import USERS_PER_OPERATION, Figure, Scale, at_most, describe_settings

__all__ = ["measure"]

_ACCOUNTS = 16


def measure(scale: Scale) -> list[Figure]:
    """Measure a job and one of a third of the rows, with 25 users an operation and with one, and 16 jobs at once."""
    rows = scale.pick(20_000, 3_000_000, 10_000_000)
    with tempfile.TemporaryDirectory() as folder, sink.run_sink() as service:
        few, many, shared = (Path(folder) / name for name in ("few.csv", "many.csv", "shared.csv"))
        write_customers(few, rows // 3)
        write_customers(many, rows)
        write_customers(shared, scale.pick(2_000, 62_500))
        return [
            *_measure_peaks(service.url, (few, many), USERS_PER_OPERATION, f"{rows:,} rows", 96),
            *_measure_peaks(service.url, (few, many), 1, f"{rows:,} rows", 56),
            *_measure_accounts(service.url, shared),
        ]


def _measure_peaks(url: str, files: Sequence[Path], users_per_operation: int, many: str, target: float) -> list[Figure]:
    settings = describe_settings(users_per_operation)
    small, large = (run_job(url, file, users_per_operation=users_per_operation) for file in files)
    return [
        Figure(
            job=f"peak memory, {many}, with interpreter and imports",
            settings=settings,
            value=large.peak,
            unit="MiB",
            target=at_most(target),
            notes={"before_the_job_MiB": large.before, "seconds": large.seconds},
        ),
        Figure(
            job="the same over that of a third of the rows",
            settings=settings,
            value=large.peak / small.peak,
            target=at_most(1.05),
        ),
    ]


def _measure_accounts(url: str, file: Path) -> list[Figure]:
    cost = run_job(url, file, accounts=_ACCOUNTS)
    return [
        Figure(
            job=f"peak memory, {_ACCOUNTS} accounts at once in a session",
            value=cost.peak,
            unit="MiB",
            target=at_most(128),
        ),
        Figure(
            job="their first end before the last",
            value=100 * (max(cost.finished) - min(cost.finished)) / max(cost.finished),
            unit="% of the time",
        ),
    ]
