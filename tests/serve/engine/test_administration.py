"""Changes of surfaces are served at once, audited, and lose nothing that was learned."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter

import numpy as np
import pytest

from bothworlds.core import Decision, Shape
from bothworlds.geometry.mixtures import FIRST_SHARE
from bothworlds.policies import Policy, _registered
from bothworlds.serve.engine.states import relearned, same_bits
from bothworlds.serve.engine.views import read_state
from bothworlds.serve.model import Conflict, Invalid, StateConflict, Unknown
from bothworlds.serve.schemas import FeedbackEvent
from bothworlds.serve.stores import open_store
from tests.serve.running import ITEMS, Clock, answer, looked, refreshed, serving, visit, visits, with_engine

NEW, OLD = {"name": "new", "policy": "ftrl-pbm", "share": 0.45}, {"name": "old", "policy": "uniform", "share": 0.45}
ORDER = ["f", "e", "d"]


def state_of(engine, arm="learner"):
    """A copy of the state of a learner."""
    served = engine.registry.served("home")
    return read_state(served, served.learner(arm), engine.registry, copy.deepcopy)


def replayed(engine, store, arm="learner"):
    """The state that the log gives."""
    served = engine.registry.served("home")
    one = served.learner(arm)
    return relearned(store, one.learner, served.target(one))


async def shown_to(engine, visitors):
    """The items on the lists of a hundred visitors."""
    return {slot.item for k in range(100) for slot in (await engine.rank("home", f"{visitors}{k}")).slots}


@with_engine()
async def test_changes_are_served_at_once_and_audited(engine, store, clock):
    await engine.administration.change_item("home", "a", "pause", actor="test")
    assert "a" not in await shown_to(engine, "p")
    await engine.administration.change_item("home", "a", "resume", actor="test")
    await engine.administration.change_item("home", "g", "add", actor="test")
    assert {"a", "g"} <= await shown_to(engine, "q")
    await engine.administration.change_item("home", "g", "remove", actor="test")
    assert "g" not in await shown_to(engine, "z")
    with pytest.raises(Conflict, match="removed"):
        await engine.administration.change_item("home", "g", "resume", actor="test")
    with pytest.raises(Unknown):
        await engine.administration.change_item("home", "nobody", "pause", actor="test")
    assert [entry["action"] for entry in store.audit(1, 10)] == [
        "remove item",
        "add item",
        "resume item",
        "pause item",
        "create surface",
    ]


@with_engine()
async def test_a_change_of_an_outdated_version_is_refused(engine, store, clock):
    version = engine.registry.surface("home").version
    changed = await engine.administration.patch_surface("home", {"floor": 0.05}, actor="one", if_version=version)
    assert changed.version == version + 1
    with pytest.raises(Conflict, match="version"):
        await engine.administration.patch_surface("home", {"floor": 0.1}, actor="two", if_version=version)
    with pytest.raises(Conflict):
        await engine.administration.put_surface("other", {"slots": 1, "items": ["a"]}, actor="two", if_version=3)
    with pytest.raises(Conflict, match="now has version 2"):
        await engine.administration.promote("home", "learner", actor="ann", if_version=7)
    _, created = await engine.administration.put_surface("home", {"slots": 2}, actor="one")
    assert not created
    assert engine.registry.surface("home").settings.floor == 0.05
    assert [surface.name for surface in engine.registry.all_surfaces()] == ["home"]


CHANGES = {
    "pause": lambda engine, k: engine.administration.change_item("home", ITEMS[k % 6], "pause", actor="test"),
    "resume": lambda engine, k: engine.administration.change_item("home", ITEMS[k % 6], "resume", actor="test"),
    "remove": lambda engine, k: engine.administration.change_item("home", ITEMS[k % 6], "remove", actor="test"),
    "add": lambda engine, k: engine.administration.change_item(
        "home", [*ITEMS, "new", "newer"][k % 8], "add", actor="test"
    ),
    "holdout": lambda engine, k: engine.administration.patch_surface(
        "home", {"holdout": k % 5 / 10, "floor": 0.05}, actor="test"
    ),
    "slots": lambda engine, k: engine.administration.patch_surface("home", {"slots": 1 + k % 4}, actor="test"),
    "policy": lambda engine, k: engine.administration.patch_surface(
        "home", {"policy": ["ftrl-pbm", "comb-ts"][k % 2]}, actor="test"
    ),
    "put": lambda engine, k: engine.administration.put_surface(
        "home", {"slots": 2, "items": ITEMS[: k % 6]}, actor="test"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_after_any_changes_the_state_is_what_the_log_gives(seed):
    rng = np.random.default_rng(seed)

    @with_engine(slots=2)
    async def run(engine, store, clock):
        for round in range(10):
            name = sorted(CHANGES)[rng.integers(len(CHANGES))]
            try:
                await CHANGES[name](engine, int(rng.integers(100)))
            except (Invalid, Conflict, Unknown):
                continue
            await visits(engine, [f"v{round}-{k}" for k in range(8)], {"a", "b", "new"})
            await looked(engine)
            assert same_bits(state_of(engine), replayed(engine, store)), (name, round)
        assert (await engine.rank("home", "after")).slots

    run()


@with_engine()
async def test_another_policy_learns_the_log_again_while_the_lists_of_before_are_served(engine, store, clock):
    await visits(engine, [f"v{k}" for k in range(60)], {"a"})
    await refreshed(engine)
    before = await engine.reports.state("home")
    await engine.administration.patch_surface("home", {"policy": "uniform"}, actor="ann")
    entry = store.audit(1, 1)[0]
    assert entry["detail"] == 'policy: "ftrl-pbm" -> "uniform"; 60 events of the log are learned again'
    waiting = await engine.reports.state("home")
    assert waiting["marginals"] == before["marginals"]
    page = await engine.rank("home", "meanwhile")
    assert page.policy_id.startswith("ftrl-pbm:")
    assert (await answer(engine, page, [0])).status == "accepted"
    await refreshed(engine)
    await asyncio.to_thread(engine.housekeeping.learn_again)
    after = await engine.reports.state("home")
    assert after["policy_id"].startswith("uniform:")
    assert np.ptp(after["marginals"]["x"]) < 1e-12
    assert after["rounds"] == 61
    assert same_bits(state_of(engine), replayed(engine, store))
    # And back: nothing was lost.
    await engine.administration.patch_surface("home", {"policy": "ftrl-pbm", "slots": 2}, actor="ann")
    await looked(engine)
    again = await engine.reports.state("home")
    assert (again["rounds"], len(again["shown"][0])) == (61, 2)
    assert sum(map(sum, again["shown"])) == 122


def test_a_replay_that_was_interrupted_is_done_after_a_restart(tmp_path):
    place = str(tmp_path / "store.db")

    async def first():
        store = open_store(place)
        async with serving(store, Clock()) as engine:
            await engine.administration.put_surface(
                "home", {"slots": 3, "items": ITEMS, "policy": "ftrl-pbm"}, actor="test"
            )
            await visits(engine, [f"v{k}" for k in range(40)], {"a"})
            await looked(engine)
            await engine.administration.patch_surface("home", {"policy": "comb-ucb"}, actor="ann")
        store.close()

    async def second():
        store = open_store(place)
        async with serving(store, Clock()) as engine:
            assert (await engine.reports.state("home"))["policy_id"].startswith("comb-ucb:")
            assert (await engine.reports.state("home"))["rounds"] == 40
        store.close()

    asyncio.run(first())
    asyncio.run(second())


@with_engine()
async def test_a_policy_that_cannot_be_computed_is_refused_and_nothing_is_changed(engine, store, clock):
    with pytest.raises(Invalid, match="only a simulation has"):
        await engine.administration.patch_surface("home", {"policy": "oracle"}, actor="ann")
    await engine.administration.change_item("home", "f", "pause", actor="ann")
    with pytest.raises(StateConflict, match="batchrank can only show all items"):
        await engine.administration.patch_surface("home", {"policy": "batchrank"}, actor="ann")
    assert engine.registry.surface("home").version == 2
    assert (await engine.rank("home", "r")).policy_id.startswith("ftrl-pbm:")


# Resets


@with_engine()
async def test_a_reset_forgets_what_was_settled_until_then_and_nothing_else(engine, store, clock):
    await visits(engine, [f"v{k}" for k in range(20)], {"a"})
    open_page = await engine.rank("home", "open")
    await refreshed(engine)
    await engine.administration.reset("home", actor="ann")
    state = await engine.reports.state("home")
    assert (state["rounds"], np.any(state["loss"])) == (0, False)
    assert np.ptp(state["marginals"]["x"]) < 1e-12
    # A page that was shown before, and settles after it, is learned.
    assert (await answer(engine, open_page, [0])).status == "accepted"
    await refreshed(engine)
    assert (await engine.reports.state("home"))["rounds"] == 1
    assert same_bits(state_of(engine), replayed(engine, store))
    assert [entry["action"] for entry in store.audit(1, 1)] == ["reset"]
    assert len(list(engine.log.export("home"))) == 1 + 21 * 3  # the log stays


# Arms


@with_engine(arms=[NEW | {"share": 0.4}, OLD | {"share": 0.2}], holdout=0.1)
async def test_each_arm_learns_from_its_own_pages(engine, store, clock):
    pages = []
    for k in range(30):
        pages += await visits(engine, [f"v{k}-{n}" for n in range(5)], {"a", "b"}, segment=["", "m"][k % 2])
    arms = Counter(page.arm for page in pages)
    await refreshed(engine)
    assert len(arms) == 4
    for arm, n in arms.items():
        if arm != "holdout":
            assert state_of(engine, arm).pages == n
            assert same_bits(state_of(engine, arm), replayed(engine, store, arm))


@with_engine(arms=[NEW, OLD], holdout=0.1)
async def test_a_winner_is_promoted_without_forgetting(engine, store, clock):
    await visits(engine, [f"v{k}" for k in range(80)], {"a", "b"})
    await refreshed(engine)
    waiting = [await engine.rank("home", f"w{k}") for k in range(20)]
    before = await engine.reports.state("home", arm="new")
    assert before["rounds"] > 20
    assert (await engine.reports.state("home"))["rounds"] == 0
    with pytest.raises(Unknown, match="has no arm 'third'"):
        await engine.reports.state("home", arm="third")
    clock.at += 1000
    surface = await engine.administration.promote("home", "new", actor="ann")
    assert (surface.settings.policy, surface.settings.arms, surface.promoted) == ("ftrl-pbm", (), "new")
    after = await engine.reports.state("home")
    assert [after[key] for key in ("rounds", "loss", "policy_id")] == [
        before[key] for key in ("rounds", "loss", "policy_id")
    ]
    assert surface.compared_since == clock.at
    assert "learned again" not in store.audit(1, 1)[0]["detail"]
    # Pages that the arm had shown before are learned from by the surface.
    given = [FeedbackEvent(page.event_id, page.token, [0], True) for page in waiting]
    assert {one.status for one in await engine.feedback(given)} == {"accepted"}
    await refreshed(engine)
    own = sum(page.arm == "new" for page in waiting)
    assert own
    assert (await engine.reports.state("home"))["rounds"] == before["rounds"] + own
    # It is audited once, and repeating it changes nothing.
    assert await engine.administration.promote("home", "new", actor="bob") == surface
    (entry,) = [entry for entry in store.audit(1, 99) if entry["action"] == "promote arm"]
    assert entry["actor"] == "ann"
    assert [shares for _, shares in surface.earlier_shares] == [{"holdout": 0.1, "new": 0.45, "old": 0.45}]
    # Another arm of this name starts anew, and the surface keeps what it knows.
    clock.at += 1000
    await engine.administration.patch_surface("home", {"arms": [NEW | {"share": 0.4}]}, actor="ann")
    assert (await engine.reports.state("home", arm="new"))["rounds"] == 0
    assert (await engine.reports.state("home"))["rounds"] == before["rounds"] + own


# Starts from the baseline


def own_order(state):
    """The probability of the page's own item at every slot."""
    served = state["marginals"]
    return np.array([served["x"][served["items"].index(item)][slot] for slot, item in enumerate(ORDER)])


