"""A service, a database and a cluster in this process for each test."""

from collections.abc import AsyncIterator

import pytest

from tests.support.cluster_jobs import Workbench, open_cluster, open_workbench


@pytest.fixture
async def workbench(postgres_url: str, schema: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Workbench]:
    async with open_cluster() as client, open_workbench(client, postgres_url, schema, monkeypatch) as workbench:
        yield workbench
