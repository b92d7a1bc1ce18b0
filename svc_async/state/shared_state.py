"""The front door to the state that processes share."""

import os
from types import TracebackType
from typing import TYPE_CHECKING, Self

from svc_async.errors import InvalidArgument, WrongState
from svc_async.state.database import DEFAULT_SCHEMA, Database
from svc_async.state.database_url import DatabaseUrl
from svc_async.state.migrations import migrate

if TYPE_CHECKING:
    from svc_async.state.events import SharedEvents
    from svc_async.state.syncs import SyncTables

__all__ = ["SharedState"]

_VARIABLE = "SVC_STATE_URL"


class SharedState:
    """Limits, journals, sync states and stores of events in PostgreSQL, for any number of processes.

    Hand it to whoever needs it: `Session(state=state)` shares the rate limits, `journal=state.journal("customers")`
    keeps a journal, `users.sync(..., state=state)` the state of a list, `WebhookReceiver(state=state)` its events. One
    for each process is enough. It stores what the SQLite files store: no token, and no identifier in the clear.
    """

    def __init__(self, url: str, *, schema: str = DEFAULT_SCHEMA) -> None:
        """Prepare to connect; see `open`."""
        self._database: Database | None = None
        try:
            self._url = DatabaseUrl.parse(url)
        finally:
            del url  # its password must not be among the locals of a traceback
        self._schema = schema

    @classmethod
    def open(cls, url: str | None = None, *, schema: str = DEFAULT_SCHEMA) -> "SharedState":
        """Return the shared state of a database, to be entered with `async with`.

        Entering it connects, and creates or updates the tables if necessary.

        Args:
            url: `postgresql://user:password@host:port/database`; by default, the variable `SVC_STATE_URL`.
            schema: the schema of the tables; states in different schemas share nothing.

        Raises:
            InvalidArgument: there is no URL, or it is of another kind; on entering: the extra `postgres` is missing.
            StateUnavailable: on entering: the database cannot be reached.
            UnusableState: on entering: its tables belong to a newer version of this SDK.
        """
        try:
            url = url or os.environ.get(_VARIABLE)
            if not url:
                raise InvalidArgument("url", f"is missing: pass the URL of a PostgreSQL database, or set {_VARIABLE}")
            return cls(url, schema=schema)
        finally:
            del url  # its password must not be among the locals of a traceback

    def __repr__(self) -> str:
        return f"<SharedState {'closed' if self._database is None else self._database.name}>"

    async def __aenter__(self) -> Self:
        if self._database is not None:
            raise WrongState("the shared state is open already")
        database = await Database.open(self._url, schema=self._schema)
        try:
            await migrate(database)
        except BaseException:
            await database.close()
            raise
        self._database = database
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        database, self._database = self._database, None
        if database is not None:
            await database.close()

    @property
    def is_open(self) -> bool:
        """Whether it is connected."""
        return self._database is not None

    @property
    def database(self) -> Database:
        """The connections.

        Raises:
            WrongState: the state is not open.
        """
        if self._database is None:
            raise WrongState("the shared state is not open; use it inside `async with`")
        return self._database

    def open_sync_tables(self, target: str) -> "SyncTables":
        """Return the state of a list; entering it takes it up. `users.sync(..., state=state)` calls this.

        Args:
            target: the list and its host.

        Raises:
            WrongState: the shared state is not open.
        """
        from svc_async.state.syncs import SyncTables  # noqa: PLC0415 - only a sync needs it

        return SyncTables(self.database, target)

    async def has_sync(self, target: str) -> bool:
        """Return whether the state of a list is kept here.

        Args:
            target: the list and its host.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        return await self.database.fetch_row("SELECT 1 FROM sync_lists WHERE target = $1", target) is not None

    def events(self, receiver: str = "webhooks") -> "SharedEvents":
        """Return the inbox and dedupe store of receivers; see `SharedEvents` for other settings.

        Args:
            receiver: receivers with the same name handle the same events, each event once.

        Raises:
            InvalidArgument: the name is empty, too long or not printable.
        """
        from svc_async.state.events import SharedEvents  # noqa: PLC0415 - few programs receive events

        return SharedEvents(self, receiver=receiver)
