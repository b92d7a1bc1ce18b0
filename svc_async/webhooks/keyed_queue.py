"""Order by key: the keys of events, which deliveries wait for which, and a bounded queue.

Items of one key are processed one after another, those of different keys concurrently. Items with a rank may do harm:
of them one at a time is processed, when the others are finished that do not have to wait for it.
"""

import asyncio
from collections import deque
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Generator,
    Hashable,
    Iterable,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from itertools import count, dropwhile
from typing import Generic, TypeVar

import attrs

__all__ = ["Arrivals", "KeyedLock", "KeyedQueue", "build_event_key", "parse_event_key"]


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
            while arrival.earlier:
                other = next(iter(arrival.earlier))
                await other.settled.wait()
                arrival.earlier.update(other.earlier)  # it was settled by its caller, and would have waited for these
                arrival.earlier.discard(other)
            yield
        finally:
            settled.set()
            for key in keys:
                if self._last.get(key) is arrival:
                    del self._last[key]


_SEPARATOR = "\x1f"  # the name of an app contains none


def build_event_key(app: str, key: str) -> str:
    """Return the key of an event.

    Args:
        app: the app that signed it; empty for the first one.
        key: the key that the service gave it.
    """
    return f"{_SEPARATOR}{app}{_SEPARATOR}{key}" if app or key.startswith(_SEPARATOR) else key


def parse_event_key(key: str) -> str:
    """Return the key that the service gave an event."""
    return key.split(_SEPARATOR, 2)[2] if key.startswith(_SEPARATOR) else key


T = TypeVar("T")


class KeyedQueue(Generic[T]):
    """Items that were accepted and are not finished.

    Args:
        process: processes an item; an exception ends the worker.
        measure: returns the bytes that an item keeps in memory.
        maxsize: how many items there may be.
        max_bytes: how many bytes they may keep.
    """

    def __init__(
        self,
        process: Callable[[T], Awaitable[None]],
        *,
        measure: Callable[[T], int],
        maxsize: int,
        max_bytes: int,
    ) -> None:
        self._process = process
        self._measure = measure
        self._maxsize = maxsize
        self._max_bytes = max_bytes
        self._bytes = 0
        self._reserved = 0
        self._reserved_bytes = 0
        self._queues: dict[Hashable, deque[T]] = {}
        self._ready: asyncio.Queue[Hashable] = asyncio.Queue()
        self._ranks: dict[int, int] = {}  # of the items that have one, by identity
        self._numbers = count()
        self._ready_alone: asyncio.PriorityQueue[tuple[int, int, Hashable]] = asyncio.PriorityQueue()
        self._awaited: set[int] = set()
        self._others_finished = asyncio.Event()
        self._unfinished: dict[int, T] = {}  # by identity, the oldest first
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._unfinished)

    @property
    def unfinished(self) -> Sequence[T]:
        """The items that wait or are being processed, the oldest first."""
        return tuple(self._unfinished.values())

    @property
    def is_half_empty(self) -> bool:
        """Whether less than half of the places and of the bytes are taken."""
        taken, size = len(self._unfinished) + self._reserved, self._bytes + self._reserved_bytes
        return 2 * taken < self._maxsize and 2 * size < self._max_bytes

    @contextmanager
    def reserve(self, items: Sequence[T]) -> Generator[bool]:
        """Reserve places for items within the block; yield False if there are too few.

        A group that is larger than the whole queue is admitted when the queue is empty.
        """
        count, size = len(items), sum(map(self._measure, items))
        taken = len(self._unfinished) + self._reserved
        fits = taken + count <= self._maxsize and self._bytes + self._reserved_bytes + size <= self._max_bytes
        if taken and not fits:
            yield False
            return
        self._reserved += count
        self._reserved_bytes += size
        try:
            yield True
        finally:
            self._reserved -= count
            self._reserved_bytes -= size

    def put(self, item: T, key: Hashable | None, *, rank: int = 0) -> None:
        """Add an item behind those of the same key; None equals no other key.

        Args:
            item: the item.
            key: its key.
            rank: if it is not 0, the item is processed by `work_alone`; of several, one with the lowest rank first.
        """
        key = _Unique() if key is None else key
        if rank:
            self._ranks[id(item)] = rank
        if key in self._queues:
            self._queues[key].append(item)
        else:
            self._queues[key] = deque([item])
            self._schedule(key)
        self._unfinished[id(item)] = item
        self._bytes += self._measure(item)
        self._idle.clear()

    def clear(self) -> Sequence[T]:
        """Remove the items that wait or are being processed, and return them, the oldest first."""
        unfinished, self._unfinished = self.unfinished, {}
        return unfinished

    @property
    def oldest(self) -> T | None:
        """The item that was accepted first."""
        return next(iter(self.unfinished), None)  # a copy, since metrics are read in another thread

    async def join(self) -> None:
        """Wait until all items are finished."""
        await self._idle.wait()

    async def work(self) -> None:
        """Process items without a rank, one after another, until cancelled."""
        while True:
            await self._process_first(await self._ready.get())

    async def work_alone(self, timeout: Callable[[], AbstractAsyncContextManager[object]]) -> None:  # noqa: ASYNC109 - bounds a part
        """Process items with a rank, one after another, until cancelled.

        Args:
            timeout: bounds the wait for the items that are processed before each.
        """
        while True:
            *_, key = await self._ready_alone.get()
            with suppress(TimeoutError):
                async with timeout():
                    # Those that wait for an item with a rank are not waited for.
                    waiting = {
                        id(each)
                        for queue in self._queues.values()
                        for each in dropwhile(lambda item: id(item) not in self._ranks, queue)
                    }
                    self._awaited = {*self._unfinished} - waiting
                    if self._awaited:
                        self._others_finished.clear()
                        await self._others_finished.wait()
            await self._process_first(key)

    def _schedule(self, key: Hashable) -> None:
        """Have the first item of a key processed."""
        rank = self._ranks.get(id(self._queues[key][0]))
        if rank is None:
            self._ready.put_nowait(key)
        else:
            self._ready_alone.put_nowait((rank, next(self._numbers), key))

    async def _process_first(self, key: Hashable) -> None:
        queue = self._queues[key]
        item = queue.popleft()
        await self._process(item)
        del self._unfinished[id(item)]
        self._ranks.pop(id(item), None)
        if self._awaited:
            self._awaited.discard(id(item))
            if not self._awaited:
                self._others_finished.set()
        self._bytes -= self._measure(item)
        if not self._unfinished:
            self._idle.set()
        if queue:
            self._schedule(key)
        else:
            del self._queues[key]


class _Unique:
    """The key of an item without one."""