@pytest.mark.parametrize("policy", ["ftrl-pbm", "gibbs-ts", "toprank", "uniform"])
def test_early_pages_show_the_order_of_the_page_and_later_ones_what_was_learned(policy):
    @with_engine(policy=policy, baseline=ORDER, baseline_rounds=100)
    async def start(engine, store, clock):
        state = await engine.reports.state("home")
        assert (own_order(state) > 0.89).all()
        assert state["baseline_share"] == FIRST_SHARE
        shown = []
        for k in range(6):
            shown += await visits(engine, [f"{policy}{k}-{n}" for n in range(20)], {"a", "b", "c"})
            await refreshed(engine)
        early = np.mean([page.slots[0].item == "f" for page in shown[:20]])
        assert early > 0.6
        state = await engine.reports.state("home")
        assert state["baseline_share"] == 0.0
        assert (own_order(state) < 0.6).all()

    start()


@with_engine(baseline=ORDER)
async def test_a_start_from_the_baseline_changes_nothing_that_was_learned(engine, store, clock):
    await visits(engine, [f"v{k}" for k in range(30)], {"a"})
    await refreshed(engine)
    before = await engine.reports.state("home")
    with pytest.raises(Invalid, match="has learned from 30 rounds already"):
        await engine.administration.start_from_baseline("home", rounds=30, actor="ann")
    await engine.administration.start_from_baseline("home", rounds=300, actor="ann")
    after = await engine.reports.state("home")
    assert (after["rounds"], after["loss"]) == (30, before["loss"])
    assert after["baseline_share"] == pytest.approx(0.9 * 0.9)
    assert (own_order(after) > 0.8).all()
    entry = store.audit(1, 1)[0]
    assert (entry["actor"], entry["action"], entry["detail"]) == (
        "ann",
        "change settings",
        "baseline_rounds: 0 -> 300",
    )
    await engine.administration.reset("home", actor="ann")  # it starts again, from the baseline
    assert (await engine.reports.state("home"))["baseline_share"] == 0.9


