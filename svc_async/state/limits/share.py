"""What one process may use of a limit while the shared count cannot be reached; no I/O."""

import attrs

from svc_async.governor.rate_headers import RateLimitHeaders
from svc_async.governor.windows import Window, is_even

__all__ = ["KnownCount", "make_share", "scale_headers"]


@attrs.frozen(kw_only=True)
class KnownCount:
    """What was known of a bucket when it was last reached.

    Attributes:
        limit: requests per period; None while it is unknown.
        period: ticks.
        headroom: the share of the limit that is used.
        documented: the reference states the limit.
        used: what the service may count, of all processes.
        at: the tick of this knowledge.
        closed_until: the gate.
        processes: how many processes use the bucket.
    """

    limit: int | None
    period: int
    headroom: float
    documented: bool
    used: int = 0
    at: int = 0
    closed_until: int = 0
    processes: int = 1

    @property
    def is_even(self) -> bool:
        """Whether requests are paced evenly."""
        return is_even(self.limit, self.period)

    def time_behind(self, others: int) -> int:
        """Return the ticks that a request goes at least after the first one that waits, with `others` before it."""
        if self.limit is None:
            return 0
        if self.is_even:
            return others * (self.period // max(1, int(self.limit * self.headroom)))
        return others // self.limit * self.period


def make_share(known: KnownCount, in_flight: int, now: int) -> Window:
    """Return the window of one process: its share of the limit, of which its share of what was used is used up."""
    limit = None if known.limit is None else _divide(known.limit * known.headroom, known.processes)
    share = Window(limit, known.period, 1.0, known.documented, paced=known.is_even)  # a share has fewer a minute
    share.concurrency.on_success()  # the shared count has had its probe
    share.gate.close(known.closed_until, is_stated=True)
    share.in_flight = in_flight
    if limit is not None:
        used = min(limit, max(in_flight, -(-known.used // known.processes)))
        # Requests at an even pace were about a step apart; of others it is not known when they were sent.
        step = known.period // limit if known.is_even else 0
        times = [known.at - index * step for index in range(used)]
        share.granted.restore(times)
        share.answered.restore(times[in_flight:])
        share.pace.restart(now)
    return share


def scale_headers(headers: RateLimitHeaders | None, known: KnownCount) -> RateLimitHeaders | None:
    """Return headers with the limit of one process: the service states that of all."""
    if headers is None or headers.limit is None:
        return headers
    return attrs.evolve(headers, limit=_divide(headers.limit * known.headroom, known.processes))


def _divide(limit: float, processes: int) -> int:
    return max(1, int(limit / processes + 1e-9))
