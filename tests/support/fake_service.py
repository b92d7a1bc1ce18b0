"""A service for lists of users, without a socket: it records what is sent, and answers as a test's script says."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any, Self, TypeVar, cast
from uuid import uuid4

import attrs
import msgspec

from svc_async.ads.custom_audiences import BatchCounts
from svc_async.batch.report import Progress, Report
from svc_async.engine.memory import MemoryBudget
from svc_async.engine.pipeline import Pipeline
from svc_async.errors import ApiError, Sent, TransportError
from svc_async.monitoring import Subscribers
from svc_async.sandbox import VirtualClock
from svc_async.wire.base_urls import Endpoints
from svc_async.wire.dialect import Dialect
from svc_async.wire.envelope import CallAnswer
from svc_async.wire.outcome import api_error
from svc_async.wire.route import Blocks, Request
from tests.support.call_answers import make_call_answer

__all__ = [
    "LOST",
    "REFUSED",
    "FakeService",
    "Operations",
    "Outcome",
    "adds_up",
    "answer_counts",
    "apply_and_raise",
    "apply_late_and_raise",
    "make_error",
    "make_members",
]

ENDPOINTS = Endpoints(base_url="https://base.example", ads_url="https://ads.example")

T = TypeVar("T")

Operations = list[dict[str, Any]]
Answer = Callable[[Operations], BatchCounts | None]
Outcome = Exception | Answer
"""What is raised; or, given the operations, raises or returns other counts than the right ones."""

LOST = TransportError("the connection broke", sent=Sent.MAYBE)
REFUSED = TransportError("connection refused", sent=Sent.NO)


@attrs.define(repr=False)  # like a pipeline, which many frames hold: the bodies have rows
class FakeService:
    """A sender of batches that keeps what it is sent.

    Attributes:
        bodies: the body of each request, sent at `times`.
        restored: the requests of earlier runs that each job has reported.
        accepted: the operations that were applied.
        script: outcomes by the number of the request, from 1.
        always: the outcome of all other requests; None for success.
        latency: seconds before an answer.
        pace: the requests a second that it admits; others wait for their turn.
        memory: what all jobs share.
        subscribers: what receives the events of jobs.
    """

    clock: VirtualClock = attrs.field(factory=lambda: VirtualClock(mode="jump"))
    validate: bool = True
    bodies: list[bytes] = attrs.field(factory=list)
    times: list[float] = attrs.field(factory=list)
    accepted: Operations = attrs.field(factory=list)
    script: dict[int, Outcome] = attrs.field(factory=dict)
    always: Outcome | None = None
    latency: float = 0.0
    pace: float | None = None
    memory: MemoryBudget = attrs.field(factory=MemoryBudget)
    subscribers: Subscribers = attrs.field(factory=Subscribers)
    endpoints: Endpoints = ENDPOINTS
    dialect: Dialect | None = None
    governor_id: str = attrs.field(factory=lambda: uuid4().hex)
    restored: list[tuple[str, list[datetime]]] = attrs.field(factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    _next_turn: float = 0.0
    _before_sending: Callable[[Request[Any]], Awaitable[object]] | None = None
    _at_sending: Callable[[Request[Any]], object] | None = None

    @property
    def pipeline(self) -> Pipeline:
        """The service itself: jobs only send with a pipeline."""
        return cast("Pipeline", self)

    def but(
        self,
        *,
        before_sending: Callable[[Request[Any]], Awaitable[object]] | None = None,
        at_sending: Callable[[Request[Any]], object] | None = None,
        **_: object,
    ) -> Self:
        self._before_sending, self._at_sending = before_sending, at_sending
        return self

    @property
    def operations(self) -> Operations:
        return [operation for body in self.bodies for operation in msgspec.json.decode(body)]

    @property
    def users(self) -> list[dict[str, list[str]]]:
        return [user for operation in self.accepted for user in operation["params"]["users"]]

    @property
    def partner_user_ids(self) -> list[str]:
        return [user["partner_user_id"][0] for user in self.users]

    @property
    def svc_ids(self) -> dict[str, str]:
        """The `svc_id` that it holds of each person."""
        return {user["partner_user_id"][0]: user["svc_id"][0] for user in self.users}

    async def send(self, request: Request[T]) -> T:
        answer, _ = await self.send_with_answer(request)
        return answer

    def restore(self, request: Request[Any], sent_at: Iterable[datetime]) -> None:
        self.restored.append((request.template, [*sent_at]))

    def find_pace(self, _: Request[Any]) -> float | None:
        return self.pace

    async def send_with_answer(self, request: Request[T]) -> tuple[T, CallAnswer]:
        if self.pace is not None:
            await self._wait_for_turn(self.pace)
        if self._before_sending is not None:
            await self._before_sending(request)
        if self._at_sending is not None:
            self._at_sending(request)
        body = _join(request.body)
        self.bodies.append(body)
        self.times.append(self.clock.monotonic())
        outcome = self.script.get(len(self.bodies), self.always)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await (self.clock.sleep(self.latency) if self.latency else asyncio.sleep(0))
            if isinstance(outcome, Exception):
                raise outcome
            counts = self._answer(outcome, msgspec.json.decode(body))
        finally:
            self.in_flight -= 1
        return cast("T", counts), make_call_answer(f"r-{len(self.bodies)}")

    async def _wait_for_turn(self, pace: float) -> None:
        now = self.clock.monotonic()
        turn = max(self._next_turn, now)
        self._next_turn = turn + 1 / pace
        await self.clock.sleep(turn - now)

    def _answer(self, answer: Answer | None, operations: Operations) -> BatchCounts:
        counts = answer(operations) if answer else None
        if counts is None:
            self.accepted += operations
        users = sum(len(operation["params"]["users"]) for operation in operations)
        return counts or BatchCounts(success_count=users, total_count=users)


def _join(body: bytes | Blocks | None) -> bytes:
    if isinstance(body, Blocks):
        joined = b"".join(body.blocks)
        assert len(joined) == body.size
        return joined
    assert body is not None
    return body


def make_members(count: int, *, first: int = 0) -> list[dict[str, object]]:
    return [{"partner_user_id": f"p{number}"} for number in range(first, first + count)]


def make_error(status: int, **details: Any) -> ApiError:
    """Return the refusal with this status."""
    return api_error(status=status, **details)


def apply_and_raise(service: FakeService, error: Exception) -> Outcome:
    """Script a request that is applied although its answer is lost."""

    def outcome(operations: Operations) -> BatchCounts | None:
        service.accepted += operations
        raise error

    return outcome


def apply_late_and_raise(service: FakeService, error: Exception, seconds: float) -> Outcome:
    """Script a request that is answered with an error, and applied some seconds later."""

    def outcome(operations: Operations) -> BatchCounts | None:
        service.clock.call_later(seconds, lambda: service.accepted.extend(operations))
        raise error

    return outcome


def answer_counts(success: int, total: int) -> Outcome:
    """Script an answer with these counts; nothing is applied."""
    return lambda _: BatchCounts(success_count=success, total_count=total)


def adds_up(report: Report | Progress) -> bool:
    """Return whether every row is accounted for."""
    return report.adds_up
