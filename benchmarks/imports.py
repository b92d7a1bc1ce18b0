"""What an import costs, each in a fresh process."""

from benchmarks.measure import Figure, Scale, at_most, paired
from benchmarks.processes import told_by

__all__ = ["measure"]

_TIMED = "import time; started = time.process_time(); {statement}; print(time.process_time() - started)"


def measure(scale: Scale) -> list[Figure]:
    """Measure the package, and the package with its session, against aiohttp."""
    pairs = scale.pick(2, 15)
    package = paired(lambda: _cost("import svc_async"), lambda: _cost("import aiohttp"), pairs)
    session = paired(lambda: _cost("from svc_async import Session"), lambda: _cost("import aiohttp"), pairs)
    return [
        package.cost("import svc_async", at_most(0.5), floor="import aiohttp"),
        session.cost("from svc_async import Session, with its aiohttp", None, floor="import aiohttp"),
    ]


def _cost(statement: str) -> float:
    return float(told_by("-c", _TIMED.format(statement=statement)))
