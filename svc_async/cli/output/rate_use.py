"""How much of its rate limit a job uses, and how long it waits for it."""

from collections.abc import Iterable
from typing import Self

import attrs

from svc_async.batch.report import Wait
from svc_async.clock import Clock
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
        wait: until when they do; None if nothing waits for longer than a moment.
    """

    limit: JobLimit
    used: int
    waiting: int = 0
    wait: Wait | None = None

    @classmethod
    def find(cls, buckets: Iterable[BucketState], limits: Iterable[JobLimit], clock: Clock) -> Self | None:
        """Return the use of that of some limits which holds a job longest, or is used most; None if none is known."""
        known = {limit.name: limit for limit in limits}
        uses = [cls._describe(bucket, known[bucket.name], clock) for bucket in buckets if bucket.name in known]
        return max(uses, key=lambda use: (use.wait.until if use.wait else 0.0, use.waiting, use.used), default=None)

    @classmethod
    def _describe(cls, bucket: BucketState, limit: JobLimit, clock: Clock) -> Self:
        limit = limit if bucket.limit is None else attrs.evolve(limit, requests=bucket.limit)
        seconds = 0.0 if bucket.turn_at is None else (bucket.turn_at - clock.now()).total_seconds()
        wait = Wait(until=clock.monotonic() + seconds) if seconds >= _LEAST_WAIT else None
        return cls(limit, bucket.used, bucket.waiting, wait)

    def find_least_seconds(self, requests: float, now: float) -> float:
        """Return how long some more requests take at least, by the monotonic time."""
        rest = 0.0 if self.wait is None else self.wait.until - now
        if self.limit.is_even or not requests:
            return rest
        free = max(0, self.limit.of_job - self.used) if self.wait is None else self.limit.of_job
        windows = max(0.0, -((free - requests) // self.limit.of_job))
        return rest + windows * self.limit.period

    def describe(self) -> str:
        """Describe how much of the limit is used."""
        limit, minutes = self.limit, self.limit.period / _MINUTE
        window = f"requests in {minutes:g} min" if minutes != 1 else "requests/min"
        return f"{self.used:,} of {limit.requests:,} {window}"
