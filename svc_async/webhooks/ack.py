"""When a delivery is acknowledged."""

from typing import Literal

import attrs

from svc_async.errors import InvalidArgument
from svc_async.webhooks.checks.values import check_count, check_methods, check_seconds
from svc_async.webhooks.stores.inbox import Inbox

__all__ = ["Ack", "check_stores"]

_MAXSIZE = 10_000
_MAX_BYTES = 2**26
_DEADLINE = 8.0  # the service waits 10 seconds (contract WH-42)


@attrs.frozen(kw_only=True)
class Ack:
    """When a delivery is answered with 200: create one with `enqueue`, `durable` or `inline`.

    Attributes:
        maxsize: how many events may be accepted and not handled yet; beyond that the answer is 503.
        max_bytes: how many bytes of memory their deliveries may take, estimated.
        deadline: seconds after which a delivery is answered in any case.
        inbox: where events are stored before the answer.
        waits: whether the answer waits for the handlers.
        on_deadline: the answer if they do not finish in time.
    """

    maxsize: int = _MAXSIZE
    max_bytes: int = _MAX_BYTES
    deadline: float = _DEADLINE
    inbox: Inbox | None = None
    waits: bool = False
    on_deadline: Literal["refuse", "ack_and_continue"] = "refuse"

    def __attrs_post_init__(self) -> None:
        check_count("maxsize", self.maxsize)
        check_count("max_bytes", self.max_bytes)
        check_seconds("deadline", self.deadline, is_zero_allowed=False)
        if self.on_deadline not in ("refuse", "ack_and_continue"):
            raise InvalidArgument("on_deadline", "must be refuse or ack_and_continue")
        if self.inbox is not None:
            _check_inbox(self.inbox)

    @classmethod
    def enqueue(cls, *, maxsize: int = _MAXSIZE, max_bytes: int = _MAX_BYTES, deadline: float = _DEADLINE) -> "Ack":
        """Answer as soon as the event is queued. Events that are queued when the process dies are lost."""
        return cls(maxsize=maxsize, max_bytes=max_bytes, deadline=deadline)

    @classmethod
    def durable(
        cls, inbox: Inbox, *, maxsize: int = _MAXSIZE, max_bytes: int = _MAX_BYTES, deadline: float = _DEADLINE
    ) -> "Ack":
        """Answer once the event is stored; a receiver that starts with the same inbox handles what it still holds."""
        _check_inbox(inbox)
        return cls(inbox=inbox, maxsize=maxsize, max_bytes=max_bytes, deadline=deadline)

    @classmethod
    def inline(
        cls,
        *,
        maxsize: int = _MAXSIZE,
        max_bytes: int = _MAX_BYTES,
        deadline: float = _DEADLINE,
        on_deadline: Literal["refuse", "ack_and_continue"] = "ack_and_continue",
    ) -> "Ack":
        """Answer when the handlers finish: 200, or 500 if one failed. They continue after the deadline."""
        return cls(waits=True, maxsize=maxsize, max_bytes=max_bytes, deadline=deadline, on_deadline=on_deadline)


def check_stores(ack: object, dedupe: object, state: object) -> None:
    """Check what a receiver was given, before a delivery needs it.

    Raises:
        InvalidArgument: one of them is something else, such as the path of a file.
    """
    if ack is not None and not isinstance(ack, Ack):
        raise InvalidArgument("ack", "must be Ack.enqueue(), Ack.durable(inbox) or Ack.inline()")
    if dedupe is not None:
        rule = "must be a store, such as MemoryDedupe() or SqliteDedupe(path)"
        check_methods("dedupe", dedupe, methods=("claim", "confirm", "commit", "release"), rule=rule)
    if state is not None:
        check_methods("state", state, methods=("events",), rule="must be a shared state, such as SharedState.open(url)")


def _check_inbox(inbox: object) -> None:
    check_methods(
        "inbox", inbox, methods=("store", "remove", "load"), rule="must be an inbox, such as SqliteInbox(path)"
    )
