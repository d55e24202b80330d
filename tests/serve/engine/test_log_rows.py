"""Export, import and warm start: an exported log can be imported once, and a click model gives starting losses."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import msgspec
import numpy as np
import pytest

from bothworlds import clicks
from bothworlds.serve.model import LOSS_UNIT, Invalid, loss_weight
from bothworlds.serve.ops.verify import verify
from bothworlds.serve.schemas import Imported
from bothworlds.serve.stores.factory import open_store

from ..fakes import FakeStore
from ..running import ITEMS, Clock, answer, refreshed, running, visit, with_engine

MODEL = {"item": ["a", "b", "c", "nobody"], "attraction": [0.9, 0.5, 0.1, 0.3], "examination": [1.0, 0.6, 0.3, 0.1]}


@with_engine(holdout=0.2, policy="ftrl-pbm")
async def test_an_exported_log_teaches_another_store_the_same(engine, store, clock):
    for k in range(60):
        await visit(engine, f"v{k}", {"a", "b"}, segment=["", "m"][k % 2], pins={0: "c"} if k % 5 == 0 else {})
    rows = list(engine.export("home"))
    assert len(rows) == 180
    assert {row["position"] for row in rows} == {1, 2, 3}
    assert rows[0]["timestamp"].endswith("Z")
    other = FakeStore()
    async with running(other) as second:
        await second.put_surface("home", {"slots": 3, "items": ITEMS}, actor="test")
        taken = await second.import_rows("home", iter(rows), actor="test")
        assert taken == Imported(taken=60, known=0, refused=0, reasons={})
        assert other.totals() == store.totals()
        again = await second.import_rows("home", iter(rows), actor="test")
        assert (again.taken, again.known) == (0, 60)
        assert other.totals() == store.totals()
        assert sorted(map(str, second.export("home"))) == sorted(map(str, rows))


@with_engine(holdout=0.2, policy="ftrl-pbm")
async def test_positions_count_from_one_in_exports_and_from_either_in_imports(engine, store, clock):
    for k in range(30):
        await visit(engine, f"v{k}", {"a", "b"}, pins={0: "c"} if k % 5 == 0 else {})
    rows = list(engine.export("home"))
    pages = [[row["position"] for row in rows if row["event"] == event] for event in {row["event"] for row in rows}]
    assert pages == [[1, 2, 3]] * 30
    older = [{**row, "position": row["position"] - 1} for row in rows]  # as exports were written before
    for log in (rows, older):
        other = FakeStore()
        async with running(other) as second:
            await second.put_surface("home", {"slots": 3, "items": ITEMS}, actor="test")
            assert (await second.import_rows("home", iter(log), actor="test")).taken == 30
            assert other.totals() == store.totals()
            assert {row["position"] for row in second.export("home")} == {1, 2, 3}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.ndjson"
        path.write_bytes(msgspec.json.Encoder().encode_lines(rows))
        counts = clicks.counts(path)
        assert list(counts.positions) == [1, 2, 3]
        assert counts.shown.sum() == len(rows)


@with_engine(options={"refresh_ms": 10**7}, policy="ftrl-va")
async def test_an_imported_log_is_learned_from_without_predictions(engine, store, clock):
    for k in range(60):
        await visit(engine, f"v{k}", {"a", "b"})
        if k % 10 == 9:
            await refreshed(engine)
    assert sum(store.segments(1)[0].settled.values()) >= 40
    other = FakeStore()
    async with running(other) as second:
        await second.put_surface("home", {"slots": 3, "items": ITEMS, "policy": "ftrl-va"}, actor="test")
        await second.import_rows("home", engine.export("home"), actor="test")
    (ours,), (theirs,) = store.segments(1), other.segments(1)
    assert (theirs.rounds, theirs.shown, theirs.clicked) == (ours.rounds, ours.shown, ours.clicked)
    assert theirs.settled == {}
    losses = {(i, j): 0 for i in range(len(ITEMS)) for j in range(3)}
    for event in store.settled():
        for slot, (item, p) in enumerate(zip(event.items, event.p)):
            losses[item, slot] += 0 if event.clicks >> slot & 1 else loss_weight(p)
    assert all(theirs.estimated_loss(*cell) == loss for cell, loss in losses.items())


@with_engine(policy="ftrl-pbm")
async def test_a_log_teaches_another_surface_of_the_same_store_once(engine, store, clock):
    for k in range(30):
        await visit(engine, f"v{k}", {"a", "b"})
    await engine.put_surface("twin", {"slots": 3, "items": ITEMS}, actor="test")
    rows = list(engine.export("home"))
    for taken, known in ((30, 0), (0, 30)):
        imported = await engine.import_rows("twin", iter(rows), actor="test")
        assert (imported.taken, imported.known, imported.refused) == (taken, known, 0)
        assert (await engine.state("twin"))["loss"] == (await engine.state("home"))["loss"]
    assert (await engine.import_rows("home", iter(rows), actor="test")).known == 30
    assert store.totals() == store.rebuilt()


@pytest.mark.slow
def test_imported_pages_are_learned_from_but_are_in_no_comparison(tmp_path):
    """Their arms were not drawn by this surface: a log of another population would look like an uplift."""

    async def whole():
        store, clock = open_store(str(tmp_path / "store.db")), Clock()
        async with running(store, clock=clock) as engine:
            await engine.put_surface("home", {"slots": 3, "items": ITEMS, "holdout": 0.5}, actor="test")
            for k in range(200):
                await visit(engine, f"v{k}", {"a"})
                clock.at += 1000
            clock.at += 300_000
            await refreshed(engine)
            before = await engine.report("home")
            rows = [
                {"event": f"other {event}", "position": slot, "item": "abc"[slot], "click": 1, "propensity": 0.5}
                for event in range(2000)
                for slot in range(3)
            ]
            assert (await engine.import_rows("home", rows, actor="ann")).taken == 2000
            clock.at += 60_000
            after = await engine.report("home")
            for part in ("headline", "holdout", "uplift", "series", "shift"):
                assert after[part] == before[part], part
            assert after["learning"]["rounds"] == before["learning"]["rounds"] + 2000
            for event in [one.id for one in store.settled(1) if one.settled_by == "import"][:10]:
                await engine.delete_event(event.hex(), actor="ann")
        found = verify(store)
        assert (found.clean, found.deleted, found.events) == (True, 10, 2190)
        store.close()

    asyncio.run(whole())


@with_engine()
async def test_a_log_that_counts_positions_from_one_is_learned_from(engine, store, clock):
    rows = [
        {"event": event, "position": position, "item": "abc"[position - 1], "click": 0, "propensity": 0.5}
        for event in (0, 1)
        for position in (1, 2, 3)
    ]
    assert (await engine.import_rows("home", rows, actor="test")).taken == 2
    assert np.diag((await engine.state("home"))["loss"]).tolist() == [4.0, 4.0, 4.0]
    from_zero = [{**row, "event": f"{row['event']}-", "position": row["position"] - 1} for row in rows]
    imported = await engine.import_rows(
        "home", [*from_zero, *({**row, "event": "x"} for row in rows[:2])], actor="test"
    )
    assert (imported.taken, imported.reasons) == (2, {"positions of an event must be 0, 1, 2, ... in this order": 1})


@with_engine(max_segments=2)
async def test_invalid_rows_are_counted_and_skipped(engine, store, clock):
    good = [
        {"event": "one", "position": j, "item": "abc"[j], "click": j == 1, "propensity": 0.25, "timestamp": None}
        for j in range(3)
    ]
    bad = {
        "no name": [{**good[0], "event": None}],
        "order": [{**good[2], "event": "2"}],
        "item": [{**good[0], "event": "3", "item": "zzz"}],
        "twice": [{**good[0], "event": "4"}, {**good[1], "event": "4", "item": "a"}],
        "arm": [{**good[0], "event": "5", "arm": "leg"}],
        "p": [{**good[0], "event": "6", "propensity": 0.0}],
        "no p": [{**good[0], "event": "7", "propensity": None}],
        "click": [{**good[0], "event": "8", "click": 2}],
        "time": [{**good[0], "event": "9", "timestamp": "yesterday"}],
        "too early": [{**good[0], "event": "11", "timestamp": "0001-01-01T00:00:00+14:00"}],
        "too late": [{**good[0], "event": "12", "timestamp": "9999-12-31T23:59:59-14:00"}],
        "policy": [{**good[0], "event": "13", "policy_id": "a\x00b"}],
        "segment": [{**good[0], "event": "10", "segment": "a\nb"}],
        "segments": [{**good[0], "event": f"s{k}", "segment": f"s{k}"} for k in range(3)],
        "not a row": ["nonsense"],
    }
    rows = [*good, *(row for rows in bad.values() for row in rows)]
    taken = await engine.import_rows("home", rows, actor="test")
    assert taken.taken == 2
    assert taken.refused == len(bad) - 1 + 2
    assert len(list(engine.export("home"))) == 4
    rounds, loss, _, clicked = store.totals()[1, ""]
    assert (rounds, loss, clicked) == (1, {(0, 0): 4 * LOSS_UNIT, (2, 2): 4 * LOSS_UNIT}, {(1, 1): 1})
    assert store.totals() == store.rebuilt()


@with_engine()
async def test_a_warm_start_adds_the_losses_of_a_click_model(engine, store, clock):
    await engine.warm_start("home", MODEL, rounds=5000, actor="test")
    state = await engine.state("home")
    loss = np.array(state["loss"])
    assert state["rounds"] == 5000
    assert np.isclose(loss[0, 1], 5000 * (1 - 0.9 * 0.6), atol=1e-5)
    assert np.allclose(loss[3], loss[1], atol=1e-5)  # an item that is not in the model gets the median
    x = np.array(state["marginals"]["x"])
    assert x[0].sum() > 2 * x[2].sum()
    assert store.totals() == store.rebuilt()
    ranked = await engine.rank("home", "r1")
    assert (await answer(engine, ranked, [0])).status == "accepted"


@pytest.mark.parametrize(
    ("model", "rounds"),
    [
        (MODEL, 0),
        (MODEL, True),
        (MODEL, 10**9),
        ({}, 10),
        ({**MODEL, "examination": [1.0, 0.5]}, 10),
        ({**MODEL, "attraction": [0.5]}, 10),
        ({**MODEL, "attraction": [0.5, 0.5, 0.5, 1.5]}, 10),
        ({**MODEL, "attraction": "high"}, 10),
        ({**MODEL, "item": ["x", "y", "z", "w"]}, 10),
    ],
)
def test_models_that_do_not_fit_are_refused(model, rounds):
    async def whole():
        async with running() as engine:
            await engine.put_surface("home", {"slots": 3, "items": ITEMS}, actor="test")
            with pytest.raises(Invalid):
                await engine.warm_start("home", model, rounds=rounds, actor="test")

    asyncio.run(whole())
