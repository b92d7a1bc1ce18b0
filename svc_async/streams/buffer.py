"""The bounded queue between a stream's connection and its consumer, with an overflow policy."""

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

from svc_async.errors import StreamOverflow

__all__ = ["Buffer", "Overflow"]

T = TypeVar("T")

Overflow = Literal["block", "drop_oldest", "error"]

_log = logging.getLogger("svc_async")

_NEARLY_FULL = 0.8


class _End:
    """Marks the end of the queue."""


_END = _End()


class Buffer(Generic[T]):
    """A queue of limited size.

    Args:
        size: the maximum number of items.
        overflow: what `put` does when the queue is full: `block` waits, `drop_oldest` discards the oldest item,
            `error` raises.
        on_drop: called for every item that is discarded.
    """

    def __init__(self, size: int, overflow: Overflow, *, on_drop: Callable[[], object]) -> None:
        self._size = size
        self._overflow = overflow
        self._on_drop = on_drop
        self._items: asyncio.Queue[T | _End] = asyncio.Queue()
        self._has_room = asyncio.Event()
        self._is_ended = False
        self._has_warned = False

    def __len__(self) -> int:
        return self._items.qsize() - self._is_ended

    async def put(self, item: T) -> None:
        """Add an item, applying the overflow policy if the queue is full.

        Raises:
            StreamOverflow: the queue is full, and the policy is `error`.
        """
        while len(self) >= self._size:
            await self._make_room()
        self._items.put_nowait(item)
        self._warn_if_nearly_full()

    async def get(self) -> T | None:
        """Remove and return the oldest item, waiting for one; return None after the last."""
        item = await self._items.get()
        if isinstance(item, _End):
            self._items.put_nowait(_END)  # for other waiting consumers
            return None
        self._has_room.set()
        return item

    def end(self) -> None:
        """Declare that no more items will be added."""
        if not self._is_ended:
            self._is_ended = True
            self._items.put_nowait(_END)

    def clear(self) -> None:
        """Discard all items."""
        while len(self):
            self._items.get_nowait()

    async def _make_room(self) -> None:
        if self._overflow == "error":
            raise StreamOverflow(queue_size=self._size)
        if self._overflow == "drop_oldest":
            self._items.get_nowait()
            self._on_drop()
        else:
            self._has_room.clear()
            await self._has_room.wait()

    def _warn_if_nearly_full(self) -> None:
        """Log a warning, once each time that the queue becomes nearly full."""
        is_nearly_full = len(self) >= _NEARLY_FULL * self._size
        if is_nearly_full and not self._has_warned:
            _log.warning("stream queue is filling up: %d of %d events are waiting", len(self), self._size)
        self._has_warned = is_nearly_full
