"""Where the state of a list is kept, as fixtures."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from svc_async.batch.job import StateLocation
from svc_async.state import SharedState
from svc_async.sync.pages import page
from svc_async.sync.state import SyncState, open_sync_state
from tests.support.audiences import audience, sandbox  # noqa: F401 - fixtures
from tests.support.properties import examples  # noqa: F401 - fixture
from tests.support.sync_states import OpenState, UnsyncedConnection, open_file


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
    """Where a sync keeps the state of its list; what a state does is the same in both, see test_state."""
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
