from collections.abc import AsyncIterator

import pytest

from svc_async.sandbox import Sandbox, SandboxConfig, VirtualClock
from tests.support.browser import Browser, open_browser
from tests.support.raw_client import RawClient, open_raw_client
from tests.support.sandbox_fixtures import config, hook, v2

__all__ = ["browser", "clock", "config", "hook", "raw", "sandbox", "v2"]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def sandbox(clock: VirtualClock, config: SandboxConfig) -> AsyncIterator[Sandbox]:
    async with Sandbox(clock=clock, config=config) as running:
        yield running


@pytest.fixture
async def raw(sandbox: Sandbox) -> AsyncIterator[RawClient]:
    async with open_raw_client(sandbox) as raw:
        yield raw


@pytest.fixture
async def browser(sandbox: Sandbox) -> AsyncIterator[Browser]:
    async with open_browser(sandbox) as browser:
        yield browser


@pytest.fixture
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let time wait for a task that does not sleep on the clock for a moment, which is otherwise a second."""
    monkeypatch.setattr("svc_async.sandbox.clock._MAX_WAIT", 0.02)
