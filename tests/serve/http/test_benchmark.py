"""The load generator, on a service whose store is temporary."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import service_latency, service_load

PROGRAM = (sys.executable, str(Path(__file__).parent / "service_program.py"), "127.0.0.1", "0", "1")


@pytest.fixture(scope="module")
def service():
    with service_load.running(command=PROGRAM) as found:
        yield found


@pytest.mark.slow
@pytest.mark.nightly
def test_an_open_loop_keeps_its_rate_and_a_closed_loop_does_not_wait(service):
    most, half = service_load.ranking(service, seconds=1.0)
    assert most["failed"] == most["lost"] == half["failed"] == half["lost"] == 0
    assert half["answered"] == pytest.approx(most["per_second"] / 2, rel=0.3)
    assert 0 < half["p50"] <= half["p99"]


@pytest.mark.slow
@pytest.mark.nightly
def test_latency_includes_the_wait_behind_a_slow_response(service):
    slow = ("/v1/surfaces/home/rank", '{"request_id": "slow"}')
    found = service.load([slow], 5.0, seconds=1.0, connections=1)
    assert found["p50"] > 1.0  # one at a time takes 0.7 seconds, and five come in a second


@pytest.mark.slow
def test_failures_are_counted(service):
    found = service.load([("/v1/surfaces/nowhere/rank", '{"request_id": "r"}')], 100.0, seconds=0.5)
    assert found["failed"] == found["answered"] > 0


@pytest.mark.slow
def test_every_event_is_sent_back_once(service):
    most, half = service_load.feedback(service, seconds=0.5)
    assert most["answered"] > 0
    assert half["answered"] > 0
    assert most["failed"] == half["failed"] == 0


@pytest.mark.slow
def test_feedback_is_sent_beside_ranking_at_its_own_rate(service):
    found = service_latency.beside_feedback(service, ranks=300, feedback=100, seconds=1.0)
    assert found["failed"] == found["lost"] == 0
    assert 200 < found["answered"] < 400
    assert 50 < found["feedback"]["answered"] < 150
    assert found["p50"] <= found["p99"] <= found["p99.9"]
    assert found["cpu"] > 0


def test_memory_is_that_of_the_service(service):
    if not Path("/proc/self/status").exists():
        pytest.skip("reads /proc")
    assert 10 < service.memory() < 1000


@pytest.mark.slow
def test_the_service_is_stopped_afterwards():
    with service_load.running(command=PROGRAM) as found:
        process = found.process
    assert process.returncode == 0
