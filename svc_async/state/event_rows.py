"""The rows of the inbox of a shared state: keys as bytes and digests, and what a row says."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from svc_async.store.postgres import Database
from svc_async.webhooks.stores.inbox import StoredEvent, WaitingEvent
from svc_async.webhooks.stores.listing import EventTypes

if TYPE_CHECKING:
    import asyncpg

__all__ = ["compute_digest", "encode", "list_events", "read_event"]

_LIST = """
    SELECT key, body_id, received_at, attempts FROM event_inbox
    WHERE receiver = $1 ORDER BY attempts DESC, position LIMIT $2
"""


def encode(key: str) -> bytes:
    """Return a key as it is stored: PostgreSQL takes no text with NUL or a lone surrogate."""
    return key.encode("utf-8", "surrogatepass")


def compute_digest(key: str) -> bytes:
    """Return the digest of a key."""
    return sha256(encode(key)).digest()


def read_event(row: "asyncpg.Record", bodies: Mapping[int, bytes]) -> StoredEvent:
    """Return the event of a row.

    Raises:
        UnicodeError: its key is damaged.
        KeyError: its body is missing.
    """
    return StoredEvent(
        key=_decode(row["key"]),
        body=bodies[row["body_id"]],
        key_id=row["key_id"],
        received_at=row["received_at"],
        attempts=row["attempts"],
    )


async def list_events(database: Database, receiver: str, limit: int) -> Sequence[WaitingEvent]:
    """Return events of a receiver, those with most attempts first.

    Raises:
        StateUnavailable: the database cannot be reached.
        UnicodeError: a key is damaged.
    """
    types = EventTypes()
    events: list[WaitingEvent] = []
    for row in await database.fetch(_LIST, receiver, limit):
        key, body_id = _decode(row["key"]), row["body_id"]
        if not types.has(body_id):
            found = await database.fetch_row("SELECT body FROM event_bodies WHERE id = $1", body_id)
            types.read(body_id, bytes(found["body"]) if found else b"{}")  # it may have been handled meanwhile
        events.append(
            WaitingEvent(key=key, event_type=types.find(key), received_at=row["received_at"], attempts=row["attempts"])
        )
    return events


def _decode(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")
