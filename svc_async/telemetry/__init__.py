"""Spans and metrics of OpenTelemetry, for sessions and receivers. Needs the extra `otel`.

    end = telemetry.instrument(session)

Names and attributes follow the semantic conventions of OpenTelemetry for HTTP clients and for messaging; those of what
they do not cover begin with `svc_async.`. No attribute contains an account, the value of a query or personal data.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from svc_async.errors import WrongState
from svc_async.session import Session
from svc_async.value_rules import instance_of
from svc_async.webhooks.receiver import WebhookReceiver

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["instrument"]

_TARGET = instance_of(Session | WebhookReceiver, "a Session or a WebhookReceiver")
_instrumented: "WeakSet[Session | WebhookReceiver]" = WeakSet()


def instrument(
    target: Session | WebhookReceiver,
    *,
    tracer_provider: "TracerProvider | None" = None,
    meter_provider: "MeterProvider | None" = None,
) -> Callable[[], None]:
    """Report the calls of a session, or the deliveries of a receiver, to OpenTelemetry.

    The sessions that `but` and `as_user` make are included. It may be opened before or after.

    Args:
        target: the session or the receiver.
        tracer_provider: where spans go; by default, to the global provider.
        meter_provider: where metrics go; by default, to the global provider.

    Returns:
        A function that ends this.

    Raises:
        ImportError: the extra `otel` is not installed.
        InvalidArgument: it is neither a session nor a receiver.
        WrongState: it is instrumented already.
    """
    _TARGET.check("target", target)
    try:
        from svc_async.telemetry.meters import create_meter, create_tracer  # noqa: PLC0415 - needs an extra
        from svc_async.telemetry.receivers import ReceiverTelemetry, observe_backlog  # noqa: PLC0415 - likewise
        from svc_async.telemetry.sessions import SessionTelemetry  # noqa: PLC0415 - likewise
    except ModuleNotFoundError:
        raise ImportError('instrument() needs the extra "otel": pip install "svc-async[otel]"') from None
    if target in _instrumented:
        raise WrongState("it is instrumented already; call what instrument() returned first")
    kind = SessionTelemetry if isinstance(target, Session) else ReceiverTelemetry
    meter = create_meter(meter_provider)
    observer = kind(create_tracer(tracer_provider), meter)
    ends = [target.subscribe(observer.observe)]
    if isinstance(target, WebhookReceiver):
        ends.append(observe_backlog(target, meter))
    _instrumented.add(target)
    return partial(_end, target, ends)


def _end(target: Session | WebhookReceiver, ends: Iterable[Callable[[], None]]) -> None:
    for end in ends:
        end()
    _instrumented.discard(target)
