"""Stores of a receiver: some wait or fail when a test says so, one is shared."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs

from svc_async.clock import Clock
from svc_async.sandbox import VirtualClock
from svc_async.state import SharedState
from svc_async.state.events import SharedEvents
from svc_async.webhooks import Claim, MemoryDedupe
from svc_async.webhooks.stores.inbox import Inbox, StoredEvent

__all__ = ["BrokenStore", "MemoryInbox", "SlowStore", "open_shared_events"]


@asynccontextmanager
async def open_shared_events(
    url: str, schema: str, *, clock: VirtualClock | None = None, machine: Clock | None = None, **settings: Any
) -> AsyncGenerator[SharedEvents]:
    """Open a store in a database whose time is that of `clock`; its lease is renewed by the time of the machine."""
    state = SharedState.open(url, schema=schema)
    async with SharedEvents(state, clock=machine, read_time=clock.now if clock else None, **settings) as store:
        yield store


@attrs.define
class SlowStore(MemoryDedupe):
    """Claims once `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def claim(self, key: str) -> Claim:
        await self.go.wait()
        return await super().claim(key)


class BrokenStore(MemoryDedupe):
    """Fails at steps, or at steps with a key, such as `claim` or `claim 2`."""

    def __init__(self, *broken: str) -> None:
        super().__init__()
        self.broken = set(broken)

    async def claim(self, key: str) -> Claim:
        self._fail("claim", key)
        return await super().claim(key)

    async def confirm(self, key: str) -> bool:
        self._fail("confirm", key)
        return await super().confirm(key)

    async def commit(self, key: str) -> None:
        self._fail("commit", key)
        await super().commit(key)

    def _fail(self, step: str, key: str) -> None:
        if step in self.broken or f"{step} {key}" in self.broken:
            raise OSError


@attrs.define
class MemoryInbox(Inbox):
    """An inbox in memory, which can fail, or wait for `go`."""

    rows: dict[str, StoredEvent] = attrs.field(factory=dict[str, StoredEvent])
    go: asyncio.Event | None = None
    fails: bool = False

    async def store(self, events: Sequence[StoredEvent]) -> None:
        if self.go:
            await self.go.wait()
        if self.fails:
            raise OSError
        self.rows |= {each.key: each for each in events if each.key not in self.rows}

    async def remove(self, key: str) -> None:
        self.rows.pop(key, None)

    async def load(self) -> Sequence[StoredEvent]:
        return tuple(self.rows.values())
