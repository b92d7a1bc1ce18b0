"""An event between its arrival and its handlers: its body, when it is acknowledged, and what a handler gets."""

import asyncio
from collections.abc import AsyncIterable, Generator
from contextlib import contextmanager
from contextvars import Context
from datetime import datetime
from typing import Literal, get_args

import attrs

from svc_async.clock import Clock
from svc_async.errors import SvcError
from svc_async.events.models import Event
from svc_async.value_rules import COUNT, POSITIVE_SECONDS, has_members, one_of, or_none
from svc_async.webhooks.stores.inbox import Inbox
from svc_async.webhooks.verification import Rejected, RejectReason

__all__ = ["AcceptedEvent", "Ack", "Bodies", "Body", "DeliveryContext", "NotHandled", "TooManyAttempts"]


@attrs.define(kw_only=True)
class Bodies:
    """The bodies in memory.

    Attributes:
        largest: the largest body, in bytes.
        max_count: how many there may be.
        max_bytes: how many bytes they may have in total.
        read_deadline: seconds within which each must arrive.
        clock: the source of time.
    """

    largest: int
    max_count: int
    max_bytes: int
    read_deadline: float
    clock: Clock
    _count: int = attrs.field(default=0, init=False)
    _bytes: int = attrs.field(default=0, init=False)

    @contextmanager
    def admit(self) -> "Generator[Body]":
        """Yield an empty body, which is forgotten when the block ends.

        Raises:
            Rejected: there are too many.
        """
        if self._count >= self.max_count:
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
        if self._bytes + size > self.max_bytes:
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
        try:
            async with self._bodies.clock.timeout(self._bodies.read_deadline):
                return await self._read(chunks)
        except TimeoutError:
            raise Rejected(RejectReason.TOO_SLOW) from None

    async def _read(self, chunks: AsyncIterable[bytes]) -> bytes:
        content = bytearray()
        async for chunk in chunks:
            if self.size + len(chunk) > self._bodies.largest:
                raise Rejected(RejectReason.TOO_LARGE)
            self._bodies.grow(len(chunk))
            self.size += len(chunk)
            content += chunk
        return bytes(content)


OnDeadline = Literal["refuse", "ack_and_continue"]

_INBOX = has_members("an inbox, such as SqliteInbox(path)", "store", "remove", "load")
_MAXSIZE = 10_000
_MAX_BYTES = 2**26
_MAX_ATTEMPTS = 5
_DEADLINE = 8.0  # the service waits 10 seconds (contract WH-42)


@attrs.frozen(kw_only=True)
class Ack:
    """When a delivery is answered with 200: create one with `enqueue`, `durable` or `inline`.

    Attributes:
        maxsize: how many events may be accepted and not handled yet; beyond that the answer is 503.
        max_bytes: how many bytes of memory their deliveries may take, estimated.
        deadline: seconds after which a delivery is answered in any case; the service waits 10.
        inbox: where events are stored before the answer.
        waits: whether the answer waits for the handlers.
        on_deadline: the answer if they do not finish in time; see `inline`.
        max_attempts: how often handling of an event of the inbox may begin and not end; see `durable`.
    """

    maxsize: int = attrs.field(default=_MAXSIZE, validator=COUNT)
    max_bytes: int = attrs.field(default=_MAX_BYTES, validator=COUNT)
    deadline: float = attrs.field(default=_DEADLINE, validator=POSITIVE_SECONDS)
    inbox: Inbox | None = attrs.field(default=None, validator=or_none(_INBOX))
    waits: bool = False
    on_deadline: OnDeadline = attrs.field(default="refuse", validator=one_of(get_args(OnDeadline)))
    max_attempts: int = attrs.field(default=_MAX_ATTEMPTS, validator=COUNT)

    @classmethod
    def enqueue(cls, *, maxsize: int = _MAXSIZE, max_bytes: int = _MAX_BYTES, deadline: float = _DEADLINE) -> "Ack":
        """Answer as soon as the event is queued. Events that are queued when the process dies are lost."""
        return cls(maxsize=maxsize, max_bytes=max_bytes, deadline=deadline)

    @classmethod
    def durable(
        cls,
        inbox: Inbox,
        *,
        maxsize: int = _MAXSIZE,
        max_bytes: int = _MAX_BYTES,
        deadline: float = _DEADLINE,
        max_attempts: int = _MAX_ATTEMPTS,
    ) -> "Ack":
        """Answer once the event is stored; a receiver that starts with the same inbox handles what it still holds.

        Args:
            inbox: where events are stored.
            maxsize: how many events may be accepted and not handled yet; beyond that the answer is 503.
            max_bytes: how many bytes of memory their deliveries may take, estimated.
            deadline: seconds after which a delivery is answered in any case.
            max_attempts: how often handling of an event may begin and not end, because the process dies. Then the event
                goes to `dead_letter`, with the error `TooManyAttempts`; unless that takes it, it stays in the inbox and
                is not handled until `retry` of the inbox is called for it. Below 3 that may become of events, too, that
                only waited or were handled at the same time.
        """
        _INBOX.check("inbox", inbox)
        return cls(inbox=inbox, maxsize=maxsize, max_bytes=max_bytes, deadline=deadline, max_attempts=max_attempts)

    @classmethod
    def inline(
        cls,
        *,
        maxsize: int = _MAXSIZE,
        max_bytes: int = _MAX_BYTES,
        deadline: float = _DEADLINE,
        on_deadline: OnDeadline = "refuse",
    ) -> "Ack":
        """Answer when the handlers finish: 200, or 500 if one failed, so that the service delivers again.

        A repeated delivery waits for handlers that still run, and is answered by their outcome. Nothing is stored: what
        was not acknowledged is the service's to deliver again.

        Args:
            maxsize: how many events may be accepted and not handled yet; beyond that the answer is 503.
            max_bytes: how many bytes of memory their deliveries may take, estimated.
            deadline: seconds that the answer waits for the handlers. They go on after it.
            on_deadline: the answer if they have not finished by then. `refuse`: 503, `deadline_passed`, and the service
                delivers again. `ack_and_continue`: 200 and a line in the log; an event whose handler fails afterwards
                is lost, unless `dead_letter` takes it.
        """
        return cls(waits=True, maxsize=maxsize, max_bytes=max_bytes, deadline=deadline, on_deadline=on_deadline)


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
