"""Events that are stored before they are acknowledged, and stay until they were handled."""

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import attrs

from svc_async.webhooks.sqlite_worker import Database

__all__ = ["Inbox", "Kept", "SqliteInbox"]


@attrs.frozen(kw_only=True)
class Kept:
    """An event as it is stored: the whole delivery that it came in.

    Attributes:
        key: which of the delivery's events it is.
        body: the verified body.
        key_id: the key that had signed it.
        received_at: when it came.
    """

    key: str
    body: bytes = attrs.field(repr=False)
    key_id: str
    received_at: datetime


class Inbox(Protocol):
    """Keeps events. A receiver enters and leaves an inbox that is an async context manager."""

    async def keep(self, events: Sequence[Kept]) -> None:
        """Store events, all or none; when this returns they are safe. One that is there already stays as it is."""

    async def done(self, key: str) -> None:
        """Let go of an event."""

    async def kept(self) -> Sequence[Kept]:
        """Give what is stored, in the order in which it came."""
        ...


class SqliteInbox:
    """Keeps events in a file; one receiver at a time may use it.

    Bodies are stored as they came, messages of users too; a file that it makes can be read by this user only.

    Args:
        path: the file.
    """

    def __init__(self, path: str | Path) -> None:
        self._database = Database(Path(path), schema=_SCHEMA, synchronous="FULL")

    async def __aenter__(self) -> Self:
        await self._database.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._database.close()

    async def keep(self, events: Sequence[Kept]) -> None:
        """Store events, all or none; when this returns they are safe. One that is there already stays as it is."""
        rows = [(each.key, each.body, each.key_id, each.received_at.timestamp()) for each in events]

        def work(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "INSERT INTO svc_inbox (key, body, key_id, received_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                rows,
            )

        await self._database.run(work)

    async def done(self, key: str) -> None:
        """Let go of an event."""
        await self._database.run(lambda connection: connection.execute("DELETE FROM svc_inbox WHERE key = ?", (key,)))

    async def kept(self) -> Sequence[Kept]:
        """Give what is stored, in the order in which it came."""

        def work(connection: sqlite3.Connection) -> list[Kept]:
            rows = connection.execute("SELECT key, body, key_id, received_at FROM svc_inbox ORDER BY position")
            return [
                Kept(key=key, body=body, key_id=key_id, received_at=datetime.fromtimestamp(received_at, UTC))
                for key, body, key_id, received_at in rows
            ]

        return await self._database.run(work)


_SCHEMA = """
CREATE TABLE IF NOT EXISTS svc_inbox (
    position INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, body BLOB NOT NULL, key_id TEXT NOT NULL,
    received_at REAL NOT NULL
);
"""
