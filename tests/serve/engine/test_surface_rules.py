"""Changes of surfaces keep everything learned; a new item starts at the median."""

from __future__ import annotations

import asyncio
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothworlds.serve.engine import surface_rules
from bothworlds.serve.model import LOSS_UNIT, Conflict, Invalid, Segment, TooMany, Unknown

from ..fakes import FakeStore
from ..running import ITEMS, Clock, answer, refreshed, running, visit, with_engine

NOW = 1_000


def surface(**body):
    made = surface_rules.create_surface("home", {"slots": 2, "items": ["a", "b", "c"], **body}, NOW).surface
    return surface_rules.msgspec.structs.replace(made, id=1)


def segment(losses, name=""):
    loss = {(i, j): value * LOSS_UNIT for i, row in enumerate(losses) for j, value in enumerate(row)}
    return Segment(surface_id=1, name=name, rounds=9, revision=1, loss=loss, shown={}, clicked={})


@pytest.mark.parametrize(
    ("body", "pointer", "message"),
    [
        ({"slots": 0}, "/slots", "from 1 to 50"),
        ({"slots": 51}, "/slots", "from 1 to 50"),
        ({"slots": "two"}, "/slots", "int"),
        ({"slots": 10**400}, "/slots", "from 1 to 50; got 1000"),
        ({"guard_after": 10**400}, "/guard_after", "from 1 to 1000000000; got 1000"),
        ({"policy": "pbm-ucb", "policy_settings": {"examination": [10**400]}}, "/policy_settings", "probabilities"),
        ({"policy": "gibbs-ts", "policy_settings": {"window": 10**400}}, "/policy_settings", "whole number"),
        ({"slots": 4}, "/items", "4 slots need 4 active items; there are 3"),
        ({"items": ["a", "a", "b"]}, "/items", "twice"),
        ({"items": ["a", "b", 3]}, "/items/2", "printable"),
        ({"items": ["a", "b", "x" * 129]}, "/items/2", "128"),
        ({"items": "abc"}, "/items", "list of names"),
        ({"floor": 0.0}, "/floor", "from 0.001 to 1"),
        ({"floor": float("nan")}, "/floor", "from 0.001"),
        ({"holdout": 1.0}, "/holdout", "0.99"),
        ({"minimum_exposure": -0.1}, "/minimum_exposure", "from 0 to 1"),
        ({"minimum_exposure": 0.8}, "/minimum_exposure", "with 3 items and 2 slots each item can be on 0.667"),
        ({"attribution_seconds": 1e9}, "/attribution_seconds", "from 1 to 2592000;"),
        ({"baseline": ["a", "z"]}, "/baseline", "'z' is not an item"),
        ({"baseline": ["a", "a"]}, "/baseline", "twice"),
        ({"colour": "red"}, "/colour", "colour"),
        ({"policy": "nobody"}, "/policy", "nobody"),
        ({"policy": "toprank"}, "/policy", "depends on the order of events"),
        ({"policy": "lbinfv"}, "/policy", "depends on the order of events"),
        ({"policy": "ftrl-pbm", "policy_settings": {"restart": 100}}, "/policy_settings", "depends on the order"),
        ({"policy": "ftrl-pbm", "policy_settings": {"rate": -1}}, "/policy_settings", "rate must be"),
        ({"policy": "fixed", "policy_settings": {"ranking": [0, 10**13]}}, "/policy_settings", "that many items$"),
        ({"policy_settings": {"speed": 1}}, "/policy_settings", "speed"),
        (
            {"policy": "pbm-ucb"},
            "/policy",
            "needs examination.*; the service can use all-weather, comb-ts, comb-ucb, fixed",
        ),
        ({"policy": "pbm-ucb", "policy_settings": {"examination": [1.0]}}, "/policy_settings", "examination"),
    ],
)
def test_an_invalid_setting_is_refused_with_a_pointer(body, pointer, message):
    with pytest.raises(Invalid, match=message) as caught:
        surface(**body)
    assert caught.value.errors[0]["pointer"] == pointer


@pytest.mark.parametrize("name", ["", "a\tb", "x" * 129])
def test_invalid_names_of_surfaces_are_refused(name):
    with pytest.raises(Invalid):
        surface_rules.create_surface(name, {"slots": 1, "items": ["a"]}, NOW)


def test_there_are_limits_to_items():
    most = surface(items=[str(k) for k in range(surface_rules.MAX_ITEMS)])
    assert len(most.items) == 20_000
    with pytest.raises(TooMany):
        surface_rules.activate_item(most, "one more", {}, NOW, "me")
    with pytest.raises(TooMany):
        surface(items=[str(k) for k in range(surface_rules.MAX_ITEMS + 1)])


