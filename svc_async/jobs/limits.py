"""The rate limits of jobs."""

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from svc_async.batch.job import ListKind, Operation
from svc_async.governor.limits import LIMITS
from svc_async.governor.windows import SECOND, Window

__all__ = ["JobLimit", "find_job_limit", "requests_per_minute"]

_LIMITS: Mapping[tuple[ListKind, Operation], str] = MappingProxyType(
    {
        ("audience", "upload"): "ads.audience_users",
        ("audience", "remove"): "ads.audience_users",
        ("audience", "sync"): "ads.audience_users",
        ("do_not_reach_list", "upload"): "ads.do_not_reach_users",
        ("do_not_reach_list", "remove"): "ads.do_not_reach_users",
        ("catalog", "upload"): "ads.products.put",
        ("catalog", "sync"): "ads.products.put",
        ("catalog", "remove"): "ads.products.delete",
    }
)


@attrs.frozen
class JobLimit:
    """The service's limit on the requests of a job.

    Attributes:
        name: identifies the limit in snapshots of a governor.
        requests: how many the service admits in a window.
        period: the window in seconds.
    """

    name: str
    requests: int
    period: float

    @property
    def per_minute(self) -> float:
        """The requests of a minute, on average."""
        return self.requests * 60 / self.period

    @property
    def is_even(self) -> bool:
        """Whether requests are paced evenly; otherwise all of a window may go at once."""
        return self._window.is_even

    @property
    def of_job(self) -> int:
        """How many requests of a window are for jobs; the others are left to interactive calls."""
        return self.requests - self._window.reserve

    def find_least_seconds(self, requests: int) -> float:
        """Return how long a job with some requests takes at least, if nothing of the limit is used."""
        if self.is_even:
            return requests * self.period / self.requests
        return max(0, -(-requests // self.of_job) - 1) * self.period

    @property
    def _window(self) -> Window:
        return Window(self.requests, int(self.period * SECOND))


def find_job_limit(kind: ListKind, operation: Operation) -> JobLimit:
    """Return the service's limit on the requests of a job; of a sync, on those that send rows."""
    limit = next(each for each in LIMITS if each.name == _LIMITS[kind, operation])
    return JobLimit(limit.name, limit.requests, limit.period)


def requests_per_minute(kind: ListKind, operation: Operation) -> float:
    """Return the service's limit on the requests of a job, in a minute."""
    return find_job_limit(kind, operation).per_minute
