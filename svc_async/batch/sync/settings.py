"""The settings of a sync, and its observers; no I/O."""

from collections.abc import Callable, Mapping
from datetime import timedelta

import attrs

from svc_async.batch.report import Failure
from svc_async.batch.settings import Observers
from svc_async.batch.sync.plan import Plan
from svc_async.errors import InvalidArgument
from svc_async.value_rules import DURATION, FLAG, PLAIN_FUNCTION, SHARE, ValueRule, or_none

__all__ = ["MAX_TIME", "SYNC_DEFAULTS", "SyncObservers", "SyncSettings"]

MAX_TIME = timedelta(days=36_500)
"""The longest time that a setting may state; what lies much further ahead has no date."""


_RULES: Mapping[str, ValueRule] = {"dry_run": FLAG, "max_removal_share": SHARE, "refresh_within": DURATION}
_OBSERVER = or_none(PLAIN_FUNCTION)


@attrs.frozen(kw_only=True)
class SyncSettings:
    """What a sync may do: keywords of `SyncOptions` and `AudienceSyncOptions` in `svc_async.batch.options`.

    Raises:
        InvalidArgument: a setting breaks its rule.
    """

    dry_run: bool = False
    max_removal_share: float = 0.2
    refresh_within: timedelta = timedelta(days=30)

    def __attrs_post_init__(self) -> None:
        for name, rule in _RULES.items():  # no validators: msgspec, which reads the settings of a job, calls none
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
