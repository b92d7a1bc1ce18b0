"""What lists and jobs send requests with; a pipeline does."""

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any, Protocol, TypeVar

from svc_async.clock import Clock
from svc_async.engine.memory import MemoryBudget
from svc_async.engine.retry import Retries
from svc_async.governor.slot import Priority
from svc_async.wire.base_urls import Endpoints
from svc_async.wire.route import Request

__all__ = ["LONGEST_WINDOW", "BatchSender", "Sender", "make_job_sender"]

T = TypeVar("T")

LONGEST_WINDOW = 900
"""Seconds for which it is kept how many requests were sent: no limit of the service counts longer."""


class Sender(Protocol):
    """Sends the requests of a job, each once."""

    @property
    def clock(self) -> Clock:
        """Where time comes from."""
        ...

    @property
    def governor_id(self) -> str:
        """What identifies the governor that counts the requests, among those of all processes."""
        ...

    def restore(self, request: Request[Any], sent_at: Iterable[datetime]) -> None:
        """Count requests like this one that an earlier process sent at these times."""
        ...

    async def send_with_id(self, request: Request[T]) -> tuple[T, str | None]:
        """Send a request; return its answer and the request id that the service assigned, if any."""
        ...


class BatchSender(Sender, Protocol):
    """Sends single calls, and can be changed to send those of a job."""

    @property
    def endpoints(self) -> Endpoints:
        """The hosts."""
        ...

    @property
    def validate(self) -> bool:
        """Whether calls that break a known rule are refused before they are sent."""
        ...

    @property
    def memory(self) -> MemoryBudget:
        """The memory that all jobs share."""
        ...

    def find_pace(self, request: Request[Any]) -> float | None:
        """Return how many requests like this one a second its rate limit admits; None if no limit is known."""
        ...

    async def send(self, request: Request[T]) -> T:
        """Send a request and return its answer."""
        ...

    def but(
        self,
        *,
        retries: Retries,
        priority: Priority,
        max_wait: float | None,
        before_sending: Callable[[Request[Any]], Awaitable[object]] | None,
    ) -> Sender:
        """Return a sender with these settings; see `make_job_sender`."""
        ...


def make_job_sender(
    sender: BatchSender, *, before_sending: Callable[[Request[Any]], Awaitable[object]] | None = None
) -> Sender:
    """Return a sender with a lower priority than single calls, which waits as long as needed and repeats nothing.

    Args:
        sender: what sends single calls.
        before_sending: awaited with a request when the rate limit admits it; if it raises, nothing is sent. A
            request may wait at the rate limit for minutes, so a time taken earlier says little.
    """
    return sender.but(retries=Retries.none(), priority=Priority.BULK, max_wait=None, before_sending=before_sending)
