"""Telemetry of one process, switched on.

Metrics are kept for `/metrics` (Prometheus) always; traces and metrics go out over OTLP (HTTP) when
OTEL_EXPORTER_OTLP_ENDPOINT says where to. All standard OTEL_* variables hold.
"""

import threading
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import perdure
from perdure.telemetry.tracing import exporting

# What is still to be sent when the process ends; a collector that is away must not hold it up.
FLUSH_TIMEOUT_S: Final = 2.0


class Telemetry:
    """The providers of this process. One a process: OpenTelemetry keeps them in globals."""

    def __init__(self, service: str, *, prometheus: bool) -> None:
        """`prometheus` makes `prometheus_text` give the metrics."""
        resource = Resource.create(
            {"service.name": f"perdure-{service}", "service.version": perdure.__version__}
        )
        readers: list[MetricReader] = []
        self._traces: TracerProvider | None = None
        if prometheus:
            from opentelemetry.exporter.prometheus import PrometheusMetricReader

            readers.append(PrometheusMetricReader(scope_info_enabled=False))
        if exporting():
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
            self._traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
            trace.set_tracer_provider(self._traces)
            readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
        self._metrics = MeterProvider(
            metric_readers=readers, resource=resource, shutdown_on_exit=False
        )
        metrics.set_meter_provider(self._metrics)

    def close(self) -> None:
        """Send what is left, within FLUSH_TIMEOUT_S (blocking)."""
        # The exporters' own timeouts leave out their retries: so not in this thread.
        sending = threading.Thread(target=self._flush, name="telemetry", daemon=True)
        sending.start()
        sending.join(FLUSH_TIMEOUT_S)

    def _flush(self) -> None:
        if self._traces is not None:
            self._traces.force_flush()
        self._metrics.force_flush()


def prometheus_text() -> bytes:
    """All metrics in Prometheus' text form."""
    from prometheus_client import generate_latest

    return generate_latest()
