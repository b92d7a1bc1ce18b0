"""Measures imports, each in a fresh process."""

from benchmarks.measure import Figure, Scale, at_most, measure_pairs
from benchmarks.processes import run_python

__all__ = ["measure"]

_TIMED = "import time; started = time.process_time(); {statement}; print(time.process_time() - started)"


def measure(scale: Scale) -> list[Figure]:
    """Measure the package, and the package with its session, against aiohttp."""
    package = measure_pairs(
        lambda: _measure_import("import svc_async"), lambda: _measure_import("import aiohttp"), scale
    )
    session = measure_pairs(
        lambda: _measure_import("from svc_async import Session"), lambda: _measure_import("import aiohttp"), scale
    )
    return [
        package.report_cost("import svc_async", at_most(0.5), floor="import aiohttp"),
        session.report_cost("from svc_async import Session", at_most(1.3), floor="import aiohttp"),
    ]


def _measure_import(statement: str) -> float:
    return float(run_python("-c", _TIMED.format(statement=statement)))
