"""kill -9 under load, and several processes: what was acknowledged is kept, and nothing is counted twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from bothworlds.serve.stores import open_store
from tests.serve.conftest import on_both
from tests.serve.postgres_server import PostgresServer

from . import kill_writer
from .samples import started


@pytest.mark.slow
@on_both
@pytest.mark.parametrize("kills", [kill_writer.KILLS, pytest.param(100, marks=pytest.mark.nightly)])
def test_nothing_acknowledged_is_lost_to_kill_9(place: str, kills: int) -> None:
    assert kill_writer.kill_repeatedly(place, kills, seed=1) > kills


@pytest.mark.slow
def test_a_process_that_acknowledges_too_early_is_caught(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="lost"):
        kill_writer.kill_repeatedly(str(tmp_path / "store.db"), 100, seed=2, hasty=True)


@pytest.mark.slow
def test_several_processes_on_one_database_number_and_count_exactly(postgres: PostgresServer) -> None:
    place, count = postgres.fresh_address(), 60
    store = started(open_store(place))
    children = [kill_writer.started_child(place, 1000 * k, count) for k in range(4)]
    acknowledged = kill_writer.Acknowledged()
    for k, child in enumerate(children):
        printed, _ = child.communicate()
        assert child.returncode == 0
        assert printed.split()[1:] == [b"%d" % seed for seed in range(1000 * k, 1000 * k + count)]
        for seed in range(1000 * k, 1000 * k + count):
            acknowledged.add(kill_writer.batch_of(seed))
    assert acknowledged.problems(store, ([], [])) == []
    assert store.last_numbers()[1] > 0
    store.close()
