"""The rate limits of jobs."""

from collections.abc import Mapping
from types import MappingProxyType

from svc_async.governor.limits import LIMITS
from svc_async.jobs.spec import ListKind, Operation

__all__ = ["requests_per_minute"]

# Unspecified: the limit of do-not-reach users (contract UNS-dnr-limits); it is that of other writes.
_LIMITS: Mapping[tuple[ListKind, Operation], str] = MappingProxyType(
    {
        ("audience", "upload"): "ads.audience_users",
        ("audience", "remove"): "ads.audience_users",
        ("do_not_reach_list", "upload"): "ads.writes",
        ("do_not_reach_list", "remove"): "ads.writes",
        ("catalog", "upload"): "ads.products.put",
        ("catalog", "remove"): "ads.products.delete",
    }
)


def requests_per_minute(kind: ListKind, operation: Operation) -> float:
    """Return the service's limit on the requests of a job."""
    limit = next(each for each in LIMITS if each.name == _LIMITS[kind, operation])
    return limit.requests * 60 / limit.period
