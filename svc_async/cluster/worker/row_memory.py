"""The memory of a worker process for the rows of the shards that it sends at once."""

import threading
from collections.abc import Generator
from contextlib import contextmanager

from svc_async.engine.memory import MEMORY

__all__ = ["ROW_MEMORY", "RowMemory"]


class RowMemory:
    """Admits shards to a process as long as their rows fit into its memory, or it sends no other one.

    The jobs of a session have equal shares of its memory, and a small share makes small requests. So only some shards
    are sent at once, but more if each of them has all of its rows in its share: those of many accounts wait for the
    limits of these, not for each other.

    Args:
        size: bytes of rows.
        shards: how many shards there are at once, whatever their size.
        small_shards: how many there are at most.
    """

    def __init__(self, *, size: int, shards: int, small_shards: int) -> None:
        self._size = size
        self._shards = shards
        self._small_shards = small_shards
        self._held: list[int] = []
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, size: int) -> Generator[None]:
        """Wait until the rows of a shard fit, and hold memory for them."""
        with self._changed:
            self._changed.wait_for(lambda: self._fits(size))
            self._held.append(size)
        try:
            yield
        finally:
            with self._changed:
                self._held.remove(size)
                self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        held = [*self._held, size]
        most = max(self._shards, min(self._small_shards, self._size // max(1, *held)))
        return len(held) == 1 or (len(held) <= most and sum(held) <= self._size)


ROW_MEMORY = RowMemory(size=MEMORY, shards=32, small_shards=256)
"""That of this process: as much as the jobs of its session may hold, so that each of them can fill its requests."""
