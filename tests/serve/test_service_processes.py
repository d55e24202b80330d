"""The real service in its own processes: acknowledged feedback survives kill -9 and is counted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serve.kill_service import ACKNOWLEDGES_EARLY, ServiceProcess, kill_repeatedly
from tests.serve.load_clients import piece_of
from tests.serve.postgres_server import PostgresServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for workers in /proc"),
]


def test_a_service_on_a_file_loses_nothing_to_kill_9(tmp_path: Path) -> None:
    pages, acknowledgements = kill_repeatedly(str(tmp_path / "killed.db"), tmp_path, 2, seed=1)
    assert 0 < pages < acknowledgements


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.nightly)])
def test_two_workers_on_postgresql_lose_nothing_to_kill_9(tmp_path: Path, postgres: PostgresServer, kills: int) -> None:
    """Some workers are stopped instead: the other one goes on, and the service replaces it."""
    pages, acknowledgements = kill_repeatedly(postgres.fresh_address(), tmp_path, kills, seed=1)
    assert 0 < pages < acknowledgements


@pytest.mark.nightly
def test_requests_in_sequence_see_each_other_on_any_worker(tmp_path: Path, postgres: PostgresServer) -> None:
    service = ServiceProcess(postgres.fresh_address(), tmp_path)
    try:
        for k in range(8):
            surface = f"/v1/surfaces/s{k}"
            assert service.call("PUT", surface, {"slots": 2, "items": ["a", "b"]})[0] == 201
            for item in "cd":
                assert service.call("PUT", f"{surface}/items/{item}")[0] == 201
            tag = service.call("POST", f"{surface}/items/a/pause")[2]
            assert service.call("PATCH", surface, {"floor": 0.02}, **{"If-Match": tag})[0] == 200
            assert service.call("PATCH", surface, {"floor": 0.03}, **{"If-Match": tag})[0] == 412
            status, page, _ = service.call("POST", f"{surface}/rank", {"request_id": "r"})
            assert status == 200
            assert service.call("POST", f"{surface}/rank", {"request_id": "r"})[1]["slots"] == page["slots"]
            told = service.call("POST", "/v1/feedback", {"events": [piece_of(page, [0], True)]})[1]["results"]
            assert [result["status"] for result in told] == ["accepted"]
            assert service.call("GET", f"/v1/events/{page['event_id']}")[0] == 200
    finally:
        service.end()


@pytest.mark.nightly
def test_the_check_catches_a_service_that_acknowledges_too_early(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"after kill \d+: .* lost: "):
        kill_repeatedly(str(tmp_path / "hasty.db"), tmp_path, 20, seed=1, program=ACKNOWLEDGES_EARLY)
