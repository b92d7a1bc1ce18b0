"""Jobs on a real cluster, against a sandbox over sockets and a real database."""

import json
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, Worker, WorkerPlugin

from svc_async import Session
from svc_async.batch.lists.audience_users import AudienceUsers
from svc_async.sandbox import Sandbox
from svc_async.state import SharedState
from tests.support.command import environment_of

__all__ = ["Workbench", "expect", "mail", "open_workbench", "write_csv", "write_json_lines", "write_parquet"]

User = dict[str, list[str]]


class _Environment(WorkerPlugin):
    """Sets the variables of workers, also of those that are started later."""

    name = "environment"

    def __init__(self, variables: Mapping[str, str | None]) -> None:
        self.variables = dict(variables)

    def setup(self, worker: Worker) -> None:
        del worker
        for variable, value in self.variables.items():
            if value is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = value


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

    async def set_variables(self, **more: str | None) -> None:
        """Set the variables of the workers, also of those that are started later; None removes one."""
        await self.client.register_plugin(_Environment({**self.environment, **more}))

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
async def open_workbench(sandbox: Sandbox, cluster: str, postgres_url: str, schema: str) -> AsyncIterator[Workbench]:
    environment = {**environment_of(sandbox), "SVC_STATE_URL": postgres_url}
    async with Client(cluster, asynchronous=True) as client:
        workbench = Workbench(sandbox, client, environment, schema)
        await workbench.set_variables()
        yield workbench


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
