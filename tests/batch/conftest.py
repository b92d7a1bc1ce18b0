"""The fake service, an audience of the sandbox and places of journals, as fixtures."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from svc_async.batch.journal.journal import JournalLocation
from svc_async.state import SharedState
from tests.support.audiences import audience, sandbox, service, users  # noqa: F401 - fixtures
from tests.support.journals import Place
from tests.support.properties import examples  # noqa: F401 - fixture


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
