"""What one run commits to its journal in a shared state: records in groups, and the rows of a source."""

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, TypeVar

import attrs

from svc_async.batch.journal.store import JournalUnwritable
from svc_async.cancellation import wait_through_cancellation
from svc_async.errors import StateUnavailable, SvcError, TakenUpElsewhere, UnusableState
from svc_async.store.records import Changes, compute_checksum

if TYPE_CHECKING:
    from svc_async.store.postgres import Connection, Database

__all__ = ["JournalRun", "StateSpool", "StateStore"]

T = TypeVar("T")

_HEARTBEAT = 15.0
"""Seconds after which a run commits, if it has nothing to record, so that others see that it is there."""
_LONGEST_REPEATING = 20.0
"""Seconds after which nothing is repeated any more."""
_MAX_RECORD = 67_108_864
"""Bytes of some rows in one record."""
_MAX_ROWS = 1_073_741_824
"""Bytes of all rows."""
_COUNT = -1
"""The number of the record that says how many records of rows there are."""


@attrs.frozen(kw_only=True)
class JournalRun:
    """A run that has taken up a journal.

    Attributes:
        name: the name of the job.
        database: the shared state.
        id: identifies the journal.
        epoch: how often it was taken up, this run included.
        silence: time since an earlier run last committed that it may send requests; None if none has.
        pauses: seconds before each repeat of a transaction whose connection was lost.
    """

    name: str
    database: "Database" = attrs.field(repr=False)
    id: int
    epoch: int
    silence: timedelta | None
    pauses: Sequence[float]

    async def write(
        self, connection: "Connection", changes: Changes, *, is_last: bool = False, confirms: bool = False
    ) -> None:
        """Write records, within a transaction or in one of its own.

        Raises:
            TakenUpElsewhere: another run has the journal.
        """
        kinds, numbers = [kind for kind, _ in changes], [number for _, number in changes]
        checksums = [0 if body is None else compute_checksum(*key, body) for key, body in changes.items()]
        values = (self.id, self.epoch, kinds, numbers, [*changes.values()], checksums, is_last, confirms)
        if not await connection.fetchval("SELECT commit_journal($1, $2, $3, $4, $5, $6, $7, $8)", *values):
            raise TakenUpElsewhere(self.name)

    async def repeat(self, transact: Callable[[], Awaitable[T]]) -> T:
        """Do a transaction, and do it again if its connection was lost, which leaves unknown whether it was committed.

        Args:
            transact: has the same effect if it is done twice, and checks that this run still has the journal.

        Raises:
            StateUnavailable: the database cannot be reached for some seconds.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + _LONGEST_REPEATING
        for pause in self.pauses:
            try:
                return await transact()
            except StateUnavailable:
                if loop.time() > end:  # a network that swallows everything: each time, that takes long to notice
                    raise
            await asyncio.sleep(pause)
        return await transact()

    async def hold(self, connection: "Connection") -> None:
        """Make sure that nobody else takes up the journal before the transaction ends.

        Raises:
            TakenUpElsewhere: somebody has.
        """
        if not await connection.fetchval("SELECT hold_journal($1, $2)", self.id, self.epoch):
            raise TakenUpElsewhere(self.name)


class StateStore:
    """Commits the records of one run; what is given while a commit is under way shares the next one."""

    is_locked = False

    def __init__(self, run: JournalRun) -> None:
        """Prepare to commit, in the running event loop."""
        self.spool = StateSpool(run)
        self._run = run
        self._changes: dict[tuple[str, int], bytes | None] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._is_last = self._confirms = False
        self._failure: SvcError | None = None
        self._writing: asyncio.Task[None] | None = None
        self._living = asyncio.create_task(self._show_life())

    def submit(self, changes: Changes) -> None:
        """Commit changes soon."""
        if self._failure is None:
            self._changes.update(changes)
            if self._writing is None or self._writing.done():
                self._writing = asyncio.create_task(self._write())

    @property
    def silence(self) -> float:
        """Seconds, by the clock of the database, since an earlier run last confirmed; endless if none ever has."""
        silence = self._run.silence
        return inf if silence is None else max(0.0, silence.total_seconds())

    async def commit(self, changes: Changes, *, is_last: bool = False, confirms: bool = False) -> None:
        """Commit changes, and everything that was submitted before.

        Raises:
            TakenUpElsewhere: another run has the journal.
            StateUnavailable: the database cannot be reached; it is not known whether they were committed.
            JournalUnwritable: the database refused them.
        """
        if self._failure is not None:
            raise self._failure
        self._is_last = self._is_last or is_last
        self._confirms = self._confirms or confirms
        self._waiting.append(committed := asyncio.get_running_loop().create_future())
        self.submit(changes)
        await committed

    async def close(self) -> None:
        """Commit what was submitted, even if the caller is cancelled meanwhile."""
        self._living.cancel()
        cancelled = None if self._writing is None else await wait_through_cancellation(self._writing)
        if cancelled is not None:
            raise cancelled

    async def _write(self) -> None:
        while self._changes or self._waiting:
            changes, self._changes = self._changes, {}
            waiting, self._waiting = self._waiting, []
            confirms, self._confirms = self._confirms, False
            await self._commit(changes, confirms=confirms)
            for future in waiting:
                if future.done():  # its caller was cancelled
                    continue
                if self._failure is None:
                    future.set_result(None)
                else:
                    future.set_exception(self._failure)

    async def _commit(self, changes: Changes, *, confirms: bool) -> None:
        """Commit changes, unless an earlier commit has failed; note why it failed."""
        if self._failure is not None:
            return

        async def write() -> None:
            async with self._run.database.connect() as connection:
                await self._run.write(connection, changes, is_last=self._is_last, confirms=confirms)

        try:
            await self._run.repeat(write)
        except SvcError as error:
            self._failure = error
        except BaseException as error:
            self._failure = JournalUnwritable(f"the journal {self._run.name} cannot be written: {type(error).__name__}")
            if not isinstance(error, Exception):  # the event loop ends
                raise

    async def _show_life(self) -> None:
        with suppress(SvcError):
            while True:
                await asyncio.sleep(_HEARTBEAT)
                await self.commit({})


@attrs.frozen
class StateSpool:
    """The rows of a source that can be read only once, in records with a checksum each."""

    _run: JournalRun

    async def write(self, records: AsyncIterable[bytes]) -> None:
        """Store records in place of those that there are.

        Raises:
            UnusableState: they are too large.
            TakenUpElsewhere: another run has the journal.
            StateUnavailable: the database cannot be reached.
        """
        await self.delete()
        count = size = 0
        async for record in records:
            size += len(record)
            if size > _MAX_ROWS or len(record) > _MAX_RECORD:
                problem = (
                    f"keeps at most {_MAX_ROWS >> 20} MiB of rows that can be read only once; use a file as source"
                )
                raise UnusableState(self._run.name, problem, parameter="journal")
            await self._put(count, record)
            count += 1
        await self._put(_COUNT, str(count).encode())

    async def _put(self, number: int, record: bytes) -> None:
        async def insert() -> None:
            async with self._run.database.transaction() as connection:
                await self._run.hold(connection)
                await connection.execute(_PUT, self._run.id, number, record, zlib.crc32(record))

        await self._run.repeat(insert)

    async def read(self) -> AsyncGenerator[bytes, None]:
        """Yield the records.

        Raises:
            UnusableState: they are missing or damaged.
            StateUnavailable: the database cannot be reached.
        """
        count = await self._load(_COUNT)
        for number in range(int(count) if count.isdigit() else 0):
            yield await self._load(number)

    async def _load(self, number: int) -> bytes:
        row = await self._run.database.fetch_row(_LOAD, self._run.id, number)
        if row is None or zlib.crc32(row["body"]) != row["checksum"]:
            what = "lacks rows" if row is None else "has damaged rows"
            advice = "delete it after the quarantine, and run the job again with the same rows"
            raise UnusableState(self._run.name, f"{what}; {advice}", parameter="journal")
        return bytes(row["body"])

    async def delete(self) -> None:
        """Delete the records.

        Raises:
            TakenUpElsewhere: another run has the journal.
            StateUnavailable: the database cannot be reached.
        """

        async def delete() -> None:
            async with self._run.database.transaction() as connection:
                await self._run.hold(connection)
                await connection.execute("DELETE FROM journal_rows WHERE journal = $1", self._run.id)

        await self._run.repeat(delete)


_PUT = """
    INSERT INTO journal_rows (journal, number, body, checksum) VALUES ($1, $2, $3, $4)
    ON CONFLICT (journal, number) DO UPDATE SET body = excluded.body, checksum = excluded.checksum
"""
_LOAD = "SELECT body, checksum FROM journal_rows WHERE journal = $1 AND number = $2"
