"""Turns the events of a session into spans and metrics."""

from datetime import timedelta
from functools import singledispatchmethod
from typing import Final

from opentelemetry.metrics import Meter
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from svc_async.errors import Sent, TransportError
from svc_async.monitoring import (
    CallEvent,
    LimitExceededEvent,
    LimitWaitEvent,
    RowsEvent,
    StreamGapEvent,
    StreamLagEvent,
    StreamStateEvent,
)
from svc_async.printable import clean
from svc_async.telemetry.meters import SECONDS, to_nanoseconds

__all__ = ["SessionTelemetry"]

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
        self._trace(event, f"{event.method} {event.path}", common, is_error=bool(error_type))

    def _trace(self, event: CallEvent, name: str, common: Attributes, *, is_error: bool) -> None:
        span = self._tracer.start_span(
            name,
            kind=SpanKind.CLIENT,
            attributes={**common, **_describe(event)},
            start_time=to_nanoseconds(event.started + timedelta(seconds=event.waited)),
        )
        if is_error:
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
    more: Attributes = {
        # Identifiers are left out, as the conventions ask for what is sensitive.
        "url.full": f"{scheme}://{host}{port}{event.base_path}{_redact(event.path)}",
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


def _redact(path: str) -> str:
    return "/".join("REDACTED" if part.startswith(("{", "...")) else part for part in path.split("/"))
