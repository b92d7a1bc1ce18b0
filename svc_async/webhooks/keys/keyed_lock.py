"""Which deliveries wait for which: those of one event for each other, those of one user for earlier ones."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

import attrs

__all__ = ["Arrivals", "KeyedLock"]


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


@attrs.frozen(eq=False)
class _Arrival:
    settled: asyncio.Event
    earlier: "set[_Arrival]"  # those that it waits for


@attrs.frozen
class Arrivals:
    """The last delivery to arrive for each key; a key takes no memory once nobody need wait for it."""

    _last: dict[str, _Arrival] = attrs.field(factory=dict[str, _Arrival], init=False)

    @asynccontextmanager
    async def hold(self, keys: Collection[str], settled: asyncio.Event) -> AsyncGenerator[None]:
        """Enter the block once the earlier deliveries with one of the keys are settled; `settled` is set at its end.

        The delivery arrives when this is entered, before anything is awaited.

        Args:
            keys: the keys of the delivery.
            settled: tells later deliveries not to wait for this one; a caller may set it earlier.
        """
        arrival = _Arrival(settled, {self._last[key] for key in keys if key in self._last})
        self._last.update(dict.fromkeys(keys, arrival))
        try:
            await _wait_for(arrival.earlier)
            yield
        finally:
            settled.set()
            for key in keys:
                if self._last.get(key) is arrival:
                    del self._last[key]


async def _wait_for(arrivals: set[_Arrival]) -> None:
    while arrivals:
        arrival = next(iter(arrivals))
        await arrival.settled.wait()
        arrivals |= arrival.earlier  # it was settled by its caller, and would have waited for these
        arrivals.discard(arrival)
