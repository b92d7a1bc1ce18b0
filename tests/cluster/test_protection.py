"""Who can reach a cluster, and where its processes take modules from."""

import asyncio
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # comes with Dask, and without types
import pytest
from dask import config
from distributed.security import Security

from svc_async.cluster.clients import open_client, start_local
from svc_async.errors import InvalidArgument
from tests.support.cluster_jobs import open_cluster, open_workbench, write_csv
from tests.support.errors import has

PROCESSES = pytest.mark.long("worker processes import for seconds")


async def read_some(port: int, request: bytes) -> bytes:
    """Return the first bytes that are answered to a request without TLS; none if the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await reader.read(100)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def list_ports(process: Any) -> set[int]:
    """Return where a process and its children listen."""
    found = [each for one in (process, *process.children(recursive=True)) for each in one.net_connections("tcp")]
    return {each.laddr.port for each in found if each.status == psutil.CONN_LISTEN}


async def list_addresses(client: Any) -> list[str]:
    """Return the addresses of the scheduler, the workers and those who watch them."""
    workers = (await client.scheduler.identity())["workers"]
    return [client.scheduler.address, *workers, *(worker["nanny"] for worker in workers.values())]


@PROCESSES
@pytest.mark.timeout(300)
async def test_everything_that_listens_demands_tls() -> None:
    before = list_ports(psutil.Process())
    async with start_local(2) as client:
        addresses = await list_addresses(client)
        ports = {int(address.rpartition(":")[2]) for address in addresses}

        assert len(addresses) == 5
        assert all(address.startswith("tls://127.0.0.1:") for address in addresses)
        assert list_ports(psutil.Process()) - before == ports  # so there is no server of pages
        for port in ports:
            assert not await read_some(port, b"GET /info/main/workers.html HTTP/1.1\r\nHost: localhost\r\n\r\n")


@PROCESSES
@pytest.mark.timeout(300)
async def test_no_module_comes_from_a_folder_that_others_can_write(tmp_path: Path) -> None:
    planted = tmp_path / "dask-scratch-space"  # what Dask uses in the folder of temporary files, whoever has made it
    planted.mkdir(mode=0o777)
    (planted / "svc_planted.py").touch()

    with config.set({"temporary-directory": str(tmp_path)}):
        async with start_local(1) as client:
            assert find_spec("svc_planted") is None
            ((path, folder),) = (await client.run(lambda dask_worker: (sys.path, dask_worker.local_directory))).values()
            assert str(planted) not in path
            assert not Path(folder).is_relative_to(planted)
            above = [each for each in Path(folder).parents if each.is_relative_to(tmp_path) and each != tmp_path]
            assert [oct(each.stat().st_mode & 0o077) for each in above[-1:]] == ["0o0"]

    assert [each.name for each in tmp_path.iterdir()] == [planted.name]


@pytest.mark.parametrize(
    "make_security",
    [
        pytest.param(lambda: None, id="tcp"),
        pytest.param(Security.temporary, id="tls", marks=pytest.mark.long("makes a key")),
    ],
)
async def test_a_job_on_a_cluster_without_tls_logs_a_warning(  # noqa: PLR0917 - fixtures
    make_security: Callable[[], Security | None],
    postgres_url: str,
    schema: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    security = make_security()
    async with (
        open_cluster(security) as client,
        open_workbench(client, postgres_url, schema, monkeypatch) as workbench,
        workbench.open_users() as (users, state),
    ):
        report = await users.upload(write_csv(tmp_path, range(2)), journal=state.journal("job"), cluster=client)

    assert report.accepted == 2
    assert len([each for each in caplog.records if each.name == "svc_async" and "TLS" in each.message]) == (
        security is None
    )


@pytest.mark.parametrize(("address", "demands"), [("tls://127.0.0.1:1", False), ("tcp://127.0.0.1:1", True)])
async def test_an_address_that_does_not_fit_the_settings_of_dask_is_refused(address: str, *, demands: bool) -> None:
    settings = config.set({"distributed.comm.require-encryption": demands})
    with settings, pytest.raises(InvalidArgument, check=has(parameter="cluster")):
        async with open_client(address):
            pass
