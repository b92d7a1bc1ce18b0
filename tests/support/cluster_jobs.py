"""Jobs on a real cluster, against a sandbox over sockets and a real database."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dask import config
from distributed import Client, Scheduler, Worker
from distributed.security import Security

from svc_async import Session
from svc_async.lists.audience_users import AudienceUsers
from svc_async.sandbox import Sandbox
from svc_async.state import SharedState
from tests.support.command import environment_of

__all__ = [
    "Workbench",
    "expect",
    "mail",
    "open_cluster",
    "open_workbench",
    "write_csv",
    "write_json_lines",
    "write_parquet",
]

User = dict[str, list[str]]

_QUIET = {
    "distributed.worker.profile.enabled": False,  # it would look at each thread a hundred times a second
    "distributed.worker.memory.terminate": False,
    "distributed.worker.memory.pause": False,
}


@attrs.frozen
class Workbench:
    """What a job on a cluster needs.

    Attributes:
        sandbox: the service.
        client: the cluster.
        environment: the settings of its workers.
        schema: the schema of the state.
    """

    sandbox: Sandbox
    client: Client
    environment: Mapping[str, str]
    schema: str

    @asynccontextmanager
    async def open_session(self) -> AsyncIterator[tuple[Session, SharedState]]:
        """Open the session of the caller, which is in the environment."""
        state = SharedState.open(self.environment["SVC_STATE_URL"], schema=self.schema)
        async with state, Session.from_env(state=state) as session:
            yield session, state

    @asynccontextmanager
    async def open_users(self) -> AsyncIterator[tuple[AudienceUsers, SharedState]]:
        """Open the users of the audience of the sandbox."""
        async with self.open_session() as (session, state):
            account = session.account(self.sandbox.account_id)
            yield account.custom_audience(self.sandbox.audience_id).users, state

    def list_members(self, audience_id: str | None = None) -> list[User]:
        """Return who is in an audience, in an order of its own."""
        users = self.sandbox.audience(audience_id or self.sandbox.audience_id).users
        return sorted(users, key=_order)


@asynccontextmanager
async def open_cluster(security: Security | None = None) -> AsyncIterator[Client]:
    """Run a scheduler and two workers in this process, which send each other what they do over sockets.

    Args:
        security: the certificates of the cluster; without them, it has no TLS.
    """
    with config.set(_QUIET):
        async with (
            Scheduler(
                port=0,
                dashboard_address="127.0.0.1:0",
                protocol="tls://" if security else None,
                security=security,
            ) as scheduler,
            Worker(scheduler.address, nthreads=1, security=security),
            Worker(scheduler.address, nthreads=1, security=security),
            Client(scheduler.address, asynchronous=True, security=security) as client,
        ):
            yield client


@asynccontextmanager
async def open_workbench(
    client: Any, postgres_url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Workbench]:
    """Start a sandbox, and set the variables of this process, which its workers have too."""
    async with Sandbox() as sandbox:
        environment = {**environment_of(sandbox), "SVC_STATE_URL": postgres_url}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield Workbench(sandbox, client, environment, schema)


def mail(number: int) -> str:
    return f"person{number}@example.com"


def expect(numbers: Iterable[int]) -> list[User]:
    """Return the people who have these numbers as a sandbox keeps them."""
    return sorted(({"email": [sha256(mail(number).encode()).hexdigest()]} for number in numbers), key=_order)


def write_csv(folder: Path, numbers: Iterable[int]) -> Path:
    path = folder / "people.csv"
    path.write_text("email\n" + "".join(f"{mail(number)}\n" for number in numbers))
    return path


def write_json_lines(folder: Path, numbers: Iterable[int]) -> Path:
    path = folder / "people.jsonl"
    path.write_text("".join(json.dumps({"email": mail(number)}) + "\n" for number in numbers))
    return path


def write_parquet(folder: Path, numbers: Iterable[int]) -> Path:
    path = folder / "people.parquet"
    pq.write_table(pa.table({"email": [mail(number) for number in numbers]}), path, row_group_size=100)
    return path


def _order(user: User) -> list[tuple[str, list[str]]]:
    return sorted(user.items())
