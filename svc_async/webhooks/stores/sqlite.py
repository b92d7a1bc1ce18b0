"""An inbox and a dedupe store in SQLite files.

Both have the same file format, so that one file can hold both.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar

from svc_async.cancellation import in_thread
from svc_async.clock import Clock, SystemClock
from svc_async.errors import UnusableFile, WrongState
from svc_async.store.file import DatabaseFile, FileFormat, Work, Writer
from svc_async.value_rules import COUNT, DURATION, NAME
from svc_async.webhooks.stores import inbox_rows as rows
from svc_async.webhooks.stores.dedupe import DEFAULT_TTL, Claim, check_ttl
from svc_async.webhooks.stores.inbox import StoredEvent, WaitingEvent

__all__ = ["SqliteDedupe", "SqliteInbox"]

T = TypeVar("T")

_FORMAT = FileFormat(
    kind="a store of webhook events",
    parameter="path",
    application_id=0x73766577,
    version=4,
    holder="another receiver; start this one when that has ended, or have them share a SharedState by state=",
    in_memory="Ack.enqueue() and MemoryDedupe() keep events in memory",
    tables=f"""{rows.INBOX_TABLES}
    CREATE TABLE svc_events (
        key TEXT PRIMARY KEY, owner TEXT NOT NULL, handled INTEGER NOT NULL, expires_at REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX svc_events_expire ON svc_events (expires_at)
    """,
)
_GONE = "was removed or replaced while it was open, so what it stores is lost when it closes; start the receiver again"
_MORE_IN, _NO_MORE_IN = 1.0, 3_600.0


class _Store:
    """A file that is open within an `async with` block; it can be opened again."""

    def __init__(self, path: str | Path, *, exclusive: bool, synchronous: Literal["FULL", "NORMAL"]) -> None:
        _FORMAT.check_path(path)
        self._path = Path(path)
        self._exclusive = exclusive
        self._synchronous: Literal["FULL", "NORMAL"] = synchronous
        self._writer: Writer | None = None
        self._file: tuple[int, int] | None = None

    async def __aenter__(self) -> Self:
        await self._close()  # it was left open in an event loop that was closed
        try:
            self._writer = await in_thread(self._open, undo=Writer.close)
            self._file = self._identify_file()
            await self._start()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    def _open(self) -> Writer:
        file = DatabaseFile.open(self._path, _FORMAT, exclusive=self._exclusive, synchronous=self._synchronous)
        try:
            file.begin_log()
        except BaseException:
            file.close()
            raise
        return Writer(file)

    async def _start(self) -> None:
        """Read what is needed from the beginning."""

    async def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()

    def _identify_file(self) -> tuple[int, int] | None:
        """Return what tells the file at the path from others; None if there is none."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    async def _run(self, work: Work[T]) -> T:
        """Do work and return its result once it is committed.

        Raises:
            WrongState: the store is not open.
            UnusableFile: the file is gone, damaged or locked, or cannot be used.
        """
        if self._writer is None:
            raise WrongState("the event store is closed")
        if self._identify_file() != self._file:
            raise UnusableFile(_FORMAT.parameter, self._path, _GONE)
        with _FORMAT.report(self._path):
            return await self._writer.run(work)


class SqliteInbox(_Store):
    """Stores events in a file; one receiver at a time may use it, which locks `PATH-lock` beside it.

    Bodies are stored as received, including messages of users; a file that is created can be read by this user only.

    Args:
        path: the file.

    Raises:
        InvalidArgument: the path is empty, or SQLite would keep it in memory.
        UnusableFile: another receiver uses the file, or it cannot be used; on entering.
    """

    def __init__(self, path: str | Path) -> None:
        # The file may also hold the events of a `SqliteDedupe`: several processes may write those.
        super().__init__(path, exclusive=True, synchronous="FULL")
        self._loaded = self._last = 0

    async def _start(self) -> None:
        self._last = await self._run(rows.find_last)
        self._loaded = 0

    @property
    def load_interval(self) -> float:
        """Seconds until the next events are looked for."""
        return _MORE_IN if self._loaded < self._last else _NO_MORE_IN

    async def store(self, events: Sequence[StoredEvent]) -> Mapping[str, int]:
        """Store all of the events or none; when this returns they are durable. Skip those that are stored already.

        Returns:
            How often handling of those that are stored already has begun, by their keys.
        """
        return await self._run(lambda connection: rows.insert_events(connection, events))

    async def remove(self, key: str) -> None:
        """Remove an event."""
        await self._run(lambda connection: rows.delete_event(connection, key))

    async def load(self) -> Sequence[StoredEvent]:
        """Return events that were there when the file was opened, in the order in which they were received.

        Each call returns the next ones: at most 1,000, and about 16 MiB.

        Raises:
            UnusableFile: one of them is damaged.
        """
        if self._loaded >= self._last:
            return []
        found = await self._run(lambda connection: [*rows.load_events(connection, self._loaded, self._last)])
        self._loaded = found[-1][0] if found else self._last
        return [event for _, event in found]

    async def begin(self, key: str) -> int | None:
        """Count an attempt to handle an event; when this returns it is durable.

        Returns:
            How many there are; None if the event is not in the inbox any more.

        Raises:
            UnusableFile: the event is damaged.
        """
        return await self._run(lambda connection: rows.add_attempts(connection, key, 1))

    async def end(self, keys: Sequence[str]) -> None:
        """Take back the latest attempt of events that stay in the inbox: it ended, by an error or with the receiver.

        Raises:
            UnusableFile: one of them is damaged.
        """
        await self._run(lambda connection: [rows.add_attempts(connection, key, -1) for key in keys])

    async def list_events(self, *, limit: int = 1_000) -> Sequence[WaitingEvent]:
        """Return the events that the inbox holds, those with most attempts first, then in the order of arrival.

        Args:
            limit: how many at most.

        Raises:
            UnusableFile: one of them is damaged.
        """
        COUNT.check("limit", limit)
        return await self._run(lambda connection: rows.list_events(connection, limit))

    async def discard(self, key: str) -> bool:
        """Remove an event that is not to be handled; return whether it was there."""
        return await self._run(lambda connection: rows.delete_event(connection, key))

    async def retry(self, key: str) -> bool:
        """Forget the attempts of an event, so that the next start handles it; return whether it is there.

        Raises:
            UnusableFile: the event is damaged.
        """
        return await self._run(lambda connection: rows.reset_attempts(connection, key))


class SqliteDedupe(_Store):
    """Remembers events in a file, which several processes may share.

    Args:
        path: the file.
        ttl: how long a handled event is remembered.
        owner: the name of this receiver; each process that shares the file needs its own. Events that a receiver of
            this name had claimed when it ended are released when the next one starts.
        lease: how long a claim of another owner, which may have ended for good, is respected.
        clock: the source of time.

    Raises:
        InvalidArgument: the path is empty, or SQLite would keep it in memory; or a setting is out of bounds.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        ttl: timedelta = DEFAULT_TTL,
        owner: str = "receiver",
        lease: timedelta = timedelta(hours=1),
        clock: Clock | None = None,
    ) -> None:
        super().__init__(path, exclusive=False, synchronous="NORMAL")
        check_ttl(ttl)
        NAME.check("owner", owner)
        DURATION.check("lease", lease)
        self._ttl = ttl.total_seconds()
        self._lease = lease.total_seconds()
        self._owner = owner
        self._clock = clock or SystemClock()
        self._until: dict[str, float] = {}
        self._not_released: set[str] = set()

    async def _start(self) -> None:
        await self._run(
            lambda connection: connection.execute(
                "DELETE FROM svc_events WHERE NOT handled AND owner = ?", (self._owner,)
            )
        )

    async def claim(self, key: str) -> Claim:
        """Claim an event, unless it is claimed or was handled already; return which."""
        if key in self._not_released:
            await self.release(key)
        now = self._clock.now().timestamp()
        found = await self._run(lambda connection: _claim(connection, key, self._owner, now, now + self._lease))
        if found is Claim.TAKEN:
            self._until[key] = now + self._lease
        return found

    async def confirm(self, key: str) -> bool:
        """Return whether the claim still holds; if its lease has ended and nobody has claimed the event, claim it."""
        if self._clock.now().timestamp() < self._until.get(key, 0.0):
            return True
        return await self.claim(key) in {Claim.TAKEN, Claim.HELD}

    async def commit(self, key: str) -> None:
        """Remember an event as handled."""
        row = (key, self._owner, self._clock.now().timestamp() + self._ttl)
        await self._run(
            lambda connection: connection.execute("INSERT OR REPLACE INTO svc_events VALUES (?, ?, 1, ?)", row)
        )
        self._until.pop(key, None)

    async def release(self, key: str) -> None:
        """Release a claim, so that a repeated delivery may claim the event again.

        If the file cannot be written, it is released before this receiver claims the event again.
        """
        self._until.pop(key, None)
        self._not_released.discard(key)
        row = (key, self._owner)
        try:
            await self._run(
                lambda connection: connection.execute(
                    "DELETE FROM svc_events WHERE key = ? AND owner = ? AND NOT handled", row
                )
            )
        except Exception:
            self._not_released.add(key)
            raise


def _claim(connection: sqlite3.Connection, key: str, owner: str, now: float, until: float) -> Claim:
    connection.execute("DELETE FROM svc_events WHERE expires_at <= ?", (now,))
    claim = "INSERT INTO svc_events VALUES (?, ?, 0, ?) ON CONFLICT DO NOTHING"
    if connection.execute(claim, (key, owner, until)).rowcount == 1:
        return Claim.TAKEN
    found, handled = connection.execute("SELECT owner, handled FROM svc_events WHERE key = ?", (key,)).fetchone()
    if handled:
        return Claim.HANDLED
    return Claim.HELD if found == owner else Claim.ELSEWHERE
