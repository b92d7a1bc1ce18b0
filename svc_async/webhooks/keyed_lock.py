"""One delivery of an event at a time: whoever comes second learns what became of the first."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

__all__ = ["Turns"]


class Turns:
    """Turns by key."""

    def __init__(self) -> None:
        self._taken: dict[str, asyncio.Event] = {}

    @asynccontextmanager
    async def of(self, keys: Iterable[str]) -> AsyncGenerator[None]:
        """Have the turn of all keys within the block."""
        async with AsyncExitStack() as stack:
            for key in sorted(keys):  # in one order for all, so that no two wait for each other
                await stack.enter_async_context(self._of(key))
            yield

    @asynccontextmanager
    async def _of(self, key: str) -> AsyncGenerator[None]:
        while key in self._taken:
            await self._taken[key].wait()
        over = self._taken[key] = asyncio.Event()
        try:
            yield
        finally:
            del self._taken[key]
            over.set()
