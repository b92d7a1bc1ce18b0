"""Which events are handled: an event is claimed, then committed once it is handled, or released if that failed."""

import enum
from collections import OrderedDict
from datetime import timedelta
from typing import Protocol

from svc_async.clock import Clock, SystemClock
from svc_async.errors import InvalidArgument
from svc_async.value_rules import COUNT, DURATION

__all__ = ["DEFAULT_TTL", "Claim", "DedupeStore", "MemoryDedupe", "check_ttl"]

DEFAULT_TTL = timedelta(hours=25)
# Unspecified: how long an event may be delivered again; a replay goes 24 hours back (UNS-replay-job,
# UNS-delivery-retry).


class Claim(enum.Enum):
    """What claiming an event found.

    Attributes:
        TAKEN: nobody had claimed it; now this receiver has.
        HELD: this receiver has claimed it before, and has not handled it yet.
        ELSEWHERE: another receiver has claimed it, and has not handled it yet.
        HANDLED: it was handled.
    """

    TAKEN = "taken"
    HELD = "held"
    ELSEWHERE = "elsewhere"
    HANDLED = "handled"


class DedupeStore(Protocol):
    """Remembers events by their keys. A receiver enters and leaves a store that is an async context manager."""

    async def claim(self, key: str) -> Claim:
        """Claim an event, unless it is claimed or was handled already; return which."""
        ...

    async def confirm(self, key: str) -> bool:
        """Return whether the claim of this receiver still holds; called directly before the handlers.

        A claim may end by itself if others share the store: they take over what a dead receiver had claimed. If it has
        ended and nobody has taken the event over, it is claimed anew.
        """
        ...

    async def commit(self, key: str) -> None:
        """Remember an event as handled."""

    async def release(self, key: str) -> None:
        """Release a claim, so that a repeated delivery may claim the event again."""


class MemoryDedupe:
    """Remembers events until the process ends.

    Args:
        ttl: how long a handled event is remembered; more than the 24 hours that a replay goes back.
        maxsize: how many handled events are remembered; the oldest are forgotten first.
        clock: the source of time.
    """

    def __init__(self, *, ttl: timedelta = DEFAULT_TTL, maxsize: int = 1_000_000, clock: Clock | None = None) -> None:
        check_ttl(ttl)
        COUNT.check("maxsize", maxsize)
        self._ttl = ttl.total_seconds()
        self._maxsize = maxsize
        self._clock = clock or SystemClock()
        self._claimed: set[str] = set()
        self._handled: OrderedDict[str, float] = OrderedDict()

    async def claim(self, key: str) -> Claim:
        """Claim an event, unless it is claimed or was handled already; return which."""
        self._evict()
        if key in self._handled:
            return Claim.HANDLED
        if key in self._claimed:
            return Claim.HELD
        self._claimed.add(key)
        return Claim.TAKEN

    async def confirm(self, key: str) -> bool:
        """Return whether the claim still holds."""
        return key in self._claimed

    async def commit(self, key: str) -> None:
        """Remember an event as handled."""
        self._claimed.discard(key)
        self._handled[key] = self._clock.monotonic() + self._ttl
        self._handled.move_to_end(key)
        self._evict()

    async def release(self, key: str) -> None:
        """Release a claim, so that a repeated delivery may claim the event again."""
        self._claimed.discard(key)

    def _evict(self) -> None:
        now = self._clock.monotonic()
        while self._handled and (len(self._handled) > self._maxsize or next(iter(self._handled.values())) <= now):
            self._handled.popitem(last=False)


def check_ttl(ttl: timedelta) -> None:
    """Refuse to remember events for no time.

    Raises:
        InvalidArgument: it is not a timedelta, or is not greater than 0.
    """
    DURATION.check("ttl", ttl)
    if ttl <= timedelta():
        raise InvalidArgument("ttl", "must be greater than 0")
