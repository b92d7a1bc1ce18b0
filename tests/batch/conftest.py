"""The fake service and an audience of the sandbox, as fixtures."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from svc_async.batch.lists.audience_users import AudienceUsers
from svc_async.batch.sync.state import SyncState
from svc_async.handles import CustomAudienceHandle
from svc_async.sandbox import Sandbox, VirtualClock
from svc_async.session import Session
from tests.support.fake_service import FakeService
from tests.support.sync_states import OpenState, UnsyncedConnection, open_file


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
def users(service: FakeService) -> AudienceUsers:
    return AudienceUsers(service, "a1", "c1")


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(seed=7, clock=VirtualClock(mode="jump")) as running:
        yield running
        assert not running.faults.unused()


@pytest.fixture
async def audience(sandbox: Sandbox) -> AsyncIterator[CustomAudienceHandle]:
    async with Session.sandbox(sandbox) as session:
        yield session.account(sandbox.account_id).custom_audience(sandbox.audience_id)


@pytest.fixture
def open_state(tmp_path: Path) -> OpenState:
    """Opens the state of a list, wherever it is kept."""

    def open_(*, target: str = "a") -> AbstractAsyncContextManager[SyncState]:
        return open_file(tmp_path / f"{target}.state", target=target, factory=UnsyncedConnection)

    return open_
