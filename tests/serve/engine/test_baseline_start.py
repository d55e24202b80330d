"""Starting from the page's own order: early pages show it, every policy leaves it, and nothing learned is changed."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from bothworlds.geometry.baseline_mixture import baseline_share, with_baseline
from bothworlds.serve.model import Invalid, TooMany
from bothworlds.serve.ops.verify import verify
from bothworlds.serve.stores.factory import open_store

from ..running import ITEMS, refreshed, running, visit, with_engine

ORDER = ["f", "e", "d"]
POLICIES = ["all-weather", "ftrl-pbm", "gibbs-ts", "comb-ucb", "pbm-ucb-mle", "uniform"]


def own_order(state) -> np.ndarray:
    """The probability of the page's own item at every slot."""
    served = state["marginals"]
    return np.array([served["x"][served["items"].index(item)][slot] for slot, item in enumerate(ORDER)])


@pytest.mark.parametrize("policy", POLICIES)
def test_early_pages_show_the_order_of_the_page_and_later_ones_what_was_learned(policy):
    @with_engine(policy=policy, baseline=ORDER, baseline_rounds=100)
    async def start(engine, store, clock):
        state = await engine.state("home")
        assert (own_order(state) > 0.89).all()
        assert state["baseline_share"] == 0.9
        shown = []
        for k in range(120):
            if k % 20 == 0:
                await refreshed(engine)
            shown.append([slot.item for slot in (await visit(engine, f"{policy}{k}", {"a", "b", "c"})).slots])
        await refreshed(engine)
        early = np.mean([page[0] == "f" for page in shown[:20]])
        assert early > 0.6
        state = await engine.state("home")
        assert state["baseline_share"] == 0.0
        assert (own_order(state) < 0.6).all()
        assert store.totals() == store.rebuilt()

    start()


def test_propensities_are_those_of_the_mixture():
    @with_engine(policy="uniform", baseline=ORDER, baseline_rounds=1000, floor=0.01)
    async def shown(engine, store, clock):
        seen = np.zeros((len(ITEMS), 3))
        for k in range(1500):
            ranked = await engine.rank("home", f"v{k}")
            for slot in ranked.slots:
                own = ORDER[slot.slot] == slot.item
                assert slot.p == pytest.approx(0.99 * (0.9 * own + 0.1 / 6) + 0.01 / 6)
                seen[ITEMS.index(slot.item), slot.slot] += 1
        x = np.array((await engine.state("home"))["marginals"]["x"])
        assert (abs(seen - 1500 * x) < 5.0 * np.sqrt(1500 * x * (1.0 - x))).all()

    shown()


@with_engine(policy="ftrl-pbm", arms=[{"name": "new", "policy": "ftrl-pbm", "share": 0.5}])
async def test_rounds_are_those_of_the_policy_that_was_promoted(engine, store, clock):
    for k in range(60):
        await visit(engine, f"v{k}", {"a"})
    await engine.promote("home", "new", actor="ann")
    await refreshed(engine)
    rounds = (await engine.state("home"))["rounds"]
    other = store.totals()[1, ""][0]  # of the policy that was replaced
    assert rounds + other == 60
    few, many = sorted((rounds, other))
    assert few < many  # with this seed
    between = (few + many) // 2 + 1
    if rounds > other:
        with pytest.raises(Invalid, match=f"learned from {rounds} rounds"):
            await engine.start_from_baseline("home", rounds=between, actor="ann")
    else:
        await engine.start_from_baseline("home", rounds=between, actor="ann")
        assert (await engine.state("home"))["baseline_share"] > 0.0


@with_engine(policy="ftrl-pbm", baseline=ORDER)
async def test_a_deleted_segment_does_not_start_from_the_baseline_again(engine, store, clock):
    await engine.start_from_baseline("home", rounds=300, segment="m", actor="ann")
    assert (await engine.state("home", "m"))["baseline_share"] == 0.9
    await engine.delete_segment("home", "m", actor="ann")
    await engine.rank("home", "v1", segment="m")
    assert (await engine.state("home", "m"))["baseline_share"] == 0.0
    assert "m" not in engine.surface("home").baseline_starts


