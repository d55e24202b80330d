"""The policies of the cascade and of the dependent click model: bounds by formula, what is counted, and regret."""

from __future__ import annotations

import math

import numpy as np
import pytest

import bothworlds
from bothworlds import Decision, play, policy
from bothworlds.worlds import cascade, dependent_clicks

NAMES = ("cascade-ucb", "cascade-kl-ucb", "cascade-ucb-v", "dcm-ucb")
RNG = np.random.default_rng(0)
PAGES = [(RNG.permutation(6)[:3], (RNG.random(3) < 0.3).astype(float)) for _ in range(60)]


def examined(clicks, to_last):
    """How many items of a page are known to have been read."""
    hit = np.flatnonzero(clicks)
    return clicks.size if not hit.size else int(hit[-1 if to_last else 0]) + 1


def bounds_by_formula(name, pages):
    shown, clicked = np.zeros(6), np.zeros(6)
    for ranking, clicks in pages:
        for item, click in list(zip(ranking, clicks))[: examined(clicks, name == "dcm-ucb")]:
            shown[item] += 1
            clicked[item] += click
    t, mean = len(pages), clicked / shown
    if name == "cascade-ucb":
        return mean + np.sqrt(1.5 * math.log(t) / shown)
    if name == "cascade-ucb-v":
        return mean + np.sqrt(4.0 * mean * (1.0 - mean) * math.log(t) / shown) + 6.0 * math.log(t) / shown
    level, grid = math.log(t + 1) + 3.0 * math.log(math.log(t + 1)), np.linspace(1e-9, 1.0 - 1e-9, 200_001)
    bounds = []
    for p, n in zip(mean, shown):
        kl = np.where(p > 0, p * np.log(max(p, 1e-300) / grid), 0.0) + (1.0 - p) * np.log((1.0 - p) / (1.0 - grid))
        bounds.append(grid[(grid >= p) & (n * kl <= level)].max())
    return np.array(bounds)


@pytest.mark.parametrize("name", NAMES)
def test_lists_follow_the_published_bounds(name):
    learner = policy(name)
    state = learner.init(6, 3)
    for ranking, clicks in PAGES:
        learner.learn(state, Decision(ranking, np.full(3, np.nan)), clicks)
    shown = learner.decide(state, np.random.default_rng(1)).ranking
    expected = bounds_by_formula(name, PAGES)
    np.testing.assert_allclose(state.work.score, expected, atol=1e-5)
    assert shown.tolist() == np.argsort(-expected)[:3].tolist()


def counts_after(name, clicks):
    learner = policy(name)
    state = learner.init(4, 4)
    learner.learn(state, Decision(np.array([3, 1, 0, 2]), np.full(4, np.nan)), clicks)
    return state.counts.examined[[3, 1, 0, 2]].tolist(), state.counts.clicked[[3, 1, 0, 2]].tolist()


def test_a_cascade_ends_at_the_first_click_and_a_dependent_click_page_at_the_last():
    assert counts_after("cascade-ucb", [0, 1, 1, 0]) == ([1, 1, 0, 0], [0, 1, 0, 0])
    assert counts_after("dcm-ucb", [0, 1, 1, 0]) == ([1, 1, 1, 0], [0, 1, 1, 0])
    for name in NAMES:
        assert counts_after(name, [0, 0, 0, 0]) == ([1, 1, 1, 1], [0, 0, 0, 0])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_regret_flattens_in_the_cascade_model(name):
    world = cascade([0.1, 0.1, 0.5, 0.1, 0.4, 0.1], 2)
    lost = play(name, world, 8_000, replications=4, checkpoints=[2_000, 4_000]).regret().mean(axis=0)
    # The bonus of cascade-ucb-v is the widest, so that its regret flattens last.
    assert lost[2] - lost[1] < 0.75 * (lost[1] + 1.0)
    uniform = play("uniform", world, 8_000, replications=4, checkpoints=1).regret().mean()
    assert lost[2] < 0.35 * uniform


@pytest.mark.slow
def test_attraction_is_unbiased_in_the_cascade_model_unlike_the_rate_of_all_impressions():
    world, learner, rng = cascade([0.6, 0.5, 0.4], 3), policy("cascade-ucb"), np.random.default_rng(3)
    state, all_clicks = learner.init(3, 3), np.zeros(3)
    for _ in range(4_000):
        ranking = rng.permutation(3)
        clicks = world.click(0, ranking, rng)
        learner.learn(state, Decision(ranking, np.full(3, np.nan)), clicks)
        all_clicks[ranking] += clicks
    estimate = state.counts.clicked / state.counts.examined
    error = np.sqrt(0.25 / state.counts.examined)
    assert (np.abs(estimate - [0.6, 0.5, 0.4]) < 5.0 * error).all()
    assert (all_clicks / 4_000 < [0.45, 0.4, 0.35]).all()


def test_more_clicks_of_a_page_teach_the_policy_of_dependent_clicks_more():
    world = dependent_clicks([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0.9, 0.9, 0.9])
    states = []
    for name in ("cascade-kl-ucb", "dcm-ucb"):
        learner, rng = policy(name), np.random.default_rng(5)
        state = learner.init(6, 3)
        for _ in range(500):
            ranking = rng.permutation(6)[:3]
            learner.learn(state, Decision(ranking, np.full(3, np.nan)), world.click(0, ranking, rng))
        states.append(state.counts.examined.sum())
    assert states[1] > 1.1 * states[0]


@pytest.mark.parametrize(("name", "settings"), [("cascade-ucb", {"width": 0.0}), ("cascade-ucb-v", {"zeta": -1.0})])
def test_settings_are_checked(name, settings):
    with pytest.raises(ValueError, match="must be a number from"):
        policy(name, **settings)


def test_they_need_the_order_of_positions_and_cannot_be_served():
    for name in NAMES:
        description = bothworlds.policies.describe(name)
        assert description.needs == ("order",)
