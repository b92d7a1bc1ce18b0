"""A pipeline without a network: all of the SDK's own layers, over a fake transport."""

import time
from collections.abc import Callable
from typing import Any, cast

import attrs

from svc_async.auth.authorization import authorization, identity
from svc_async.auth.credentials import UserCredentials
from svc_async.clock import Clock, SystemClock
from svc_async.engine.pipeline import Pipeline
from svc_async.engine.retry import Retries
from svc_async.engine.transport import Transport, WireRequest
from svc_async.governor.governor import Governor
from svc_async.governor.limits import LIMITS, Limit
from svc_async.wire.base_urls import Endpoints
from svc_async.wire.envelope import Answer
from svc_async.wire.outcome import RetryBudget
from svc_async.wire.reading import Reader
from svc_async.wire.route import Blocks

__all__ = ["CREDENTIALS", "Service", "build_pipeline", "lift_limits"]

CREDENTIALS = UserCredentials(consumer_key="c" * 25, consumer_secret="s" * 50, token="t" * 50, token_secret="u" * 45)


def lift_limits() -> tuple[Limit, ...]:
    """Return the known limits, raised so high that nothing waits: for figures of the processor alone."""
    return tuple(attrs.evolve(limit, requests=10**9) for limit in LIMITS)


@attrs.define
class Service:
    """Answers requests after a latency.

    Attributes:
        latency: seconds between a request and its answer; half of it passes before the request arrives.
        respond: returns the status and the headers of an answer when a request arrives.
        clock: the time.
        requests: how many arrived.
        refused: how many of them were answered with other than 200.
        arrived: when each accepted one arrived, and how many users it held.
        spent: processor time of this class itself, to be subtracted.
    """

    latency: float = 0.0
    respond: Callable[[], tuple[int, dict[str, str]]] = lambda: (200, {})
    clock: Clock = attrs.field(factory=SystemClock)
    requests: int = 0
    refused: int = 0
    arrived: list[tuple[float, int]] = attrs.field(factory=list)
    spent: float = 0.0

    @property
    def rows(self) -> int:
        """How many users they held."""
        return sum(users for _, users in self.arrived)

    def check_open(self) -> None:
        """Take the place of `Transport.check_open`."""

    def is_closed(self) -> bool:
        """Take the place of `Transport.is_closed`."""
        return False

    async def exchange(self, request: WireRequest, *, on_sent: Callable[[], None], **_settings: Any) -> Answer:
        """Take the place of `Transport.exchange`."""
        on_sent()
        await self.clock.sleep(self.latency / 2)
        self.requests += 1
        status, headers = self.respond()
        if status != 200:
            self.refused += 1
            return Answer(status=status, headers=headers, body=b"")
        users = self._count(request.body)
        self.arrived.append((self.clock.monotonic(), users))
        await self.clock.sleep(self.latency / 2)
        counts = b'{"data":{"success_count":%d,"total_count":%d}}' % (users, users)
        return Answer(status=200, headers=headers, body=counts)

    def _count(self, body: bytes | Blocks | None) -> int:
        assert isinstance(body, Blocks)
        blocks = [*body.blocks]  # they are written now, which is not the time of this class
        started = time.process_time()  # once a request: to read the clock takes longer than to count a block
        users = sum(block.count(b'"email"') for block in blocks)
        self.spent += time.process_time() - started
        return users


def build_pipeline(service: Service, *, governor: Governor | None = None, clock: Clock | None = None) -> Pipeline:
    """Build what a session builds, over a fake service."""
    clock = clock or SystemClock()
    return Pipeline(
        transport=cast(Transport, service),
        endpoints=Endpoints(base_url="https://api.example.com", ads_url="https://ads.example.com"),
        authorization=authorization(CREDENTIALS, clock),
        user=identity(CREDENTIALS),
        governor=governor or Governor(limits=lift_limits(), clock=clock),
        retries=Retries(),
        budget=RetryBudget(),
        reader=Reader(),
        clock=clock,
    )
