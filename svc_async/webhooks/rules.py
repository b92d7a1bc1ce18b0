"""What the settings of a receiver must be: checked before a delivery needs them."""

from collections.abc import Mapping
from typing import get_args

from svc_async.errors import InvalidArgument
from svc_async.events.parser import EventParser
from svc_async.events.router import EventRouter
from svc_async.value_rules import (
    CLOCK,
    COUNT,
    PLAIN_FUNCTION,
    SECONDS_OR_INFINITE,
    ValueRule,
    function_of,
    has_members,
    instance_of,
    one_of,
    or_none,
)
from svc_async.webhooks.delivery import Ack
from svc_async.webhooks.verification import CrcSignature
from svc_async.wire.hmac_sha256 import SigningKey

__all__ = ["check_settings", "check_total"]

_CALLBACK = or_none(function_of("event", "error"))
_RULES: Mapping[str, ValueRule] = {
    "ack": or_none(instance_of(Ack, "Ack.enqueue(), Ack.durable(inbox) or Ack.inline()")),
    "dedupe": or_none(
        has_members("a store, such as MemoryDedupe() or SqliteDedupe(path)", "claim", "confirm", "commit", "release")
    ),
    "state": or_none(has_members("a shared state, such as SharedState.open(url)", "events")),
    "router": or_none(instance_of(EventRouter, "an EventRouter")),
    "parser": or_none(instance_of(EventParser, "an EventParser")),
    "workers": COUNT,
    "order_by": PLAIN_FUNCTION,
    "on_error": _CALLBACK,
    "dead_letter": _CALLBACK,
    "crc_key": or_none(instance_of(SigningKey, "a SigningKey")),
    "crc_signature": one_of(get_args(CrcSignature)),
    "max_body": COUNT,
    "max_bodies": COUNT,
    "read_deadline": SECONDS_OR_INFINITE,
    "retry_after": COUNT,
    "drain_deadline": SECONDS_OR_INFINITE,
    "on_event": or_none(PLAIN_FUNCTION),
    "clock": or_none(CLOCK),
}


def check_settings(**settings: object) -> None:
    """Check settings of a receiver.

    Raises:
        InvalidArgument: names the one that breaks its rule.
    """
    for name, value in settings.items():
        _RULES[name].check(name, value)


def check_total(max_bytes: int, max_body: int) -> None:
    """Check how many bytes all bodies may have, once it is known how many one may have.

    Raises:
        InvalidArgument: one body of the largest size would be too large already.
    """
    COUNT.check("max_bytes", max_bytes)
    if max_bytes < max_body:
        raise InvalidArgument("max_bytes", f"must be at least max_body, which is {max_body:,}: give both")
