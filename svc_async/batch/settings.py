"""The settings of a batch job with their defaults, stated once, and its observers."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args

import attrs

from svc_async.batch.report import Failure, Progress, Receipt
from svc_async.users.encoding import SLICE_ROWS, BadIdentifiers
from svc_async.value_rules import COUNT, PLAIN_FUNCTION, SECONDS, ValueRule, one_of, or_none, whole_number

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


_RULES: Mapping[str, ValueRule] = {
    "concurrency": whole_number(1, _MOST_REQUESTS),
    "users_per_operation": COUNT,
    "ordering": one_of(get_args(Ordering)),
    "quarantine": SECONDS,
    "retry_delays": ValueRule(
        lambda value: isinstance(value, tuple) and all(map(SECONDS.accepts, value)),
        "a sequence of seconds of at least 0",
    ),
}


def _to_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping) else value


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
        retry_delays: seconds before each repeat of a request that was turned away, lost, or answered by a gateway or
            oddly. When they are used up and the service accepts nothing else, the job stops, and its rows are pending;
            otherwise only the rows of the request fail, with the code `GAVE_UP`. A 429 uses up none.

    Raises:
        InvalidArgument: a setting breaks its rule.
    """

    concurrency: int = 32
    users_per_operation: int = 25
    ordering: Ordering = "key"
    quarantine: float = 120.0
    retry_delays: tuple[float, ...] = attrs.field(default=(0, 60, 300), converter=_to_tuple)

    def __attrs_post_init__(self) -> None:
        for name, rule in _RULES.items():  # no validators: msgspec, which reads the settings of a journal, calls none
            rule.check(name, getattr(self, name))

    @property
    def ordered(self) -> bool:
        """Whether rows of one key keep their order; if not, no key may occur twice."""
        return self.ordering == "key"


DEFAULTS = BatchSettings()

_OBSERVER = or_none(PLAIN_FUNCTION)


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

    They are plain functions, which should return quickly: they are called between the requests of the job, and not
    awaited. An exception in one ends the job; it is the cause of the BatchError.

    Attributes:
        progress: called with how far the job is.
        on_receipt: called with each request that settled rows.
        on_failure: called with each row that failed; the report keeps only the first 10,000.

    Raises:
        InvalidArgument: one is no plain function of one argument.
    """

    progress: Callable[[Progress], object] | None = attrs.field(default=None, validator=_OBSERVER)
    on_receipt: Callable[[Receipt], object] | None = attrs.field(default=None, validator=_OBSERVER)
    on_failure: Callable[[Failure], object] | None = attrs.field(default=None, validator=_OBSERVER)


@attrs.frozen
class Reading:
    """How users are read.

    Attributes:
        phone_region: the region of national phone numbers.
        bad_identifiers: whether a row with an invalid identifier fails, or is sent with its other identifiers.
    """

    phone_region: str | None = None
    bad_identifiers: BadIdentifiers = "fail"
