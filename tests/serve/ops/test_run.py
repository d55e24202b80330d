"""The processes of the service: address, signals, workers, and errors at the start."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from bothworlds.serve.config import Config
from bothworlds.serve.http.server import reserve
from bothworlds.serve.ops import supervise
from bothworlds.serve.ops.run import NO_KEYS, announce_started, check_host, check_workers, is_loopback
from tests.serve.http.service_process import PATIENCE, service, until
from tests.serve.workers import workers_of


@pytest.mark.slow
def test_a_service_announces_its_address_and_stops_on_sigterm_when_open_requests_are_answered():
    answers = []

    def ask():
        answers.append(httpx.post(f"{address}/v1/surfaces/home/rank", json={"request_id": "slow"}, timeout=PATIENCE))

    with service("kept", "log") as (process, address):
        assert "no keys" in process.stdout.readline()
        assert httpx.get(f"{address}/healthz", timeout=PATIENCE).json() == {"alive": True}
        port = int(address.rpartition(":")[2])
        with pytest.raises(ValueError, match=f"cannot listen on 127.0.0.1 port {port}.*choose another with --port"):
            reserve(Config(port=port))
        asking = threading.Thread(target=ask)
        asking.start()
        assert "asked\n" in iter(process.stdout.readline, "")
        process.send_signal(signal.SIGTERM)
        asking.join()
        out, err = process.communicate(timeout=PATIENCE)
    assert (answers[0].status_code, process.returncode) == (200, 0)
    assert int(out.partition("kept ")[2].split()[0]) > 10_000  # objects that garbage collection does not scan
    assert out.endswith("stopped\n")
    lines = [json.loads(line) for line in err.splitlines()]
    assert lines[0]["route"] == "/healthz"
    assert {line["event"] for line in lines} == {"request"}


@pytest.mark.slow
def test_sigint_stops_the_service():
    with service() as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0


@pytest.mark.slow
def test_an_engine_that_does_not_start_is_reported_in_one_line():
    with service("broken") as (process, _):
        _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (1, "refused: the engine does not start\n")


def test_an_unknown_host_is_refused():
    with pytest.raises(ValueError, match="there is no host 'no host'"):
        reserve(Config(host="no host"))


def test_without_keys_the_host_must_be_loopback():
    assert check_host(Config(host="localhost"), keyed=False) is False
    assert check_host(Config(host="0.0.0.0"), keyed=True) is True
    with pytest.raises(ValueError, match=r"no keys.*loopback only and not on 0\.0\.0\.0") as refused:
        check_host(Config(host="0.0.0.0", store="postgresql://me:secret@db/shop"), keyed=False)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("host", ["::1", "[::1]", "127.8.8.8", "localhost"])
def test_loopback_has_several_names(host):
    assert is_loopback(host)
    assert not is_loopback("::")


def test_several_workers_need_postgresql():
    with pytest.raises(ValueError, match="2 workers need PostgreSQL"):
        check_workers(Config(workers=2))
    check_workers(Config(workers=2, store="postgresql://db/shop"))


@pytest.mark.parametrize("keys", [[], [{"id": "k"}]])
def test_the_supervisor_announces_that_there_are_no_keys(keys, monkeypatch):
    store = SimpleNamespace(keys=lambda: keys, close=lambda: None)
    monkeypatch.setattr(supervise, "open_store", lambda place, *, read_only: store)
    said, config = [], Config(workers=2, store="postgresql://me:secret@db/shop")
    announce_started(said.append, config, supervise._is_open(config))
    assert said[0].startswith("bothworlds serves postgresql://db/shop with 2 workers at http://127.0.0.1:8080;")
    assert said[1:] == ([] if keys else [NO_KEYS])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")
def test_workers_share_port_and_metrics_and_a_dead_one_is_replaced():
    with service(workers=2) as (process, address):
        until(lambda: requests_counted(address) >= 20)
        first = workers_of(process)
        assert len(first) == 2
        os.kill(first[0], signal.SIGKILL)
        until(lambda: len(workers_of(process)) == 2 and first[0] not in workers_of(process))
        assert httpx.get(f"{address}/healthz", timeout=PATIENCE).status_code == 200
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        assert "stopped" in out


@pytest.mark.slow
@pytest.mark.nightly
def test_workers_stop_when_their_supervisor_is_killed():
    with service(workers=2) as (process, address):
        assert httpx.get(f"{address}/healthz", timeout=PATIENCE).status_code == 200
        process.kill()
        out, _ = process.communicate(timeout=PATIENCE)  # until nobody is left who could write
        assert out.count("stopped") == 2


def requests_counted(address):
    """Each request on a connection of its own, so that both workers get some."""
    httpx.get(f"{address}/healthz", timeout=PATIENCE)
    lines = httpx.get(f"{address}/metrics", timeout=PATIENCE).text.splitlines()
    wanted = 'bothworlds_requests_total{method="GET",route="/healthz",status="200"}'
    return sum(float(line.split()[-1]) for line in lines if line.startswith(wanted))


@pytest.mark.slow
@pytest.mark.nightly
def test_workers_that_cannot_start_are_not_restarted():
    with service("broken", workers=2) as (process, _):
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 1
