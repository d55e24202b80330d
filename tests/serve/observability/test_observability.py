"""Metrics, logs and health: what they contain, and what they must not reveal."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import sys
import threading

import pytest

from bothworlds.serve.config import Config
from bothworlds.serve.http.auth import create_key
from bothworlds.serve.model import Unavailable
from bothworlds.serve.observability.logs import RequestLog, logger, set_up_logs
from bothworlds.serve.observability.metrics import GAUGES
from bothworlds.serve.stores import StoreError
from tests.serve.http.conftest import failing

NOW = 1_700_000_000_000


def unready(reason):
    return lambda: {"ready": False, "reasons": [reason]}


def test_healthz_is_ok_while_readyz_is_not(call, engine, monkeypatch):
    assert call("GET", "/healthz").json() == {"alive": True}
    assert call("GET", "/readyz").json() == {"ready": True, "reasons": []}
    monkeypatch.setattr(engine, "health", unready("the store is away"))
    assert call("GET", "/healthz").status_code == 200
    answer = call("GET", "/readyz")
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert answer.json()["detail"] == "the store is away"


def test_health_responds_while_all_threads_wait_for_the_store(call):
    answered = threading.Event()

    async def ask():
        waiting = [asyncio.get_running_loop().run_in_executor(None, answered.wait, 60) for _ in range(64)]
        try:
            async with asyncio.timeout(30):
                return [(await call._client.get(path)).status_code for path in ("/readyz", "/metrics")]
        finally:
            answered.set()
            await asyncio.gather(*waiting)

    assert call.run(ask()) == [200, 200]


PLACE = "postgresql://shop@10.1.2.3/ranking is away"


def test_only_the_role_read_sees_why_the_service_is_not_ready(call, engine, store, monkeypatch):
    key = create_key(store, ["read"], "", 0)
    call.run(call.service.keyring.load())
    monkeypatch.setattr(engine, "health", unready(PLACE))
    stranger, reader = call("GET", "/readyz"), call("GET", "/readyz", headers={"authorization": f"Bearer {key}"})
    assert (stranger.status_code, reader.status_code) == (503, 503)
    assert "10.1.2.3" not in stranger.text
    assert reader.json()["detail"] == PLACE


@pytest.mark.parametrize("kind", [StoreError, Unavailable])
def test_responses_do_not_name_the_host_of_an_unavailable_store(call, engine, kind, restored_logs, monkeypatch):
    monkeypatch.setattr("bothworlds.serve.observability.logs._last_warnings", {})
    stream = io.StringIO()
    set_up_logs("json", stream)
    with failing(engine, kind(PLACE)):
        answers = [
            call("POST", "/v1/surfaces/home/rank", json={"request_id": "r"}),
            call("POST", "/v1/feedback", json={"events": [{"event_id": "e", "token": "t"}]}),
            call("POST", "/v1/surfaces/home/reset"),
            call("GET", "/v1/surfaces/home/state"),
        ]
    for answer in answers:
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert answer.json()["detail"] == "the store cannot be read or written to now; send it again"
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["event"], line["level"], line["detail"]) == ("unavailable", "warning", PLACE)


def test_a_stopping_service_is_not_ready(call, engine):
    assert engine.health()["ready"]
    call.run(call.service.stop())
    assert not engine.health()["ready"]
    assert "stopping" in call("GET", "/readyz").json()["detail"]


def test_requests_feedback_and_health_are_counted(call, engine, monkeypatch):
    monkeypatch.setattr(engine, "health", lambda: {"ready": True, "queue_length": 3, "commit_lag_ms": 4.0})
    page = call.page("visitor-7")
    event = page["event_id"]
    for token in (page["token"], "forged", "forged"):
        call("POST", "/v1/feedback", json={"events": [{"event_id": event, "token": token}]})
    call("GET", "/v1/surfaces/nowhere")
    call("BREW", "/nothing/here")
    text = call("GET", "/metrics").text
    for line in (
        'bothworlds_requests_total{method="POST",route="/v1/surfaces/{surface}/rank",status="200"} 1.0',
        'bothworlds_requests_total{method="POST",route="/v1/feedback",status="200"} 3.0',
        'bothworlds_requests_total{method="GET",route="/v1/surfaces/{surface}",status="404"} 1.0',
        'bothworlds_requests_total{method="other",route="pages",status="404"} 1.0',
        'bothworlds_feedback_total{status="rejected"} 2.0',
        'bothworlds_request_seconds_count{route="/v1/feedback"} 3.0',
        "bothworlds_queue_length 3.0",
        "bothworlds_commit_lag_seconds 0.004",
        "bothworlds_ready 1.0",
    ):
        assert line in text.splitlines()
    assert not [word for word in ("home", "nowhere", event, "visitor-7", "_created") if word in text]


def test_the_request_log_has_no_personal_data_and_no_secrets(serving, store, capsys):
    call = serving(Config())
    call("PUT", "/v1/surfaces/home", json={"slots": 1, "items": ["item-9"]})
    key = create_key(store, ["admin"], "", 0)
    call.sign(key)
    said = call("POST", "/v1/surfaces/home/rank?visitor=ann", json={"request_id": "visitor-7"}).json()
    call("GET", f"/v1/events/{said['event_id']}?token={said['token']}")
    call.service.log.flush()
    written = capsys.readouterr().err
    lines = [json.loads(line) for line in written.splitlines()]
    assert [(line["method"], line["route"], line["status"]) for line in lines] == [
        ("PUT", "/v1/surfaces/{surface}", 201),
        ("POST", "/v1/surfaces/{surface}/rank", 200),
        ("GET", "/v1/events/{event_id}", 200),
    ]
    assert {"ms", "bytes", "timestamp", "level", "event"} <= lines[1].keys()
    assert lines[1]["bytes"] == len('{"request_id":"visitor-7"}')
    secrets = ("home", "item-9", "visitor", "ann", key, key.split("_")[1], said["event_id"], said["token"], "127.0.0.1")
    assert not [word for word in secrets if word in written]


def test_the_request_log_for_a_terminal():
    stream = io.StringIO()
    log = RequestLog(True, False, lambda: NOW, stream)
    log.record("GET", "/healthz", 200, 0.0012345, 0)
    log.flush()
    assert stream.getvalue() == "2023-11-14T22:13:20.000Z 200 GET    /healthz 1.234 ms 0 bytes\n"


def test_a_disabled_request_log_writes_nothing():
    stream = io.StringIO()
    log = RequestLog(False, True, lambda: NOW, stream)
    log.record("GET", "/healthz", 200, 0.001, 0)
    log.flush()
    assert stream.getvalue() == ""


def test_gauges_count_living_workers_only():
    assert {mode for _, _, mode in GAUGES} <= {"livesum", "livemin", "livemax"}


@pytest.fixture
def restored_logs():
    import logging

    before = logging.getLogger().handlers[:], logging.getLogger().level
    yield
    logging.getLogger().handlers[:], logging.getLogger().level = before


def test_unexpected_errors_are_logged_as_json_with_their_traceback(serving, engine, restored_logs):
    stream = io.StringIO()
    assert set_up_logs("auto", stream)
    call = serving()
    with failing(engine, RuntimeError("a bug")):
        answer = call("POST", "/v1/surfaces/home/reset")
    assert answer.status_code == 500
    assert "bug" not in answer.text
    line = json.loads(stream.getvalue())
    assert (line["event"], line["level"], line["route"]) == ("fault", "error", "/v1/surfaces/{surface}/reset")
    assert "RuntimeError: a bug" in line["exception"]


def test_console_logs_are_lines(restored_logs):
    stream = io.StringIO()
    assert not set_up_logs("console", stream)
    logger.warning("hello", extra={"fields": {"count": 3}})
    assert stream.getvalue().endswith("WARNING hello {'count': 3}\n")


class FullDisk(io.StringIO):
    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_log_that_cannot_be_written_affects_neither_responses_nor_the_stop(
    serving, engine, restored_logs, monkeypatch
):
    monkeypatch.setattr("bothworlds.serve.http.app.MONITOR_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", FullDisk())
    set_up_logs("json", sys.stderr)
    call = serving(Config())
    assert call("PUT", "/v1/surfaces/home", json={"slots": 1, "items": ["a"]}).status_code == 201
    while call.service.log.pending:
        call.run(asyncio.sleep(0.001))
    assert not call.service._monitor.done()
    with failing(engine, RuntimeError("a bug")):
        assert call("POST", "/v1/surfaces/home/reset").json()["title"] == "A fault in the service"
    call.run(call.service.stop())
    assert not engine.recorder.is_alive()
