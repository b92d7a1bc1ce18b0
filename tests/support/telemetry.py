"""Collects spans and metrics with the in-memory exporters of OpenTelemetry."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from svc_async import Session
from svc_async.telemetry import instrument
from svc_async.webhooks import WebhookReceiver

__all__ = ["Telemetry"]


class Telemetry:
    """The providers of a test, and what they collected."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader])

    def instrument(self, target: Session | WebhookReceiver) -> Callable[[], None]:
        return instrument(target, tracer_provider=self.tracers, meter_provider=self.meters)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def read_metrics(self) -> Mapping[str, Sequence[tuple[Mapping[str, object], Any]]]:
        """Return the attributes and the sum or the last value of every data point, by the name of its metric."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: [
                (dict(point.attributes or {}), getattr(point, "sum", None) or getattr(point, "value", 0.0))
                for point in metric.data.data_points
            ]
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def __repr__(self) -> str:
        spans = [(span.name, dict(span.attributes or {})) for span in self.spans]
        return f"{spans} {self.read_metrics()}"
