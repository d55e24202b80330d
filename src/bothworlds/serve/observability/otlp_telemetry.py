"""Traces and metrics by OpenTelemetry, sent to a collector by OTLP over HTTP. Needs the extra ``telemetry``.

Where they are sent, how often, and which share of traces is sampled, is set by the environment variables of
OpenTelemetry (``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_TRACES_SAMPLER``, ``OTEL_SERVICE_NAME`` and others). No span and
no metric names a surface, an item, a segment, a visitor, a key or a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

__all__ = ["OtlpTelemetry"]

SCOPE = "bothworlds"
TRACE_HEADERS = ("traceparent", "tracestate")


class OtlpTelemetry:
    """Spans and instruments of one process. See ``Telemetry`` for the contract."""

    enabled = True

    def __init__(self, processor: SpanProcessor, reader: MetricReader) -> None:
        release = version("bothworlds")
        defaults: dict[str, Any] = {"service.name": SCOPE, "service.version": release}
        resource = Resource.create(defaults | dict(OTELResourceDetector().detect().attributes))
        # Not the global providers: a program that embeds the service may have its own.
        self._tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._tracers.add_span_processor(processor)
        self._meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._tracer = self._tracers.get_tracer(SCOPE, release)
        meter = self._meters.get_meter(SCOPE, release)
        self._seconds = meter.create_histogram("http.server.request.duration", "s", "Time to answer.")
        self._feedback = meter.create_counter("bothworlds.feedback", "{event}", "Feedback by result.")
        self._meter = meter
        self._gauges: dict[str, Any] = {}
        self._propagator = TraceContextTextMapPropagator()

    @classmethod
    def from_environment(cls) -> OtlpTelemetry:
        """Returns telemetry with exporters as the variables of OpenTelemetry configure them."""
        return cls(BatchSpanProcessor(OTLPSpanExporter()), PeriodicExportingMetricReader(OTLPMetricExporter()))

    def span(self, name: str, **attributes: Any) -> AbstractContextManager[Any]:
        return self._tracer.start_as_current_span(name, attributes=attributes)

    def request_span(self, name: str, headers: Mapping[bytes, bytes]) -> AbstractContextManager[Any]:
        carrier = {key: headers[key.encode()].decode("latin-1") for key in TRACE_HEADERS if key.encode() in headers}
        parent = self._propagator.extract(carrier) if carrier else None
        return self._tracer.start_as_current_span(name, parent, SpanKind.SERVER)

    def record_request(self, method: str, route: str, status: int, seconds: float) -> None:
        attributes: dict[str, Any] = {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": status,
        }
        self._seconds.record(seconds, attributes)

    def record_feedback(self, counts: Mapping[str, int]) -> None:
        for status, count in counts.items():
            self._feedback.add(count, {"status": status})

    def record_health(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            if name not in self._gauges:
                self._gauges[name] = self._meter.create_gauge(f"bothworlds.{name}")
            self._gauges[name].set(value)

    def close(self) -> None:
        self._tracers.shutdown()
        self._meters.shutdown()
