"""An inbox and a dedupe store in SQLite files.

Both have the same file format, so that one file can hold both. The file is opened, locked, written and found damaged as
those of records are (`store/file.py`), and has tables of its own: records belong to one process at a time, which finds
them by their numbers. Here several processes write handled events, which are found by their keys and forgotten by their
time, and any number of waiting events is read in their order, a part at a time. Every row of an inbox has a checksum
over its columns, the count of attempts included.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeVar
from zlib import crc32

from svc_async.cancellation import in_thread
from svc_async.clock import Clock, SystemClock
from svc_async.errors import Hint, UnusableFile, WrongState
from svc_async.store.file import DatabaseFile, FileFormat, Work, Writer
from svc_async.store.records import DamagedRecord
from svc_async.value_rules import COUNT, DURATION, NAME
from svc_async.webhooks.stores.dedupe import DEFAULT_TTL, Claim, check_ttl
from svc_async.webhooks.stores.inbox import EventTypes, Inbox, StoredEvent, WaitingEvent

if TYPE_CHECKING:
    import sqlite3

__all__ = ["SqliteDedupe", "SqliteInbox"]

T = TypeVar("T")

_FORMAT = FileFormat(
    kind="a store of webhook events",
    parameter="path",
    application_id=0x73766577,
    version=4,
    holder="another receiver",
    share=Hint.RUN_ONE_RECEIVER,
    in_memory=Hint.KEEP_EVENTS_IN_MEMORY,
    tables="""
    CREATE TABLE svc_bodies (id INTEGER PRIMARY KEY, body BLOB NOT NULL, checksum INTEGER NOT NULL);
    CREATE TABLE svc_inbox (
        position INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, body_id INTEGER NOT NULL,
        key_id TEXT NOT NULL, received_at REAL NOT NULL, attempts INTEGER NOT NULL, checksum INTEGER NOT NULL
    );
    CREATE INDEX svc_inbox_bodies ON svc_inbox (body_id);
    CREATE TABLE svc_events (
        key TEXT PRIMARY KEY, owner TEXT NOT NULL, handled INTEGER NOT NULL, expires_at REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX svc_events_expire ON svc_events (expires_at)
    """,
)
_COLUMNS = "key, body_id, key_id, received_at, attempts"
_INSERT_BODY = "INSERT INTO svc_bodies (body, checksum) VALUES (?, ?)"
_INSERT_EVENT = f"""
    INSERT INTO svc_inbox ({_COLUMNS}, checksum) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""  # noqa: S608 - names of our own columns
_SELECT_EVENTS = f"""
    SELECT position, checksum, {_COLUMNS} FROM svc_inbox
    WHERE position > ? AND position <= ? ORDER BY position LIMIT ?
"""  # noqa: S608 - as above
_SELECT_EVENT = f"SELECT checksum, {_COLUMNS} FROM svc_inbox WHERE key = ?"  # noqa: S608 - as above
_LIST_EVENTS = f"""
    SELECT checksum, {_COLUMNS} FROM svc_inbox ORDER BY attempts DESC, position LIMIT ?
"""  # noqa: S608 - as above
_FIND_LAST = "SELECT coalesce(max(position), 0) FROM svc_inbox"
_UPDATE_ATTEMPTS = "UPDATE svc_inbox SET attempts = ?, checksum = ? WHERE key = ?"
_SELECT_STORED = "SELECT attempts FROM svc_inbox WHERE key = ? AND body_id <> ?"
_DELETE_UNUSED_BODY = """
    DELETE FROM svc_bodies WHERE id = ? AND NOT EXISTS (SELECT 1 FROM svc_inbox WHERE body_id = svc_bodies.id)
"""
_MOST_EVENTS = 1_000
_MOST_BYTES = 2**24
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


class SqliteInbox(_Store, Inbox):
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
        self._last = await self._run(lambda connection: connection.execute(_FIND_LAST).fetchone()[0])
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
        return await self._run(lambda connection: _insert_events(connection, events))

    async def remove(self, key: str) -> None:
        """Remove an event."""
        await self._run(lambda connection: _delete_event(connection, key))

    async def load(self) -> Sequence[StoredEvent]:
        """Return events that were there when the file was opened, in the order in which they were received.

        Each call returns the next ones: at most 1,000, and about 16 MiB.

        Raises:
            UnusableFile: one of them is damaged.
        """
        if self._loaded >= self._last:
            return []
        found = await self._run(lambda connection: [*_load_events(connection, self._loaded, self._last)])
        self._loaded = found[-1][0] if found else self._last
        return [event for _, event in found]

    async def begin(self, key: str) -> int | None:
        """Count an attempt to handle an event; when this returns it is durable.

        Returns:
            How many there are; None if the event is not in the inbox any more.

        Raises:
            UnusableFile: the event is damaged.
        """
        return await self._run(lambda connection: _change_attempts(connection, key, lambda attempts: attempts + 1))

    async def end(self, keys: Sequence[str]) -> None:
        """Take back the latest attempt of events that stay in the inbox: it ended, by an error or with the receiver.

        Raises:
            UnusableFile: one of them is damaged.
        """
        await self._run(
            lambda connection: [_change_attempts(connection, key, lambda attempts: attempts - 1) for key in keys]
        )

    async def list_events(self, *, limit: int = 1_000) -> Sequence[WaitingEvent]:
        """Return the events that the inbox holds, those with most attempts first, then in the order of arrival.

        Args:
            limit: how many at most.

        Raises:
            UnusableFile: one of them is damaged.
        """
        COUNT.check("limit", limit)
        return await self._run(lambda connection: _list_events(connection, limit))

    async def discard(self, key: str) -> bool:
        """Remove an event that is not to be handled; return whether it was there."""
        return await self._run(lambda connection: _delete_event(connection, key))

    async def retry(self, key: str) -> bool:
        """Forget the attempts of an event, so that the next start handles it; return whether it is there.

        Raises:
            UnusableFile: the event is damaged.
        """
        return await self._run(lambda connection: _change_attempts(connection, key, lambda _: 0)) is not None


def _insert_events(connection: "sqlite3.Connection", events: Sequence[StoredEvent]) -> Mapping[str, int]:
    """Insert events; return how often handling of those has begun that were there already."""
    known: dict[str, int] = {}
    for body, group in groupby(events, key=attrgetter("body")):  # the events of a delivery share its body
        parts = list(group)
        body_id = connection.execute(_INSERT_BODY, (body, crc32(body))).lastrowid
        rows = ((each.key, body_id, each.key_id, each.received_at.timestamp(), each.attempts) for each in parts)
        added = connection.executemany(_INSERT_EVENT, [(*row, _compute_checksum(*row)) for row in rows]).rowcount
        if added < len(parts):
            for each in parts:
                found = connection.execute(_SELECT_STORED, (each.key, body_id)).fetchone()
                if found is not None:
                    known[each.key] = int(found[0])
            connection.execute(_DELETE_UNUSED_BODY, (body_id,))
    return known


def _delete_event(connection: "sqlite3.Connection", key: str) -> bool:
    """Delete an event, and its body if no other event has it; return whether it was there."""
    stored = connection.execute("SELECT body_id FROM svc_inbox WHERE key = ?", (key,)).fetchone()
    if stored is None:
        return False
    connection.execute("DELETE FROM svc_inbox WHERE key = ?", (key,))
    connection.execute(_DELETE_UNUSED_BODY, stored)
    return True


def _change_attempts(connection: "sqlite3.Connection", key: str, change: Callable[[int], int]) -> int | None:
    """Change the count of attempts of an event, and return it; None if the event is not there.

    Raises:
        DamagedRecord: the event is damaged.
    """
    found = connection.execute(_SELECT_EVENT, (key,)).fetchone()
    if found is None:
        return None
    *others, attempts = _check(*found)
    attempts = max(0, change(attempts))
    connection.execute(_UPDATE_ATTEMPTS, (attempts, _compute_checksum(*others, attempts), key))
    return attempts


def _load_events(connection: "sqlite3.Connection", after: int, last: int) -> Iterator[tuple[int, StoredEvent]]:
    """Yield the position of each of the next events, and the event: at most 1,000 and about 16 MiB.

    Raises:
        DamagedRecord: one of them is damaged.
    """
    number, body, size = None, b"", 0
    for position, *found in connection.execute(_SELECT_EVENTS, (after, last, _MOST_EVENTS)):
        key, body_id, key_id, received_at, attempts = _check(*found)
        if body_id != number:  # the events of a delivery share its body
            if size > _MOST_BYTES:
                return
            number, body = body_id, _load_body(connection, body_id)
            size += len(body)
        moment = datetime.fromtimestamp(received_at, UTC)
        yield position, StoredEvent(key=key, body=body, key_id=key_id, received_at=moment, attempts=attempts)


def _list_events(connection: "sqlite3.Connection", limit: int) -> Sequence[WaitingEvent]:
    """Return events, those with most attempts first.

    Raises:
        DamagedRecord: one of them is damaged.
    """
    types = EventTypes()
    events: list[WaitingEvent] = []
    for found in connection.execute(_LIST_EVENTS, (limit,)).fetchall():
        key, body_id, _, received_at, attempts = _check(*found)
        if not types.has(body_id):
            types.read(body_id, _load_body(connection, body_id))
        moment = datetime.fromtimestamp(received_at, UTC)
        events.append(WaitingEvent(key=key, event_type=types.find(key), received_at=moment, attempts=attempts))
    return events


def _check(checksum: int, *row: object) -> "tuple[str, int, str, float, int]":
    if checksum != _compute_checksum(*row):
        raise DamagedRecord
    return row  # type: ignore[return-value]  # as it was written, since the checksum is right


def _load_body(connection: "sqlite3.Connection", number: int) -> bytes:
    found = connection.execute("SELECT body, checksum FROM svc_bodies WHERE id = ?", (number,)).fetchone()
    if found is None or not isinstance(found[0], bytes) or crc32(found[0]) != found[1]:
        raise DamagedRecord
    return bytes(found[0])


def _compute_checksum(*row: object) -> int:
    return crc32(repr(row).encode())


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


def _claim(connection: "sqlite3.Connection", key: str, owner: str, now: float, until: float) -> Claim:
    connection.execute("DELETE FROM svc_events WHERE expires_at <= ?", (now,))
    claim = "INSERT INTO svc_events VALUES (?, ?, 0, ?) ON CONFLICT DO NOTHING"
    if connection.execute(claim, (key, owner, until)).rowcount == 1:
        return Claim.TAKEN
    found, handled = connection.execute("SELECT owner, handled FROM svc_events WHERE key = ?", (key,)).fetchone()
    if handled:
        return Claim.HANDLED
    return Claim.HELD if found == owner else Claim.ELSEWHERE
