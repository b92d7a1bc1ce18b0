"""A SQLite file, spoken to by one thread; what waits at the same time shares a transaction."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

__all__ = ["Database"]

T = TypeVar("T")

_Work = Callable[[sqlite3.Connection], Any]
_BUSY_SECONDS = 5.0
"""How long to wait for another process that writes to the file."""
_MEMORY = Path(":memory:")


class Database:
    """Runs pieces of work on a connection of its own, each of them whole or not at all.

    Args:
        path: the file; it is made when there is none, for the eyes of this user only.
        schema: statements that make the tables.
        synchronous: FULL is safe against the loss of power, NORMAL against the end of the process.
    """

    def __init__(self, path: Path, *, schema: str, synchronous: Literal["FULL", "NORMAL"]) -> None:
        self._path = path
        self._setup = f"PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; {schema}"
        self._waiting: list[tuple[_Work, asyncio.Future[Any]]] = []
        self._flushing: asyncio.Task[None] | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Open the file.

        Raises:
            sqlite3.Error: it cannot be opened or is no such database.
        """
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="svc-async-sqlite")
        try:
            self._connection = await asyncio.get_running_loop().run_in_executor(self._thread, self._connect)
        except BaseException:
            self._thread.shutdown(wait=False)
            raise

    async def close(self) -> None:
        """Finish what waits, and close the file."""
        if self._flushing is not None:
            await self._flushing
        thread, connection, self._thread, self._connection = self._thread, self._connection, None, None
        if thread is not None and connection is not None:
            await asyncio.get_running_loop().run_in_executor(thread, connection.close)
            thread.shutdown()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do a piece of work; when this returns, it is in the file.

        Raises:
            sqlite3.Error: it is not.
        """
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((work, future))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())
        return cast(T, await future)

    async def _flush(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            outcomes = await asyncio.get_running_loop().run_in_executor(
                self._thread, self._transact, [work for work, _ in batch]
            )
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                _settle(future, outcome)

    def _connect(self) -> sqlite3.Connection:
        if self._path != _MEMORY:
            with suppress(OSError):  # SQLite says what is wrong
                self._path.touch(mode=0o600)
        connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            connection.executescript(self._setup)
        except BaseException:
            connection.close()
            raise
        return connection

    def _transact(self, works: Sequence[_Work]) -> list[Any]:
        connection = self._connection
        if connection is None:
            return [sqlite3.ProgrammingError("the database is closed")] * len(works)
        try:
            connection.execute("BEGIN IMMEDIATE")
            outcomes = [_attempt(connection, work) for work in works]
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return [error] * len(works)
        return outcomes


def _attempt(connection: sqlite3.Connection, work: _Work) -> Any:
    connection.execute("SAVEPOINT work")
    try:
        outcome = work(connection)
    except Exception as error:  # noqa: BLE001 - whoever waits for it is told; what is written may not be text, say
        connection.execute("ROLLBACK TO work")
        outcome = error
    connection.execute("RELEASE work")
    return outcome


def _settle(future: asyncio.Future[Any], outcome: Any) -> None:
    if future.cancelled():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
