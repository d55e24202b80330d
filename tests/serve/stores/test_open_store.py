"""Opening a store: valid values of --store, file locks and read-only access."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from bothworlds.serve.ops.verify import verify
from bothworlds.serve.stores.base import StoreError
from bothworlds.serve.stores.factory import open_store
from tests.serve.postgres_server import PostgresServer
from tests.serve.stores.conftest import on_both

from .samples import NOON, a_surface, feedback_on
from .test_migrations import write_version_1


@pytest.mark.slow
def test_a_second_process_is_refused_and_a_reader_is_not(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    store = open_store(path)
    store.save_surface(a_surface(), [], [])
    program = f"from bothworlds.serve.stores.factory import open_store; open_store({path!r}, read_only=True).close(); "
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


@contextmanager
def owned(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of its own that has opened the store."""
    program = "import sys; from bothworlds.serve.stores.factory import open_store; store = open_store(sys.argv[1]); "
    program += "print('open', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        try:
            yield process
        finally:
            process.kill()


def linked(path: Path, other: Path) -> None:
    other.hardlink_to(path)


def moved(path: Path, other: Path) -> None:
    path.rename(other)


def linked_and_removed(path: Path, other: Path) -> None:
    other.hardlink_to(path)
    path.unlink()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the file itself cannot be locked here")
@pytest.mark.parametrize(
    ("change", "sentence"),
    [(linked, "has 2 names"), (moved, "is in use"), (linked_and_removed, "is in use")],
)
def test_another_name_for_a_file_in_use_does_not_give_it_a_second_owner(
    tmp_path: Path, change: Callable[[Path, Path], None], sentence: str
) -> None:
    path, other = tmp_path / "store.db", tmp_path / "elsewhere" / "other.db"
    other.parent.mkdir()
    with owned(path) as process:
        change(path, other)
        with pytest.raises(StoreError, match=sentence):
            open_store(str(other))
        process.kill()
        process.wait()
        path.unlink(missing_ok=True)
        open_store(str(other)).close()


def test_a_file_with_two_names_is_refused_under_both_and_can_be_read(tmp_path: Path) -> None:
    path, other = tmp_path / "store.db", tmp_path / "other.db"
    open_store(str(path)).close()
    other.hardlink_to(path)
    for name in (path, other):
        with pytest.raises(
            StoreError, match=r"has 2 names \(hard links\), and a store must have one: remove the others"
        ):
            open_store(str(name))
    open_store(str(other), read_only=True).close()
    other.unlink()
    open_store(str(path)).close()


def test_a_refused_owner_leaves_the_locks_of_the_first_alone(tmp_path: Path) -> None:
    """Closing a descriptor of a file releases the locks of the process; a reader would then delete the WAL."""
    path = tmp_path / "store.db"
    store = open_store(str(path))
    store.save_surface(a_surface(), [], [])
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
    store.save_surface(a_surface(), [], [])
    reader = open_store(place, read_only=True)
    store.apply_feedback([feedback_on(1)], NOON)
    assert verify(reader).events == 1
    with pytest.raises(StoreError, match=r"cannot be written|is read-only"):
        reader.apply_feedback([feedback_on(2)], NOON)
    reader.close()
    store.close()


@on_both
def test_reads_in_a_snapshot_are_consistent(place: str) -> None:
    store = open_store(place)
    store.save_surface(a_surface(), [], [])
    with store.snapshot():
        assert store.open_events() == 0
        store.apply_feedback([feedback_on(1)], NOON)
        assert list(store.settled()) == []
        assert verify(store).clean
    assert verify(store).events == 1
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
    stores[0].save_surface(a_surface(), [], [])
    assert all(len(store.surfaces()) == 1 for store in stores)
    for store in stores:
        store.close()


def test_a_reader_neither_creates_nor_upgrades_a_store(place: str) -> None:
    with pytest.raises(StoreError, match="there is no store at"):
        open_store(place, read_only=True)
    write_version_1(place)
    with pytest.raises(StoreError, match="older version of bothworlds: start the service once"):
        open_store(place, read_only=True)


def test_a_closed_store_says_so(place: str) -> None:
    store = open_store(place)
    store.close()
    for call in (store.surfaces, lambda: store.write_audit([{}])):
        with pytest.raises(StoreError, match="has been closed: open it again"):
            call()
