"""The fake service and an audience of the sandbox, as fixtures."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from svc_async.batch.journal.journal import JournalLocation
from svc_async.batch.lists.audience_users import AudienceUsers
from svc_async.batch.sync.pages import page
from svc_async.batch.sync.state import StateLocation, SyncState, open_sync_state
from svc_async.handles import CustomAudienceHandle
from svc_async.sandbox import Sandbox, VirtualClock
from svc_async.session import Session
from svc_async.state import SharedState
from tests.support.fake_service import FakeService
from tests.support.journals import Place
from tests.support.properties import examples  # noqa: F401 - fixture
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
def small_pages(monkeypatch: pytest.MonkeyPatch) -> int:
    """The rows of a page of a state, so few that a short list has several pages."""
    monkeypatch.setattr(page, "_ROWS_PER_PAGE", 64)
    return 64


@pytest.fixture
async def shared_state(postgres_url: str, schema: str) -> AsyncIterator[SharedState]:
    async with SharedState.open(postgres_url, schema=schema) as shared:
        yield shared


@pytest.fixture
def state_path(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture(params=["state_path", pytest.param("shared_state", marks=pytest.mark.long)])
def location(request: pytest.FixtureRequest) -> StateLocation:
    """Where a sync keeps the state of its list; what a state does is the same in both, see test_sync_state."""
    found: StateLocation = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def open_shared_state(shared_state: SharedState) -> OpenState:
    return lambda *, target="a": open_sync_state(shared_state, target)


@pytest.fixture(params=["open_state_file", pytest.param("open_shared_state", marks=pytest.mark.long)])
def open_state(request: pytest.FixtureRequest) -> OpenState:
    """Opens the state of a list, wherever it is kept."""
    found: OpenState = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def journals_schema(postgres_url: str) -> Iterator[str]:
    """A schema for the journals of all tests, which have different names."""
    from tests.support.postgres import drop_schema, make_schema_name  # noqa: PLC0415 - most tests need no database

    name = make_schema_name()
    yield name
    drop_schema(postgres_url, name)


@pytest.fixture(params=["file", pytest.param("state", marks=pytest.mark.long)])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Where the journals of a test are kept."""
    if request.param == "file":
        yield Place(tmp_path)
        return
    url, schema = (request.getfixturevalue(name) for name in ("postgres_url", "journals_schema"))
    async with SharedState.open(url, schema=schema) as state:
        yield Place(tmp_path, state)


@pytest.fixture
def journal(place: Place) -> JournalLocation:
    """A journal that does not exist yet."""
    return place.journal("job.journal")
