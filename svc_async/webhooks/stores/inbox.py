"""Events that are stored before they are acknowledged, and stay until they are handled."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

import attrs

from svc_async.events.parser import EventParser
from svc_async.webhooks.keyed_queue import parse_event_key
from svc_async.webhooks.stores.dedupe import DedupeStore

__all__ = [
    "ACCEPTED_BY_A_DEAD_PROCESS",
    "EventState",
    "EventStore",
    "EventTypes",
    "Inbox",
    "StoredEvent",
    "WaitingEvent",
]

ACCEPTED_BY_A_DEAD_PROCESS = 2
"""The number of the attempt to handle an event that a process had accepted when it died."""


@attrs.frozen(kw_only=True)
class StoredEvent:
    """An event with the delivery that it came in.

    Attributes:
        key: identifies the event.
        body: the verified body of the delivery.
        key_id: the key that signed it.
        received_at: when it was received.
        attempts: how often handling of it has begun and not ended. The first time counts from the moment at which it is
            stored, so that it needs no write of its own.
    """

    key: str
    body: bytes = attrs.field(repr=False)
    key_id: str
    received_at: datetime
    attempts: int = 1


@attrs.frozen(kw_only=True)
class WaitingEvent:
    """An event of an inbox, for people who look at it.

    Attributes:
        key: identifies the event in the inbox.
        event_type: its type, such as `post.create`.
        received_at: when it was received.
        attempts: how often handling of it has begun and not ended; 1 also if it only waited until now.
    """

    key: str
    event_type: str
    received_at: datetime
    attempts: int


class Inbox(ABC):
    """Stores events. One of your own is a subclass, which has the defaults of what it does not override.

    A receiver enters and leaves an inbox that is an async context manager.
    """

    @abstractmethod
    async def store(self, events: Sequence[StoredEvent]) -> Mapping[str, int] | None:
        """Store all of the events or none; when this returns they are durable. Skip those that are stored already.

        An inbox that counts attempts returns those of the events that were stored already, by their keys.
        """

    @abstractmethod
    async def remove(self, key: str) -> None:
        """Remove an event."""

    @abstractmethod
    async def load(self) -> Sequence[StoredEvent]:
        """Return the stored events in the order in which they were received.

        An inbox with a `load_interval` returns a part of them, so that any number takes bounded memory: the oldest that
        it has not returned before and that belong to no running receiver. A receiver calls it again when it has room.
        """

    @property
    def load_interval(self) -> float | None:
        """Seconds after which a receiver calls `load` again if there was nothing; None, the default, for never."""
        return None

    async def begin(self, key: str) -> int | None:
        """Count an attempt to handle an event that was stored before; when this returns it is durable.

        An event is stored with one attempt, and `load` returns the count: how often handling of the event has begun and
        not ended, because the process died within it. The default counts nothing, so it does not keep an event that
        ends the process from doing so at every start.

        Returns:
            How many attempts there are; None if the event is not in the inbox any more.
        """
        del key  # nothing is counted
        return ACCEPTED_BY_A_DEAD_PROCESS

    async def end(self, keys: Sequence[str]) -> None:
        """Take back the latest attempt of events that stay in the inbox: it ended, by an error or with the receiver."""
        del keys  # nothing was counted


class EventStore(DedupeStore, Inbox):
    """An inbox and a dedupe store in one."""


class EventState(Protocol):
    """Provides an event store that several receivers share."""

    def events(self) -> EventStore:
        """Return the store of the receivers."""
        ...


@attrs.define
class EventTypes:
    """Finds the types of events in the body that was read last, for people who look at an inbox."""

    _body_id: int | None = None
    _types: Mapping[str, str] = attrs.field(factory=dict[str, str])

    def has(self, body_id: int) -> bool:
        """Return whether this body was read last: the events of a delivery share one, and follow each other."""
        return body_id == self._body_id

    def read(self, body_id: int, body: bytes) -> None:
        """Read a body."""
        self._types = {event.key: event.event_type for event in EventParser().parse(body)}
        self._body_id = body_id

    def find(self, key: str) -> str:
        """Return the type of the event with a key of the inbox; `unknown` if the body has none."""
        return self._types.get(parse_event_key(key), "unknown")