@with_engine(arms=[{"name": "new", "policy": "ftrl-pbm", "share": 0.5}])
async def test_rounds_of_a_start_are_those_of_the_arm_that_has_learned_least(engine, store, clock):
    pages = await visits(engine, [f"v{k}" for k in range(60)], {"a"})
    await refreshed(engine)
    few, many = sorted(Counter(page.arm for page in pages).values())
    assert few < many
    await engine.administration.start_from_baseline("home", rounds=few + 1, actor="ann")
    with pytest.raises(Invalid, match=f"learned from {few} rounds"):
        await engine.administration.start_from_baseline("home", rounds=few, actor="ann")


# Several processes


def test_two_processes_change_one_surface(tmp_path):
    """Over one SQLite file, as over PostgreSQL: each follows the changes of the other."""
    store = open_store(str(tmp_path / "store.db"))

    async def run():
        clock = Clock()
        async with serving(store, clock, shared=True) as one, serving(store, clock, shared=True) as two:
            await one.administration.put_surface(
                "home", {"slots": 3, "items": ITEMS, "policy": "ftrl-pbm"}, actor="one"
            )
            await two.administration.change_item("home", "g", "add", actor="two")
            await one.administration.change_item("home", "h", "add", actor="one")
            changes = [
                (one if k % 2 else two).administration.patch_surface("home", {"guard_after": 100 + k}, actor=str(k))
                for k in range(8)
            ]
            await asyncio.gather(*changes)
            await two.registry.catch_up()
            await one.registry.catch_up()
            assert one.registry.surface("home").version == 11
            assert one.registry.surface("home") == two.registry.surface("home")
            assert [item.name for item in one.registry.surface("home").items] == [*ITEMS, "g", "h"]
            version = one.registry.surface("home").version
            await one.administration.patch_surface("home", {"floor": 0.1}, actor="one", if_version=version)
            with pytest.raises(Conflict, match="version"):
                await two.administration.patch_surface("home", {"floor": 0.2}, actor="two", if_version=version)
            await two.administration.delete_surface("home", actor="two")
            await one.registry.catch_up()
            with pytest.raises(Unknown):
                await one.rank("home", "r")

    asyncio.run(run())
    store.close()


