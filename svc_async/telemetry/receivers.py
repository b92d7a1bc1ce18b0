"""Turns the events of a receiver into spans and metrics.

A delivery is answered within the span of whatever serves HTTP, if that is instrumented. The handlers of an event run in
a `process` span below it, also when they are called after the answer.
"""

from collections.abc import Callable, Iterable
from contextvars import ContextVar, Token
from functools import singledispatchmethod
from typing import Final
from weakref import WeakKeyDictionary, WeakSet

from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context

from svc_async.monitoring import DeliveryEvent, HandlingEndedEvent, HandlingStartedEvent
from svc_async.telemetry.meters import SECONDS
from svc_async.webhooks.receiver import WebhookReceiver

__all__ = ["ReceiverTelemetry", "observe_backlog"]

_COMMON: Final = {"messaging.system": "svc", "messaging.operation.name": "process"}


class ReceiverTelemetry:
    """The spans and metrics of one receiver."""

    def __init__(self, tracer: Tracer, meter: Meter) -> None:
        self._tracer = tracer
        self._open: ContextVar[tuple[Span, Token[Context]] | None] = ContextVar("svc_async_span", default=None)
        self._deliveries = meter.create_counter(
            "svc_async.receiver.deliveries", "{delivery}", "Deliveries that were answered, by result."
        )
        self._answers = meter.create_histogram(
            "svc_async.receiver.answer.duration",
            "s",
            "How long the answers to deliveries took.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            "{message}",
            "Number of messages that were delivered to the application.",
        )
        self._processing = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Duration of processing operation.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )

    @singledispatchmethod
    def observe(self, event: object) -> None:
        """Record an event of the receiver; others are ignored."""

    @observe.register
    def _observe_delivery(self, event: DeliveryEvent) -> None:
        attributes = {"svc_async.result": event.reason or "accepted"}
        self._deliveries.add(1, attributes)
        self._answers.record(event.seconds, attributes)

    @observe.register
    def _observe_start(self, event: HandlingStartedEvent) -> None:
        span = self._tracer.start_span(
            f"process {event.event_type}",
            Context() if event.context is None else event.context.run(get_current),
            SpanKind.CONSUMER,
            {**_COMMON, "messaging.operation.type": "process", "messaging.destination.name": event.event_type},
        )
        self._open.set((span, attach(set_span_in_context(span))))

    @observe.register
    def _observe_end(self, event: HandlingEndedEvent) -> None:
        attributes = {**_COMMON, "messaging.destination.name": event.event_type}
        if event.error_type is not None:
            attributes["error.type"] = event.error_type
        self._consumed.add(1, attributes)
        self._processing.record(event.seconds, attributes)
        found = self._open.get()
        if found is None:  # the receiver was instrumented meanwhile
            return
        span, token = found
        self._open.set(None)
        detach(token)
        span.set_attribute("svc_async.handlers", event.handlers)
        if event.error_type is not None:
            span.set_attribute("error.type", event.error_type)
            span.set_status(StatusCode.ERROR)
        if event.handler is not None:
            span.set_attribute("code.function.name", event.handler)
        span.end()


class _Backlog:
    """The receivers of one meter, which has each of its instruments once, and so for all of them together."""

    def __init__(self, meter: Meter) -> None:
        self.receivers = WeakSet[WebhookReceiver]()
        meter.create_observable_gauge(
            "svc_async.receiver.lag",
            [self._observe_lag],
            "s",
            "How long ago the oldest event was received that is accepted and not handled.",
        )
        meter.create_observable_gauge(
            "svc_async.receiver.waiting",
            [self._observe_waiting],
            "{event}",
            "Events that are accepted and not handled.",
        )

    def _observe_lag(self, _: CallbackOptions) -> Iterable[Observation]:
        lags = [receiver.stats.lag for receiver in self.receivers]
        return [Observation(max(lags))] if lags else []

    def _observe_waiting(self, _: CallbackOptions) -> Iterable[Observation]:
        counts = [receiver.stats.waiting for receiver in self.receivers]
        return [Observation(sum(counts))] if counts else []


_backlogs: "WeakKeyDictionary[Meter, _Backlog]" = WeakKeyDictionary()


def observe_backlog(receiver: WebhookReceiver, meter: Meter) -> Callable[[], None]:
    """Report the lag and the waiting events of a receiver whenever metrics are read; return what ends this."""
    backlog = _backlogs.get(meter)
    if backlog is None:
        backlog = _backlogs[meter] = _Backlog(meter)
    receivers = backlog.receivers
    receivers.add(receiver)
    return lambda: receivers.discard(receiver)
