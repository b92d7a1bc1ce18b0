"""A fake service and an audience of the sandbox, as fixtures."""

from collections.abc import AsyncIterator

import pytest

from svc_async.handles import CustomAudienceHandle
from svc_async.lists.audience_users import AudienceUsers
from svc_async.sandbox import Sandbox, VirtualClock
from svc_async.session import Session
from tests.support.fake_service import FakeService


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
def users(service: FakeService) -> AudienceUsers:
    return AudienceUsers(service.pipeline, "a1", "c1")


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(seed=7, clock=VirtualClock(mode="jump")) as running:
        yield running
        assert not running.faults.unused()


@pytest.fixture
async def audience(sandbox: Sandbox) -> AsyncIterator[CustomAudienceHandle]:
    async with Session.sandbox(sandbox) as session:
        yield session.account(sandbox.account_id).custom_audience(sandbox.audience_id)
