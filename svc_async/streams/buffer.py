"""What has been read and not yet taken: a bounded queue, and what becomes of an event that finds it full."""

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
    """Stands behind the last item."""


_END = _End()


class Buffer(Generic[T]):
    """Holds items from those who put to those who get.

    Args:
        size: the most items.
        overflow: `block` lets those who put wait, `drop_oldest` lets the oldest item go, `error` raises.
        on_drop: told of every item that is let go.
    """

    def __init__(self, size: int, overflow: Overflow, *, on_drop: Callable[[], object]) -> None:
        self._size = size
        self._overflow = overflow
        self._on_drop = on_drop
        self._items: asyncio.Queue[T | _End] = asyncio.Queue()
        self._room = asyncio.Event()
        self._ended = False
        self._warned = False

    def __len__(self) -> int:
        return self._items.qsize() - self._ended

    async def put(self, item: T) -> None:
        """Add an item, as the overflow policy says.

        Raises:
            StreamOverflow: it is full, and the policy is `error`.
        """
        while len(self) >= self._size:
            await self._make_room()
        self._items.put_nowait(item)
        self._warn()

    async def get(self) -> T | None:
        """Take the oldest item, waiting for one; None says that there will be no more."""
        item = await self._items.get()
        if isinstance(item, _End):
            self._items.put_nowait(_END)  # for the next who asks
            return None
        self._room.set()
        return item

    def end(self) -> None:
        """Say that nothing will be added."""
        if not self._ended:
            self._ended = True
            self._items.put_nowait(_END)

    def clear(self) -> None:
        """Let all items go."""
        while len(self):
            self._items.get_nowait()

    async def _make_room(self) -> None:
        if self._overflow == "error":
            raise StreamOverflow(queue_size=self._size)
        if self._overflow == "drop_oldest":
            self._items.get_nowait()
            self._on_drop()
        else:
            self._room.clear()
            await self._room.wait()

    def _warn(self) -> None:
        """Say once, each time that it comes to it, that events are taken too slowly."""
        nearly_full = len(self) >= _NEARLY_FULL * self._size
        if nearly_full and not self._warned:
            _log.warning("a stream's queue is filling up: %d of %d events wait to be taken", len(self), self._size)
        self._warned = nearly_full
