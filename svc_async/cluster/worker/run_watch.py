"""Whether a run of a job is still the last one: one look a second, for all of its shards that this process sends."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs

from svc_async.errors import StateUnavailable, SvcError, TakenUpElsewhere
from svc_async.printable import clean
from svc_async.state.jobs import JobStore

__all__ = ["follow_run"]

_PAUSE = 1.0
"""Seconds between two looks."""


@attrs.define
class _SentShards:
    """The shards of a run that this process sends.

    Attributes:
        has_ended: whether another run has begun, or this one was stopped.
        tasks: those that send them.
        task: the one that looks.
    """

    has_ended: bool = False
    tasks: "set[asyncio.Task[Any] | None]" = attrs.field(factory=set)
    task: "asyncio.Task[None] | None" = None

    async def look(self, store: JobStore, job: str, run: int) -> None:
        """Look again and again, and cancel all tasks when the run has ended."""
        while not self.has_ended:
            await asyncio.sleep(_PAUSE)
            try:
                await store.check_run(job, run)
            except StateUnavailable:
                pass
            except SvcError:
                self.has_ended = True
        for task in self.tasks:
            if task is not None:
                task.cancel()


_runs: dict[tuple[JobStore, str, int], _SentShards] = {}


@asynccontextmanager
async def follow_run(store: JobStore, job: str, run: int) -> AsyncGenerator[None]:
    """Cancel the block when another run of the job has begun, or this one was stopped; do not begin it after that.

    Raises:
        TakenUpElsewhere: that happened.
        UnusableState: there is no such job in the shared state of this process.
        StateUnavailable: the database cannot be reached.
    """
    await store.check_run(job, run)  # a shard that begins takes up its journal, maybe from a worker of a later run
    key = store, job, run
    shards = _runs.setdefault(key, _SentShards())
    if shards.task is None:
        shards.task = asyncio.create_task(shards.look(*key))
    task = asyncio.current_task()
    shards.tasks.add(task)
    if shards.has_ended and task is not None:
        task.cancel()
    try:
        yield
    except asyncio.CancelledError:
        if not shards.has_ended or task is None:
            raise
        task.uncancel()
        raise TakenUpElsewhere(f"the job {clean(job)}") from None
    finally:
        shards.tasks.discard(task)
        if not shards.tasks:
            shards.task.cancel()
            _runs.pop(key, None)
