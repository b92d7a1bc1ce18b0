"""Fixtures of a sandbox that several folders share; those that open it are theirs, since event loops differ."""

import pytest

from svc_async.sandbox import Sandbox, SandboxConfig
from tests.support.raw_client import RawClient
from tests.support.v2_client import RecordingReceiver, V2Client

__all__ = ["config", "hook", "v2"]


@pytest.fixture
def config() -> SandboxConfig:
    return SandboxConfig()


@pytest.fixture
def v2(raw: RawClient) -> V2Client:
    return V2Client(raw)


@pytest.fixture
def hook(sandbox: Sandbox) -> RecordingReceiver:
    return RecordingReceiver(sandbox.app["consumer_secret"])
