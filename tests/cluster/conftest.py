"""A service, a database and a cluster for each test; processes and servers are shared by the whole run."""

from collections.abc import AsyncIterator

import pytest

from svc_async.sandbox import Sandbox
from tests.support.cluster_jobs import Workbench, open_workbench


@pytest.fixture
async def workbench(
    dask_cluster: str, postgres_url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Workbench]:
    async with Sandbox() as sandbox, open_workbench(sandbox, dask_cluster, postgres_url, schema) as workbench:
        for name, value in workbench.environment.items():
            monkeypatch.setenv(name, value)
        yield workbench
