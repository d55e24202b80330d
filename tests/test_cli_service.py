"""The commands of the service (serve, demo, verify, migrate, keys), on a store in memory."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace

import pytest

from bothworlds.serve.stores import factory
from bothworlds.serve.stores.base import StoreError
from tests.commands import run
from tests.serve.fakes import FakeStore


@pytest.fixture
def kept(monkeypatch):
    """A store in memory, opened for any address except missing.db; ``opened`` lists the calls."""
    store, opened = FakeStore(), []

    def open_store(place, *, read_only=False, alone=False):
        if place == "missing.db":
            raise StoreError("there is no store at missing.db")
        opened.append((place, read_only))
        return store

    store.opened = opened
    store.count_rows = lambda: 7
    importlib.import_module("bothworlds.serve.ops.serve")  # imports open_store, which must be the real one
    monkeypatch.setattr(factory, "open_store", open_store)
    return store


@pytest.mark.slow
def test_keys_are_created_listed_and_revoked(kept):
    made = run("keys", "create", "--role", "serve", "--role", "ingest", "--note", "shop", "--store", "a.db")
    key = made.output.strip()
    key_id, secret = key.split("_", 2)[1:]
    assert key.startswith("bw_")
    listed = run("keys", "list", "--store", "a.db").output
    assert f"{key_id}  ingest,serve" in listed
    assert "in use  shop" in listed
    assert secret not in listed
    assert run("keys", "revoke", key_id, "--store", "a.db").output == f"{key_id} is revoked\n"
    assert "revoked 2" in run("keys", "list", "--store", "a.db").output
    assert kept.opened[:2] == [("a.db", False), ("a.db", True)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("keys", "create", "--role", "god"), "god is no role"),
        (("keys", "revoke", "nobody"), "there is no key 'nobody'"),
        (("keys", "list", "--store", "missing.db"), "there is no store at missing.db"),
        (("verify", "--store", "missing.db"), "there is no store at missing.db"),
        (("serve", "--workers", "2"), "2 workers need PostgreSQL"),
        (("serve", "--config", "nothing.toml"), "there is no file nothing.toml"),
    ],
)
def test_errors_are_one_line(kept, arguments, said, monkeypatch):
    monkeypatch.setitem(sys.modules, "bothworlds.serve.ops.verify", SimpleNamespace(verify=None))
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.output
    assert result.output.count("\n") == 1


@pytest.mark.parametrize(
    ("differences", "forged", "status"),
    [((), (), 0), (("L of item 3 is 4, and the log gives 5",), (), 1), ((), ("the checkpoint of today",), 1)],
)
def test_verify_prints_what_it_compared_and_fails_if_anything_differs(kept, monkeypatch, differences, forged, status):
    found = SimpleNamespace(events=10, adjustments=2, segments=3, counters=40, n_differences=len(differences))
    found.differences, found.forged, found.clean = differences, forged, not differences and not forged
    found.checkpoints, found.deleted = 4, 500
    monkeypatch.setitem(sys.modules, "bothworlds.serve.ops.verify", SimpleNamespace(verify=lambda store: found))
    result = run("verify", "--store", "a.db")
    assert result.exit_code == status
    assert "compared 40 counters of 3 segments with 10 settled events and 2 adjustments" in result.output
    assert "4 signed checkpoints stand in for 500 deleted events" in result.output
    assert all(problem in result.output for problem in (*differences, *forged))
    assert ("all are equal" in result.output) == (status == 0)
    assert kept.opened == [("a.db", True)]


def test_migrate_copies_from_one_store_to_the_other(kept, monkeypatch):
    def move(source, target, progress):
        progress(7)
        return SimpleNamespace(rows=7, target=SimpleNamespace(counters=40, clean=True))

    monkeypatch.setitem(sys.modules, "bothworlds.serve.ops.migrate", SimpleNamespace(migrate=move))
    result = run("migrate", "--from", "a.db", "--to", "postgresql://db/shop")
    assert "copied 7 rows" in result.output
    assert kept.opened == [("a.db", True), ("postgresql://db/shop", False)]


def test_migrate_fails_if_counters_differ_from_the_log(kept, monkeypatch):
    target = SimpleNamespace(counters=40, clean=False, forged=(), n_differences=1, differences=("L of item 3 is 4",))
    moved = SimpleNamespace(rows=7, target=target)
    monkeypatch.setitem(sys.modules, "bothworlds.serve.ops.migrate", SimpleNamespace(migrate=lambda *_: moved))
    result = run("migrate", "--from", "a.db", "--to", "b.db")
    assert result.exit_code == 1
    assert "L of item 3 is 4" in result.output
    assert "1 counters differ from the log" in result.output
    assert "verified" not in result.output


def test_keys_list_of_a_store_without_keys(kept):
    said = run("keys", "list", "--store", "a.db").output
    assert "'bothworlds keys create --role admin --store a.db' creates the first" in said


def test_demo_passes_its_options_on(monkeypatch):
    asked = []
    demo = SimpleNamespace(run=lambda world, **options: asked.append((world, options)))
    monkeypatch.setitem(sys.modules, "bothworlds.serve.ops.demo", demo)
    assert run("demo", "--world", "paper/periodic-items:phase=500", "--port", "9", "--seconds", "1").exit_code == 0
    assert asked[0][0].name == "paper/periodic-items(phase=500)"
    assert asked[0][1]["port"] == 9


def test_a_missing_extra_is_named_in_the_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "bothworlds.serve.stores.base", None)
    result = run("serve")
    assert result.exit_code == 2
    assert "pip install '.[service]' in a checkout of bothworlds" in result.output
