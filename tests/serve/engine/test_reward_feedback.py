"""Surfaces that count rewards: feedback, verification, restarts, logs and reports, on an engine."""

from __future__ import annotations

import asyncio
import random

import msgspec
import numpy as np
import pytest

from bothworlds.clicks import evaluate
from bothworlds.serve.model import LOSS_UNIT, Invalid
from bothworlds.serve.schemas import Accepted, FeedbackEvent, Ranking

from ..fakes import FakeStore
from ..running import ITEMS, answer, refreshed, running, visit, with_engine

WORTH = {"a": 0.9, "b": 0.6, "c": 0.3, "d": 0.1, "e": 0.05, "f": 0.0}


async def reward(engine, ranked: Ranking, rewards: dict[int, float], final: bool = True) -> Accepted:
    (result,) = await engine.feedback([FeedbackEvent(ranked.event_id, ranked.token, [], final, rewards)])
    return result


async def earn(engine, request: str, surface: str = "home", **arguments) -> Ranking:
    """A visitor whose reward for an item is its worth, give or take."""
    chance = random.Random(request)
    ranked = await engine.rank(surface, request, **arguments)
    spread = {slot.slot: WORTH[slot.item] * chance.choice((0.5, 1.0, 1.1)) for slot in ranked.slots}
    await reward(engine, ranked, spread)
    return ranked


@with_engine(objective="rewards", policy="ftrl-pbm")
async def test_losses_are_one_minus_reward_and_later_rewards_count_by_the_maximum(engine, store, clock):
    ranked = await engine.rank("home", "v")
    assert (await reward(engine, ranked, {0: 0.25, 1: 0.5}, final=False)).status == "accepted"
    assert (await reward(engine, ranked, {1: 0.125}, final=False)).status == "duplicate"
    assert (await reward(engine, ranked, {1: 0.75}, final=True)).status == "accepted"
    for repeated in ({0: 0.25}, {}):
        assert (await reward(engine, ranked, repeated)).status == "duplicate"
    state = await engine.state("home")
    for slot, value in enumerate((0.25, 0.75, 0.0)):
        item, p = state["items"].index(ranked.slots[slot].item), ranked.slots[slot].p
        assert state["loss"][item][slot] == round(LOSS_UNIT * (1.0 - value) / p) / LOSS_UNIT
    clock.at += 1800 * 1000 + 1
    assert (await reward(engine, ranked, {2: 1.0})).status == "late_applied"
    shown = (await engine.event(ranked.event_id))["slots"]
    assert [slot["reward"] for slot in shown] == [0.25, 0.75, 1.0]
    assert [slot["late"] for slot in shown] == [False, False, True]
    assert shown[2]["clicked"]
    assert store.totals() == store.rebuilt()


@with_engine(objective="rewards")
async def test_feedback_that_does_not_fit_is_rejected_with_a_reason(engine, store, clock):
    await engine.put_surface("plain", {"slots": 3, "items": ITEMS}, actor="test")
    ranked, plain = await engine.rank("home", "v"), await engine.rank("plain", "v")
    assert "counts rewards: send rewards" in (await answer(engine, ranked, [1])).reason
    assert "counts clicks: send clicks" in (await reward(engine, plain, {1: 0.5})).reason
    for rewards, reason in (
        ({3: 0.5}, "no slot 3"),
        ({-1: 0.5}, "no slot -1"),
        ({0: float("nan")}, "from 0 to 1"),
        ({0: 1.01}, "from 0 to 1"),
        ({0: -0.01}, "from 0 to 1"),
    ):
        result = await reward(engine, ranked, rewards)
        assert result.status == "rejected"
        assert reason in result.reason
    assert store.totals() == {}
    assert (await answer(engine, ranked, [])).status == "accepted"  # final, without a reward
    assert (await answer(engine, plain, [1])).status == "accepted"


@with_engine(objective="rewards")
async def test_the_objective_is_fixed_when_the_surface_is_created(engine, store, clock):
    assert engine.surface("home").settings.objective == "rewards"
    for change in (engine.patch_surface, engine.put_surface):
        with pytest.raises(Invalid, match="objective cannot be changed"):
            await change("home", {"objective": "clicks"}, actor="test")
    await engine.patch_surface("home", {"objective": "rewards", "holdout": 0.1}, actor="test")
    with pytest.raises(Invalid):
        await engine.put_surface("other", {"slots": 1, "items": ["a"], "objective": "money"}, actor="test")


