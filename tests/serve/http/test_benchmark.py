"""The load generator, on a service whose store is temporary."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import service_load

PROGRAM = (sys.executable, str(Path(__file__).parent / "service_program.py"), "127.0.0.1", "0", "1")


@pytest.fixture(scope="module")
def service():
    with service_load.running(command=PROGRAM) as found:
        yield found
    assert found.process.returncode == 0


@pytest.mark.slow
def test_failures_are_counted(service):
    found = service.load([("/v1/surfaces/nowhere/rank", '{"request_id": "r"}')], 100.0, seconds=0.3)
    assert found["failed"] == found["answered"] > 0


@pytest.mark.slow
@pytest.mark.nightly
def test_the_load_keeps_its_rate_and_its_times_include_the_wait_behind_slow_responses(service):
    most = service.load(service_load.rank_requests("most"), None, seconds=1.0)
    assert most["failed"] == most["lost"] == 0 < most["answered"]
    found = service_load.beside_feedback(service, ranks=300, feedback=100, seconds=1.0)
    assert found["failed"] == found["lost"] == 0
    assert 50 < found["feedback"]["answered"] < 150 < found["answered"] < 400
    assert 0 < found["p50"] <= found["p99"] <= found["p99.9"]
    slow = ("/v1/surfaces/home/rank", '{"request_id": "slow"}')
    # One at a time takes 0.7 seconds, and five come in a second.
    assert service.load([slow], 5.0, seconds=1.0, connections=1)["p50"] > 1.0
