"""Decides how many lanes a job has; no I/O.

Each lane has an open batch and up to one request in flight. With too many lanes the memory is full before the batches
are, and requests go out half full: what a service admits a minute is counted in requests. With too few, the next
request has to wait for the answer to the last one.
"""

from math import ceil

from svc_async.batch.packing.operations import Limits

__all__ = ["count_lanes"]

_LATENCY = 0.4
"""Seconds that a full request takes; the service's answers to large requests take about this long."""
_SPARE_LANES = 2
"""The rows of some lanes are behind, since keys are not spread evenly."""
_FEWEST = 4
"""Lanes with which a quarantine holds back a part of the rows only."""
_USER_SIZE = 34
"""Bytes that a user with one hash takes while it waits: the hash and its place in the source."""
_USERS_OF_BODY = 0.42
"""Bytes that the users of a body take while they wait, by the byte of the body."""


def count_lanes(limits: Limits, concurrency: int, *, memory: int, pace: float | None) -> int:
    """Return how many lanes a job has.

    There are as many as the pace needs, so that none is late, or more if full requests of more fit into half of the
    memory; the other half is for what is in flight. Where not even the open batches of those that the pace needs would
    fit, more lanes would only make smaller requests: then the memory decides alone.

    Args:
        limits: what one request may hold.
        concurrency: the most requests in flight.
        memory: bytes of row data that the job may hold.
        pace: requests a second that the rate limit admits; None if it is not known.
    """
    request_size = _measure_request(limits)
    fitting = int(memory / 2 / request_size)
    needed = 0 if pace is None else ceil(pace * _LATENCY) + _SPARE_LANES
    if needed * request_size > memory:
        needed = _FEWEST
    return min(concurrency, max(needed, fitting, _FEWEST))


def _measure_request(limits: Limits) -> float:
    """Estimate the bytes that the users of a full request take while they wait."""
    return min(limits.operations * limits.per_operation * _USER_SIZE, limits.size * _USERS_OF_BODY)
