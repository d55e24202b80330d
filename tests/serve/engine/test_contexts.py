"""Labels of visitors and items through the engine: what is served, logged, learned, replayed and exported."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import numpy as np
import pytest

from bothworlds import Ranker
from bothworlds.core import is_work, leaves
from bothworlds.labels import MAX_VALUES
from bothworlds.serve.engine.served import Constraints
from bothworlds.serve.engine.states import relearned, same_bits
from bothworlds.serve.model import Invalid, Unknown
from bothworlds.serve.ops.verify import verify
from tests.cases import case
from tests.serve.running import answer, looked, refreshed, state_of, visit, with_engine

SHOP = {
    "policy": "all-weather",
    "labels": {"device": ["phone", "desktop"], "country": None, "age": [18, 30]},
    "item_labels": {"category": None, "price": [10]},
    "items": [{"name": name, "labels": {"category": "light"}} for name in "abc"] + ["d", "e", "f"],
}
DEVICES = ("phone", "desktop")


async def shopping(engine, count, start=0, **arguments):
    """Visitors on phones click on a and b, and others on f."""
    for k in range(start, start + count):
        device = DEVICES[k % 2]
        likes = {"a", "b"} if device == "phone" else {"f"}
        await visit(engine, f"v{k}", likes, context={"device": device, "age": k % 50, "country": "de"}, **arguments)
        if k % 25 == 24:
            await refreshed(engine)
    await refreshed(engine)


async def shown(engine, **context):
    state = await engine.reports.state("home", context)
    return dict(zip(state["marginals"]["items"], np.sum(state["marginals"]["x"], axis=1)))


def replayed(engine, store):
    served = engine.registry.served("home")
    return relearned(store, served.learner().learner, served.target(served.learner()))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["all-weather", "context-ts"])
def test_each_context_gets_its_list_and_the_log_gives_the_state_bit_for_bit(tmp_path, policy):
    @with_engine(**SHOP | {"policy": policy})
    async def run(engine, store, clock):
        await shopping(engine, 1200)
        await engine.administration.change_item("home", "g", "add", labels={"category": "floor"}, actor="ann")
        await shopping(engine, 200, 1200, exclude=["d"])
        phone, desktop = await shown(engine, device="phone"), await shown(engine, device="desktop")
        assert phone["a"] + phone["b"] > 1.5
        assert desktop["f"] > 0.8 > 0.5 > phone["f"]
        assert same_bits(state_of(engine), replayed(engine, store))
        rows = await asyncio.to_thread(list, engine.log.export("home"))
        assert {row["context.age"] for row in rows[1:]} == {"..18", "18..30", "30.."}
        path = tmp_path / "home.ndjson"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        ranker = Ranker.from_export(path)
        ours, theirs = (
            {path: np.asarray(leaf).tobytes() for path, leaf in leaves(state) if not is_work(path)}
            for state in (state_of(engine).present(7), ranker._state)
        )
        assert ours == theirs
        assert ranker.learned({"device": "phone"})["a"].sum() > 0.5
        served = engine.registry.served("home")
        engine.states.save(engine.learning.lease, served.learner().learner.id)
        assert (verify(store).snapshots, verify(store).clean) == (1, True)
        engine.states.forget([served.learner().learner.id])  # made again from the snapshot
        assert same_bits(state_of(engine), replayed(engine, store))

    run()


def frequencies(lists, count):
    """How often each item was at each slot, in so many lists."""
    table = np.zeros((6, 3))
    for _ in range(count):
        table[lists.next().items, range(3)] += 1
    return table / count


def is_drawn_from(x, lists, count=20_000):
    """Whether frequencies are those of the marginals, within five standard deviations."""
    return (np.abs(frequencies(lists, count) - x) <= 5.0 * np.sqrt(x * (1.0 - x) / count) + 1e-12).all()


@pytest.mark.slow
@with_engine(**SHOP)
async def test_lists_have_the_propensities_of_their_context(engine, store, clock):
    await shopping(engine, 400)
    served = engine.registry.served("home")
    made = {device: served.make(served.learner(), Constraints(context=(("device", device),))) for device in DEVICES}
    for device, lists in made.items():
        assert is_drawn_from(lists.marginals, lists)
        assert not is_drawn_from(made[DEVICES[device == "phone"]].marginals, lists)  # another context is noticed
        page = await engine.rank("home", f"of {device}", context={"device": device})
        cells = [[slot.slot for slot in page.slots], [slot.p for slot in page.slots]]
        items = ["abcdef".index(slot.item) for slot in page.slots]
        assert lists.marginals[items, cells[0]].tolist() == cells[1]
        assert lists.marginals.min() >= 0.005 / 6 - 1e-12  # the floor
        event = store.find_events([bytes.fromhex(page.event_id)]) or engine.recorder.unwritten(
            bytes.fromhex(page.event_id)
        )
        assert event


@with_engine(**SHOP)
async def test_what_was_learned_for_is_said_and_logged(engine, store, clock):
    page = await engine.rank("home", "r1", context={"device": "phone", "age": 18}, segment="vip")
    assert (page.context, page.segment) == ({"device": "phone", "country": "", "age": "18..30"}, "vip")
    assert await engine.rank("home", "r1", context={"device": "desktop"}) == page
    view = await engine.reports.event(page.event_id)
    assert (view["context"], view["segment"]) == ({"device": "phone", "age": "18..30", "segment": "vip"}, "vip")
    assert (await engine.rank("home", "r1")).context == page.context  # from the store
    assert (await answer(engine, page, [0])).status == "accepted"
    assert (await engine.rank("home", "r2")).context == {"device": "", "country": "", "age": ""}


@with_engine(**SHOP)
async def test_unknown_values_are_served_and_counted(engine, store, clock):
    for k in range(3):
        page = await engine.rank("home", f"r{k}", context={"device": "watch"})
        assert page.context["device"] == ""
    values = [(await engine.rank("home", f"c{k}", context={"country": f"c{k}"})).context["country"] for k in range(205)]
    assert values == [f"c{k}" for k in range(MAX_VALUES)] + [""] * 5
    assert (await engine.rank("home", "again", context={"country": "c7"})).context["country"] == "c7"
    assert (await engine.reports.effects("home"))["unknown"] == {"device": 3, "country": 5}
    assert engine.health()["unknown_label_values"] == 8


@with_engine(**SHOP)
async def test_bad_contexts_are_refused_and_point_to_the_field(engine, store, clock):
    for context, pointer in (
        ({"city": "rome"}, "/context/city"),
        ({"a/b": "rome"}, "/context/a~1b"),
        ({"device": 3}, "/context/device"),
        ({"device": None}, "/context/device"),
        ({"country": "x" * 65}, "/context/country"),
        ({"country": "a\nb"}, "/context/country"),
        ({"age": "old"}, "/context/age"),
        ({"age": float("nan")}, "/context/age"),
        ({"age": True}, "/context/age"),
        ({"segment": ["a"]}, "/context/segment"),
    ):
        with case(context=context), pytest.raises(Invalid) as caught:
            await engine.rank("home", "bad", context=context)
        assert caught.value.errors[0]["pointer"] == pointer
    with pytest.raises(Invalid, match="segment"):
        await engine.rank("home", "bad", segment="a", context={"segment": "b"})
    assert (await engine.rank("home", "bad")).slots


@with_engine(policy="all-weather")
async def test_bad_declarations_are_refused_and_change_nothing(engine, store, clock):
    before = engine.registry.surface("home")
    for changes, pointer in (
        ({"labels": ["a", "a"]}, "/labels"),
        ({"labels": [f"l{k}" for k in range(9)]}, "/labels"),
        ({"labels": {"": None}}, "/labels/"),
        ({"labels": {"all": None}}, "/labels/all"),
        ({"labels": {"age": [3, 2]}}, "/labels/age"),
        ({"labels": {"age": list(range(65))}}, "/labels/age"),
        ({"labels": {"age": "x"}}, "/labels/age"),
        ({"item_labels": {"price": [1, "a"]}}, "/item_labels/price"),
        ({"labels": ["device"], "policy": "ftrl-pbm"}, "/policy"),
        ({"labels": ["device"], "arms": [{"name": "new", "policy": "gibbs-ts", "share": 0.1}]}, "/arms/0/policy"),
        ({"items": [{"name": "a", "labels": {"category": "x"}}]}, "/items/0/labels/category"),
        ({"item_labels": ["category"], "items": ["b", {"name": "a", "labels": {"category": 3}}]},
         "/items/1/labels/category"),
    ):  # fmt: skip
        with case(changes=changes), pytest.raises(Invalid) as caught:
            await engine.administration.put_surface("home", changes, actor="ann")
        assert caught.value.errors[0]["pointer"] == pointer
        if pointer.endswith("policy"):
            assert "all-weather or context-ts" in str(caught.value)
    assert engine.registry.surface("home") == before


@with_engine(policy="all-weather")
async def test_a_segment_is_a_label_that_the_first_request_declares(engine, store, clock):
    for k in range(10):
        await visit(engine, f"v{k}", {"a"})
    await refreshed(engine)
    assert engine.registry.surface("home").settings.labels is None
    page = await engine.rank("home", "r1", segment="mobile")
    assert (page.segment, page.context) == ("mobile", {"segment": "mobile"})
    entry = store.audit(1, 1)[0]
    assert (entry["actor"], entry["detail"]) == (
        "request", 'labels: null -> {"segment":null}; 10 events of the log are learned again'
    )  # fmt: skip
    await looked(engine)
    assert same_bits(state_of(engine), replayed(engine, store))
    for k in range(300):
        await visit(engine, f"w{k}", {"a"} if k % 2 else {"f"}, context={"segment": ["desktop", "mobile"][k % 2]})
    await refreshed(engine)
    assert (await shown(engine, segment="mobile"))["a"] > 0.8
    assert (await shown(engine, segment="desktop"))["f"] > 0.8
    report = await engine.reports.report("home", until=clock.at + 1, segment="desktop")
    assert (report["headline"]["pages"], report["segments"]) == (150, ["", "desktop", "mobile"])
    assert report["marginals"]["context"] == {"segment": "desktop"}


@with_engine(policy="all-weather", labels={})
async def test_a_segment_that_is_not_declared_is_only_reported(engine, store, clock):
    for settings in ({}, {"policy": "ftrl-pbm"}, {"policy": "ftrl-pbm", "labels": None}):
        await engine.administration.patch_surface("home", settings, actor="ann")
        page = await visit(engine, f"r{settings}", {"a"}, segment="mobile")
        assert (page.segment, page.context) == ("mobile", {})
    await looked(engine)
    assert engine.registry.surface("home").labels == {}
    assert (await engine.reports.report("home", until=clock.at + 1, segment="mobile"))["headline"]["pages"] == 3
    assert (await engine.reports.state("home"))["rounds"] == 3


@pytest.mark.slow
@with_engine(policy="all-weather", labels=[])
async def test_labels_that_are_added_or_changed_are_learned_from_the_whole_log(engine, store, clock):
    for k in range(60):
        await visit(engine, f"v{k}", {"a"}, segment=["x", "y"][k % 2])
    await refreshed(engine)
    before = await engine.reports.state("home")
    for changes in (
        {"labels": ["device", "segment"]},
        {"item_labels": ["category"]},
        {"items": [{"name": "a", "labels": {"category": "light"}}]},
        {"labels": ["segment"]},
    ):
        with case(changes=changes):
            await engine.administration.put_surface("home", changes, actor="ann")
            assert "60 events of the log are learned again" in store.audit(1, 1)[0]["detail"]
            await engine.rank("home", f"after {changes}", context={"segment": "x"})
            await looked(engine)
            assert engine.states.unfinished() == []
            assert same_bits(state_of(engine), replayed(engine, store))
            state = await engine.reports.state("home")
            assert [state[name] for name in ("rounds", "shown", "clicked", "loss")] == [
                before[name] for name in ("rounds", "shown", "clicked", "loss")
            ]
    assert sorted(state_of(engine).visitor.known["segment"]) == ["x", "y"]  # events of before have it
    assert state_of(engine).state.labels.items.tolist() == [[1, 0, 0, 0, 0, 0]]
    await engine.administration.change_item("home", "a", "pause", actor="ann")
    changed = await engine.administration.change_item("home", "a", "add", labels={"category": "floor"}, actor="ann")
    assert (changed.items[0].state, changed.items[0].labels) == ("paused", {"category": "floor"})


@pytest.mark.slow
@with_engine(**SHOP)
async def test_effects_say_what_matters(engine, store, clock):
    assert (await engine.reports.effects("home"))["effects"] == []
    await shopping(engine, 500)
    pairs = (await engine.reports.effects("home"))["effects"]
    sd = {(pair["visitor_label"], pair["item_label"]): pair["sd"] for pair in pairs}
    assert sd["device", "category"] > 0.3 > sd["age", "category"]
    assert next(pair["pages"] for pair in pairs if pair["visitor_label"] == "device") == 500
    best = (await engine.reports.effects("home", "device", "category"))["effects"][0]
    assert (best["visitor_value"], best["item_value"]) in {("phone", "light"), ("desktop", "")}
    for visitor, item, pointer in (
        ("city", "category", "?visitor"),
        ("device", "city", "?item"),
        ("device", None, "?visitor"),
    ):
        with pytest.raises(Invalid) as caught:
            await engine.reports.effects("home", visitor, item)
        assert caught.value.errors[0]["pointer"] == pointer
    with pytest.raises(Unknown):
        await engine.reports.effects("home", arm="holdout")


@with_engine(**SHOP | {"holdout": 0.3, "baseline_rounds": 100, "minimum_exposure": 0.2})
async def test_other_settings_hold_for_every_context(engine, store, clock):
    arms = Counter([(await engine.rank("home", f"r{k}", context={"device": "phone"})).arm for k in range(200)])
    assert 30 < arms["holdout"] < 90
    served = engine.registry.served("home")
    lists = served.make(served.learner(), Constraints(context=(("device", "phone"),)))
    assert (lists.marginals.sum(axis=1) >= 0.2 - 1e-9).all()
    assert (np.diag(lists.marginals[:3]) > 0.5).all()  # the page's own order, at the start
    page = await engine.rank("home", "pinned", context={"device": "phone"}, exclude=["a"], pins={0: "f"})
    assert page.slots[0].item == "f"
    assert "a" not in {slot.item for slot in page.slots}


@with_engine(**SHOP)
async def test_lists_of_a_context_are_cached_until_the_next_publication(engine, store, clock):
    await shopping(engine, 100)
    context, served = {"device": "phone"}, engine.registry.served("home")
    ids = {(await engine.rank("home", f"a{k}", context=context)).policy_id for k in range(5)}
    assert len(ids) == 1
    await shopping(engine, 50, 100)
    clock.at += 5000
    await visit(engine, "one more", {"a"}, context=context)
    await refreshed(engine)
    after = (await engine.rank("home", "b1", context=context)).policy_id
    assert after not in ids
    assert served.cached(served.learner(), Constraints(context=(("device", "phone"),))).id == after


@with_engine(**SHOP)
async def test_events_of_a_context_can_be_deleted(engine, store, clock):
    await shopping(engine, 30)
    assert await engine.log.delete_context("home", {"device": "phone", "country": "fr"}, actor="ann") == 0
    assert await engine.log.delete_context("home", {"device": "phone"}, actor="ann") == 15
    assert {event.context["device"] for event in store.events(1, 0, 1 << 60)} == {"desktop"}
    for context in ({}, {"age": 3}):
        with pytest.raises(Invalid):
            await engine.log.delete_context("home", context, actor="ann")
