"""Connections to PostgreSQL: a pool for each process, and errors without the password.

The tables live in a schema of their own, which every connection finds first. A `CommitError` means that nothing of a
transaction was stored; when a connection is lost during the commit itself, nobody knows, and the error says so.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import attrs

from svc_async.errors import InvalidArgument
from svc_async.state.database_url import DatabaseUrl
from svc_async.state.errors import StateUnavailable, UnusableState
from svc_async.value_rules import TEXT

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    Connection = PoolConnectionProxy[asyncpg.Record]

__all__ = ["DEFAULT_SCHEMA", "KEPT_CONNECTIONS", "Database", "extend_transaction"]

DEFAULT_SCHEMA = "svc_async"
_is_schema = re.compile(r"[a-z_][a-z0-9_]{0,62}").fullmatch
_CONNECT_SECONDS = 10.0
_STATEMENT_SECONDS = 30.0
_ACQUIRE_SECONDS = 30.0
"""Longer than connecting may take: many jobs of a process may wait for its connections, while these get answers."""
_RELEASE_SECONDS = 2.0
"""For the server to end what was cancelled or has failed; then the connection is closed."""
_POOL_SIZE = 8
KEPT_CONNECTIONS = 2
"""Connections that are kept for statements that are executed often."""
_BEGIN_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_SESSION_LIMITS = """
    SET idle_in_transaction_session_timeout = '10s';
    SET tcp_keepalives_idle = 5;
    SET tcp_keepalives_interval = 2;
    SET tcp_keepalives_count = 3
"""
"""What ends the transaction of a process that stands still between two statements, or of a machine that is gone."""
_TRANSACTION_LIMIT = f"{_STATEMENT_SECONDS:.0f}s"
"""What ends one that stands still between the messages of a statement, from this version on."""
_WITH_TRANSACTION_LIMIT = 17
_WITHOUT_LIMIT = "SET LOCAL transaction_timeout = 0"
_ADVICE = "its log says why; if its tables were changed or are damaged, restore them from a backup"
_REASONS = {  # by the name of an exception; the first that fits
    "SSLCertVerificationError": "certificate verification failed",
    "gaierror": "the host name is not known",
    "ConnectionRefusedError": "connection refused",
    "ConnectionResetError": "connection lost",
    "ConnectionDoesNotExistError": "connection lost",
    "InternalClientError": "connection lost",
    "ConnectionError": "the server refuses the connection, or offers no TLS",
    "FileNotFoundError": "there is no such file or socket",
    "TimeoutError": "timed out",
    "ClientConfigurationError": "the URL has a setting that is not valid",
    "InvalidPasswordError": "the password is wrong",
    "InvalidAuthorizationSpecificationError": "the server refuses the user",
    "InvalidCatalogNameError": "there is no such database",
    "TooManyConnectionsError": "too many connections",
    "CannotConnectNowError": "the server is starting or stopping",
    "InterfaceError": "the connection cannot be used",
    "ReadOnlySQLTransactionError": "the server takes no writes",
    "LockNotAvailableError": "what it needs is locked",
    "TransactionRollbackError": "other transactions were in the way",
}


@attrs.define(eq=False)
class _LastAnswer:
    """When the server last answered, which decides how long it is worth waiting for a connection.

    Attributes:
        at: the time of the event loop.
    """

    at: float = 0.0

    def note(self) -> None:
        """Note that it answers now."""
        self.at = asyncio.get_running_loop().time()

    @asynccontextmanager
    async def limit_wait(self) -> AsyncGenerator[None]:
        """End the block when nobody has got an answer for as long as connecting may take, or after thirty seconds.

        Raises:
            TimeoutError: the block was ended.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal timer
            end = min(max(began, self.at) + _CONNECT_SECONDS, began + _ACQUIRE_SECONDS)
            if end > loop.time():
                timer = loop.call_at(end, look)
            else:
                limit.reschedule(end)

        timer = loop.call_later(_CONNECT_SECONDS, look)
        try:
            async with asyncio.timeout(None) as limit:
                yield
        finally:
            timer.cancel()


