"""When a delivery is acknowledged."""

from typing import Literal, get_args

import attrs

from svc_async.value_rules import COUNT, POSITIVE_SECONDS, has_members, one_of, or_none
from svc_async.webhooks.stores.inbox import Inbox

__all__ = ["Ack"]

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
