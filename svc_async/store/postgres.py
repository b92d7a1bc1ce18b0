"""Keeps records in PostgreSQL; a pool of connections for each process, and errors without the password.

The tables live in a schema of their own, which every connection finds first.

Who takes up a journal, a state of a list or a job raises its epoch, in the transaction that also stores the first
changes. Every later transaction holds its row and checks the epoch, and every read checks it in the same statement. So
a process that was replaced while it was stopped commits nothing more, plans nothing from what another one has written,
and ends with `TakenUpElsewhere`. What it has sent by then is in doubt for the process that replaced it.

If the connection of a commit is lost, nobody knows whether it was done. It is done again on another one then, since
records are replaced as a whole and the epoch is checked again; after some seconds the process ends. A connection can
also die without a word, as behind a gateway that has forgotten it or when the database has moved. So what changes
nothing when it is done twice (a commit, a read, the begin of a transaction) waits four seconds for a connection that
was there, and then uses a new one; the others of the pool are replaced, too, since none of them may be alive.
"""

import asyncio
import os
import re
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime, timedelta
from itertools import chain, cycle
from math import inf
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import attrs

from svc_async.cancellation import wait_through_cancellation
from svc_async.errors import Hint, InvalidArgument, StateUnavailable, SvcError, TakenUpElsewhere, UnusableState
from svc_async.printable import clean
from svc_async.store.database_url import DatabaseUrl
from svc_async.store.records import (
    COUNT,
    MAX_SIZE,
    Begin,
    Changes,
    DamagedRecord,
    Key,
    Records,
    check_all,
    check_each,
    check_record,
    compute_checksum,
    decode,
    encode,
)
from svc_async.value_rules import TEXT

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    Connection = PoolConnectionProxy[asyncpg.Record]

__all__ = [
    "DEFAULT_SCHEMA",
    "KEPT_CONNECTIONS",
    "RETRY_PAUSES",
    "Database",
    "PostgresLocation",
    "PostgresStore",
    "StoredRecords",
    "repeat",
]

T = TypeVar("T")

