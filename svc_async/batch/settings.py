"""The settings of a batch job with their defaults, stated once, and its observers."""

from collections.abc import Callable
from math import inf
from typing import Literal, get_args

import attrs

from svc_async.batch.report import Failure, Progress, Receipt
from svc_async.errors import InvalidArgument
from svc_async.users.encoding import SLICE_ROWS, BadIdentifiers

__all__ = [
    "DEFAULTS",
    "BatchSettings",
    "JobSizes",
    "Observers",
    "Ordering",
    "Reading",
]

Ordering = Literal["key", "none"]

_MOST_REQUESTS = 1_000
"""Each lane takes memory, and the limits of the service allow a few dozen at a time."""


def _is_whole(number: float) -> bool:
    return isinstance(number, int)


@attrs.frozen(kw_only=True)
class BatchSettings:
    """How a batch job sends its rows.

    Attributes:
        concurrency: the most requests in flight, up to 1,000. There are fewer where the rate limit admits no more, or
            where fewer make fuller requests (`count_lanes`). A job that is resumed keeps the number of its lanes.
        users_per_operation: how many users share an operation; with 1, a refusal names the row at once.
        ordering: `key` applies rows of one key in input order. `none` skips per-key ordering and coalescing; only for
            input without repeated keys, where a request in doubt is resent at once.
        quarantine: seconds for which the rows of a lane wait after a request of unknown outcome.
        retry_delays: seconds before each repeat of a request; when they are used up, its rows fail.

    Raises:
        InvalidArgument: a setting breaks its rule.
    """

    concurrency: int = 32
    users_per_operation: int = 25
    ordering: Ordering = "key"
    quarantine: float = 120.0
    retry_delays: tuple[float, ...] = attrs.field(default=(0, 60, 300), converter=tuple[float, ...])

    def __attrs_post_init__(self) -> None:
        if self.ordering not in get_args(Ordering):
            raise InvalidArgument("ordering", f"must be one of {', '.join(get_args(Ordering))}")
        if not (_is_whole(self.concurrency) and 1 <= self.concurrency <= _MOST_REQUESTS):
            raise InvalidArgument("concurrency", f"must be a whole number from 1 to {_MOST_REQUESTS:,}")
        if not (_is_whole(self.users_per_operation) and self.users_per_operation >= 1):
            raise InvalidArgument("users_per_operation", "must be a whole number of at least 1")
        if not 0 <= self.quarantine < inf:
            raise InvalidArgument("quarantine", "must be at least 0 seconds")
        if not all(0 <= delay < inf for delay in self.retry_delays):
            raise InvalidArgument("retry_delays", "must be seconds of at least 0")

    @property
    def ordered(self) -> bool:
        """Whether rows of one key keep their order; if not, no key may occur twice."""
        return self.ordering == "key"


DEFAULTS = BatchSettings()


@attrs.frozen(kw_only=True)
class JobSizes:
    """The amounts in which a job works; smaller ones let a test see a long job in few rows.

    Attributes:
        slice_rows: rows that are read and encoded between two turns of the event loop.
        partition_rows: rows that are collected before they are distributed over the lanes.
        repeats: repeated requests that a job may send in a row; each accepted request earns one back.
    """

    slice_rows: int = SLICE_ROWS
    partition_rows: int = 8_192
    repeats: int = 100


@attrs.frozen(kw_only=True)
class Observers:
    """Functions that a job calls as it proceeds.

    Attributes:
        progress: called with how far the job is.
        on_receipt: called with each request that settled rows.
        on_failure: called with each row that failed; the report keeps only the first 10,000.
    """

    progress: Callable[[Progress], object] | None = None
    on_receipt: Callable[[Receipt], object] | None = None
    on_failure: Callable[[Failure], object] | None = None


@attrs.frozen
class Reading:
    """How users are read.

    Attributes:
        phone_region: the region of national phone numbers.
        bad_identifiers: whether a row with an invalid identifier fails, or is sent with its other identifiers.
    """

    phone_region: str | None = None
    bad_identifiers: BadIdentifiers = "fail"