def test_thousands_of_items_are_added_by_one_change():
    known = surface(items=["a", "b", "c", "d"])
    known = surface_rules.remove_item(surface_rules.pause_item(known, "b", NOW).surface, "c", NOW).surface
    names = ["c", "b", *(f"new {k}" for k in range(10_000))]
    change = surface_rules.update_surface(known, {"items": names}, {"": [7, 0]}, NOW, "me")
    assert [item.state for item in change.surface.items[:3]] == ["active", "paused", "active"]
    assert [item.index for item in change.surface.items] == list(range(10_004))
    assert change.surface.version == known.version + 1
    assert [one.increments.cells[0].item for one in change.adjustments] == list(range(4, 10_004))


def test_a_new_item_starts_at_the_median_of_the_active_ones():
    known = surface(items=["a", "b", "c", "d"])
    known = surface_rules.pause_item(known, "d", NOW).surface
    medians = surface_rules.medians_of(
        known, [segment([[10, 1], [30, 2], [20, 9], [999, 999]]), segment([[0, 4]], "other")]
    )
    change = surface_rules.activate_item(known, "new", medians, NOW, "me")
    cells = {one.increments.segment: one.increments.cells for one in change.adjustments}
    assert [(c.item, c.slot, c.loss // LOSS_UNIT) for c in cells[""]] == [(4, 0, 20), (4, 1, 2)]
    assert "other" not in cells  # the median there is zero
    assert all(one.increments.rounds == 0 and "median" in one.reason for one in change.adjustments)


def test_a_resumed_item_keeps_its_counters():
    for away in (surface_rules.pause_item, surface_rules.remove_item):
        known = away(surface(), "c", NOW).surface
        assert surface_rules.activate_item(known, "c", {"": [5] * 50}, NOW, "me").adjustments == ()


@with_engine()
async def test_a_warm_start_or_an_import_during_a_pause_is_charged_once(engine, store, clock):
    model = {"item": ITEMS, "attraction": [0.5, 0.5, 0.5, 0.5, 0.5, 0.9], "examination": [1.0, 1.0, 1.0]}
    rows = [
        {"event": f"e{k}", "position": j, "item": ITEMS[(k + j) % 6], "click": 0, "propensity": 1 / 6}
        for k in range(60)
        for j in range(3)
    ]
    for item in ("f", "e"):
        await (engine.pause_item if item == "f" else engine.delete_item)("home", item, actor="test")
    await engine.warm_start("home", model, rounds=1000, actor="test")
    await engine.import_rows("home", rows, actor="test")
    before = dict(store.totals()[1, ""][1])
    await engine.resume_item("home", "f", actor="test")
    await engine.put_item("home", "e", actor="test")
    assert store.totals()[1, ""][1] == before
    assert before[5, 0] < before[4, 0]  # and what the model knows is kept


def test_removed_items_make_room_for_others(monkeypatch):
    monkeypatch.setattr(surface_rules, "MAX_ITEMS", 4)
    monkeypatch.setattr(surface_rules, "MAX_ITEMS_EVER", 6)
    known = surface(items=["a", "b", "c", "d"])
    with pytest.raises(TooMany, match="at most 4 items"):
        surface_rules.activate_item(known, "e", {}, NOW, "me")
    for old, new in (("c", "e"), ("d", "f")):
        known = surface_rules.activate_item(
            surface_rules.remove_item(known, old, NOW).surface, new, {}, NOW, "me"
        ).surface
    with pytest.raises(TooMany, match="at most 4 items"):
        surface_rules.activate_item(surface_rules.pause_item(known, "a", NOW).surface, "g", {}, NOW, "me")
    with pytest.raises(TooMany, match="6 items, including removed ones"):
        surface_rules.activate_item(surface_rules.remove_item(known, "a", NOW).surface, "g", {}, NOW, "me")


def test_the_index_of_a_removed_item_is_not_reused():
    known = surface_rules.remove_item(surface(), "c", NOW).surface
    known = surface_rules.activate_item(known, "d", {}, NOW, "me").surface
    known = surface_rules.activate_item(known, "c", {}, NOW, "me").surface
    assert [(item.name, item.index, item.state) for item in known.items] == [
        ("a", 0, "active"),
        ("b", 1, "active"),
        ("c", 2, "active"),
        ("d", 3, "active"),
    ]


def test_a_surface_keeps_enough_active_items_for_its_slots():
    with pytest.raises(Invalid, match="2 slots need 2 active items; there are 1"):
        surface_rules.pause_item(surface_rules.pause_item(surface(), "a", NOW).surface, "b", NOW)


def test_a_change_without_effect_keeps_the_version():
    known = surface()
    assert surface_rules.change_settings(known, {"slots": 2}, NOW).surface is known
    assert surface_rules.activate_item(known, "a", {}, NOW, "me").surface is known
    assert surface_rules.update_surface(known, {"slots": 2, "items": ["b"]}, {}, NOW, "me").surface is known


def test_one_put_makes_one_version():
    known = surface()
    change = surface_rules.update_surface(
        known, {"items": ["x", "y"], "baseline": ["y"], "slots": 4}, {"": [5] * 50}, NOW, "me"
    )
    assert change.surface.version == known.version + 1
    assert [item.name for item in change.surface.items] == ["a", "b", "c", "x", "y"]
    assert len(change.adjustments) == 2
    assert change.surface.settings.baseline == ("y",)


CHANGES = {
    "pause": lambda engine, k: engine.pause_item("home", ITEMS[k % 6], actor="test"),
    "resume": lambda engine, k: engine.resume_item("home", ITEMS[k % 6], actor="test"),
    "remove": lambda engine, k: engine.delete_item("home", ITEMS[k % 6], actor="test"),
    "add": lambda engine, k: engine.put_item("home", [*ITEMS, "new"][k % 7], actor="test"),
    "slots": lambda engine, k: engine.patch_surface("home", {"slots": 1 + k % 4}, actor="test"),
    "policy": lambda engine, k: engine.patch_surface("home", {"policy": ["ftrl-pbm", "comb-ts"][k % 2]}, actor="test"),
    "holdout": lambda engine, k: engine.patch_surface("home", {"holdout": k % 5 / 10, "floor": 0.05}, actor="test"),
    "put": lambda engine, k: engine.put_surface("home", {"slots": 2, "items": ITEMS[: k % 6]}, actor="test"),
}


@pytest.mark.slow
@settings(max_examples=12)
@given(st.lists(st.tuples(st.sampled_from(sorted(CHANGES)), st.integers(0, 100)), max_size=12))
def test_no_change_of_settings_or_items_loses_learning(changes):
    async def whole():
        store, clock = FakeStore(), Clock()
        async with running(store, clock=clock) as engine:
            await engine.put_surface("home", {"slots": 2, "items": ITEMS}, actor="test")
            for k in range(20):
                await visit(engine, f"v{k}", {"a", "b"})
            learned = store.totals()[1, ""]
            for name, k in changes:
                try:
                    await CHANGES[name](engine, k)
                except (Invalid, Conflict, Unknown):
                    continue
            rounds, loss, shown, clicked = store.totals()[1, ""]
            assert (rounds, shown, clicked) == (learned[0], learned[2], learned[3])
            adjusted = sum(c.loss for one in store.made for c in one.increments.cells)
            assert sum(loss.values()) == sum(learned[1].values()) + adjusted
            assert all(c.loss > 0 for one in store.made for c in one.increments.cells)
            assert store.totals() == store.rebuilt()
            assert (await engine.rank("home", "after")).slots

    asyncio.run(whole())


async def shown_to(engine, visitors):
    """Returns the lists of a hundred visitors."""
    return {slot.item for k in range(100) for slot in (await engine.rank("home", f"{visitors}{k}")).slots}


@with_engine()
async def test_changes_are_served_at_once(engine, store, clock):
    await engine.pause_item("home", "a", actor="test")
    assert "a" not in await shown_to(engine, "p")
    await engine.resume_item("home", "a", actor="test")
    await engine.put_item("home", "g", actor="test")
    assert {"a", "g"} <= await shown_to(engine, "q")
    await engine.delete_item("home", "g", actor="test")
    assert "g" not in await shown_to(engine, "z")
    with pytest.raises(Conflict, match="removed"):
        await engine.resume_item("home", "g", actor="test")
    with pytest.raises(Unknown):
        await engine.pause_item("home", "nobody", actor="test")
    assert [entry["action"] for entry in store.audit(1, 10)] == [
        "remove item",
        "add item",
        "resume item",
        "pause item",
        "create surface",
    ]


@pytest.mark.slow
@with_engine()
async def test_an_item_added_to_a_learned_surface_does_not_take_it_over(engine, store, clock):
    for k in range(400):
        await visit(engine, f"v{k}", {"a", "b", "c"})
    await engine.put_item("home", "late", actor="test")
    x = (await engine.state("home"))["marginals"]
    share = dict(zip(x["items"], np.array(x["x"]).sum(axis=1)))
    assert share["late"] < 0.5 * share["a"]


@with_engine()
async def test_a_change_of_an_outdated_version_is_refused(engine, store, clock):
    version = engine.surface("home").version
    changed = await engine.patch_surface("home", {"floor": 0.05}, actor="one", if_version=version)
    assert changed.version == version + 1
    with pytest.raises(Conflict, match="version"):
        await engine.patch_surface("home", {"floor": 0.1}, actor="two", if_version=version)
    with pytest.raises(Conflict):
        await engine.put_surface("other", {"slots": 1, "items": ["a"]}, actor="two", if_version=3)
    _, created = await engine.put_surface("home", {"slots": 2}, actor="one")
    assert not created
    assert engine.surface("home").settings.floor == 0.05
    assert [s.name for s in engine.surfaces()] == ["home"]


@with_engine()
async def test_a_reset_is_audited(engine, store, clock):
    for k in range(50):
        await visit(engine, f"v{k}", {"a"}, segment=["", "mobile"][k % 2])
    await engine.pause_item("home", "b", actor="test")
    await engine.reset("home", segment="mobile", actor="test")
    assert (await engine.state("home", "mobile"))["rounds"] == 0
    assert (await engine.state("home"))["rounds"] == 25
    await engine.reset("home", segment=None, actor="test")
    assert (await engine.state("home"))["rounds"] == 0
    assert not np.any((await engine.state("home"))["loss"])
    for k in range(50):
        await visit(engine, f"w{k}", {"a"})
    await engine.resume_item("home", "b", actor="test")
    await refreshed(engine)
    loss = np.array((await engine.state("home"))["loss"])
    assert (loss[1] >= np.sort(loss[[0, 2, 3, 4, 5]], axis=0)[0]).all()
    assert store.totals() == store.rebuilt()
    with pytest.raises(Unknown):
        await engine.reset("home", segment="nobody", actor="test")


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        ("comb-ts", {}),
        ("uniform", {}),
        ("fixed", {"ranking": [5, 4, 3]}),
        ("hybrid", {}),
        ("pbm-ucb", {"examination": [1.0, 0.7, 0.5]}),
    ],
)
def test_every_policy_that_can_serve_does_so_in_the_same_way(policy, settings):
    @with_engine(policy=policy, policy_settings=settings, floor=0.1)
    async def serve(engine, store, clock):
        for k in range(30):
            await visit(engine, f"v{k}", {"a"}, pins={1: "c"} if k % 3 == 0 else {})
        await refreshed(engine)
        state = await engine.state("home")
        x = np.array(state["marginals"]["x"])
        assert np.allclose(x.sum(axis=0), 1.0)
        assert x.min() >= 0.1 / 6 - 1e-12
        ranked = await engine.rank("home", "last")
        assert [slot.p for slot in ranked.slots] == [x["abcdef".index(s.item), s.slot] for s in ranked.slots]
        assert (await answer(engine, ranked, [0])).status == "accepted"

    serve()


