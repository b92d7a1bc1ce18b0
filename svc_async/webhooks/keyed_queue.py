"""A bounded queue in lanes: the jobs of one key run one after another, those of different keys side by side."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

__all__ = ["Lanes"]

J = TypeVar("J")


class Lanes(Generic[J]):
    """Jobs that were accepted and are not finished.

    Args:
        run: does a job; it raises nothing but what ends the worker.
        maxsize: how many jobs there may be.
    """

    def __init__(self, run: Callable[[J], Awaitable[None]], *, maxsize: int) -> None:
        self._run = run
        self._maxsize = maxsize
        self._reserved = 0
        self._lanes: dict[Hashable, deque[J]] = {}
        self._ready: asyncio.Queue[Hashable] = asyncio.Queue()
        self._unfinished: dict[int, J] = {}  # by identity, the oldest first
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._unfinished)

    def reserve(self, count: int) -> bool:
        """Hold places for jobs; False when there are not so many.

        A group that is larger than all places together is let in when all are free.
        """
        taken = len(self._unfinished) + self._reserved
        if taken and taken + count > self._maxsize:
            return False
        self._reserved += count
        return True

    def give_back(self, count: int) -> None:
        """Let go of reserved places."""
        self._reserved -= count

    def put(self, job: J, key: Hashable | None) -> None:
        """Add a job, whose place was held until now, behind those of the same key; None is like no other key."""
        key = _Alone() if key is None else key
        if key in self._lanes:
            self._lanes[key].append(job)
        else:
            self._lanes[key] = deque([job])
            self._ready.put_nowait(key)
        self._unfinished[id(job)] = job
        self._idle.clear()

    def unfinished(self) -> Sequence[J]:
        """Give the jobs that wait or run, the oldest first."""
        return tuple(self._unfinished.values())

    def oldest(self) -> J | None:
        """Give the job that was accepted first."""
        return next(iter(self._unfinished.values()), None)

    async def idle(self) -> None:
        """Wait until there is no job."""
        await self._idle.wait()

    async def work(self) -> None:
        """Do jobs, one after another, until this is cancelled."""
        while True:
            key = await self._ready.get()
            lane = self._lanes[key]
            job = lane.popleft()
            await self._run(job)
            self._finish(job)
            if lane:
                self._ready.put_nowait(key)
            else:
                del self._lanes[key]

    def _finish(self, job: J) -> None:
        del self._unfinished[id(job)]
        if not self._unfinished:
            self._idle.set()


class _Alone:
    """The key of a job without one."""
