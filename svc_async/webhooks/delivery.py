"""An event between its acceptance and its handlers."""

import asyncio
from contextvars import Context
from datetime import datetime

import attrs

from svc_async.errors import SvcError
from svc_async.events.models import Event

__all__ = ["AcceptedEvent", "DeliveryContext", "NotHandled", "TooManyAttempts"]

_ACCEPTED_BY_A_DEAD_PROCESS = 2  # the number of the attempt


@attrs.frozen(kw_only=True)
class DeliveryContext:
    """What handlers receive besides the event.

    Attributes:
        key_id: the key that signed the delivery.
        received_at: when it was received.
        body: the delivery, byte for byte as it was signed.
        restored: whether it was found in the inbox at the start: an earlier receiver may have begun to handle it.
        attempts: how often handling of the event has begun and not ended, this time included: more than 1 if processes
            died before, within its handlers or while it waited for them.
    """

    key_id: str
    received_at: datetime
    body: bytes = attrs.field(repr=False)
    restored: bool = False
    attempts: int = 1


@attrs.define(kw_only=True, eq=False)
class AcceptedEvent:
    """An event to handle.

    Attributes:
        key: the key under which it is claimed and stored; see `event_keys`.
        event: the event.
        context: its delivery.
        order_key: events with the same key are handled in the order in which they were accepted.
        size: its part of the memory that the delivery takes, estimated.
        handled: resolves to whether the event was handled, also if a store could not record that yet.
        done: resolves to the same when nothing is left to do for the event.
        received_in: the context in which its delivery was received, if something observes the receiver.
        is_counted: whether its inbox counts the attempt to handle it, as it does from the start if it was just stored.
        result: whether the event was handled; None until its handlers have returned, or it was given up, so that only
            the stores have to record that.
    """

    key: str
    event: Event
    context: DeliveryContext
    order_key: str | None
    size: int
    handled: asyncio.Future[bool]
    done: asyncio.Future[bool]
    received_in: Context | None = None
    is_counted: bool = True
    result: bool | None = None

    @property
    def attempts(self) -> int:
        """The number of the attempt to handle it, from 1."""
        return self.context.attempts

    @property
    def may_kill(self) -> bool:
        """Whether it may be what ended a process: at the second attempt is all that such a process had accepted."""
        return self.attempts > _ACCEPTED_BY_A_DEAD_PROCESS

    def expect_attempt(self, attempts: int) -> None:
        """Note the number of the attempt to handle it."""
        self.context = attrs.evolve(self.context, attempts=attempts)

    def answer(self, *, handled: bool) -> None:
        """Resolve `handled`, unless its event loop was closed and nothing waits any more."""
        _resolve(self.handled, handled)

    def finish(self, *, handled: bool) -> None:
        """Resolve `handled` and `done` likewise."""
        _resolve(self.handled, handled)
        _resolve(self.done, handled)


class NotHandled(SvcError):
    """An accepted event was not handled in time: before the receiver closed, or a wait for it ended."""


class TooManyAttempts(SvcError):
    """The process died at every attempt to handle an event, as often as `max_attempts` allows; it is not handled."""


def _resolve(future: asyncio.Future[bool], value: bool) -> None:  # noqa: FBT001 - as `set_result`
    if not future.done() and not future.get_loop().is_closed():
        future.set_result(value)
