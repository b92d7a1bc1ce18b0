"""What lists and jobs send requests with; a pipeline does. And until when a request may be sent.

A process that is stopped, or that waits, cannot know whether another one has taken up its job meanwhile. It knows that
it had the job when its last commit was accepted. So where a job can be taken up elsewhere, a request goes out at most
ten seconds after that commit was begun, by a clock that goes on while the machine is suspended. It is checked directly
before the bytes are written; between the check and the first byte lie some microseconds of this process, in which it
may still be stopped. Who takes up the job waits that much longer before it repeats a request in doubt.
"""

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any, Protocol, TypeVar

from svc_async.clock import Clock
from svc_async.engine.memory import MemoryBudget
from svc_async.engine.retry import Retries
from svc_async.errors import SvcError
from svc_async.governor.governor import Priority
from svc_async.monitoring import Subscribers
from svc_async.wire.base_urls import Endpoints
from svc_async.wire.envelope import CallAnswer
from svc_async.wire.route import Request

__all__ = [
    "GRACE",
    "LONGEST_WINDOW",
    "SENDABLE",
    "BatchSender",
    "NoLongerSendable",
    "Sender",
    "check_sendable",
    "make_job_sender",
]

T = TypeVar("T")

LONGEST_WINDOW = 900
"""Seconds for which it is kept how many requests were sent: no limit of the service counts longer."""
SENDABLE = 10.0
"""Seconds after the beginning of a commit for which requests may be sent."""
GRACE = SENDABLE + 1.0
"""Seconds after a job was taken up in which a request of the run before may still go out; clocks run differently."""


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

    async def send_with_answer(self, request: Request[T]) -> tuple[T, CallAnswer]:
        """Send a request; return the value of its answer, and the answer."""
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
    def subscribers(self) -> Subscribers:
        """What receives the events of jobs."""
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
        at_sending: Callable[[Request[Any]], object] | None,
    ) -> Sender:
        """Return a sender with these settings; see `make_job_sender`."""
        ...


def make_job_sender(
    sender: BatchSender,
    *,
    before_sending: Callable[[Request[Any]], Awaitable[object]] | None = None,
    at_sending: Callable[[Request[Any]], object] | None = None,
) -> Sender:
    """Return a sender with a lower priority than single calls, which waits as long as needed and repeats nothing.

    Args:
        sender: what sends single calls.
        before_sending: awaited with a request when the rate limit admits it; if it raises, nothing is sent. A
            request may wait at the rate limit for minutes, so a time taken earlier says little.
        at_sending: called with a request directly before its bytes are written; if it raises a SvcError, nothing is
            sent. Opening a connection may take seconds.
    """
    return sender.but(
        retries=Retries.none(),
        priority=Priority.BULK,
        max_wait=None,
        before_sending=before_sending,
        at_sending=at_sending,
    )


class NoLongerSendable(SvcError):
    """The request waited too long after its intent was committed; it was not sent, and is recorded anew."""

    repeatable = True


def check_sendable(committed_at: float, now: float) -> None:
    """Refuse to send a request too long after the last commit.

    Args:
        committed_at: when the last accepted commit was begun, by `read_boottime`.
        now: the present moment.

    Raises:
        NoLongerSendable: another process may have taken up the job meanwhile.
    """
    if not 0 <= now - committed_at < SENDABLE:
        raise NoLongerSendable(f"the request was not sent within {SENDABLE:g} s of its record; it is recorded anew")
