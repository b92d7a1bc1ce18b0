"""An event on its way to its handlers."""

import asyncio
from datetime import datetime

import attrs

from svc_async.errors import SvcError
from svc_async.events.models import Event

__all__ = ["DeliveryContext", "Job", "NotHandled"]


@attrs.frozen(kw_only=True)
class DeliveryContext:
    """What handlers are told besides the event.

    Attributes:
        key_id: the key that had signed the delivery.
        received_at: when it came.
        body: the delivery, byte for byte as it was signed.
        restored: whether it was found in the inbox at the start: an earlier receiver may have begun with it.
    """

    key_id: str
    received_at: datetime
    body: bytes = attrs.field(repr=False)
    restored: bool = False


@attrs.frozen(kw_only=True, eq=False)
class Job:
    """An event to handle, after those of the same `order`; `done` tells whether it was handled."""

    event: Event
    context: DeliveryContext
    order: str | None
    done: asyncio.Future[bool]

    def settle(self, *, handled: bool) -> None:
        """Tell whoever waits for it."""
        if not self.done.done():
            self.done.set_result(handled)


class NotHandled(SvcError):
    """The receiver closed before an accepted event was handled."""
