"""An event between its arrival and its handlers: its body, and what a handler gets."""

import asyncio
from collections.abc import AsyncIterable, Generator
from contextlib import contextmanager
from contextvars import Context
from datetime import datetime

import attrs

from svc_async.errors import SvcError
from svc_async.events.models import Event
from svc_async.webhooks.settings import ReceiverSettings
from svc_async.webhooks.stores.inbox import ACCEPTED_BY_A_DEAD_PROCESS
from svc_async.webhooks.verification import Rejected, RejectReason

__all__ = ["AcceptedEvent", "Bodies", "Body", "DeliveryContext", "NotHandled", "TooManyAttempts"]


@attrs.define
class Bodies:
    """The bodies in memory."""

    settings: ReceiverSettings
    _count: int = attrs.field(default=0, init=False)
    _bytes: int = attrs.field(default=0, init=False)

    @contextmanager
    def admit(self) -> "Generator[Body]":
        """Yield an empty body, which is forgotten when the block ends.

        Raises:
            Rejected: there are too many.
        """
        if self._count >= self.settings.max_bodies:
            raise Rejected(RejectReason.TOO_MANY_BODIES)
        self._count += 1
        body = Body(self)
        try:
            yield body
        finally:
            self._count -= 1
            self._bytes -= body.size

    def grow(self, size: int) -> None:
        """Make room for bytes that have arrived.

        Raises:
            Rejected: the bodies are too large in total.
        """
        if self._bytes + size > self.settings.max_bytes:
            raise Rejected(RejectReason.TOO_MANY_BODIES)
        self._bytes += size


@attrs.define
class Body:
    """The place of one body.

    Attributes:
        size: the bytes that have arrived.
    """

    _bodies: Bodies
    size: int = attrs.field(default=0, init=False)

    async def read(self, chunks: AsyncIterable[bytes]) -> bytes:
        """Read the body, but no more of it than is allowed.

        Raises:
            Rejected: it is too large or too slow, there is no room for it, or its connection broke.
        """
        settings = self._bodies.settings
        try:
            async with settings.clock.timeout(settings.read_deadline):
                return await self._read(chunks)
        except TimeoutError:
            raise Rejected(RejectReason.TOO_SLOW) from None

    async def _read(self, chunks: AsyncIterable[bytes]) -> bytes:
        content = bytearray()
        async for chunk in chunks:
            if self.size + len(chunk) > self._bodies.settings.max_body:
                raise Rejected(RejectReason.TOO_LARGE)
            self._bodies.grow(len(chunk))
            self.size += len(chunk)
            content += chunk
        return bytes(content)


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
        return self.attempts > ACCEPTED_BY_A_DEAD_PROCESS

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
