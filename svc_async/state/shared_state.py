"""The front door to the state that processes share."""

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

from svc_async.clock import Clock, require_event_loop
from svc_async.errors import Hint, InvalidArgument, WrongState
from svc_async.state.migrations import check_schema, migrate
from svc_async.store.database_url import DatabaseUrl
from svc_async.store.postgres import DEFAULT_SCHEMA, Database, PostgresLocation
from svc_async.store.records import SharedSyncs

if TYPE_CHECKING:
    from svc_async.state.events import SharedEvents
    from svc_async.state.journals import StateJournal
    from svc_async.state.limits.store import SharedWindows
    from svc_async.state.maintenance import PruneReport, StateReport

__all__ = ["SharedState"]

_VARIABLE = "SVC_STATE_URL"


class SharedState(SharedSyncs):
    """Limits, journals, sync states and stores of events in PostgreSQL, for any number of processes.

    Hand it to whoever needs it: `Session(state=state)` shares the rate limits, `journal=state.journal("customers")`
    keeps a journal, `users.sync(..., state=state)` the state of a list, `WebhookReceiver(state=state)` its events. One
    for each process is enough. It stores what the SQLite files store: no token, and no identifier in the clear.
    """

    def __init__(self, url: str | None, *, schema: str = DEFAULT_SCHEMA, migrate: bool = True) -> None:
        """Prepare to connect; see `open` and, without a URL, `embedded`."""
        self._database: Database | None = None
        self._url: DatabaseUrl | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._windows: WeakSet[object] = WeakSet()
        self._named: DatabaseUrl | None = None
        try:
            if url is not None:
                self._named = DatabaseUrl.parse(url)
        finally:
            del url  # its password must not be among the locals of a traceback
        self._schema = schema
        self._migrates = migrate
        self._migrated: Sequence[int] = ()
        self._closing = AsyncExitStack()

    @classmethod
    def open(cls, url: str | None = None, *, schema: str = DEFAULT_SCHEMA, migrate: bool = True) -> "SharedState":
        """Return the shared state of a database, to be entered with `async with`.

        Entering it connects, and creates or updates the tables if necessary.

        Args:
            url: `postgresql://user:password@host:port/database`; by default, the variable `SVC_STATE_URL`. The query
                may hold the settings of TLS that libpq has: `?sslmode=verify-full&sslrootcert=/etc/ssl/db.pem`. A
                server must offer TLS, unless it is reached by a socket or `sslmode` is `disable`.
            schema: the schema of the tables; states in different schemas share nothing.
            migrate: create or update the tables. Without it, the role needs no right to create any, and tables of an
                earlier version are refused.

        Raises:
            InvalidArgument: there is no URL, or it is of another kind; on entering: the extra `postgres` is missing.
            StateUnavailable: on entering: the database cannot be reached.
            UnusableState: on entering: its tables belong to another version of this SDK, or the role lacks a right.
        """
        try:
            url = url or os.environ.get(_VARIABLE)
            if not url:
                raise InvalidArgument("url", f"is missing: pass the URL of a PostgreSQL database, or set {_VARIABLE}")
            return cls(url, schema=schema, migrate=migrate)
        finally:
            del url  # its password must not be among the locals of a traceback

    @classmethod
    def embedded(cls, *, schema: str = DEFAULT_SCHEMA) -> "SharedState":
        """Return the shared state of an embedded PostgreSQL, to be entered with `async with`.

        Entering it starts the server of this user, or joins it if it runs; the last process that leaves it stops it.
        Its data stay in `svc_async/postgres` in the user's state folder. It serves one user of one machine.

        Args:
            schema: the schema of the tables; states in different schemas share nothing.

        Raises:
            InvalidArgument: on entering: the extra `local-cluster` is missing.
            StateUnavailable: on entering: the server cannot be started.
            UnusableState: on entering: its data belong to another version of PostgreSQL or of this SDK.
        """
        return cls(None, schema=schema)

    def __repr__(self) -> str:
        return f"<SharedState {self.name}{'' if self.is_open else ', closed'}>"

    @property
    def name(self) -> str:
        """Host and database, or `embedded`."""
        return self._named.name if self._named is not None else "embedded"

    async def __aenter__(self) -> Self:
        require_event_loop("a shared state")
        if self.is_open:
            raise WrongState("the shared state is open already")
        self._database = None  # of an event loop that was closed before the state was
        async with AsyncExitStack() as stack:
            url = self._named or await _start_embedded(stack)
            database = await Database.open(url, schema=self._schema)
            stack.push_async_callback(database.close)
            if self._migrates:
                self._migrated = (await migrate(database)).applied
            else:
                await check_schema(database)
            self._closing = stack.pop_all()
        self._url, self._database, self._loop = url, database, asyncio.get_running_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database = None
        closing, self._closing = self._closing, AsyncExitStack()
        if self._loop is None or not self._loop.is_closed():  # else its connections are freed, and nothing is awaited
            await closing.aclose()

    @property
    def is_open(self) -> bool:
        """Whether it is connected."""
        return self._database is not None and not (self._loop is not None and self._loop.is_closed())

    @property
    def migrated(self) -> Sequence[int]:
        """The versions of the tables that opening it has added."""
        return self._migrated

    @property
    def url(self) -> str:
        """The URL of the open state, for a process that is started with it; it may contain a password.

        Raises:
            WrongState: the state is not open.
        """
        if self._url is None:
            raise WrongState("the shared state is not open", hint=Hint.OPEN_IT)
        return self._url.reveal()

    @property
    def database(self) -> Database:
        """The connections.

        Raises:
            WrongState: the state is not open.
        """
        if self._database is None:
            raise WrongState("the shared state is not open", hint=Hint.OPEN_IT)
        return self._database

    def open_sync_tables(self, target: str) -> PostgresLocation:
        """Return where the state of a list is kept. `users.sync(..., state=state)` calls this.

        Args:
            target: the list and its host.

        Raises:
            WrongState: the shared state is not open.
        """
        return PostgresLocation(target, self.database, "sync", Hint.RESTORE_THE_DATABASE)

    async def has_sync(self, target: str) -> bool:
        """Return whether the state of a list is kept here.

        Args:
            target: the list and its host.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        found = await self.database.fetch_row("SELECT FROM stores WHERE what = 'sync' AND name = $1", target)
        return found is not None

    async def check(self) -> "StateReport":
        """Describe what it holds; nothing is changed.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        from svc_async.state.maintenance import check_state  # noqa: PLC0415 - few programs need it

        return await check_state(self.database)

    async def prune(self, *, older_than: timedelta) -> "PruneReport":
        """Delete what is not needed any more: journals of finished jobs, handled events, counts of unused limits.

        The states of lists and events that are not handled stay, whatever their age.

        Args:
            older_than: how long ago something was last used. Handled events are kept as long as their receivers need
                them, and counts of limits for two hours at least.

        Raises:
            InvalidArgument: the time is negative.
            StateUnavailable: the database cannot be reached.
        """
        from svc_async.state.maintenance import prune_state  # noqa: PLC0415 - likewise

        return await prune_state(self.database, older_than)

    def events(self, receiver: str = "webhooks") -> "SharedEvents":
        """Return the inbox and dedupe store of receivers; see `SharedEvents` for other settings.

        Args:
            receiver: receivers with the same name handle the same events, each event once.

        Raises:
            InvalidArgument: it is not a name of 1 to 200 printable characters.
        """
        from svc_async.state.events import SharedEvents  # noqa: PLC0415 - few programs receive events

        return SharedEvents(self, receiver=receiver)

    async def connect(self, *, reopen: bool = False) -> Database:
        """Return the connections.

        Args:
            reopen: open them if they are not, as entering does.

        Raises:
            WrongState: the state is not open.
            StateUnavailable: the database cannot be reached.
            UnusableState: its tables belong to a newer version of this SDK.
        """
        async with self._opening:
            if reopen and not self.is_open:
                await self.__aenter__()
            return self.database

    def windows(self, *, clock: Clock | None = None, required: bool = True) -> "SharedWindows":
        """Return rate limits that all processes of this state count together, for `Governor(windows=...)`.

        A session with `state=` makes its own; this is for a governor that several sessions of one process share. A
        state is for one service and one app: another needs another schema.

        Args:
            clock: the clock of the governor, if it has another than the system's.
            required: whether the state must be open when the governor is entered; otherwise it is opened as soon as the
                database can be reached, and until then the process counts by itself.
        """
        from svc_async.state.limits.postgres_leases import fetch_lease  # noqa: PLC0415 - not every state has limits
        from svc_async.state.limits.store import SharedWindows  # noqa: PLC0415 - likewise

        connect = partial(self.connect, reopen=not required)
        windows = SharedWindows(connect, partial(fetch_lease, connect), clock=clock, required=required)
        self._windows.add(windows)
        return windows

    def owns(self, windows: object) -> bool:
        """Return whether these windows are counted in this state."""
        return windows in self._windows

    def journal(self, job: str) -> "StateJournal":
        """Return the journal of a job, to be passed as `journal=`; whoever uses it last has it.

        Args:
            job: names the job, at most 200 printable characters.

        Raises:
            InvalidArgument: it is not a name of 1 to 200 printable characters.
            WrongState: the state is not open.
        """
        from svc_async.state.journals import StateJournal  # noqa: PLC0415 - loaded only where it is used

        return StateJournal.of_job(job, self.database)


async def _start_embedded(stack: AsyncExitStack) -> DatabaseUrl:
    if sys.platform == "win32":
        raise InvalidArgument("state", "needs a server on this system, named by SVC_STATE_URL: none is embedded here")
    from svc_async.state.embedded import run_postgres  # noqa: PLC0415 - needs an extra of its own

    return DatabaseUrl.parse(await stack.enter_async_context(run_postgres()))
