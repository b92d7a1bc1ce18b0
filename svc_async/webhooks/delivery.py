"""An event between its acceptance and its handlers."""

import asyncio
from contextvars import Context
from datetime import datetime

import attrs

from svc_async.errors import SvcError
from svc_async.events.models import Event

__all__ = ["AcceptedEvent", "DeliveryContext", "NotHandled"]


@attrs.frozen(kw_only=True)
class DeliveryContext:
    """What handlers receive besides the event.

    Attributes:
        key_id: the key that signed the delivery.
        received_at: when it was received.
        body: the delivery, byte for byte as it was signed.
        restored: whether it was found in the inbox at the start: an earlier receiver may have begun to handle it.
    """

    key_id: str
    received_at: datetime
    body: bytes = attrs.field(repr=False)
    restored: bool = False


@attrs.frozen(kw_only=True, eq=False)
class AcceptedEvent:
    """An event to handle.

    Attributes:
        key: the key under which it is claimed and stored; see `event_keys`.
        event: the event.
        context: its delivery.
        order_key: events with the same key are handled in the order in which they were accepted.
        size: its part of the memory that the delivery takes, estimated.
        done: resolves to whether the event was handled.
        received_in: the context in which its delivery was received, if something observes the receiver.
    """

    key: str
    event: Event
    context: DeliveryContext
    order_key: str | None
    size: int
    done: asyncio.Future[bool]
    received_in: Context | None = None

    def finish(self, *, handled: bool) -> None:
        """Resolve `done`, unless its event loop was closed and nothing waits any more."""
        if not self.done.done() and not self.done.get_loop().is_closed():
            self.done.set_result(handled)


class NotHandled(SvcError):
    """An accepted event was not handled in time: before the receiver closed, or a wait for it ended."""