@attrs.frozen(kw_only=True)
class Database:
    """A pool of connections to the schema of a database; `open` it and close it.

    Attributes:
        name: host and database, for messages; without the password.
        schema: the schema of the tables.
    """

    name: str
    schema: str
    _pool: "asyncpg.Pool[asyncpg.Record]" = attrs.field(alias="pool", repr=False)
    _kept: "list[Connection]" = attrs.field(factory=list, init=False, repr=False, eq=False)
    _answers: _LastAnswer = attrs.field(factory=_LastAnswer, init=False, repr=False, eq=False)

    @classmethod
    async def open(cls, url: DatabaseUrl, *, schema: str = DEFAULT_SCHEMA, pool_size: int = _POOL_SIZE) -> "Database":
        """Connect to a database; its schema need not exist.

        Args:
            url: where the database is.
            schema: the schema of the tables.
            pool_size: the most connections of this process.

        Raises:
            InvalidArgument: the schema has no valid name, a file of TLS that the URL names cannot be read, or the
                package asyncpg is missing.
            StateUnavailable: the database cannot be reached.
        """
        _check_schema(schema)
        asyncpg = _import_asyncpg()
        if problem := url.find_file_problem():
            raise InvalidArgument("state_url", problem)
        with _report_unavailable(url.name):
            pool = await asyncpg.create_pool(
                url.reveal(),
                min_size=0,  # a pool with a minimum logs each attempt to restore it while the database is away
                max_size=pool_size,
                timeout=_CONNECT_SECONDS,
                command_timeout=_STATEMENT_SECONDS,
                init=_limit_transactions,
                reset=_keep,
                server_settings={"search_path": schema, "application_name": "svc-async", "timezone": "UTC"},
            )
        return cls(name=url.name, schema=schema, pool=pool)

    async def close(self) -> None:
        """Close the connections; statements that are under way are waited for at most ten seconds."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                while self._kept:
                    await self._release(self._kept.pop())
                await self._pool.close()
        except Exception:  # noqa: BLE001 - a connection that cannot be closed in order is closed at once
            self._pool.terminate()

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator["Connection"]:
        """Lend a connection for the block.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        with _report_unavailable(self.name):
            connection = await self._acquire()
            try:
                yield connection
                self._answers.note()
            finally:
                await self._release(connection)

    @asynccontextmanager
    async def transaction(self, *, is_snapshot: bool = False, is_long: bool = False) -> AsyncGenerator["Connection"]:
        """Commit what the block does, or nothing of it.

        Args:
            is_snapshot: whether the block writes nothing, and sees what had been committed before it began.
            is_long: whether it may last longer than a statement may.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        async with self.connect() as connection:
            try:
                await connection.execute(_BEGIN_SNAPSHOT if is_snapshot else "BEGIN")
                if (is_snapshot or is_long) and _has_transaction_limit(connection):
                    await connection.execute(_WITHOUT_LIMIT)
                yield connection
                await connection.execute("COMMIT")
            except BaseException:
                await _roll_back(connection)
                raise

    async def fetch(self, statement: str, *arguments: object) -> "Sequence[asyncpg.Record]":
        """Return the rows of a statement.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        async with self.connect() as connection:
            return await connection.fetch(statement, *arguments)

    async def fetch_row(self, statement: str, *arguments: object) -> "asyncpg.Record | None":
        """Return the first row of a statement; None if it has none.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        async with self.connect() as connection:
            return await connection.fetchrow(statement, *arguments)

    async def fetch_row_often(self, statement: str, *arguments: object) -> "asyncpg.Record | None":
        """Return the first row of a statement, over a connection that is kept for it: lending one takes half as long.

        There are two, so that two such statements at a time wait for no others.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        with _report_unavailable(self.name):
            connection = await self._take_kept()
            try:
                row = await connection.fetchrow(statement, *arguments)
            except BaseException:
                await self._release(connection)
                raise
            self._answers.note()
            if len(self._kept) < KEPT_CONNECTIONS:
                self._kept.append(connection)
            else:
                await self._release(connection)
            return row

    async def execute(self, statement: str, *arguments: object) -> str:
        """Execute a statement and return its status, such as `DELETE 3`.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        async with self.connect() as connection:
            return await connection.execute(statement, *arguments)

    async def _acquire(self) -> "Connection":
        async with self._answers.limit_wait():  # the pool's own timeout would start a task each time
            return await self._pool.acquire()

    async def _release(self, connection: "Connection") -> None:
        """Return a connection to the pool, which closes it if it cannot be used any more.

        Whether that works changes nothing of what has happened before: a result, an error or a cancellation.
        """
        with suppress(Exception):
            await self._pool.release(connection, timeout=_RELEASE_SECONDS)

    async def _take_kept(self) -> "Connection":
        while self._kept:
            connection = self._kept.pop()
            if _is_open(connection):
                return connection
            await self._release(connection)
        return await self._acquire()


async def _limit_transactions(connection: "Connection") -> None:
    """Have the server end what a process that stands still, or a machine that is gone, has not committed.

    Otherwise its locks would stay, as long as its connection does.
    """
    limit = f"SET transaction_timeout = '{_TRANSACTION_LIMIT}'" if _has_transaction_limit(connection) else ""
    await connection.execute(f"{_SESSION_LIMITS}; {limit}")


async def extend_transaction(connection: "Connection") -> None:
    """Let a transaction last as long again, from now on."""
    if _has_transaction_limit(connection):  # which is started anew only if it was off
        await connection.execute(f"{_WITHOUT_LIMIT}; SET LOCAL transaction_timeout = '{_TRANSACTION_LIMIT}'")


def _has_transaction_limit(connection: "Connection") -> bool:
    return connection.get_server_version().major >= _WITH_TRANSACTION_LIMIT


async def _roll_back(connection: "Connection") -> None:
    """End a transaction without its effects, by closing the connection if the server does not do it soon."""
    try:
        async with asyncio.timeout(_RELEASE_SECONDS):
            await connection.execute("ROLLBACK")
    except BaseException as error:
        with suppress(Exception):  # it is closed already
            connection.terminate()
        if not isinstance(error, Exception):
            raise


def _is_open(connection: "Connection") -> bool:
    try:
        return not connection.is_closed()
    except _import_asyncpg().InterfaceError:
        return False  # the pool takes back by itself what is lost


def _check_schema(schema: str) -> None:
    if not TEXT.accepts(schema) or not _is_schema(schema):
        raise InvalidArgument("schema", "must consist of at most 63 lower-case ASCII letters, digits and _")


async def _keep(_connection: object) -> None:
    """Leave a connection as it is: nothing of ours outlives a transaction, so resetting it would be a wasted trip."""


def _import_asyncpg() -> Any:
    try:
        import asyncpg  # noqa: PLC0415 - the extra may be missing
    except ImportError:
        advice = 'needs the package asyncpg: pip install "svc-async[postgres]"'
        raise InvalidArgument("SharedState.open()", advice) from None
    return asyncpg


@contextmanager
def _report_unavailable(name: str) -> Generator[None]:
    """Report that a database cannot be reached or used, without the password of its URL and the values of rows.

    Raises:
        StateUnavailable: a connection cannot be opened, or was lost; or the server cannot do it now.
        UnusableState: the role lacks a right, or the tables are others than those of this SDK.
    """
    asyncpg = _import_asyncpg()
    lost = (
        OSError,
        TimeoutError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,  # a statement after the server has announced that it ends the connection
        asyncpg.PostgresConnectionError,
        asyncpg.exceptions.OperatorInterventionError,
        asyncpg.exceptions.InsufficientResourcesError,
        asyncpg.exceptions.InvalidAuthorizationSpecificationError,
        asyncpg.exceptions.InvalidCatalogNameError,
        asyncpg.exceptions.ReadOnlySQLTransactionError,
        asyncpg.exceptions.LockNotAvailableError,
        asyncpg.exceptions.TransactionRollbackError,
    )
    try:
        yield
    except lost as error:
        raise StateUnavailable(name, _explain(error)) from None
    except asyncpg.InsufficientPrivilegeError:
        problem = "may not be used so by this role: grant it the rights, or migrate as another one"
        raise UnusableState(name, f"{problem} (docs/how-to-share-state.md)") from None
    except asyncpg.PostgresError as error:
        error.detail = error.context = None  # they quote rows
        raise UnusableState(name, f"cannot be used: the server reports SQLSTATE {error.sqlstate}; {_ADVICE}") from None
    except OverflowError:  # a time that Python does not have
        raise UnusableState(name, f"holds a value that cannot be read; {_ADVICE}") from None


def _explain(error: BaseException) -> str:
    """Return a reason without anything that the server or the URL said."""
    for kind, reason in _REASONS.items():
        if kind in {each.__name__ for each in type(error).__mro__}:
            return reason
    return type(error).__name__
