"""The function with one of its rules taken away, to show what the rule prevents."""

import attrs

from svc_async.state.limits.holding import Lease, LeaseRequest
from tests.campaigns.limits.simulation import LeaseFunction
from tests.support import lease_model
from tests.support.lease_model import Bucket, LeaseModel, Sizes

__all__ = ["CONTROLS", "lease_by_model"]


class _WithoutFlight(Bucket):
    """Does not count what is in flight."""

    def count_free(self, sizes: Sizes, in_flight: int, now: int, *, is_in_turn: bool) -> int:
        del in_flight
        return super().count_free(sizes, 0, now, is_in_turn=is_in_turn)


class _WithoutAnswers(Bucket):
    """Counts by the grant only."""

    def count_free(self, sizes: Sizes, in_flight: int, now: int, *, is_in_turn: bool) -> int:
        del in_flight
        return super().count_free(attrs.evolve(sizes, capacity=lease_model.NEVER), 0, now, is_in_turn=is_in_turn)


class _WithoutGate(Bucket):
    """Closes for nobody after a 429."""

    def count_free(self, sizes: Sizes, in_flight: int, now: int, *, is_in_turn: bool) -> int:
        self.closed_until, self.ramp, self.cut = 0, None, lease_model.MILLION
        self.next_at = min(self.next_at, now)
        return super().count_free(sizes, in_flight, now, is_in_turn=is_in_turn)


CONTROLS: dict[str, type[Bucket]] = {
    "requests in flight are not counted": _WithoutFlight,
    "answers are not counted": _WithoutAnswers,
    "no gate after a 429": _WithoutGate,
}


def lease_by_model(bucket: type[Bucket] = Bucket) -> LeaseFunction:
    """Return the model as a function, with buckets of a kind."""
    model = LeaseModel(bucket)

    async def lease(request: LeaseRequest, at: int) -> Lease:
        return model.lease(request, at)

    return lease