# What fails on one surface


class Failing(Policy):
    """A policy of another package that fails as soon as somebody has clicked."""

    name = "failing"
    learned_leaves = None

    def init(self, n_items, n_positions):
        return {"shape": Shape(n_items, n_positions)}

    def decide(self, state, rng):
        n, m = state["shape"]
        return Decision(rng.permutation(n)[:m], np.full(m, 1.0 / n))

    def learn(self, state, decision, clicks):
        if np.any(clicks):
            raise ArithmeticError("the sums do not fit")
        return state


def test_a_surface_that_cannot_be_learned_shows_its_own_order_and_holds_up_no_other(monkeypatch):
    monkeypatch.setitem(_registered(), "failing", Failing)

    @with_engine(policy="failing", retention_days=1)
    async def run(engine, store, clock):
        await engine.administration.put_surface(
            "other", {"slots": 3, "items": ITEMS, "retention_days": 1}, actor="test"
        )
        await visits(engine, [f"v{k}" for k in range(5)], set())
        await refreshed(engine)
        assert (await engine.reports.state("home"))["rounds"] == 5
        pages = await visits(engine, [f"w{k}" for k in range(3)], set(ITEMS))
        for k in range(5):
            await visit(engine, f"o{k}", {"a"}, surface="other")
        await refreshed(engine)
        assert (await engine.reports.state("other"))["rounds"] == 5
        reasons = engine.health()["reasons"]
        assert any("'home' shows the page's own order: the sums do not fit" in reason for reason in reasons)
        page = await engine.rank("home", "after")
        assert (page.policy_id, [slot.item for slot in page.slots]) == ("baseline", ["a", "b", "c"])
        assert (await answer(engine, page, [0])).status == "accepted"
        assert (await answer(engine, pages[0], [])).status in ("duplicate", "settled")
        report = await engine.reports.report("home")
        assert any("the sums do not fit" in warning for warning in report["warnings"])
        await engine.reports.headline("home")
        clock.at += 5 * 86_400_000
        await looked(engine)  # the other surface is looked after, and the events of this one are kept
        assert (store.deleted(2).events, store.deleted(1).events) == (5, 0)
        # With another policy it learns everything that happened, but for the page of the baseline.
        await engine.administration.patch_surface("home", {"policy": "uniform"}, actor="ann")
        await looked(engine)
        assert (await engine.reports.state("home"))["rounds"] == 8
        assert (await engine.rank("home", "again")).policy_id.startswith("uniform:")

    run()


@with_engine()
async def test_a_surface_may_begin_with_a_single_item(engine, store, clock):
    await engine.administration.put_surface("small", {"slots": 1, "items": ["x"], "policy": "ftrl-pbm"}, actor="ann")
    for k in range(3):
        page = await visit(engine, f"r{k}", {"x"}, surface="small")
        assert ([slot.item for slot in page.slots], page.slots[0].learn) == (["x"], False)
    await refreshed(engine)
    state = await engine.reports.state("small")
    assert (state["items"], state["rounds"], state["marginals"]["x"]) == (["x"], 0, [[1.0]])
    await engine.reports.report("small")
    await engine.administration.change_item("small", "y", "add", actor="ann")
    pages = [await visit(engine, f"s{k}", {"y"}, surface="small") for k in range(20)]
    assert {page.slots[0].item for page in pages} == {"x", "y"}
    await refreshed(engine)
    assert (await engine.reports.state("small"))["rounds"] == 20
    assert not engine.health()["reasons"]
