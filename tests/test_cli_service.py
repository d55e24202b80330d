"""The commands of the service (serve, demo, verify, rebuild, migrate, keys), on a temporary store."""

from __future__ import annotations

import asyncio
import sys
from contextlib import closing
from types import SimpleNamespace

import pytest

import bothworlds
from bothworlds.serve.engine.states import Target, decode, encode
from bothworlds.serve.stores import open_store
from tests.commands import run
from tests.serve.running import ITEMS, refreshed, running, visit


@pytest.fixture
def place(tmp_path):
    """The path of a store that does not exist."""
    return str(tmp_path / "a.db")


@pytest.fixture
def learned(place):
    """A store in which a surface has learned from pages, with a snapshot after the last one."""

    async def visits(store):
        async with running(store, refresh_ms=5) as engine:
            await engine.administration.put_surface(
                "home", {"slots": 3, "items": ITEMS, "policy": "ftrl-pbm"}, actor="test"
            )
            for k in range(20):
                await visit(engine, f"r{k}", {"a"})
            await refreshed(engine)

    with closing(open_store(place)) as store:
        asyncio.run(visits(store))
    assert "have learned 20 pages again" in run("rebuild", "--store", place).output
    return place


@pytest.mark.slow
def test_keys_are_created_listed_and_revoked(place):
    made = run("keys", "create", "--role", "serve", "--role", "ingest", "--note", "shop", "--store", place)
    key = made.output.strip()
    key_id, secret = key.split("_", 2)[1:]
    assert key.startswith("bw_")
    listed = run("keys", "list", "--store", place).output
    assert f"{key_id}  ingest,serve" in listed
    assert "in use  shop" in listed
    assert secret not in listed
    assert run("keys", "revoke", key_id, "--store", place).output == f"{key_id} is revoked\n"
    assert "revoked 2" in run("keys", "list", "--store", place).output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("keys", "create", "--role", "god", "--store", "PLACE"), "god is no role"),
        (("keys", "revoke", "nobody", "--store", "PLACE"), "there is no key 'nobody'"),
        (("keys", "list", "--store", "PLACE"), "there is no store at"),
        (("verify", "--store", "PLACE"), "there is no store at"),
        (("rebuild", "--store", "PLACE", "--surface", "shop"), "there is no surface 'shop'"),
        (("serve", "--workers", "2"), "2 workers need PostgreSQL"),
        (("serve", "--config", "nothing.toml"), "there is no file nothing.toml"),
    ],
)
def test_errors_are_one_line(place, arguments, said):
    result = run(*(place if argument == "PLACE" else argument for argument in arguments))
    assert result.exit_code == 2
    assert said in result.output
    assert result.output.count("\n") == 1


@pytest.mark.slow
def test_verify_finds_a_snapshot_that_is_not_what_the_log_gives(learned):
    result = run("verify", "--store", learned)
    assert result.exit_code == 0
    assert "learned 20 pages of 1 learners again, compared 1 snapshots\nall are equal" in result.output
    with closing(open_store(learned)) as store:
        lease, (learner,) = store.acquire("test", 60.0), store.learners()
        kept = store.snapshot(learner.id)
        state = decode(kept.state, Target(bothworlds.policy("ftrl-pbm"), len(ITEMS), 3))
        state.state.loss[0, 0] += 1e-9
        store.save_snapshot(lease, learner.id, kept.number, kept.format, encode(state))
    result = run("verify", "--store", learned)
    assert result.exit_code == 1
    assert "surface 'home', arm 'learner': the snapshot after event 20 differs" in result.output
    assert "all are equal" not in result.output
    assert "have learned 20 pages again" in run("rebuild", "--store", learned).output
    assert run("verify", "--store", learned).exit_code == 0


@pytest.mark.slow
def test_migrate_copies_a_store_and_verifies_the_copy(learned, tmp_path):
    copy = str(tmp_path / "copy.db")
    assert "the log of 1 learners verified in both stores" in run("migrate", "--from", learned, "--to", copy).output
    with closing(open_store(learned)) as one, closing(open_store(copy)) as other:
        assert list(one.settled()) == list(other.settled())
        assert len(list(other.settled())) == 20
        assert one.surfaces() == other.surfaces()
    result = run("migrate", "--from", learned, "--to", copy)
    assert result.exit_code == 2
    assert "the target store is not empty" in result.output


def test_keys_list_of_a_store_without_keys(place):
    open_store(place).close()
    said = run("keys", "list", "--store", place).output
    assert f"'bothworlds keys create --role admin --store {place}' creates the first" in said


def test_demo_passes_its_options_on(monkeypatch):
    asked = []
    demo = SimpleNamespace(run=lambda world, **options: asked.append((world, options)))
    monkeypatch.setitem(sys.modules, "bothworlds.serve.ops.demo", demo)
    assert run("demo", "--world", "paper/periodic-items:phase=500", "--port", "9", "--seconds", "1").exit_code == 0
    assert asked[0][0].name == "paper/periodic-items(phase=500)"
    assert asked[0][1]["port"] == 9


def test_a_missing_extra_is_named_in_the_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "bothworlds.serve.stores", None)
    result = run("serve")
    assert result.exit_code == 2
    assert "pip install '.[service]' in a checkout of bothworlds" in result.output
