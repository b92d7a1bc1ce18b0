"""A sandbox on its own time, a session with it, and spans and metrics that stay in memory."""

from collections.abc import AsyncIterator

import pytest

from svc_async import Session
from svc_async.sandbox import Sandbox, VirtualClock
from tests.support.telemetry import Telemetry


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


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
