"""Leases without a database: those of the model, after a round trip of the virtual clock."""

import asyncio

import attrs

from svc_async.governor.windows import SECOND
from svc_async.state.limits.holding import Lease, LeaseRequest
from tests.support.clock import DrivenClock
from tests.support.lease_model import LeaseModel

__all__ = ["ModelLeases"]


@attrs.define(eq=False)
class ModelLeases:
    """A source of leases for `SharedWindows`; several may have one model.

    Attributes:
        is_reachable: otherwise asking it is an error.
        is_alive: otherwise it never answers.
        asked: how many leases were asked for.
        most_at_once: how many of them at the same time, at most.
    """

    clock: DrivenClock
    model: LeaseModel = attrs.field(factory=LeaseModel)
    is_reachable: bool = True
    is_alive: bool = True
    asked: int = 0
    most_at_once: int = 0
    _at_once: int = 0

    async def open(self) -> None:
        """Be open."""

    async def lease(self, request: LeaseRequest) -> Lease:
        self.asked += 1
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return await self._lease(request)
        finally:
            self._at_once -= 1

    async def _lease(self, request: LeaseRequest) -> Lease:
        if not self.is_alive:
            await asyncio.Event().wait()
        await self.clock.sleep(0.001)
        if not self.is_reachable:
            raise ConnectionResetError
        lease = self.model.lease(request, int(self.clock.monotonic() * SECOND) + 10**15)
        await self.clock.sleep(0.001)
        return lease
