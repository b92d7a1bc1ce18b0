"""The fake service and an audience of the sandbox, as fixtures."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from svc_async.batch.lists.audience_users import AudienceUsers
from svc_async.batch.sync.location import open_sync_state
from svc_async.batch.sync.state import SyncState
from svc_async.handles import CustomAudienceHandle
from svc_async.sandbox import Sandbox, VirtualClock
from svc_async.session import Session
from svc_async.state import SharedState
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
def open_state_file(tmp_path: Path) -> OpenState:
    def open_(*, target: str = "a") -> AbstractAsyncContextManager[SyncState]:
        return open_file(tmp_path / f"{target}.state", target=target, factory=UnsyncedConnection)

    return open_


@pytest.fixture
async def open_shared_state(postgres_url: str, schema: str) -> AsyncIterator[OpenState]:
    async with SharedState.open(postgres_url, schema=schema) as shared:
        yield lambda *, target="a": open_sync_state(shared, target)


@pytest.fixture(params=["open_state_file", "open_shared_state"])
def open_state(request: pytest.FixtureRequest) -> OpenState:
    """Opens the state of a list, wherever it is kept."""
    found: OpenState = request.getfixturevalue(request.param)
    return found
