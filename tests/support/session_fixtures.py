"""Fixtures that folders share: a sandbox on its own time, and a session that shares it, so that waits take no time."""

from collections.abc import AsyncIterator

import pytest

from svc_async import Session
from svc_async.sandbox import Sandbox, VirtualClock

__all__ = ["clock", "sandbox", "session"]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(mode="jump")


@pytest.fixture
async def sandbox(clock: VirtualClock) -> AsyncIterator[Sandbox]:
    async with Sandbox(clock=clock) as sandbox:
        yield sandbox


@pytest.fixture
async def session(sandbox: Sandbox) -> AsyncIterator[Session]:
    async with Session.sandbox(sandbox) as session:
        yield session
