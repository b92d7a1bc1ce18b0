"""Measures the sync of a file of e-mails: the first night, upload included, and the next, when 1 % has changed.

`python -m benchmarks.sync CHECKOUT` compares with an earlier version of the package, in pairs.
"""

import sys
import tempfile
from pathlib import Path

from benchmarks import sink
from benchmarks.data import write_customers
from benchmarks.job_process import ROOT, JobCost, run_job
from benchmarks.measure import Figure, Scale, at_least, at_most, measure_pairs

__all__ = ["measure"]

_CHANGED = 200
"""One row in so many leaves on the second night, and as many come."""
_SIZES = {Scale.QUICK: (20_000,), Scale.NORMAL: (1_000_000,), Scale.FULL: (3_000_000, 10_000_000)}


def measure(scale: Scale) -> list[Figure]:
    """Measure time and memory of both nights, and the size of the state."""
    with tempfile.TemporaryDirectory() as folder, sink.run_sink() as service:
        return [figure for rows in _SIZES[scale] for figure in _measure_size(service.url, Path(folder), rows)]


def compare(package: Path, rows: int = 1_000_000) -> list[Figure]:
    """Compare the cost of both nights with that of an earlier version of the package."""
    with tempfile.TemporaryDirectory() as folder, sink.run_sink() as service:
        nights = _write_nights(Path(folder), rows)
        kept = {each: Path(folder) / f"{number}.kept" for number, each in enumerate((ROOT, package))}
        for each, state in kept.items():
            run_job(service.url, nights[0], state=state, package=each)

        def measure_first(each: Path) -> float:
            state = Path(folder) / "first.state"
            state.unlink(missing_ok=True)
            return run_job(service.url, nights[0], state=state, package=each).cpu

        def measure_next(each: Path) -> float:
            state = Path(folder) / "next.state"
            state.write_bytes(kept[each].read_bytes())
            return run_job(service.url, nights[1], state=state, package=each).cpu

        first = measure_pairs(lambda: measure_first(ROOT), lambda: measure_first(package), Scale.NORMAL)
        following = measure_pairs(lambda: measure_next(ROOT), lambda: measure_next(package), Scale.NORMAL)
    return [
        first.report_speed(
            f"first sync of {rows:,} rows", at_least(4.8), fast_target=at_least(6), floor="the version before"
        ),
        following.report_speed(
            "next night, 1 % changed", at_least(4.5), fast_target=at_least(5), floor="the version before"
        ),
    ]


def _measure_size(url: str, folder: Path, rows: int) -> list[Figure]:
    nights = _write_nights(folder, rows)
    state = folder / f"{rows}.state"
    first = run_job(url, nights[0], state=state)
    size = state.stat().st_size
    alone = run_job(url, nights[1], state=state, dry_run=True)
    following = run_job(url, nights[1], state=state)
    return [
        _report_cost(f"first sync of {rows:,} rows, upload included", first, rows),
        _report_cost("next night, 1 % changed, plan to settle", following, rows),
        Figure(job="its state", value=size / rows, unit="bytes/row", target=at_most(48)),
        Figure(job="its peak memory, compare alone", value=alone.peak, unit="MiB", target=at_most(100)),
        Figure(
            job="its peak memory, plan to settle with the upload",
            value=max(first.peak, following.peak),
            unit="MiB",
            target=at_most(128),
        ),
    ]


def _report_cost(job: str, cost: JobCost, rows: int) -> Figure:
    return Figure(job=job, value=1e6 * cost.cpu / rows, unit="µs/row", notes={"seconds": cost.seconds})


def _write_nights(folder: Path, rows: int) -> tuple[Path, Path]:
    nights = folder / f"{rows}.1.csv", folder / f"{rows}.2.csv"
    for number, night in enumerate(nights):
        write_customers(night, rows, first=number * rows // _CHANGED)
    return nights


if __name__ == "__main__":
    for each in compare(Path(sys.argv[1])):
        print(each.job, f"{each.value:.2f}x", each.spread, each.target, each.fast_target, each.verdict)