DEFAULT_SCHEMA = "svc_async"
_is_schema = re.compile(r"[a-z_][a-z0-9_]{0,62}").fullmatch
_SHARED = ("public", "information_schema")
"""Schemas in which others create what they like, or which belong to the server."""
_CONNECT_SECONDS = 10.0
_STATEMENT_SECONDS = 30.0
_ANSWER_SECONDS = 4.0
"""For a connection that was opened earlier, where another one may be tried."""
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
        if not TEXT.accepts(schema) or not _is_schema(schema):
            raise InvalidArgument("schema", "must consist of at most 63 lower-case ASCII letters, digits and _")
        if schema in _SHARED or schema.startswith("pg_"):
            rule = f"must be a schema of its own, not {' or '.join(_SHARED)}, and must not begin with pg_"
            raise InvalidArgument("schema", rule)
        asyncpg = _import_asyncpg()
        if problem := url.find_local_problem():
            raise InvalidArgument("state_url", problem)

        usual: Any = asyncpg.Connection

        class ClosedSoon(usual):  # type: ignore[misc]  # the extra may be missing, so its types are unknown
            async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as the driver has it
                """Close the connection; the pool does so in tasks that nobody awaits, also if the server is gone."""
                with suppress(Exception):
                    await super().close(timeout=_RELEASE_SECONDS if timeout is None else timeout)

        with _report_unavailable(url.name):
            pool = await asyncpg.create_pool(
                url.reveal(),
                connection_class=ClosedSoon,
                ssl=url.choose_sslmode(),
                min_size=0,  # a pool with a minimum logs each attempt to restore it while the database is away
                max_size=pool_size,
                timeout=_CONNECT_SECONDS,
                command_timeout=_STATEMENT_SECONDS,
                init=_limit_transactions,
                reset=_keep,
                server_settings={
                    "search_path": f"{schema}, pg_temp",  # temporary tables would come first otherwise
                    "application_name": "svc-async",
                    "timezone": "UTC",
                },
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
    async def connect(self, *, first: str | None = None) -> AsyncGenerator["Connection"]:
        """Lend a connection for the block.

        Args:
            first: a statement that it executes before the block, which shows whether it is alive.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        with _report_unavailable(self.name):
            connection = await self._acquire()
            try:
                if first is not None:
                    try:
                        await connection.execute(first, timeout=_ANSWER_SECONDS)
                    except TimeoutError:
                        await self._distrust()
                        await self._release(connection)
                        connection = await self._acquire()
                        await connection.execute(first)
                yield connection
                self._answers.note()
            except TimeoutError:
                await self._distrust()
                raise
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
        async with self.connect(first=_BEGIN_SNAPSHOT if is_snapshot else "BEGIN") as connection:
            try:
                if (is_snapshot or is_long) and _has_transaction_limit(connection):
                    await connection.execute(_WITHOUT_LIMIT)
                yield connection
                await connection.execute("COMMIT")
            except BaseException:
                await _roll_back(connection)
                raise

    async def fetch(self, statement: str, *arguments: object, limit: float | None = None) -> "Sequence[asyncpg.Record]":
        """Return the rows of a statement.

        Args:
            statement: the statement.
            arguments: its arguments.
            limit: seconds that it may take; by default, as many as any statement.

        Raises:
            StateUnavailable: the database cannot be reached.
        """
        async with self.connect() as connection:
            return await connection.fetch(statement, *arguments, timeout=limit)

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
            except BaseException as error:
                if isinstance(error, TimeoutError):
                    await self._distrust()
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

    async def _distrust(self) -> None:
        """Have every connection replaced before it is used again, since one has not answered."""
        await self._pool.expire_connections()
        while self._kept:
            connection = self._kept.pop()
            with suppress(Exception):  # it is closed already
                connection.terminate()
            await self._release(connection)

    async def _take_kept(self) -> "Connection":
        while self._kept:
            connection = self._kept.pop()
            if _is_open(connection):
                return connection
            await self._release(connection)
        return await self._acquire()


async def repeat(
    call: Callable[[], Awaitable[object]],
    pauses: Sequence[float],
    *,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Call what changes nothing when it is done twice, again after each pause, until its connection is not lost.

    Raises:
        StateUnavailable: the database cannot be reached; it is not known whether it was done.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + _REPEATED_FOR
    for pause in pauses:
        try:
            await call()
            return
        except StateUnavailable:
            if loop.time() > end:  # in a network that swallows everything, each attempt takes long
                raise
        await sleep(pause)
    await call()


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
    failure: BaseException
    try:
        yield
        return
    except asyncio.CancelledError as error:
        failure = asyncio.CancelledError(*error.args)
    except lost as error:
        error.args = ()  # the server may have repeated the password, and frames hold the error
        kinds = [each.__name__ for each in type(error).__mro__]  # nothing that the server or the URL said
        failure = StateUnavailable(name, next((reason for kind, reason in _REASONS.items() if kind in kinds), kinds[0]))
    except asyncpg.InsufficientPrivilegeError:
        problem = "may not be used so by this role: grant it the rights, or migrate as another one"
        failure = UnusableState(name, f"{problem} (docs/how-to-share-state.md)")
    except asyncpg.PostgresError as error:
        error.args = ()  # likewise, or the values of rows
        problem = f"cannot be used: the server reports SQLSTATE {error.sqlstate}"
        failure = UnusableState(name, problem, hint=Hint.READ_THE_LOG)
    except OverflowError:  # a time that Python does not have
        failure = UnusableState(name, "holds a value that cannot be read", hint=Hint.READ_THE_LOG)
    try:
        raise failure from None
    finally:
        failure.__context__ = None  # it quotes rows, and the frames of the driver have the password


_HEARTBEAT = 15.0
"""Seconds after which a process commits, if it has nothing to record, so that others see that it is there."""
_REPEATED_FOR = 20.0
"""Seconds after which nothing is repeated any more."""
RETRY_PAUSES = (0.1, 0.5, 1.0, 2.0, 4.0)
_DELETED_TOGETHER = 200
_WHOLE = range(-(2**63), 2**63)
_TAKE_UP = """
    INSERT INTO stores (what, name, epoch, owner) VALUES ($1, $2, 1, $3)
    ON CONFLICT (what, name) DO UPDATE
        SET epoch = stores.epoch + 1, owner = excluded.owner, active_at = clock_timestamp()
    RETURNING id, epoch, clock_timestamp() - confirmed_at AS silence
"""
_FIND = """
    SELECT id, epoch, owner, finished, active_at, clock_timestamp() - active_at AS silence
    FROM stores WHERE what = $1 AND name = $2
"""
_OF_KINDS = "FROM records WHERE store = $1 AND ($2::text[] IS NULL OR kind = ANY ($2))"
_MEASURE = f"SELECT coalesce(sum(octet_length(body) + octet_length(kind) + 100), 0) {_OF_KINDS}"
"""About the memory that the records take: without the 100 bytes, any number of empty ones would be read."""
_SELECT = f"SELECT kind, number, body, checksum {_OF_KINDS}"
_READ = """
    SELECT store.epoch = $2, item.number, item.body, item.checksum FROM stores AS store
    LEFT JOIN records AS item ON item.store = store.id AND kind = $3 AND number BETWEEN $4 AND $5
    WHERE store.id = $1 ORDER BY number
"""
"""Finds the store even if it has no record, so that its epoch is always told."""
_LIST_NUMBERS = _READ.replace(", item.body, item.checksum", "")
_PUT = """
    INSERT INTO records (store, kind, number, body, checksum) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (store, kind, number) DO UPDATE SET body = excluded.body, checksum = excluded.checksum
"""
_DELETE = "DELETE FROM records WHERE store = $1 AND kind = $2 AND number = ANY ($3::bigint[])"
_DELETE_SOME = """
    DELETE FROM records WHERE store = $1 AND kind = $2 AND number IN (
        SELECT number FROM records WHERE store = $1 AND kind = $2 ORDER BY number LIMIT $3
    )
"""


@attrs.frozen(kw_only=True)
class StoredRecords:
    """What is kept under a name, at one moment.

    Attributes:
        id: identifies it.
        epoch: how often it was taken up.
        owner: the host and the process that have taken it up last.
        finished: whether nothing is left to do.
        active_at: when it was last written.
        silence: the time since then, by the clock of the database.
        records: the records.
    """

    id: int
    epoch: int
    owner: str
    finished: bool
    active_at: datetime
    silence: timedelta
    records: Records


@attrs.frozen
class PostgresLocation:
    """Records in a database: a `RecordLocation`.

    Attributes:
        name: names the journal, the list or the job.
        database: the connections.
        what: which of these it is.
        restore: what to do if it is damaged.
        retry_pauses: seconds before each repeat of a commit whose connection was lost.
    """

    name: str
    database: Database = attrs.field(repr=False)
    what: Literal["journal", "sync", "job"]
    restore: Hint = attrs.field(repr=False)
    retry_pauses: Sequence[float] = attrs.field(default=RETRY_PAUSES, repr=False, kw_only=True)

    async def open(self, begin: Begin[T], *, kinds: Collection[str] | None = None) -> "tuple[T, PostgresStore]":
        """Take up the records; whoever had them before can commit nothing more. See `RecordLocation`.

        Raises:
            StateUnavailable: the database cannot be reached.
            UnusableState: the records are damaged.
        """
        async with self.database.transaction() as connection:
            owner = f"{socket.gethostname()} process {os.getpid()}"
            (row,) = await connection.fetch(_TAKE_UP, self.what, self.name, owner)
            result, changes = begin(await self._load(connection, row["id"], kinds))
            store = PostgresStore(self, row["id"], row["epoch"], row["silence"])
            await store.write(connection, changes)
        store.begin()
        return result, store

    async def find_records(self, *, kinds: Collection[str] | None = None) -> StoredRecords | None:
        """Return what is there, or None if nothing is; nothing is changed, and who has it is not disturbed.

        Args:
            kinds: the kinds of the records that are read; by default, all are read, and counted, as for `open`.

        Raises:
            StateUnavailable: the database cannot be reached.
            UnusableState: the records are damaged.
        """
        async with self.database.transaction(is_snapshot=True) as connection:
            row = await connection.fetchrow(_FIND, self.what, self.name)
            return None if row is None else StoredRecords(**row, records=await self._load(connection, row["id"], kinds))

    async def _load(self, connection: "Connection", store: int, kinds: Collection[str] | None) -> Records:
        chosen = None if kinds is None else [*kinds]
        are_counted = chosen is None or COUNT in chosen
        if await connection.fetchval(_MEASURE, store, chosen) > MAX_SIZE:
            raise self.make_damage_error()
        try:
            rows = [tuple(row) for row in await connection.fetch(_SELECT, store, chosen)]
            return Records((check_all if are_counted else check_each)(rows), self.make_damage_error)
        except DamagedRecord:
            raise self.make_damage_error() from None

    def make_error(self, problem: str, hint: Hint | None = None) -> UnusableState:
        """Return the error that says why the records cannot be used."""
        parameter = "state" if self.what == "sync" else self.what
        return UnusableState(clean(self.name), problem, parameter=parameter, hint=hint)

    def make_damage_error(self) -> UnusableState:
        """Return the error that says that the records are damaged, and what to do."""
        return self.make_error("is damaged", self.restore)

    def make_replaced_error(self) -> TakenUpElsewhere:
        """Return the error that says that another process has taken up the records."""
        return TakenUpElsewhere(f"the {self.what} {clean(self.name)}")


class PostgresStore:
    """Records that this process has taken up: a `RecordStore`.

    What is given while a commit is under way shares the next one.

    Attributes:
        epoch: how often they were taken up, by this process included.
        silence: seconds since an earlier process last confirmed, by the clock of the database; endless if none has.
    """

    is_locked = False

    def __init__(self, location: PostgresLocation, store: int, epoch: int, silence: timedelta | None) -> None:
        self.epoch = epoch
        self.silence = inf if silence is None else max(0.0, silence.total_seconds())
        self._location = location
        self._database = location.database
        self._store = store
        self._changes: dict[Key, bytes | None] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._is_last = self._confirms = False
        self._failure: SvcError | None = None
        self._writing: asyncio.Task[None] | None = None
        self._living: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Commit something from time to time, so that others see that this process is there."""

        async def show_life() -> None:
            with suppress(SvcError):
                while True:
                    await asyncio.sleep(_HEARTBEAT)
                    await self.commit({})

        self._living = asyncio.create_task(show_life())

    async def write(
        self,
        connection: "Connection",
        changes: Changes,
        *,
        is_last: bool = False,
        confirms: bool = False,
        limit: float | None = None,
    ) -> None:
        """Write records, within a transaction or in one of its own.

        Raises:
            TakenUpElsewhere: another process has them.
        """
        kinds, numbers = [kind for kind, _ in changes], [number for _, number in changes]
        checksums = [0 if body is None else compute_checksum(*key, body) for key, body in changes.items()]
        values = (self._store, self.epoch, kinds, numbers, [*changes.values()], checksums, is_last, confirms)
        statement = "SELECT commit_records($1, $2, $3, $4, $5, $6, $7, $8)"
        if not await connection.fetchval(statement, *values, timeout=limit):
            raise self._location.make_replaced_error()

    async def read(self, kind: str, into: type[T], numbers: range | None = None) -> Sequence[tuple[int, T]]:
        """Return the numbers and values of records of a kind; see `RecordStore`.

        Raises:
            TakenUpElsewhere: another process has them.
            StateUnavailable: the database cannot be reached.
            UnusableState: they are damaged.
        """
        rows = await self._fetch(_READ, kind, _WHOLE if numbers is None else numbers)
        try:
            return [(number, decode(check_record(kind, number, body, sum_), into)) for _, number, body, sum_ in rows]
        except DamagedRecord:
            raise self._location.make_damage_error() from None

    async def list_numbers(self, kind: str) -> Sequence[int]:
        """Return the numbers of the records of a kind, ascending."""
        return [number for _, number in await self._fetch(_LIST_NUMBERS, kind, _WHOLE)]

    async def _fetch(self, statement: str, kind: str, numbers: range) -> Sequence[Sequence[Any]]:
        if not numbers:
            return []
        values = self._store, self.epoch, kind, numbers[0], numbers[-1]
        try:
            rows = await self._database.fetch(statement, *values, limit=_ANSWER_SECONDS)
        except StateUnavailable:
            rows = await self._database.fetch(statement, *values)
        if not rows or not rows[0][0]:
            raise self._location.make_replaced_error()
        return [tuple(row) for row in rows if row[1] is not None]

    def submit(self, changes: Changes) -> None:
        """Commit changes soon, without waiting for it; see `RecordStore`."""
        if self._failure is None:
            self._changes.update(changes)
            if self._writing is None or self._writing.done():
                self._writing = asyncio.create_task(self._write())

    async def commit(self, changes: Changes, *, is_last: bool = False, confirms: bool = False) -> None:
        """Commit changes, and everything that was submitted before; see `RecordStore`.

        Raises:
            TakenUpElsewhere: another process has the records.
            StateUnavailable: the database cannot be reached; it is not known whether they were committed.
            UnusableState: the database refused them.
        """
        if self._failure is not None:
            raise self._failure
        self._is_last = self._is_last or is_last
        self._confirms = self._confirms or confirms
        self._waiting.append(committed := asyncio.get_running_loop().create_future())
        self.submit(changes)
        await committed

    async def _write(self) -> None:
        while self._changes or self._waiting:
            changes, self._changes = self._changes, {}
            waiting, self._waiting = self._waiting, []
            confirms, self._confirms = self._confirms, False
            if self._failure is None:
                await self._commit(changes, confirms=confirms)
            for future in waiting:
                if future.done():  # its caller was cancelled
                    continue
                if self._failure is None:
                    future.set_result(None)
                else:
                    future.set_exception(self._failure)

    async def _commit(self, changes: Changes, *, confirms: bool) -> None:
        """Commit changes, also if a connection is lost or does not answer; note why it fails."""
        limits = chain([_ANSWER_SECONDS], cycle([None]))

        async def write() -> None:
            last, limit = self._is_last, next(limits)
            async with self._database.connect() as connection:
                await self.write(connection, changes, is_last=last, confirms=confirms, limit=limit)

        try:
            await repeat(write, self._location.retry_pauses)
        except SvcError as error:
            self._failure = error
        except BaseException as error:
            self._failure = self._location.make_error(f"cannot be written: {type(error).__name__}")
            if not isinstance(error, Exception):  # the event loop ends
                raise

    @asynccontextmanager
    async def transaction(self) -> "AsyncGenerator[_PostgresWriter]":
        """Commit what the block writes, or nothing of it; see `RecordStore`.

        Raises:
            TakenUpElsewhere: another process has the records.
            StateUnavailable: the database cannot be reached; it is not known whether they were committed.
        """
        try:
            async with self._database.transaction() as connection:
                yield _PostgresWriter(connection, self._store)
                if not await connection.fetchval("SELECT hold_store($1, $2)", self._store, self.epoch):
                    raise self._location.make_replaced_error()
        except StateUnavailable:
            await self.list_numbers("")  # raises TakenUpElsewhere if that is why the server has ended it
            raise

    async def shrink(self) -> None:
        """Do nothing: the server reuses the space."""

    async def close(self) -> None:
        """Commit what was submitted, even if the caller is cancelled meanwhile; leave the records to who comes next."""
        if self._living is not None:
            self._living.cancel()
        cancelled = None if self._writing is None else await wait_through_cancellation(self._writing)
        if cancelled is not None:
            raise cancelled


@attrs.frozen
class _PostgresWriter:
    """Writes records within a transaction, which may last as long as this goes on."""

    _connection: "Connection"
    _store: int

    async def put(self, kind: str, number: int, value: Any) -> None:
        await extend_transaction(self._connection)
        body = encode(value)
        await self._connection.execute(_PUT, self._store, kind, number, body, compute_checksum(kind, number, body))

    async def delete(self, kind: str, numbers: Iterable[int] | None = None) -> None:
        await extend_transaction(self._connection)
        if numbers is not None:
            await self._connection.execute(_DELETE, self._store, kind, [*numbers])
            return
        # A statement has a time limit; a plan may have gigabytes.
        some = self._store, kind, _DELETED_TOGETHER
        while await self._connection.execute(_DELETE_SOME, *some) == f"DELETE {_DELETED_TOGETHER}":
            await extend_transaction(self._connection)
