"""Opening a store: valid values of --store, file locks and read-only access."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bothworlds.serve.stores import MOVING, TABLES, StoreError, open_store
from tests.serve.conftest import on_both
from tests.serve.postgres_server import PostgresServer

from .samples import NOON, a_surface, an_event, feedback_on, settle, started


@pytest.mark.slow
def test_a_second_process_is_refused_and_a_reader_is_not(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    store = open_store(path)
    started(store)
    program = f"from bothworlds.serve.stores import open_store; open_store({path!r}, read_only=True).close(); "
    program += f"open_store({path!r})"
    second = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert "is in use by another process: stop it first, or use PostgreSQL" in second.stderr.splitlines()[-1]
    with pytest.raises(StoreError, match="in use"):
        open_store(path)
    store.close()
    open_store(path).close()


def test_a_file_has_one_owner_under_all_of_its_names(tmp_path: Path) -> None:
    (tmp_path / "current.db").symlink_to(tmp_path / "store.db")
    store = open_store(str(tmp_path / "store.db"))
    with pytest.raises(StoreError, match="in use"):
        open_store(str(tmp_path / "current.db"))
    open_store(str(tmp_path / "current.db"), read_only=True).close()
    store.close()
    open_store(str(tmp_path / "current.db")).close()


def test_a_refused_owner_leaves_the_locks_of_the_first_alone(tmp_path: Path) -> None:
    """Closing a descriptor of a file releases the locks of the process; a reader would then delete the WAL."""
    path = tmp_path / "store.db"
    store = open_store(str(path))
    started(store)
    with pytest.raises(StoreError, match="in use"):
        open_store(str(path))
    program = f"import sqlite3; sqlite3.connect({str(path)!r}).execute('SELECT count(*) FROM surfaces').fetchall()"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert (tmp_path / "store.db-wal").exists()
    store.close()


@pytest.mark.parametrize("read_only", [True, False])
def test_a_folder_is_refused_as_a_store(tmp_path: Path, read_only: bool) -> None:
    with pytest.raises(StoreError, match="is a folder: name the file in it"):
        open_store(str(tmp_path), read_only=read_only)
    assert not list(tmp_path.iterdir())


@on_both
def test_a_reader_sees_what_is_committed_and_cannot_write(place: str) -> None:
    store = open_store(place)
    started(store)
    reader = open_store(place, read_only=True)
    store.write([], [feedback_on(1)], NOON)
    assert len(settle(store)) == len(list(reader.settled())) == 1
    with pytest.raises(StoreError, match=r"cannot be written|is read-only"):
        reader.write([], [feedback_on(2)], NOON)
    reader.close()
    store.close()


@on_both
def test_reads_in_a_snapshot_are_consistent(place: str) -> None:
    store = open_store(place)
    started(store)
    with store.consistent_reads():
        assert store.open_events() == 0
        event = feedback_on(1).event
        store.write([], [feedback_on(1)], NOON)
        assert store.open_events() == len(settle(store)) == 0
    assert store.find_events([event.id]).keys() == {event.id}
    assert store.open_events() == 1
    store.close()


@pytest.mark.parametrize(
    ("place", "sentence"),
    [("mysql://shop", "not mysql://"), ("/nowhere/at/all/store.db", "there is no folder /nowhere/at/all: create it")],
)
def test_an_impossible_path_or_address_is_refused(place: str, sentence: str) -> None:
    with pytest.raises((ValueError, StoreError), match=sentence):
        open_store(place)


def test_a_file_of_another_format_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be taken for one\n" * 50)
    with pytest.raises(StoreError, match="is not a store of bothworlds: choose another file"):
        open_store(str(path))
    assert path.read_text().startswith("not a database")
    with pytest.raises(StoreError, match="there is no store at"):
        open_store(str(tmp_path / "absent.db"), read_only=True)


def test_the_address_of_a_file_may_be_a_url(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/store.db").close()
    assert (tmp_path / "store.db").exists()


def test_workers_that_start_at_once_create_one_store(postgres: PostgresServer) -> None:
    address = postgres.fresh_address()
    with ThreadPoolExecutor(4) as threads:
        stores = list(threads.map(open_store, [address] * 4))
    stores[0].save_surface(a_surface(), [])
    assert all(len(store.surfaces()) == 1 for store in stores)
    for store in stores:
        store.close()


def test_a_reader_does_not_create_a_store(place: str) -> None:
    with pytest.raises(StoreError, match="there is no store at"):
        open_store(place, read_only=True)


@on_both
@pytest.mark.parametrize(
    ("version", "sentence"), [(b"6", "an older version"), (b"8", "a newer version"), (None, "another program")]
)
def test_tables_of_another_version_are_refused(place: str, version: bytes | None, sentence: str) -> None:
    store = open_store(place)
    if version:
        store.put("schema_version", version)
    else:
        store.database.write(lambda session: session.run("DELETE FROM facts"))
    store.close()
    for read_only in (False, True):
        with pytest.raises(StoreError, match=sentence):
            open_store(place, read_only=read_only)


def test_an_unfinished_copy_is_refused(place: str) -> None:
    store = open_store(place)
    store.put(MOVING, b"1")
    store.close()
    with pytest.raises(StoreError, match="was interrupted: delete the store there and migrate again"):
        open_store(place)


@on_both
def test_a_store_that_must_be_alone_refuses_one_in_use(place: str) -> None:
    store = open_store(place)
    with pytest.raises(StoreError, match="in use by another process"):
        open_store(place, read_only=True, alone=True)
    store.close()
    open_store(place, read_only=True, alone=True).close()


@on_both
def test_a_copy_of_all_tables_is_the_same_store(place: str, tmp_path: Path) -> None:
    store, copy = started(open_store(place)), open_store(str(tmp_path / "copy.db"))
    assert copy.is_empty()
    store.write([an_event(k, visitor=b"v") for k in range(1, 9)], [feedback_on(k, 1) for k in range(4, 20)], NOON)
    settle(store)
    for table in TABLES:
        columns = store.columns(table)
        copy.fill(table, columns, list(store.rows(table, columns)), replace=table in ("numbers", "lease", "facts"))
    assert not copy.is_empty()
    assert copy.count_rows() == store.count_rows()
    assert list(copy.settled()) == list(store.settled())
    assert copy.history(1, 0, 2 * NOON, 60_000) == store.history(1, 0, 2 * NOON, 60_000)
    assert [len(settle(one, 2 * NOON)) for one in (store, copy)] == [3, 3]
    store.close()
    copy.close()


def test_a_closed_store_says_so(place: str) -> None:
    store = open_store(place)
    store.close()
    for call in (store.surfaces, lambda: store.write_audit([{}])):
        with pytest.raises(StoreError, match="has been closed: open it again"):
            call()
