"""Checks of the settings of a receiver."""

from collections.abc import Callable, Mapping
from functools import partial

from svc_async.errors import InvalidArgument
from svc_async.events.parser import EventParser
from svc_async.events.router import EventRouter
from svc_async.webhooks.checks.values import check_count, check_function, check_methods, check_seconds
from svc_async.wire.hmac_sha256 import SigningKey

__all__ = ["check_settings"]


def check_settings(**settings: object) -> None:
    """Check settings of a receiver by their names; None stands for a default, where there is one.

    Raises:
        InvalidArgument: one is of another type, or out of bounds.
    """
    for name, value in settings.items():
        if value is not None or name not in _OPTIONAL:
            _CHECKS[name](name, value)


def _check_kind(name: str, value: object, *, kind: type) -> None:
    if not isinstance(value, kind):
        raise InvalidArgument(name, f"must be an object of the class {kind.__name__}")


_check_observer = partial(check_function, form="as in function(event)")
_check_callback = partial(check_function, form="as in function(event, error)")
_OPTIONAL = frozenset({"clock", "crc_key", "dead_letter", "on_error", "on_event", "parser", "router"})
_CHECKS: Mapping[str, Callable[[str, object], None]] = {
    "clock": partial(check_methods, methods=("now", "monotonic", "timeout"), rule="must be a Clock"),
    "crc_key": partial(_check_kind, kind=SigningKey),
    "dead_letter": _check_callback,
    "drain_deadline": check_seconds,
    "max_bodies": check_count,
    "max_body": check_count,
    "on_error": _check_callback,
    "on_event": _check_observer,
    "order_by": _check_observer,
    "parser": partial(_check_kind, kind=EventParser),
    "read_deadline": check_seconds,
    "retry_after": check_count,
    "router": partial(_check_kind, kind=EventRouter),
    "workers": check_count,
}
