"""How much of its rate limit a job uses, and how long it waits for it."""

from collections.abc import Iterable
from datetime import datetime
from typing import Self

import attrs

from svc_async.governor.governor import BucketState
from svc_async.jobs.limits import JobLimit

__all__ = ["RateUse"]

_LEAST_WAIT = 2.0
"""Seconds; a shorter wait is the pace of the limit."""
_MINUTE = 60


@attrs.frozen
class RateUse:
    """The use of a rate limit at one moment.

    Attributes:
        limit: the limit.
        used: how many requests the service counts.
        waiting: how many requests wait for the limit.
        opens_in: seconds until the limit admits the next one; None if nothing waits for it.
        opens_at: the time of day of that.
    """

    limit: JobLimit
    used: int
    waiting: int = 0
    opens_in: float | None = None
    opens_at: datetime | None = None

    @classmethod
    def find(cls, buckets: Iterable[BucketState], limits: Iterable[JobLimit], now: datetime) -> Self | None:
        """Return the use of that of some limits which holds a job longest, or is used most; None if none is known."""
        known = {limit.name: limit for limit in limits}
        uses = [cls._describe(bucket, known[bucket.name], now) for bucket in buckets if bucket.name in known]
        return max(uses, key=lambda use: (use.opens_in or 0.0, use.waiting, use.used), default=None)

    @classmethod
    def _describe(cls, bucket: BucketState, limit: JobLimit, now: datetime) -> Self:
        limit = limit if bucket.limit is None else attrs.evolve(limit, requests=bucket.limit)
        wait = 0.0 if bucket.turn_at is None else (bucket.turn_at - now).total_seconds()
        if wait < _LEAST_WAIT:
            return cls(limit, bucket.used, bucket.waiting)
        return cls(limit, bucket.used, bucket.waiting, wait, bucket.turn_at)

    def find_least_seconds(self, requests: float) -> float:
        """Return how long some more requests take at least."""
        if self.limit.is_even:
            return self.opens_in or 0.0
        free = max(0, self.limit.of_job - self.used) if self.opens_in is None else self.limit.of_job
        windows = max(0.0, -((free - requests) // self.limit.of_job))
        return (self.opens_in or 0.0) + windows * self.limit.period

    def describe(self) -> str:
        """Describe how much of the limit is used."""
        limit, minutes = self.limit, self.limit.period / _MINUTE
        window = f"requests in {minutes:g} min" if minutes != 1 else "requests/min"
        return f"{self.used:,} of {limit.requests:,} {window}"

    def describe_wait(self) -> list[str]:
        """Describe until when the job waits for the limit, in parts; empty if it does not."""
        if self.opens_in is None or self.opens_at is None:
            return []
        return ["waits for the rate limit", f"continues at {self.opens_at:%H:%M} UTC"]
