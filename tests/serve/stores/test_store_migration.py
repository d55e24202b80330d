"""Migration to another store: everything is copied and verified, and an incomplete copy is never served."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from bothworlds.serve.model import Adjustment, Cell, Increments
from bothworlds.serve.ops.migrate import migrate
from bothworlds.serve.stores.base import StoreError
from bothworlds.serve.stores.factory import open_store
from bothworlds.serve.stores.sql_store import TABLES, SqlStore
from tests.commands import answer, run
from tests.serve.postgres_server import PostgresServer

from .contract import counters
from .samples import NOON, a_surface, an_event, feedback_on


def filled(store: SqlStore) -> SqlStore:
    increments = Increments(surface_id=0, segment="", rounds=2, cells=(Cell(1, 1, 5, 1, 0),))
    start = Adjustment(increments=increments, at=NOON, actor="ann", reason="median start")
    store.save_surface(a_surface(), [start], [{"action": "created"}])
    store.put("secret", b"\x00\xffsecret")
    store.apply_feedback([feedback_on(number, number % 8) for number in range(500)], NOON)
    store.save_events([an_event(number) for number in range(500, 550)])
    store.save_key({"id": "k1", "hash": b"\x00"})
    store.save_policy("p1", 1, "", NOON, b"body")
    return store


def everything(store: SqlStore) -> dict[str, list[tuple[object, ...]]]:
    return {table: sorted(map(tuple, store.rows(table, sorted(store.columns(table)))), key=repr) for table in TABLES}


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["to postgres", "to sqlite"])
def test_a_migrated_store_is_identical_and_usable(direction: str, tmp_path: Path, postgres: PostgresServer) -> None:
    places = [str(tmp_path / "store.db"), postgres.fresh_address()]
    source, target = map(open_store, places if direction == "to postgres" else reversed(places))
    filled(source)
    progress: list[int] = []
    moved = migrate(source, target, progress.append)
    assert everything(source) == everything(target)
    assert sum(progress) == moved.rows == source.count_rows()
    assert moved.target.clean
    assert moved.target.events == 500
    for store in (source, target):
        batch = [feedback_on(3), feedback_on(520, 1), feedback_on(900)]
        assert store.apply_feedback(batch, NOON) == ["duplicate", "accepted", "accepted"]
        store.write_audit([{"action": "moved"}])
        assert store.save_surface(a_surface("second"), [], []).id == 2
    assert counters(source) == counters(target)
    assert everything(source) == everything(target)
    source.close()
    target.close()


@pytest.mark.slow
def test_more_facts_than_one_batch_are_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bothworlds.serve.ops.migrate.BATCH", 3)
    source, target = filled(open_store(str(tmp_path / "a.db"))), open_store(str(tmp_path / "b.db"))
    for index in range(7):
        source.put(f"standing without 1/{index}", b"noted")
    migrate(source, target)
    assert everything(source) == everything(target)
    target.close()
    open_store(str(tmp_path / "b.db")).close()
    source.close()


def test_a_store_that_is_not_empty_is_not_a_target_of_migration(tmp_path: Path) -> None:
    source, target = open_store(str(tmp_path / "a.db")), filled(open_store(str(tmp_path / "b.db")))
    before = everything(target)
    with pytest.raises(StoreError, match="not empty: choose a new file or an empty database"):
        migrate(source, target)
    assert everything(target) == before
    source.close()
    target.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_store_in_use_is_not_migrated(kind: str, tmp_path: Path, postgres: PostgresServer) -> None:
    """What a running service acknowledges after the copy would be lost."""
    place, copy = str(tmp_path / "a.db") if kind == "sqlite" else postgres.fresh_address(), tmp_path / "b.db"
    words = ("migrate", "--from", place, "--to", str(copy))
    with closing(filled(open_store(place))):  # as a service has it
        refused = run(*words)
        assert refused.exit_code == 2
        assert "is in use by another process: stop" in refused.output
        assert not copy.exists()
    assert "counters verified in both stores" in answer(*words)
    with closing(open_store(place, read_only=True)) as source, closing(open_store(str(copy))) as target:
        assert everything(source) == everything(target)
    with closing(open_store(place)) as source:
        source.put("secret", b"the source can be served again")


def test_an_interrupted_migration_cannot_be_served(tmp_path: Path) -> None:
    source, target = filled(open_store(str(tmp_path / "a.db"))), open_store(str(tmp_path / "b.db"))

    def interrupted(amount: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate(source, target, interrupted)
    source.close()
    target.close()
    with pytest.raises(StoreError, match="interrupted: delete the store there and migrate again"):
        open_store(str(tmp_path / "b.db"))


def test_a_copy_that_differs_is_detected(tmp_path: Path) -> None:
    source, target = filled(open_store(str(tmp_path / "a.db"))), open_store(str(tmp_path / "b.db"))
    fill = SqlStore.fill

    def forgetful(self: SqlStore, table: str, columns: list[str], rows: list[object], *, replace: bool = False) -> None:
        fill(self, table, columns, rows[:-1] if table == "events" else rows, replace=replace)

    with patch.object(SqlStore, "fill", forgetful), pytest.raises(StoreError, match="differs from its source"):
        migrate(source, target)
    source.close()
    target.close()
    with pytest.raises(StoreError, match="interrupted"):
        open_store(str(tmp_path / "b.db"))
