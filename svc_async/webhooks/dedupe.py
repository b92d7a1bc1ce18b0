"""Who has handled what: an event is claimed, then committed when it was handled, or released when that failed."""

import sqlite3
from collections import OrderedDict
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from svc_async.clock import Clock, SystemClock
from svc_async.errors import InvalidArgument
from svc_async.webhooks.sqlite_worker import Database

__all__ = ["DedupeStore", "MemoryDedupe", "SqliteDedupe"]

_TTL = timedelta(hours=25)
# Unspecified: how long the same event may come again; a replay goes 24 hours back (UNS-replay-job, UNS-delivery-retry).


class DedupeStore(Protocol):
    """Remembers events by their keys. A receiver enters and leaves a store that is an async context manager."""

    async def claim(self, key: str) -> bool:
        """Take an event on; False when it is being handled or was handled."""
        ...

    async def commit(self, key: str) -> None:
        """The event was handled: remember it."""

    async def release(self, key: str) -> None:
        """The event was not handled: a repeated delivery may claim it."""


class MemoryDedupe:
    """Remembers as long as the process lives.

    Args:
        ttl: how long a handled event is remembered; more than the 24 hours that a replay goes back.
        maxsize: how many handled events are remembered; the oldest go first.
        clock: tells the time.
    """

    def __init__(self, *, ttl: timedelta = _TTL, maxsize: int = 1_000_000, clock: Clock | None = None) -> None:
        _check(ttl)
        if maxsize < 1:
            raise InvalidArgument("maxsize", "must be at least 1")
        self._ttl = ttl.total_seconds()
        self._maxsize = maxsize
        self._clock = clock or SystemClock()
        self._claimed: set[str] = set()
        self._handled: OrderedDict[str, float] = OrderedDict()

    async def claim(self, key: str) -> bool:
        """Take an event on; False when it is being handled or was handled."""
        self._forget()
        if key in self._claimed or key in self._handled:
            return False
        self._claimed.add(key)
        return True

    async def commit(self, key: str) -> None:
        """The event was handled: remember it."""
        self._claimed.discard(key)
        self._handled[key] = self._clock.monotonic() + self._ttl
        self._handled.move_to_end(key)
        self._forget()

    async def release(self, key: str) -> None:
        """The event was not handled: a repeated delivery may claim it."""
        self._claimed.discard(key)

    def _forget(self) -> None:
        now = self._clock.monotonic()
        while self._handled and (len(self._handled) > self._maxsize or next(iter(self._handled.values())) <= now):
            self._handled.popitem(last=False)


class SqliteDedupe:
    """Remembers in a file, which several processes may share.

    Args:
        path: the file.
        ttl: how long a handled event is remembered.
        owner: the name of this receiver; give each process that shares the file its own. Events that a receiver of
            this name had claimed when it ended are free again when the next one starts.
        lease: after how long a claim of another owner, which may have ended for good, no longer counts.
        clock: tells the time.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        ttl: timedelta = _TTL,
        owner: str = "receiver",
        lease: timedelta = timedelta(hours=1),
        clock: Clock | None = None,
    ) -> None:
        _check(ttl)
        self._ttl = ttl.total_seconds()
        self._lease = lease.total_seconds()
        self._owner = owner
        self._clock = clock or SystemClock()
        self._database = Database(Path(path), schema=_SCHEMA, synchronous="NORMAL")

    async def __aenter__(self) -> Self:
        await self._database.open()
        try:
            await self._database.run(
                lambda connection: connection.execute(
                    "DELETE FROM svc_events WHERE NOT handled AND owner = ?", (self._owner,)
                )
            )
        except BaseException:
            await self._database.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._database.close()

    async def claim(self, key: str) -> bool:
        """Take an event on; False when it is being handled or was handled."""
        now = self._clock.now().timestamp()

        def work(connection: sqlite3.Connection) -> bool:
            connection.execute("DELETE FROM svc_events WHERE expires_at <= ?", (now,))
            claimed = connection.execute(
                "INSERT INTO svc_events VALUES (?, ?, 0, ?) ON CONFLICT DO NOTHING",
                (key, self._owner, now + self._lease),
            )
            return claimed.rowcount == 1

        return await self._database.run(work)

    async def commit(self, key: str) -> None:
        """The event was handled: remember it."""
        row = (key, self._owner, self._clock.now().timestamp() + self._ttl)
        await self._database.run(
            lambda connection: connection.execute("INSERT OR REPLACE INTO svc_events VALUES (?, ?, 1, ?)", row)
        )

    async def release(self, key: str) -> None:
        """The event was not handled: a repeated delivery may claim it."""
        await self._database.run(
            lambda connection: connection.execute("DELETE FROM svc_events WHERE key = ? AND NOT handled", (key,))
        )


_SCHEMA = """
CREATE TABLE IF NOT EXISTS svc_events (
    key TEXT PRIMARY KEY, owner TEXT NOT NULL, handled INTEGER NOT NULL, expires_at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS svc_events_expire ON svc_events (expires_at);
"""


def _check(ttl: timedelta) -> None:
    if ttl <= timedelta():
        raise InvalidArgument("ttl", "must be longer than nothing")
