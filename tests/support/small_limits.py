"""Makes the requests and the limit of the workers of a cluster small, so that a short job reaches the limit."""

from distributed import Worker, WorkerPlugin

from svc_async.governor.limits import LIMITS
from svc_async.lists.user_list import USER_LIMITS

__all__ = ["SmallLimits", "read_limits"]


class SmallLimits(WorkerPlugin):
    """Changes the tables of each worker, also of those that are started later.

    Args:
        users: users of a request that has one in each operation.
        requests: requests of an account in a period.
        period: in seconds.
    """

    name = "small limits"

    def __init__(self, *, users: int, requests: int, period: float = 60.0) -> None:
        self.users, self.requests, self.period = users, requests, period

    def setup(self, worker: Worker) -> None:
        """Change the tables of this process."""
        del worker
        object.__setattr__(USER_LIMITS, "operations", self.users)
        object.__setattr__(LIMITS[0], "requests", self.requests)
        object.__setattr__(LIMITS[0], "period", self.period)


def read_limits() -> tuple[int, int]:
    """Return the users of a request and the requests of an account, as this process has them."""
    return USER_LIMITS.operations, LIMITS[0].requests