@pytest.mark.parametrize("policy", ["all-weather", "ftrl-pbm", "gibbs-ts", "pbm-ucb-mle", "comb-ucb"])
def test_every_kind_of_policy_learns_from_rewards(policy):
    @with_engine(objective="rewards", policy=policy)
    async def learn(engine, store, clock):
        await asyncio.gather(*(earn(engine, f"{policy}{k}") for k in range(60)))
        for k in range(60, 600, 60):
            await refreshed(engine)
            await asyncio.gather(*(earn(engine, f"{policy}{j}") for j in range(k, k + 60)))
        await refreshed(engine)
        x = np.array((await engine.state("home"))["marginals"]["x"])
        assert x[:2].sum() > x[3:].sum()
        assert store.totals() == store.rebuilt()

    learn()


@with_engine(objective="rewards", holdout=0.3, policy="ftrl-pbm")  # predictions are not exported
async def test_an_exported_log_teaches_another_store_the_same(engine, store, clock):
    for k in range(60):
        await earn(engine, f"v{k}", segment=["", "m"][k % 2], pins={0: "c"} if k % 5 == 0 else {})
    rows = list(engine.export("home"))
    assert {row["click"] for row in rows} == {0, 1}
    assert len({row["reward"] for row in rows}) > 5
    other = FakeStore()
    async with running(other) as second:
        await second.put_surface(
            "home", {"slots": 3, "items": ITEMS, "objective": "rewards", "policy": "ftrl-pbm"}, actor="test"
        )
        await second.put_surface("plain", {"slots": 3, "items": ITEMS}, actor="test")
        assert (await second.import_rows("home", iter(rows), actor="test")).taken == 60
        assert other.totals() == store.totals()
        assert sorted(map(str, second.export("home"))) == sorted(map(str, rows))
        refused = await second.import_rows("plain", iter(rows), actor="test")
        assert refused.reasons == {"a reward, but the surface counts clicks": 60}
        clicks = [{key: value for key, value in row.items() if key != "reward"} for row in rows]
        refused = await second.import_rows("home", iter(clicks), actor="test")
        (reason,) = refused.reasons
        assert "reward that is not a number" in reason
    # Into another surface of the same store, under other ids, whose clicks are drawn anew.
    await engine.put_surface("twin", {"slots": 3, "items": ITEMS, "objective": "rewards"}, actor="test")
    assert (await engine.import_rows("twin", iter(rows), actor="test")).taken == 60
    assert (await engine.state("twin"))["loss"] == (await engine.state("home"))["loss"]
    assert store.totals() == store.rebuilt()


@with_engine(objective="rewards", holdout=0.5)
async def test_a_report_counts_rewards(engine, store, clock):
    given = {"learner": [], "holdout": []}
    for k in range(40):
        ranked = await engine.rank("home", f"v{k}")
        rewards = {slot.slot: WORTH[slot.item] / 2.0 for slot in ranked.slots}
        await reward(engine, ranked, rewards)
        given[ranked.arm].append(sum(round(LOSS_UNIT * value) for value in rewards.values()) / LOSS_UNIT)
    clock.at += 1
    report = await engine.report("home")
    assert report["objective"] == "rewards"
    for arm, pages in (("learner", report["headline"]), ("holdout", report["holdout"])):
        assert pages["pages"] == len(given[arm])
        assert pages["clicks_per_page"] == pytest.approx(np.mean(given[arm]))
    assert sum(point["clicks"] for point in report["series"]) == pytest.approx(sum(map(sum, given.values())))
    assert not report["uplift"]["enough"]
    assert (await engine.headline("home"))["objective"] == "rewards"
    rates = {line["name"]: line["rate"] for line in report["items"]}
    assert rates["a"] == pytest.approx(0.45, abs=1e-6)


@with_engine(holdout=0.5)
async def test_a_surface_that_counts_clicks_reports_as_before(engine, store, clock):
    for k in range(20):
        await visit(engine, f"v{k}", {"a", "b"})
    clock.at += 1
    report = await engine.report("home")
    assert report["objective"] == "clicks"
    assert all(type(point["clicks"]) is int for point in report["series"])
    assert "reward" not in next(engine.export("home"))
    assert all(row["rewards"] == row["reward_squares"] == 0 for row in store.history(1, 0, 2 * clock.at, 60_000))


@pytest.mark.slow
def test_an_exported_log_is_evaluated_by_its_drawn_clicks(tmp_path):
    @with_engine(objective="rewards", policy="uniform")
    async def export(engine, store, clock):
        for k in range(40):
            await earn(engine, f"v{k}")
        path.write_bytes(msgspec.json.Encoder().encode_lines(list(engine.export("home"))))

    path = tmp_path / "log.ndjson"
    export()
    rows = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    weighted = (row["click"] / row["propensity"] for row in rows if row["item"] == "abc"[row["position"] - 1])
    found = evaluate(path, ["a", "b", "c"])
    (ips,) = (one for one in found.estimates if (one.estimator, one.position) == ("ips", None))
    assert ips.value == pytest.approx(sum(weighted) / 40)
