"""Spans and metrics of OpenTelemetry, for sessions and receivers. Needs the extra `otel`.

    end = telemetry.instrument(session)

Names and attributes follow the semantic conventions of OpenTelemetry for HTTP clients and for messaging; those of what
they do not cover begin with `svc_async.`. No attribute contains an account, the value of a query or personal data.
"""

from collections.abc import Callable, Iterable
from contextvars import ContextVar, Token
from datetime import datetime, timedelta
from functools import partial, singledispatchmethod
from typing import Final
from weakref import WeakKeyDictionary, WeakSet

from svc_async._version import __version__
from svc_async.errors import Sent, TransportError, WrongState
from svc_async.monitoring import (
    CallEvent,
    DeliveryEvent,
    HandlingEndedEvent,
    HandlingStartedEvent,
    LimitExceededEvent,
    LimitWaitEvent,
    RowsEvent,
    StreamGapEvent,
    StreamLagEvent,
    StreamStateEvent,
)
from svc_async.printable import clean
from svc_async.session import Session
from svc_async.value_rules import instance_of
from svc_async.webhooks.receiver import WebhookReceiver

try:
    from opentelemetry.context import Context, attach, detach, get_current
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter
    from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, TracerProvider, get_tracer, set_span_in_context
except ModuleNotFoundError:
    raise ImportError('svc_async.telemetry needs the extra "otel": pip install "svc-async[otel]"') from None

__all__ = ["SECONDS", "SessionTelemetry", "create_meter", "create_tracer", "instrument"]

