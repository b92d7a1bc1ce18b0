"""Events that are stored before they are acknowledged, and stay until they are handled."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

import attrs

__all__ = ["Inbox", "PagedInbox", "StoredEvent"]


@attrs.frozen(kw_only=True)
class StoredEvent:
    """An event with the delivery that it came in.

    Attributes:
        key: identifies the event.
        body: the verified body of the delivery.
        key_id: the key that signed it.
        received_at: when it was received.
    """

    key: str
    body: bytes = attrs.field(repr=False)
    key_id: str
    received_at: datetime


class Inbox(Protocol):
    """Stores events. A receiver enters and leaves an inbox that is an async context manager."""

    async def store(self, events: Sequence[StoredEvent]) -> None:
        """Store all of the events or none; when this returns they are durable. Skip those that are stored already."""

    async def remove(self, key: str) -> None:
        """Remove an event."""

    async def load(self) -> Sequence[StoredEvent]:
        """Return the stored events in the order in which they were received."""
        ...


@runtime_checkable
class PagedInbox(Inbox, Protocol):
    """An inbox that returns its events a part at a time, so that any number of them takes bounded memory.

    `load` returns the oldest events that it has not returned before and that belong to no running receiver, up to some
    number. A running receiver calls it again when there is room, and regularly if others may leave events behind.
    """

    @property
    def load_interval(self) -> float:
        """Seconds from one call to the next, if there was nothing to load."""
        ...
