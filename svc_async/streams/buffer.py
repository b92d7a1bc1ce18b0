"""The bounded queue between a stream's connection and its consumer, with an overflow policy."""

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, Literal, Protocol, TypeVar

from svc_async.errors import StreamOverflow

__all__ = ["Buffer", "Overflow"]


class _Sized(Protocol):
    @property
    def size(self) -> int:
        """Bytes of memory that it takes."""
        ...


T = TypeVar("T", bound=_Sized)

Overflow = Literal["block", "drop_oldest", "error"]

_log = logging.getLogger("svc_async")

_NEARLY_FULL = 0.8


class _End:
    """Marks the end of the queue."""


_END = _End()


class Buffer(Generic[T]):
    """A queue of limited size, which takes at least one item, however large.

    Args:
        max_items: the maximum number of items.
        max_bytes: the maximum of their sizes together.
        overflow: what `put` does when the queue is full: `block` waits, `drop_oldest` discards the oldest item,
            `error` raises.
        on_drop: called for every item that is discarded.
    """

    def __init__(self, max_items: int, max_bytes: int, overflow: Overflow, *, on_drop: Callable[[], object]) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._bytes = 0
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
        while len(self) and (len(self) >= self._max_items or self._bytes + item.size > self._max_bytes):
            await self._make_room()
        self._items.put_nowait(item)
        self._bytes += item.size
        self._warn_if_nearly_full()

    async def get(self) -> T | None:
        """Remove and return the oldest item, waiting for one; return None after the last."""
        item = await self._items.get()
        if isinstance(item, _End):
            self._items.put_nowait(_END)  # for other waiting consumers
            return None
        self._bytes -= item.size
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
        self._bytes = 0

    async def _make_room(self) -> None:
        if self._overflow == "error":
            raise StreamOverflow(queue_size=len(self), queue_bytes=self._bytes)
        if self._overflow == "drop_oldest":
            oldest = self._items.get_nowait()
            self._bytes -= 0 if isinstance(oldest, _End) else oldest.size
            self._on_drop()
        else:
            self._has_room.clear()
            await self._has_room.wait()

    def _warn_if_nearly_full(self) -> None:
        """Log a warning, once each time that the queue becomes nearly full."""
        share = max(len(self) / self._max_items, self._bytes / self._max_bytes)
        is_nearly_full = share >= _NEARLY_FULL
        if is_nearly_full and not self._has_warned:
            full = "stream queue is filling up: %d of %d events and %d of %d bytes are waiting"
            _log.warning(full, len(self), self._max_items, self._bytes, self._max_bytes)
        self._has_warned = is_nearly_full
