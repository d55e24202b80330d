"""Traces and metrics by OpenTelemetry, collected in memory; nothing is imported unless it is configured."""

from __future__ import annotations

import ast
import asyncio
import sys
from pathlib import Path

import pytest

import bothworlds
from bothworlds.serve.config import Config
from bothworlds.serve.observability.metrics import Metrics
from bothworlds.serve.observability.telemetry import NO_TELEMETRY, open_telemetry

from ..fakes import FakeStore
from ..running import ITEMS, refreshed, running, visit, written

pytest.importorskip("opentelemetry.sdk", reason="needs the extra 'telemetry'")

from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bothworlds.serve.observability.otlp_telemetry import OtlpTelemetry

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
RANK = "/v1/surfaces/home/rank"


class Collected:
    """Telemetry whose spans and metrics are kept in memory."""

    def __init__(self) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.telemetry = OtlpTelemetry(SimpleSpanProcessor(self._spans), self._reader)

    def spans(self, name: str):
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def points(self) -> dict[str, list]:
        data = self._reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        return {metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics}


@pytest.fixture
def collected():
    found = Collected()
    yield found
    found.telemetry.close()


@pytest.fixture
def traced_call(serving, collected):
    client = serving(metrics=Metrics(collected.telemetry))
    assert client("PUT", "/v1/surfaces/home", json={"slots": 3, "items": ["a", "b", "c", "d"]}).status_code == 201
    return client


def test_a_request_continues_the_trace_of_its_caller(traced_call, collected):
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}
    assert traced_call("POST", RANK, json={"request_id": "r1"}, headers=headers).status_code == 200
    (span,) = collected.spans("rank")
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    assert span.context.trace_state["vendor"] == "1"
    assert span.attributes["http.response.status_code"] == 200


@pytest.mark.parametrize("parent", [None, "00-zz-1-01", f"00-{'0' * 32}-{PARENT}-01", "\xff"])
def test_a_request_without_a_valid_parent_starts_a_trace(traced_call, collected, parent):
    headers = {} if parent is None else {"traceparent": parent.encode("latin-1")}
    assert traced_call("POST", RANK, json={"request_id": "r1"}, headers=headers).status_code == 200
    assert collected.spans("rank")[0].parent is None


def test_errors_have_their_status(traced_call, collected):
    assert traced_call("POST", "/v1/feedback", json={"events": 1}).status_code == 422
    assert collected.spans("feedback")[0].attributes["http.response.status_code"] == 422


def test_no_name_id_or_token_is_sent(traced_call, collected):
    ranked = traced_call("POST", RANK, json={"request_id": "secret request"}).json()
    event = {"event_id": ranked["event_id"], "token": ranked["token"], "clicks": [0]}
    traced_call("POST", "/v1/feedback", json={"events": [event]})
    sent = "".join(span.to_json() for name in ("rank", "feedback") for span in collected.spans(name))
    sent += str(collected.points())
    assert "/v1/feedback" in sent
    assert not any(text in sent for text in ("secret request", "home", ranked["token"], ranked["event_id"]))


def test_requests_feedback_and_health_are_measured(traced_call, collected):
    traced_call("POST", RANK, json={"request_id": "r1"})
    traced_call("POST", "/v1/feedback", json={"events": [{"event_id": "e", "token": "t"}]})
    traced_call.service.metrics.set_health({"ready": True, "commit_lag_ms": 500.0})
    points = collected.points()
    counts = {point.attributes["http.route"]: point.count for point in points["http.server.request.duration"]}
    assert counts["/v1/surfaces/{surface}/rank"] == counts["/v1/feedback"] == 1
    assert [(point.attributes["status"], point.value) for point in points["bothworlds.feedback"]] == [("rejected", 1)]
    assert points["bothworlds.ready"][0].value == 1.0
    assert points["bothworlds.commit_lag_seconds"][0].value == 0.5


def test_batches_and_refreshes_have_spans(collected):
    async def whole() -> None:
        store = FakeStore()
        async with running(store, refresh_ms=5, telemetry=collected.telemetry) as engine:
            await engine.put_surface("home", {"slots": 3, "items": ITEMS, "policy": "uniform"}, actor="test")
            await visit(engine, "r1", {"a"})
            await written(engine)
            await refreshed(engine)

    asyncio.run(whole())
    assert collected.spans("refresh")
    assert [span.attributes["batch_size"] for span in collected.spans("write feedback")] == [1]
    assert sum(span.attributes["batch_size"] for span in collected.spans("write decisions")) == 1


def test_the_name_of_the_service_can_be_set(monkeypatch):
    monkeypatch.delenv("OTEL_RESOURCE_ATTRIBUTES", raising=False)
    names = []
    for name in (None, "shop"):
        if name is not None:
            monkeypatch.setenv("OTEL_SERVICE_NAME", name)
        found = Collected()
        with found.telemetry.span("refresh"):
            pass
        names.append(found.spans("refresh")[0].resource.attributes["service.name"])
    assert names == ["bothworlds", "shop"]


def test_it_is_off_by_default_and_imported_only_if_configured():
    assert open_telemetry(Config().telemetry) is NO_TELEMETRY
    with NO_TELEMETRY.span("refresh", surfaces=1) as span:
        span.set_attribute("a", 1)
    package = Path(bothworlds.__file__).parent
    importing = {path.name for path in package.rglob("*.py") if _imports(path, "opentelemetry")}
    assert importing == {"otlp_telemetry.py"}
    assert not any(_imports(path, "otlp_telemetry") for path in package.rglob("*.py"))


def _imports(path: Path, name: str) -> bool:
    """Returns whether a module imports a package or module of that name when it is imported itself."""
    text = path.read_text(encoding="utf-8")
    body = ast.parse(text).body if name in text else []
    named = [node.module or "" for node in body if isinstance(node, ast.ImportFrom)]
    named += [alias.name for node in body if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names]
    return any(name in module.split(".") for module in named)


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    monkeypatch.delitem(sys.modules, "bothworlds.serve.observability.otlp_telemetry", raising=False)
    with pytest.raises(ValueError, match=r"pip install '\.\[telemetry\]'"):
        open_telemetry(True)