@with_engine(policy="ftrl-pbm")
async def test_the_audit_log_has_values_as_json_and_segments_in_words(engine, store, clock):
    arm = {"name": "new", "policy": "uniform", "share": 0.5}
    await engine.patch_surface("home", {"guard": False, "retention_days": 30.0, "arms": [arm]}, actor="ann")
    await engine.reset("home", segment="", actor="ann")
    await engine.reset("home", segment=None, actor="ann")
    model = {"item": ["a", "b", "c"], "attraction": [0.9, 0.5, 0.1], "examination": [1.0, 0.6, 0.3]}
    await engine.warm_start("home", model, rounds=10, segment="mobile", actor="ann")
    await engine.delete_segment("home", "mobile", actor="ann")
    details = [entry["detail"] for entry in reversed(store.audit(1, 100))]
    assert "guard: true -> false; retention_days: null -> 30.0" in details[1]
    before, after = details[1].partition("arms: ")[2].partition("; ")[0].split(" -> ")
    assert (json.loads(before), json.loads(after)[0]["name"]) == ([], "new")
    assert details[2:5] == ["the default segment", "all segments", '10 rounds, segment "mobile"']
    assert details[5].startswith('"mobile": ')
    assert not [detail for detail in details if re.search(r"'|\bNone\b|\bTrue\b|\bFalse\b", detail)]
