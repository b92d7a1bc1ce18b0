"""The settings of jobs and of syncs with their defaults, stated once, and their observers."""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, get_args

import attrs

from svc_async.batch.plan import Plan
from svc_async.batch.report import Failure, Progress, Receipt
from svc_async.errors import InvalidArgument
from svc_async.users.encoding import SLICE_ROWS, BadIdentifiers
from svc_async.value_rules import (
    COUNT,
    DURATION,
    FLAG,
    PLAIN_FUNCTION,
    SECONDS,
    SHARE,
    ValueRule,
    one_of,
    or_none,
    whole_number,
)

__all__ = [
    "DEFAULTS",
    "MAX_TIME",
    "SYNC_DEFAULTS",
    "BatchSettings",
    "JobSizes",
    "Observers",
    "Ordering",
    "Reading",
    "SyncObservers",
    "SyncSettings",
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
    """How a batch job sends its rows: keywords of `JobOptions` and `UserOptions`, which say what each means.

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
    """Functions that a job calls as it proceeds: keywords of `JobOptions` and `ReceiptOptions`.

    Raises:
        InvalidArgument: one is not a plain function of one argument.
    """

    progress: Callable[[Progress], object] | None = attrs.field(default=None, validator=_OBSERVER)
    on_receipt: Callable[[Receipt], object] | None = attrs.field(default=None, validator=_OBSERVER)
    on_failure: Callable[[Failure], object] | None = attrs.field(default=None, validator=_OBSERVER)


@attrs.frozen
class Reading:
    """How users are read: keywords of `UserOptions`."""

    phone_region: str | None = None
    bad_identifiers: BadIdentifiers = "fail"


MAX_TIME = timedelta(days=36_500)
"""The longest time that a setting may state; what lies much further ahead has no date."""
_SYNC_RULES: Mapping[str, ValueRule] = {"dry_run": FLAG, "max_removal_share": SHARE, "refresh_within": DURATION}


@attrs.frozen(kw_only=True)
class SyncSettings:
    """The settings of a sync: keywords of `SyncOptions` and `AudienceSyncOptions` in `svc_async.batch.options`.

    Raises:
        InvalidArgument: a setting breaks its rule.
    """

    dry_run: bool = False
    max_removal_share: float = 0.2
    refresh_within: timedelta = timedelta(days=30)

    def __attrs_post_init__(self) -> None:
        for name, rule in _SYNC_RULES.items():  # no validators: msgspec, which reads the settings of a job, calls none
            rule.check(name, getattr(self, name))
        if self.refresh_within < timedelta(0):
            raise InvalidArgument("refresh_within", "must be at least 0")
        if self.refresh_within > MAX_TIME:
            raise InvalidArgument("refresh_within", f"must be at most {MAX_TIME.days:,} days")


SYNC_DEFAULTS = SyncSettings()


@attrs.frozen(kw_only=True)
class SyncObservers(Observers):
    """Functions that a sync calls as it proceeds: those of a job, and keywords of `SyncOptions`."""

    on_plan: Callable[[Plan], object] | None = attrs.field(default=None, validator=_OBSERVER)
    on_removal_failure: Callable[[Failure], object] | None = attrs.field(default=None, validator=_OBSERVER)
    on_wait: Callable[[float], object] | None = attrs.field(default=None, validator=_OBSERVER)