_SCHEMA: Final = "https://opentelemetry.io/schemas/1.37.0"
"""The version of the semantic conventions."""
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The buckets that the conventions advise for durations."""


def create_tracer(provider: TracerProvider | None) -> Tracer:
    """Return the tracer of the SDK."""
    return get_tracer("svc_async", __version__, provider, _SCHEMA)


def create_meter(provider: MeterProvider | None) -> Meter:
    """Return the meter of the SDK."""
    return get_meter("svc_async", __version__, provider, _SCHEMA)


def to_nanoseconds(moment: datetime) -> int:
    """Return a time as spans have it."""
    return round(moment.timestamp() * 1e6) * 1_000


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


_receivers: "WeakKeyDictionary[Meter, WeakSet[WebhookReceiver]]" = WeakKeyDictionary()


def observe_backlog(receiver: WebhookReceiver, meter: Meter) -> Callable[[], None]:
    """Report the lag and the waiting events of a receiver whenever metrics are read; return what ends this."""
    receivers = _receivers.get(meter)
    if receivers is None:
        receivers = _receivers[meter] = WeakSet()
        _create_gauges(meter, receivers)
    receivers.add(receiver)
    return partial(receivers.discard, receiver)


def _create_gauges(meter: Meter, receivers: "WeakSet[WebhookReceiver]") -> None:
    """Create the gauges of the receivers of a meter: each has one value for all of them."""

    def observe_lag(_: CallbackOptions) -> Iterable[Observation]:
        lags = [receiver.stats.lag for receiver in receivers]
        return [Observation(max(lags))] if lags else []

    def observe_waiting(_: CallbackOptions) -> Iterable[Observation]:
        counts = [receiver.stats.waiting for receiver in receivers]
        return [Observation(sum(counts))] if counts else []

    lag = "How long ago the oldest event was received that is accepted and not handled."
    meter.create_observable_gauge("svc_async.receiver.lag", [observe_lag], "s", lag)
    waiting = "Events that are accepted and not handled."
    meter.create_observable_gauge("svc_async.receiver.waiting", [observe_waiting], "{event}", waiting)


_FIRST_ERROR: Final = 400
_SHOWN: Final = 100  # characters of a request id

Attributes = dict[str, str | int | float]


class SessionTelemetry:
    """The spans and metrics of one session."""

    def __init__(self, tracer: Tracer, meter: Meter) -> None:
        self._tracer = tracer
        self._duration = meter.create_histogram(
            "http.client.request.duration",
            "s",
            "Duration of HTTP client requests.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._wait = meter.create_histogram(
            "svc_async.governor.wait.duration", "s", "How long requests waited for their turn at a rate limit."
        )
        self._exceeded = meter.create_counter(
            "svc_async.governor.exceeded", "{request}", "Requests that the service refused for their rate (429)."
        )
        self._rows = meter.create_counter("svc_async.job.rows", "{row}", "Rows of jobs that were settled, by outcome.")
        self._requests = meter.create_counter("svc_async.job.requests", "{request}", "Requests that jobs sent.")
        self._in_doubt = meter.create_up_down_counter(
            "svc_async.job.rows.in_doubt", "{row}", "Rows of running jobs that were sent without a conclusive answer."
        )
        self._states = meter.create_counter(
            "svc_async.stream.state_changes", "{change}", "Changes of the connections of streams."
        )
        self._gaps = meter.create_counter("svc_async.stream.gap.time", "s", "Time in which streams had no connection.")
        self._lag = meter.create_gauge("svc_async.stream.lag", "s", "How long events wait in the queue of a stream.")
        self._waiting = meter.create_gauge("svc_async.stream.waiting", "{event}", "Events in the queue of a stream.")

    @singledispatchmethod
    def observe(self, event: object) -> None:
        """Record an event of the session; others are ignored."""

    @observe.register
    def _observe_call(self, event: CallEvent) -> None:
        if not _was_exchanged(event):
            return
        common: Attributes = {
            "http.request.method": event.method,
            "server.address": event.host,
            "server.port": event.port,
            "url.template": event.path,
        }
        if event.status is not None:
            common["http.response.status_code"] = event.status
        error_type = _find_error_type(event)
        if error_type is not None:
            common["error.type"] = error_type
        self._duration.record(event.seconds - event.waited, common)
        span = self._tracer.start_span(
            f"{event.method} {event.path}",
            kind=SpanKind.CLIENT,
            attributes={**common, **_describe(event)},
            start_time=to_nanoseconds(event.started + timedelta(seconds=event.waited)),
        )
        if error_type is not None:
            span.set_status(StatusCode.ERROR)
        span.end(to_nanoseconds(event.started + timedelta(seconds=event.seconds)))

    @observe.register
    def _observe_wait(self, event: LimitWaitEvent) -> None:
        self._wait.record(event.seconds, {"svc_async.limit": event.limit, "svc_async.priority": event.priority})

    @observe.register
    def _observe_exceeded(self, event: LimitExceededEvent) -> None:
        self._exceeded.add(1, {"svc_async.limit": event.limit})

    @observe.register
    def _observe_rows(self, event: RowsEvent) -> None:
        path = {"url.template": event.path}
        for outcome in ("accepted", "coalesced", "failed"):
            count = getattr(event, outcome)
            if count:
                self._rows.add(count, {**path, "svc_async.outcome": outcome})
        if event.requests:
            self._requests.add(event.requests, path)
        if event.in_doubt_change:
            self._in_doubt.add(event.in_doubt_change, path)

    @observe.register
    def _observe_state(self, event: StreamStateEvent) -> None:
        attributes = {"url.template": event.path, "svc_async.stream.state": event.state}
        if event.error is not None:
            attributes["error.type"] = type(event.error).__name__
        self._states.add(1, attributes)

    @observe.register
    def _observe_gap(self, event: StreamGapEvent) -> None:
        self._gaps.add(event.seconds, {"url.template": event.path, "svc_async.stream.recovery": event.recovery})

    @observe.register
    def _observe_lag(self, event: StreamLagEvent) -> None:
        self._lag.set(event.lag, {"url.template": event.path})
        self._waiting.set(event.waiting, {"url.template": event.path})


def _was_exchanged(event: CallEvent) -> bool:
    """Return whether a request was sent, or at least a connection was tried."""
    if event.is_cancelled:
        return not event.waited or event.waited < event.seconds
    error = event.error
    return error is None or error.sent is not Sent.NO or isinstance(error, TransportError)


def _find_error_type(event: CallEvent) -> str | None:
    if event.status is not None and event.status >= _FIRST_ERROR:
        return str(event.status)
    if event.is_cancelled:
        return "CancelledError"
    return None if event.error is None else type(event.error).__name__


def _describe(event: CallEvent) -> Attributes:
    """Return the attributes that only spans have."""
    port = f":{event.port}" if event.port not in {80, 443} else ""
    scheme = "https" if event.is_secure else "http"
    host = f"[{event.host}]" if ":" in event.host else event.host
    # Identifiers are left out, as the conventions ask for what is sensitive.
    path = "/".join("REDACTED" if part.startswith(("{", "...")) else part for part in event.path.split("/"))
    more: Attributes = {
        "url.full": f"{scheme}://{host}{port}{event.base_path}{path}",
        "http.request.body.size": event.bytes_sent,
        "http.response.body.size": event.bytes_received,
    }
    if event.attempt > 1:
        more["http.request.resend_count"] = event.attempt - 1
        more["svc_async.backoff"] = event.backoff
    if event.waited:
        more["svc_async.governor.wait"] = event.waited
    if event.request_id:
        more["svc_async.request_id"] = clean(event.request_id[:_SHOWN])
    return more


_TARGET = instance_of(Session | WebhookReceiver, "a Session or a WebhookReceiver")
_instrumented: "WeakSet[Session | WebhookReceiver]" = WeakSet()


def instrument(
    target: Session | WebhookReceiver,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
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
        InvalidArgument: it is neither a session nor a receiver.
        WrongState: it is instrumented already.
    """
    _TARGET.check("target", target)
    if target in _instrumented:
        raise WrongState("it is instrumented already; call what instrument() returned first")
    kind = SessionTelemetry if isinstance(target, Session) else ReceiverTelemetry
    meter = create_meter(meter_provider)
    observer = kind(create_tracer(tracer_provider), meter)
    ends = [target.subscribe(observer.observe)]
    if isinstance(target, WebhookReceiver):
        ends.append(observe_backlog(target, meter))
    _instrumented.add(target)

    def end() -> None:
        for each in ends:
            each()
        _instrumented.discard(target)

    return end
