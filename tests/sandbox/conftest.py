from collections.abc import AsyncIterator

import pytest

from svc_async.sandbox import Sandbox, SandboxConfig, VirtualClock
from tests.support.browser import Browser, open_browser
from tests.support.raw_client import RawClient, open_raw_client
from tests.support.v2_client import RecordingReceiver, V2Client


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def config() -> SandboxConfig:
    return SandboxConfig()


@pytest.fixture
async def sandbox(clock: VirtualClock, config: SandboxConfig) -> AsyncIterator[Sandbox]:
    async with Sandbox(clock=clock, config=config) as running:
        yield running


@pytest.fixture
async def raw(sandbox: Sandbox) -> AsyncIterator[RawClient]:
    async with open_raw_client(sandbox) as raw:
        yield raw


@pytest.fixture
def v2(raw: RawClient) -> V2Client:
    return V2Client(raw)


@pytest.fixture
def hook(sandbox: Sandbox) -> RecordingReceiver:
    return RecordingReceiver(sandbox.app["consumer_secret"])


@pytest.fixture
async def browser(sandbox: Sandbox) -> AsyncIterator[Browser]:
    async with open_browser(sandbox) as browser:
        yield browser
