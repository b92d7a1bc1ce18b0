"""A service that a test can script, without a socket."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import attrs
import msgspec
import pytest

from svc_async.ads.custom_audiences import BatchCounts
from svc_async.batch.lists.audience_users import AudienceUsers
from svc_async.handles import CustomAudienceHandle
from svc_async.sandbox import Sandbox, VirtualClock
from svc_async.session import Session
from svc_async.wire.route import Blocks, Request

Answer = Callable[[list[Any]], BatchCounts | None]
Outcome = Exception | Answer
"""What is raised; or, given the operations, raises or answers with other counts than the right ones."""


@attrs.define
class Service:
    """Stands in for a pipeline: keeps what it is sent, and answers as the test's script says."""

    clock: VirtualClock = attrs.field(factory=lambda: VirtualClock(mode="jump"))
    validate: bool = True
    bodies: list[bytes] = attrs.field(factory=list)
    times: list[float] = attrs.field(factory=list)
    accepted: list[dict[str, Any]] = attrs.field(factory=list)
    script: dict[int, Outcome] = attrs.field(factory=dict)
    """Outcomes by the number of the request, from 1."""
    always: Outcome | None = None
    latency: float = 0.0
    in_flight: int = 0
    most_in_flight: int = 0

    def but(self, **_: object) -> Self:
        return self

    @property
    def operations(self) -> list[dict[str, Any]]:
        return [operation for body in self.bodies for operation in msgspec.json.decode(body)]

    @property
    def users(self) -> list[dict[str, list[str]]]:
        return [user for operation in self.accepted for user in operation["params"]["users"]]

    async def send(self, request: Request[Any]) -> Any:
        return (await self.send_with_id(request))[0]

    async def send_with_id(self, request: Request[Any]) -> tuple[Any, str]:
        body = _bytes(request.body)
        self.bodies.append(body)
        self.times.append(self.clock.monotonic())
        outcome = self.script.get(len(self.bodies), self.always)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await (self.clock.sleep(self.latency) if self.latency else asyncio.sleep(0))
            if isinstance(outcome, Exception):
                raise outcome
            return self._answer(outcome, msgspec.json.decode(body)), f"r-{len(self.bodies)}"
        finally:
            self.in_flight -= 1

    def _answer(self, answer: Answer | None, operations: list[Any]) -> BatchCounts:
        counts = answer(operations) if answer else None
        if counts is None:
            self.accepted += operations
        users = sum(len(operation["params"]["users"]) for operation in operations)
        return counts or BatchCounts(success_count=users, total_count=users)


def _bytes(body: bytes | Blocks | None) -> bytes:
    if isinstance(body, Blocks):
        joined = b"".join(body.blocks)
        assert len(joined) == body.size
        return joined
    assert body is not None
    return body


async def until(condition: Callable[[], bool]) -> None:
    """Give the loop turns until something has happened."""
    while not condition():  # noqa: ASYNC110 - nothing announces it
        await asyncio.sleep(0)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def users(service: Service) -> AudienceUsers:
    return AudienceUsers(service, "a1", "c1")


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(seed=7, clock=VirtualClock(mode="jump")) as running:
        yield running
        assert not running.faults.unused()


@pytest.fixture
async def audience(sandbox: Sandbox) -> AsyncIterator[CustomAudienceHandle]:
    async with Session.sandbox(sandbox) as session:
        yield session.account(sandbox.account_id).custom_audience(sandbox.audience_id)
