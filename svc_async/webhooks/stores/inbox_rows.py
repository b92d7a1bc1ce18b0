"""The rows of an inbox in SQLite: statements within a transaction.

Every row has a checksum over its columns, the count of attempts included.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from zlib import crc32

from svc_async.store.records import DamagedRecord
from svc_async.webhooks.stores.inbox import StoredEvent, WaitingEvent
from svc_async.webhooks.stores.listing import EventTypes

__all__ = [
    "INBOX_TABLES",
    "add_attempts",
    "delete_event",
    "find_last",
    "insert_events",
    "list_events",
    "load_events",
    "reset_attempts",
]

INBOX_TABLES = """
    CREATE TABLE svc_bodies (id INTEGER PRIMARY KEY, body BLOB NOT NULL, checksum INTEGER NOT NULL);
    CREATE TABLE svc_inbox (
        position INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, body_id INTEGER NOT NULL,
        key_id TEXT NOT NULL, received_at REAL NOT NULL, attempts INTEGER NOT NULL, checksum INTEGER NOT NULL
    );
    CREATE INDEX svc_inbox_bodies ON svc_inbox (body_id);
"""
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
_UPDATE_ATTEMPTS = "UPDATE svc_inbox SET attempts = ?, checksum = ? WHERE key = ?"
_SELECT_STORED = "SELECT attempts FROM svc_inbox WHERE key = ? AND body_id <> ?"
_DELETE_UNUSED_BODY = """
    DELETE FROM svc_bodies WHERE id = ? AND NOT EXISTS (SELECT 1 FROM svc_inbox WHERE body_id = svc_bodies.id)
"""
_MOST_EVENTS = 1_000
_MOST_BYTES = 2**24


def insert_events(connection: sqlite3.Connection, events: Sequence[StoredEvent]) -> Mapping[str, int]:
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


def delete_event(connection: sqlite3.Connection, key: str) -> bool:
    """Delete an event, and its body if no other event has it; return whether it was there."""
    stored = connection.execute("SELECT body_id FROM svc_inbox WHERE key = ?", (key,)).fetchone()
    if stored is None:
        return False
    connection.execute("DELETE FROM svc_inbox WHERE key = ?", (key,))
    connection.execute(_DELETE_UNUSED_BODY, stored)
    return True


def add_attempts(connection: sqlite3.Connection, key: str, number: int) -> int | None:
    """Add to the count of attempts of an event, and return it; None if the event is not there.

    Raises:
        DamagedRecord: the event is damaged.
    """
    found = connection.execute(_SELECT_EVENT, (key,)).fetchone()
    if found is None:
        return None
    row = _check(*found)
    return _write_attempts(connection, row, max(0, row[-1] + number))


def reset_attempts(connection: sqlite3.Connection, key: str) -> bool:
    """Forget the attempts of an event; return whether it is there.

    Raises:
        DamagedRecord: the event is damaged.
    """
    found = connection.execute(_SELECT_EVENT, (key,)).fetchone()
    if found is None:
        return False
    _write_attempts(connection, _check(*found), 0)
    return True


def find_last(connection: sqlite3.Connection) -> int:
    """Return the position of the last event; 0 if there is none."""
    return int(connection.execute("SELECT coalesce(max(position), 0) FROM svc_inbox").fetchone()[0])


def load_events(connection: sqlite3.Connection, after: int, last: int) -> Iterator[tuple[int, StoredEvent]]:
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


def list_events(connection: sqlite3.Connection, limit: int) -> Sequence[WaitingEvent]:
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


def _write_attempts(connection: sqlite3.Connection, row: "tuple[str, int, str, float, int]", attempts: int) -> int:
    key, *others, _ = row
    connection.execute(_UPDATE_ATTEMPTS, (attempts, _compute_checksum(key, *others, attempts), key))
    return attempts


def _load_body(connection: sqlite3.Connection, number: int) -> bytes:
    found = connection.execute("SELECT body, checksum FROM svc_bodies WHERE id = ?", (number,)).fetchone()
    if found is None or not isinstance(found[0], bytes) or crc32(found[0]) != found[1]:
        raise DamagedRecord
    return bytes(found[0])


def _compute_checksum(*row: object) -> int:
    return crc32(repr(row).encode())
