"""What a shared state offers to receivers."""

from typing import Protocol

from svc_async.webhooks.stores.dedupe import DedupeStore
from svc_async.webhooks.stores.inbox import PagedInbox

__all__ = ["EventState", "EventStore"]


class EventStore(DedupeStore, PagedInbox, Protocol):
    """An inbox and a dedupe store in one."""


class EventState(Protocol):
    """Provides an event store that several receivers share."""

    def events(self) -> EventStore:
        """Return the store of the receivers."""
        ...
