"""The tracer and the meter of the SDK, and what spans and metrics have in common."""

from datetime import datetime
from typing import Final

from opentelemetry.metrics import Meter, MeterProvider, get_meter
from opentelemetry.trace import Tracer, TracerProvider, get_tracer

from svc_async._version import __version__

__all__ = ["SECONDS", "create_meter", "create_tracer", "to_nanoseconds"]

_SCHEMA: Final = "https://opentelemetry.io/schemas/1.37.0"
"""The version of the semantic conventions."""
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The buckets that the conventions advise for durations."""


def create_tracer(provider: TracerProvider | None) -> Tracer:
    """Return the tracer of the SDK."""
    return get_tracer("svc_async", __version__, provider, _SCHEMA)


def create_meter(provider: MeterProvider | None) -> Meter:
    """Return the meter of the SDK."""
    return get_meter("svc_async", __version__, provider, _SCHEMA)


def to_nanoseconds(moment: datetime) -> int:
    """Return a time as spans have it."""
    return round(moment.timestamp() * 1e6) * 1_000