@with_engine(policy="ftrl-pbm", baseline=ORDER)
async def test_a_warm_start_from_the_baseline_changes_no_counter(engine, store, clock):
    for k in range(30):
        await visit(engine, f"v{k}", {"a"})
    await refreshed(engine)
    before, learned = store.totals(), await engine.state("home")
    await engine.start_from_baseline("home", rounds=300, actor="ann")
    after = await engine.state("home")
    assert (store.totals(), after["rounds"], after["loss"]) == (before, 30, learned["loss"])
    assert after["baseline_share"] == pytest.approx(0.9 * 0.9)
    assert (own_order(after) > 0.8).all()
    entry = store.audit(1, 1)[0]
    assert (entry["actor"], entry["action"], entry["detail"]) == (
        "ann",
        "start from baseline",
        "300 rounds, the default segment",
    )
    await engine.reset("home", segment=None, actor="ann")  # the segment starts again, from the baseline
    assert (await engine.state("home"))["baseline_share"] == 0.9


@with_engine(baseline=ORDER, max_segments=2)
async def test_a_segment_can_start_from_the_baseline(engine, store, clock):
    await engine.start_from_baseline("home", rounds=50, segment="mobile", actor="ann")
    assert (await engine.state("home", "mobile"))["baseline_share"] == 0.9
    assert (await engine.state("home"))["baseline_share"] == 0.0
    clock.at += 5 * 86_400_000  # it is kept like a segment with a click, for 30 days
    await asyncio.to_thread(engine.expire_segments)
    assert (await engine.state("home", "mobile"))["baseline_share"] == 0.9
    with pytest.raises(TooMany):
        await engine.start_from_baseline("home", rounds=50, segment="other", actor="ann")


@with_engine(baseline=ORDER)
async def test_a_start_without_effect_is_refused(engine, store, clock):
    for k in range(20):
        await visit(engine, f"v{k}", {"a"})
    with pytest.raises(Invalid, match="has learned from 20 rounds already"):
        await engine.start_from_baseline("home", rounds=20, actor="ann")
    for rounds in (0, -1, 10**7, True):
        with pytest.raises(Invalid, match="rounds must be"):
            await engine.start_from_baseline("home", rounds=rounds, actor="ann")
    with pytest.raises(Invalid, match="baseline_rounds"):
        await engine.patch_surface("home", {"baseline_rounds": -1}, actor="ann")


@with_engine(policy="ftrl-pbm", baseline=ORDER, baseline_rounds=1000)
async def test_pins_and_exclusions_keep_the_order_of_the_others(engine, store, clock):
    ranked = [await engine.rank("home", f"v{k}", exclude=["f"], pins={1: "a"}) for k in range(100)]
    assert all(page.slots[1].item == "a" for page in ranked)
    assert np.mean([[page.slots[0].item, page.slots[2].item] == ["e", "d"] for page in ranked]) > 0.75
    assert all("f" not in [slot.item for slot in page.slots] for page in ranked)


def test_a_start_survives_a_restart_and_verification(tmp_path):
    place = str(tmp_path / "store.db")

    async def serve(first: bool) -> float:
        store = open_store(place)
        async with running(store) as engine:
            if first:
                await engine.put_surface("home", {"slots": 3, "items": ITEMS, "baseline": ORDER}, actor="test")
                await engine.start_from_baseline("home", rounds=40, actor="test")
            share = (await engine.state("home"))["baseline_share"]
            for k in range(10):
                await visit(engine, f"{first}{k}", {"a"})
        assert verify(store).clean
        store.close()
        return share

    shares = [asyncio.run(serve(first)) for first in (True, False)]
    assert shares == [0.9, pytest.approx(0.9 * 0.75)]


def estimated_loss(seed: int, weighted: bool) -> tuple[float, float]:
    """The mean of the loss of an item over pages of a start, and its standard error; the true loss is 0.7."""
    rng = np.random.default_rng(seed)
    losses = []
    for t in range(4000):
        x = with_baseline(np.full((3, 1), 1 / 3), [0], baseline_share(t, 4000))[:, 0]
        shown = rng.choice(3, p=x)
        p = x[shown] if weighted else 1 / 3  # the broken twin forgets that the page's own order is mixed in
        losses.append((rng.random() < 0.7) / p if shown == 1 else 0.0)
    return float(np.mean(losses)), float(np.std(losses) / np.sqrt(len(losses)))


@pytest.mark.slow
def test_losses_stay_unbiased_during_the_start():
    mean, error = estimated_loss(1, weighted=True)
    assert abs(mean - 0.7) < 4.0 * error
    mean, error = estimated_loss(1, weighted=False)
    assert abs(mean - 0.7) > 4.0 * error
