"""The settings of a receiver, checked once before a delivery needs them, and when it acknowledges."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Literal, TypedDict, get_args

import attrs

from svc_async.clock import Clock
from svc_async.errors import InvalidArgument
from svc_async.events.models import Event
from svc_async.events.parser import EventParser
from svc_async.events.router import EventRouter
from svc_async.value_rules import (
    CLOCK,
    COUNT,
    PLAIN_FUNCTION,
    POSITIVE_SECONDS,
    SECONDS_OR_INFINITE,
    function_of,
    has_members,
    instance_of,
    one_of,
    or_none,
)
from svc_async.webhooks.stores.dedupe import DedupeStore
from svc_async.webhooks.stores.inbox import Inbox
from svc_async.webhooks.verification import MAX_BODY, CrcSignature, check_keys
from svc_async.wire.hmac_sha256 import SigningKey

__all__ = [
    "CALLBACK",
    "RECEIVER_KEYWORDS",
    "STATE",
    "Ack",
    "DeadLetter",
    "OnError",
    "ReceiverOptions",
    "ReceiverSettings",
]

OnDeadline = Literal["refuse", "ack_and_continue"]

_INBOX = has_members(
    "an inbox, such as SqliteInbox(path) or a subclass of svc_async.webhooks.stores.inbox.Inbox",
    *("store", "remove", "load", "load_interval", "begin", "end"),
)
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


OnError = Callable[[Event | None, BaseException], object]
"""Called after a failure; the event is None if a whole delivery is concerned. A function or a coroutine function."""

DeadLetter = Callable[[Event, BaseException], object]
"""Receives an event that was accepted and could not be handled. A function or a coroutine function."""

CALLBACK = or_none(function_of("event", "error"))
STATE = or_none(has_members("a shared state, such as SharedState.open(url)", "events"))
_DEDUPE = has_members("a store, such as MemoryDedupe() or SqliteDedupe(path)", "claim", "confirm", "commit", "release")


class ReceiverOptions(TypedDict, total=False):
    """The keywords of `WebhookReceiver` whose defaults `ReceiverSettings` has."""

    workers: int
    order_by: Callable[[Event], str | None]
    on_error: OnError | None
    dead_letter: DeadLetter | None
    crc_signature: CrcSignature
    max_body: int
    max_bodies: int
    max_bytes: int
    read_deadline: float
    retry_after: int
    drain_deadline: float
    on_event: Callable[[Any], object] | None


RECEIVER_KEYWORDS = ReceiverOptions.__optional_keys__ | {
    *("keys", "ack", "dedupe", "state", "router", "parser", "crc_key", "clock")
}


def _has_room_for_one(settings: "ReceiverSettings", _: "attrs.Attribute[int]", max_bytes: int) -> None:
    if max_bytes < settings.max_body:
        raise InvalidArgument("max_bytes", f"must be at least max_body, which is {settings.max_body:,}: give both")


@attrs.frozen(kw_only=True)
class ReceiverSettings:
    """The settings of a receiver, which `WebhookReceiver` describes."""

    keys: Sequence[SigningKey] = attrs.field(converter=check_keys)
    ack: Ack = attrs.field(validator=instance_of(Ack, "Ack.enqueue(), Ack.durable(inbox) or Ack.inline()"))
    dedupe: DedupeStore = attrs.field(validator=_DEDUPE)
    router: EventRouter = attrs.field(validator=instance_of(EventRouter, "an EventRouter"))
    parser: EventParser = attrs.field(validator=instance_of(EventParser, "an EventParser"))
    crc_key: SigningKey | None = attrs.field(validator=or_none(instance_of(SigningKey, "a SigningKey")))
    clock: Clock = attrs.field(validator=CLOCK)
    workers: int = attrs.field(default=8, validator=COUNT)
    order_by: Callable[[Event], str | None] = attrs.field(default=attrgetter("user_id"), validator=PLAIN_FUNCTION)
    on_error: OnError | None = attrs.field(default=None, validator=CALLBACK)
    dead_letter: DeadLetter | None = attrs.field(default=None, validator=CALLBACK)
    crc_signature: CrcSignature = attrs.field(default="ignore", validator=one_of(get_args(CrcSignature)))
    max_body: int = attrs.field(default=MAX_BODY, validator=COUNT)
    max_bodies: int = attrs.field(default=1_000, validator=COUNT)
    max_bytes: int = attrs.field(default=2**26, validator=[COUNT, _has_room_for_one])
    read_deadline: float = attrs.field(default=5.0, validator=SECONDS_OR_INFINITE)
    retry_after: int = attrs.field(default=30, validator=COUNT)
    drain_deadline: float = attrs.field(default=30.0, validator=SECONDS_OR_INFINITE)
    on_event: Callable[[Any], object] | None = attrs.field(default=None, validator=or_none(PLAIN_FUNCTION))
