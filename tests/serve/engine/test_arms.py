"""Arms: each learns from its own pages, all are watched and guarded, and a winner is promoted without forgetting."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import numpy as np
import pytest

from bothworlds.serve.engine import surface_rules
from bothworlds.serve.engine.promotion import promote
from bothworlds.serve.model import Conflict, Invalid, Unknown, counter_key
from bothworlds.serve.observability.metrics import Metrics
from bothworlds.serve.ops.verify import verify
from bothworlds.serve.reports.inputs import MINUTE
from bothworlds.serve.stores.factory import open_store
from tests.serve.fakes import FakeStore
from tests.serve.running import ITEMS, Clock, answer, refreshed, running, visit, with_engine, written

NEW, OLD = {"name": "new", "policy": "ftrl-pbm", "share": 0.5}, {"name": "old", "policy": "uniform", "share": 0.5}
BEST, WORST = ({"policy": "fixed", "policy_settings": {"ranking": ranking}} for ranking in ([0, 1, 2], [5, 4, 3]))
RATES = dict(zip(ITEMS, (0.6, 0.5, 0.4, 0.1, 0.1, 0.1)))


def rounds_of(store, surface_id=1):
    return {name: totals[0] for (owner, name), totals in store.totals().items() if owner == surface_id}


def served(engine, arm, segment=""):
    surface = engine.refresher.surfaces["home"]
    return surface.arms.get(arm, surface).segments[segment]


async def visits(engine, clock, rng, numbers, watch=60, **arguments):
    """Pages, one a second, of visitors who like the first items best; returns the number of pages of each arm."""
    arms = Counter()
    for number in numbers:
        ranked = await engine.rank("home", f"v{number}", **arguments)
        arms[ranked.arm] += 1
        await answer(engine, ranked, [slot.slot for slot in ranked.slots if rng.random() < RATES[slot.item]])
        clock.at += 1000
        if number % watch == 0:
            await asyncio.to_thread(engine.watch)
    await refreshed(engine)
    return arms


# Settings


@pytest.mark.parametrize(
    ("arms", "pointer", "message"),
    [
        ([NEW, NEW], "/arms/1/name", "twice"),
        ([NEW | {"name": "holdout"}], "/arms/0/name", "every surface has"),
        ([NEW | {"name": "learner"}], "/arms/0/name", "every surface has"),
        ([NEW | {"name": ""}], "/arms/0/name", "printable"),
        ([NEW | {"share": 0.0}], "/arms/0/share", "above 0"),
        ([NEW | {"share": float("nan")}], "/arms/0/share", "above 0"),
        ([NEW, OLD | {"share": 0.46}], "/arms", "add up to 1.01"),
        ([NEW | {"policy": "toprank"}], "/arms/0/policy", "depends on the order of events"),
        ([NEW | {"policy_settings": {"rate": -1}}], "/arms/0/policy_settings", "rate must be"),
        ([{"name": "new"}], "/arms/0/share", "share"),
        ([NEW | {"colour": "red"}], "/arms/0/colour", "colour"),
        ([NEW | {"name": str(k), "share": 0.01} for k in range(9)], "/arms", "at most 8 arms"),
    ],
)
def test_arms_that_are_not_valid_are_refused(arms, pointer, message):
    body = {"slots": 3, "items": ITEMS, "holdout": 0.05, "arms": arms}
    with pytest.raises(Invalid, match=message) as refused:
        surface_rules.create_surface("home", body, 0)
    assert refused.value.errors[0]["pointer"] == pointer


def surface_with(*arms, **body):
    made = surface_rules.create_surface("home", {"slots": 3, "items": ITEMS, "arms": list(arms), **body}, 5).surface
    return msgspec.structs.replace(made, id=1)


def test_the_surfaces_own_policy_gets_what_arms_and_holdout_leave():
    assert surface_with(NEW, OLD).shares == {"new": 0.5, "old": 0.5}
    assert surface_with(NEW, OLD).first_arm == "new"
    some = surface_with(NEW | {"share": 0.3}, holdout=0.1)
    assert some.shares == pytest.approx({"holdout": 0.1, "new": 0.3, "learner": 0.6})
    assert some.first_arm == "learner"
    thirds = surface_with(*(NEW | {"name": name, "share": 0.3} for name in "abc"), holdout=0.1)
    assert thirds.shares.keys() == {"holdout", *"abc"}  # although 0.1 + 3 * 0.3 is less than 1 in floating point


def test_other_arms_start_another_comparison_and_other_shares_do_not():
    before = surface_with(NEW, OLD)
    shares = surface_rules.change_settings(before, {"arms": [NEW | {"share": 0.4}, OLD]}, 9)
    assert shares.surface.compared_since == 5
    assert shares.arms == ({"new": 0.5, "old": 0.5}, {"new": 0.4, "old": 0.5})
    assert shares.surface.arm_learners == before.arm_learners == {"new": 1, "old": 2}
    other = surface_rules.change_settings(before, {"arms": [NEW | {"policy": "ftpl"}, OLD]}, 9).surface
    assert (other.compared_since, other.arm_learners) == (9, before.arm_learners)  # nothing that was learned is lost
    fewer = surface_rules.change_settings(before, {"arms": []}, 9).surface
    again = surface_rules.change_settings(fewer, {"arms": [OLD, NEW]}, 10).surface
    assert again.arm_learners == before.arm_learners
    more = surface_rules.change_settings(fewer, {"arms": [OLD | {"name": "third"}]}, 10).surface
    assert more.learner_of("third") == 3


# Learning


@with_engine(arms=[NEW | {"share": 0.4}, OLD | {"share": 0.2}], holdout=0.1)
async def test_each_arm_learns_from_its_own_pages(engine, store, clock):
    arms = Counter()
    for k in range(150):
        pins = {0: "c"} if k % 5 == 0 else {}
        exclude = ["d"] if k % 7 == 0 else []
        page = await visit(engine, f"v{k}", {"a", "b"}, segment=["", "m"][k % 2], pins=pins, exclude=exclude)
        arms[page.arm, page.segment] += 1
    learners = {"learner": 0, "new": 1, "old": 2}
    expected = {counter_key(segment, learners[arm]): n for (arm, segment), n in arms.items() if arm in learners}
    assert rounds_of(store) == expected
    assert len(expected) == 6
    assert store.totals() == store.rebuilt()
    assert verify(store).clean
    await refreshed(engine)
    for (arm, segment), n in arms.items():
        if arm in learners:
            assert served(engine, arm, segment).counters.rounds == n
    assert served(engine, "new").unconstrained.learner.entropy < served(engine, "old").unconstrained.learner.entropy
    assert [one["pages"] for one in await engine.segments("home")] == [
        sum(n for (arm, of), n in arms.items() if of == segment and arm != "holdout") for segment in ("", "m")
    ]


@with_engine(arms=[NEW, OLD], max_segments=2)
async def test_resets_new_items_warm_starts_and_deleted_segments_are_those_of_all_arms(engine, store, clock):
    for k in range(60):
        page = await visit(engine, f"v{k}", {"a"}, segment=["", "m", "third"][k % 3])
        assert page.segment in ("", "m")  # the keys of arms are no segments
    await engine.put_item("home", "g", actor="ann")
    starts = [one for one in store.made if "median start" in one.reason]
    assert {one.increments.segment for one in starts} == {counter_key(name, k) for name in ("", "m") for k in (1, 2)}
    await engine.reset("home", segment="m", actor="ann")
    assert {name for name, rounds in rounds_of(store).items() if rounds} == {counter_key("", 1), counter_key("", 2)}
    await engine.delete_segment("home", "m", actor="ann")
    assert rounds_of(store).keys() <= {"", counter_key("", 1), counter_key("", 2)}
    model = {"item": ["a", "b"], "attraction": [0.9, 0.5], "examination": [1.0, 0.6, 0.3]}
    before = rounds_of(store)
    await engine.warm_start("home", model, rounds=50, actor="ann")
    for key in ("", counter_key("", 1), counter_key("", 2)):
        assert rounds_of(store)[key] - before.get(key, 0) == 50
    assert verify(store).clean
    clock.at += 10**10
    await visit(engine, "late", {"a"}, segment="n")
    await refreshed(engine)
    clock.at += 10**10
    await asyncio.to_thread(engine.expire_segments)
    assert [one["name"] for one in await engine.segments("home")] == [""]
    assert verify(store).clean


@with_engine(arms=[NEW, OLD])
async def test_an_exported_log_teaches_the_same_arms(engine, store, clock):
    for k in range(60):
        await visit(engine, f"v{k}", {"a", "b"})
    rows = list(engine.export("home"))
    assert {row["arm"] for row in rows} == {"new", "old"}
    other = FakeStore()
    async with running(other) as second:
        await second.put_surface("home", {"slots": 3, "items": ITEMS, "arms": [OLD, NEW]}, actor="test")
        assert (await second.import_rows("home", iter(rows), actor="test")).taken == 60
        assert (await second.import_rows("home", iter(rows), actor="test")).known == 60
        for arm in ("new", "old"):
            assert (await second.state("home", arm=arm))["loss"] == (await engine.state("home", arm=arm))["loss"]
        await second.put_surface("plain", {"slots": 3, "items": ITEMS}, actor="test")
        refused = await second.import_rows("plain", iter(rows), actor="test")
        assert (refused.taken, refused.reasons) == (0, {"an arm that the surface does not have": 60})
    assert verify(other).clean


@with_engine(arms=[NEW | {"share": 0.3}, OLD | {"share": 0.3}], holdout=0.1, policy="uniform")
async def test_the_log_of_a_promoted_arm_teaches_the_policy_of_another_surface(engine, store, clock):
    for k in range(80):
        await visit(engine, f"v{k}", {"a", "b"})
    await engine.promote("home", "new", actor="ann")
    for k in range(80, 120):
        await visit(engine, f"v{k}", {"a", "b"})
    rows, ours = list(engine.export("home")), await engine.state("home")
    other = FakeStore()
    async with running(other) as second:
        await second.put_surface("home", {"slots": 3, "items": ITEMS, "policy": "ftrl-pbm"}, actor="test")
        imported = await second.import_rows("home", iter(rows), actor="test")
        theirs = await second.state("home")
        assert [theirs[key] for key in ("rounds", "loss", "clicked")] == [
            ours[key] for key in ("rounds", "loss", "clicked")
        ]
        assert imported.reasons.keys() == {
            "an arm that the surface does not have",
            "a page of a policy that another one has replaced",
        }
        # Without the column, all pages of the learner are learned from.
        plain = [{key: value for key, value in row.items() if key != "own"} for row in rows if row["arm"] == "learner"]
        await second.put_surface("plain", {"slots": 3, "items": ITEMS, "policy": "ftrl-pbm"}, actor="test")
        assert (await second.import_rows("plain", iter(plain), actor="test")).taken == len(plain) // 3
    assert verify(other).clean


# Promotion


@with_engine(arms=[NEW | {"share": 0.45}, OLD | {"share": 0.45}], holdout=0.1)
async def test_a_winner_is_promoted_without_forgetting(engine, store, clock):
    for k in range(80):
        await visit(engine, f"v{k}", {"a", "b"})
    waiting = [await engine.rank("home", f"w{k}") for k in range(20)]
    await written(engine)
    await refreshed(engine)
    before = served(engine, "new")
    assert (await engine.state("home", arm="new"))["rounds"] == before.counters.rounds
    assert (await engine.state("home"))["rounds"] == 0
    with pytest.raises(Unknown, match="has no arm 'third'"):
        await engine.state("home", arm="third")
    clock.at += 1000
    surface = await engine.promote("home", "new", actor="ann")
    assert (surface.settings.policy, surface.settings.arms, surface.promoted) == ("ftrl-pbm", (), "new")
    after = served(engine, "learner")
    assert after.counters.rounds == before.counters.rounds > 20
    assert after.unconstrained.learner.id == before.unconstrained.learner.id
    assert (await engine.state("home"))["rounds"] == before.counters.rounds
    assert surface.shares == {"holdout": 0.1, "learner": 0.9}
    assert surface.compared_since == clock.at

    # Pages that the arm had shown before are learned from by the surface.
    engine.refresher.refresh = lambda: None  # the state has all that was acknowledged, refreshed or not
    for page in waiting:
        assert (await answer(engine, page, [0])).status == "accepted"
    own = sum(page.arm == "new" for page in waiting)
    assert own
    assert (await engine.state("home"))["rounds"] == before.counters.rounds + own
    del engine.refresher.refresh
    await refreshed(engine)
    assert served(engine, "learner").counters.rounds == before.counters.rounds + own
    page = await visit(engine, "after", {"a"})
    while page.arm == "holdout":
        page = await visit(engine, f"after {page.event_id}", {"a"})
    assert page.arm == "learner"
    assert verify(store).clean

    # It is audited once, and repeating it changes nothing.
    assert await engine.promote("home", "new", actor="bob") == surface
    (entry,) = [entry for entry in store.entries if entry["action"] == "promote arm"]
    assert (entry["actor"], entry["holdout"]) == ("ann", (0.1, 0.1))
    assert entry["arms"] == ({"new": 0.45, "old": 0.45}, {})

    # Another arm of this name starts anew, and the surface keeps what it knows.
    clock.at += 1000
    await engine.patch_surface("home", {"arms": [NEW | {"share": 0.4}]}, actor="ann")
    assert served(engine, "new").counters.rounds == 0
    assert served(engine, "learner").counters.rounds > before.counters.rounds


def test_what_cannot_be_promoted_is_refused():
    surface = surface_with(NEW | {"share": 0.4}, OLD | {"share": 0.4}, holdout=0.1, policy="ftpl")
    with pytest.raises(Unknown, match="'home' has no arm 'third'"):
        promote(surface, "third", 9)
    with pytest.raises(Conflict, match="the holdout shows the page's own order"):
        promote(surface, "holdout", 9)
    with pytest.raises(Conflict, match="the guard has replaced it"):
        promote(msgspec.structs.replace(surface, guarded_arms={"new": 7}), "new", 9)
    own = promote(surface, "learner", 9).surface
    assert (own.settings.policy, own.settings.arms, own.learner) == ("ftpl", (), 0)
    assert not promote(own, "learner", 10).action
    new = promote(surface, "new", 9).surface
    assert not promote(new, "new", 10).action
    with pytest.raises(Unknown):
        promote(new, "old", 10)
    another = surface_rules.change_settings(new, {"arms": [OLD]}, 11).surface
    with pytest.raises(Unknown):  # another comparison has begun
        promote(another, "new", 12)


@with_engine(arms=[NEW])
async def test_a_promotion_of_an_old_version_is_refused(engine, store, clock):
    with pytest.raises(Conflict, match="is at version 1, not 7"):
        await engine.promote("home", "new", actor="ann", if_version=7)


@pytest.mark.slow
def test_arms_are_served_on_after_a_restart_and_by_other_processes(tmp_path):
    clock = Clock()
    store = open_store(str(tmp_path / "store.db"))

    async def first():
        async with running(store, clock=clock) as engine:
            await engine.put_surface("home", {"slots": 3, "items": ITEMS, "arms": [NEW, OLD]}, actor="test")
            pages = [await visit(engine, f"v{k}", {"a"}, visitor=f"v{k % 9}") for k in range(45)]
            await refreshed(engine)
            return [page.arm for page in pages], served(engine, "new").counters

    async def second():
        async with running(store, clock=clock, shared=True) as one, running(store, clock=clock, shared=True) as other:
            pages = [await visit(one, f"again {k}", {"a"}, visitor=f"v{k % 9}") for k in range(9)]
            await refreshed(one)
            counters = served(one, "new").counters
            await one.promote("home", "new", actor="ann")
            await refreshed(other)
            assert other.surface("home").promoted == "new"
            assert served(other, "learner").counters.rounds == counters.rounds
            return [page.arm for page in pages], counters

    arms, counters = asyncio.run(first())
    again, later = asyncio.run(second())
    assert again == arms[:9]
    assert later.rounds == counters.rounds + again.count("new")
    assert verify(store).clean
    store.close()


# Watching


@pytest.mark.slow
@with_engine(holdout=0.2, guard_after=100, floor=0.02, arms=[{"name": "bad", **WORST, "share": 0.4}], **BEST)
async def test_the_guard_replaces_the_arm_that_is_worse_and_no_other(engine, store, clock):
    rng = np.random.default_rng(3)
    await visits(engine, clock, rng, range(600))
    surface = engine.surface("home")
    assert surface.guarded.keys() == {"bad"}
    assert surface.shares == pytest.approx({"holdout": 0.2 + 0.4 * 0.98, "bad": 0.008, "learner": 0.4})
    report, headline = await engine.report("home"), await engine.headline("home")
    assert report["guard"]["active_since"] == surface.guarded["bad"] > report["guard"]["compared_since"]
    assert headline["guard_since"] is None  # the surface's own policy is still served
    assert [line["guarded_since"] for line in report["arms"]] == [None, surface.guarded["bad"]]
    with pytest.raises(Conflict):
        await engine.promote("home", "bad", actor="ann")
    arms = await visits(engine, clock, rng, range(600, 750))
    assert arms["bad"] <= 8
    clock.at += 40 * MINUTE
    await asyncio.to_thread(engine.watch)
    ratio = (await engine.report("home"))["sample_ratio"]
    assert not ratio["alarm"]  # the shares are those that the guard has made
    await engine.restart_comparison("home", actor="ann")
    assert engine.surface("home").guarded == {}


@pytest.mark.slow
@with_engine(arms=[{"name": "good", **BEST, "share": 0.5}, {"name": "bad", **WORST, "share": 0.5}])
async def test_arms_are_compared_in_reports_and_metrics(engine, store, clock):
    rng = np.random.default_rng(3)
    await visits(engine, clock, rng, range(1200))
    report = await engine.report("home")
    assert report["uplift"] is report["guard"] is None  # without a holdout
    good, bad = report["arms"]
    assert (good["name"], good["policy"], good["share"], good["comparison"]) == ("good", "fixed", 0.5, None)
    assert good["pages"] + bad["pages"] == report["headline"]["pages"] == 1200
    assert good["clicks_per_page"] == pytest.approx(1.5, abs=0.3)
    comparison = bad["comparison"]
    assert comparison["compared_with"] == "good"
    assert comparison["enough"]
    assert comparison["low"] < comparison["relative"] < comparison["high"] < 0.0
    assert report["learning"]["rounds"] == 1200
    assert sum(line["shows"] for line in report["items"]) == 3600
    health = engine.health()
    assert (health["arms"], health["arms_ahead"], health["arms_behind"]) == (2, 0, 1)
    metrics = Metrics()
    metrics.set_health(health)
    assert b"bothworlds_arms_behind 1.0" in metrics.exposition()
    await engine.delete_surface("home", actor="ann")
    await asyncio.to_thread(engine.watch)
    assert engine.health()["arms_behind"] == 0


@pytest.mark.slow
@with_engine(arms=[NEW | {"share": 0.3}, OLD | {"share": 0.3}], holdout=0.1)
async def test_a_page_that_loses_the_feedback_of_one_arm_hides_the_comparisons(engine, store, clock):
    rng = np.random.default_rng(5)
    for number in range(700):
        ranked = await engine.rank("home", f"v{number}")
        if ranked.arm != "old" or rng.random() < 0.3:
            await answer(engine, ranked, [0] if rng.random() < 0.5 else [])
        clock.at += 1000
    await written(engine)
    clock.at += 40 * MINUTE
    await asyncio.to_thread(store.settle_overdue, clock.at, 10**6)
    await asyncio.to_thread(engine.watch)
    report = await engine.report("home")
    ratio = report["sample_ratio"]
    assert ratio["alarm"]
    assert ratio["arms"]["old"]["answered"] < 0.5 * ratio["arms"]["old"]["pages"]
    assert [line["comparison"] and line["comparison"]["low"] for line in report["arms"]] == [None, None, None]
