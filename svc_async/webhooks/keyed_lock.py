"""A lock for each key, so that one delivery of an event is accepted at a time."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

__all__ = ["KeyedLock"]


class KeyedLock:
    """Locks by key; a key takes no memory while nothing holds it."""

    def __init__(self) -> None:
        self._held: dict[str, asyncio.Event] = {}

    @asynccontextmanager
    async def hold(self, keys: Iterable[str]) -> AsyncGenerator[None]:
        """Hold the locks of all keys within the block."""
        async with AsyncExitStack() as stack:
            for key in sorted(keys):  # in one order everywhere, so that no two callers wait for each other
                await stack.enter_async_context(self._hold(key))
            yield

    @asynccontextmanager
    async def _hold(self, key: str) -> AsyncGenerator[None]:
        while key in self._held:
            await self._held[key].wait()
        released = self._held[key] = asyncio.Event()
        try:
            yield
        finally:
            del self._held[key]
            released.set()
