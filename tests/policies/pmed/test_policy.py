"""PMED against its definition: passes, forced and planned exploration, the fit, forgetting."""

from __future__ import annotations

from math import inf, log, sqrt

import numpy as np
import pytest

import bothworlds
from bothworlds.core import Decision, copy_state
from bothworlds.policies import policy
from bothworlds.statistics.rank_one.fit import fit_newton
from bothworlds.worlds import stochastic
from tests.reference import exploration as reference

PMED = policy("pmed")
SHAPES = [(5, 3), (4, 4), (6, 1), (2, 1), (2, 2), (8, 4)]


def world_of(n, m):
    return stochastic(np.linspace(0.9, 0.2, n), np.linspace(1.0, 0.4, m))


def rounds_of(learner, world, rounds, seed=0):
    """Play by hand; yield the round, the state before its decision, the decision and the clicks."""
    state, rng = learner.init(world.n_items, world.n_positions), np.random.default_rng(seed)
    for t in range(1, rounds + 1):
        decision = learner.decide(state, rng)
        p = world.click_probabilities(t - 1)[decision.ranking, np.arange(world.n_positions)]
        clicks = (rng.random(p.size) < p).astype(float)
        yield t, state, decision, clicks
        learner.learn(state, decision, clicks)


def trained(learner, n, m, rounds, seed=0):
    for _, state, _, _ in rounds_of(learner, world_of(n, m), rounds + 1, seed):
        last = state
    return copy_state(last)


def queue_of(state):
    return sorted(tuple(ranking) for ranking in state.queue.lists[: state.queue.length[0]].tolist())


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_the_first_pass_shows_every_item_once_at_every_position(n, m):
    for t, state, decision, _ in rounds_of(PMED, world_of(n, m), n + 1):
        if t <= n:
            assert decision.propensity == pytest.approx(np.full(m, 1.0 / (n - t + 1)))
        else:
            assert (state.counts.shown == 1.0).all()


def next_queue(state, alpha=1.0):
    """The lists of the next pass as the definition has them, from the counts, the order and the plan."""
    n, m = state.counts.shown.shape
    log_t = log(max(state.counts.rounds[0], 1.0))
    best, base = tuple(state.order[:m].tolist()), tuple(state.planned[:m].tolist())
    lists = [best] + [base] * (base != best)
    for s in range(n):
        cyclic = tuple((s + j) % n for j in range(m))
        if any(state.counts.shown[i, j] < alpha * sqrt(log_t) for j, i in enumerate(cyclic)):
            lists.append(cyclic)
    left = {(i, j): inf if base[j] == i else state.counts.shown[i, j] for i in range(n) for j in range(m)}
    for k in range(state.plan.n_lists[0]):
        ranking = tuple(state.planned[state.plan.lists[k]].tolist())
        need, pairs = state.plan.weights[k] * log_t, [(i, j) for j, i in enumerate(ranking)]
        have = min(left[pair] for pair in pairs)
        covered = {(i, j) for shown in lists for j, i in enumerate(shown)}
        if need > have and not covered.issuperset(pairs):
            lists.append(ranking)
        for pair in pairs:
            left[pair] -= min(need, have)
    return sorted(lists)


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_every_pass_is_the_one_of_the_definition(n, m):
    passes = 0
    waiting = queue_of(PMED.init(n, m))
    for _, state, decision, _ in rounds_of(PMED, world_of(n, m), 300):
        if not waiting:
            waiting = next_queue(state)
            passes += 1
        assert queue_of(state) == waiting
        waiting.remove(tuple(decision.ranking.tolist()))
    assert passes > 10


@pytest.mark.parametrize("learner", [PMED, policy("pmed", alpha=3.0)], ids=["alpha=1", "alpha=3"])
@pytest.mark.parametrize(("n", "m"), [*SHAPES, (12, 3)])
def test_the_queue_never_exceeds_its_capacity_and_gives_the_propensities(learner, n, m):
    rng = np.random.default_rng(1)
    state = learner.init(n, m)
    for _ in range(200):
        lists = state.queue.lists[: state.queue.length[0]]
        assert 1 <= len(lists) <= 1 + n + n * m - m + 1 <= len(state.queue.lists)
        pairs = np.zeros((n, m))
        for ranking in lists:
            pairs[ranking, np.arange(m)] += 1
        assert (pairs == state.queue.pairs).all()
        decision = learner.decide(state, rng)
        assert decision.propensity == pytest.approx(pairs[decision.ranking, np.arange(m)] / len(lists))
        learner.learn(state, decision, (rng.random(m) < 0.5).astype(float))


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_every_pair_is_shown_often_enough(n, m):
    for t, state, _, _ in rounds_of(PMED, world_of(n, m), 500):
        if t > n:
            assert state.counts.shown.min() >= sqrt(log(t - 1)) - 1.0


@pytest.mark.slow
def test_a_larger_alpha_explores_more():
    few, many = (trained(policy("pmed", alpha=alpha), 6, 3, 800).counts.shown.min() for alpha in (1.0, 10.0))
    assert few < 10.0 * sqrt(log(800.0)) - 1.0 <= many


@pytest.mark.parametrize("world", ["paper/stochastic", "yandex/stochastic"])
def test_the_fit_has_the_maximum_likelihood_with_positions_in_order(world):
    passes = 0
    for t, state, _, _ in rounds_of(PMED, bothworlds.world(world), 400):
        if t % 20 == 1 and t > 20 and state.fit.a.any():
            passes += 1
            a, b, shown = state.fit.a, state.fit.b, state.counts.shown
            assert b.max() == 0.0
            assert (np.diff(b) <= 0.0).all()
            assert a.max() <= 0.0
            if state.queue.length[0] == len(next_queue(state)):  # nothing learned since the fit
                clicked = state.counts.clicked + 0.1
                odds = 1.0 / np.expm1(-(a[:, None] + b))
                pull = clicked - (shown + 0.2 - clicked) * odds
                assert np.abs(pull.sum(axis=1)).max() < 1e-8 * shown.sum()
                fit = fit_newton(shown, state.counts.clicked, prior=0.1, ordered=True)
                np.testing.assert_allclose(np.exp(a), fit.attraction, rtol=1e-6)
                np.testing.assert_allclose(np.exp(b), fit.examination, rtol=1e-6)
    assert passes > 5


@pytest.mark.slow
def test_the_plan_distinguishes_every_alternative_at_the_least_cost():
    state = trained(PMED, 5, 3, 500)
    theta, kappa = np.exp(state.planner.alternative.log_theta), np.exp(state.planner.alternative.log_kappa)
    np.testing.assert_allclose(theta, np.exp(state.planned_a[state.planned]), rtol=0.01)
    for k in range(4):
        assert reference.closest(theta, kappa, state.planner.q, k)[0] >= 1.0 - 1e-4
    cost = ((theta[:3] - theta[:, None]) * kappa * state.planner.q).sum()
    assert cost == pytest.approx(reference.least_exploration(theta, kappa)[0], rel=1e-3)


@pytest.mark.slow
def test_a_plan_is_recomputed_only_when_the_fit_has_moved():
    for refit in (0.0, 0.01, 0.1, 1e6):
        state = trained(policy("pmed", refit=refit), 5, 3, 500)
        moved = state.fit.a[:, None] + state.fit.b - state.planned_a[:, None] - state.planned_b
        assert np.abs(moved).max() <= refit + 1e-12
    assert np.abs(moved).max() > 0.1


def test_a_list_that_is_not_in_the_queue_is_only_counted():
    state = trained(PMED, 5, 3, 40)
    before, queue = state.counts.shown.copy(), queue_of(state)
    absent = next(r for r in ([0, 1, 2], [2, 1, 0], [4, 2, 0], [3, 0, 4], [1, 3, 2]) if tuple(r) not in queue)
    PMED.learn(state, Decision(np.array(absent), np.full(3, np.nan)), [1, 0, 0])
    assert queue_of(state) == queue
    assert (state.counts.shown - before).sum() == 3


@pytest.mark.parametrize(
    ("attraction", "examination"),
    [
        (np.zeros(6), [1.0, 1.0, 1.0]),
        (np.ones(6), [1.0, 1.0, 1.0]),
        ([1.0, 0.0, 0.0], [1.0, 0.5]),
        ([0.5, 0.5, 0.5, 0.5], [1.0, 1.0, 1.0, 1.0]),
        ([0.9, 0.8, 0.7, 0.1], [0.1, 0.5, 1.0]),
    ],
    ids=["hopeless", "generous", "certain", "alike", "reversed"],
)
@pytest.mark.parametrize("prior", [0.0, 0.1])
def test_every_plan_is_solved_for_arbitrary_users(attraction, examination, prior):
    world = stochastic(attraction, examination)
    for t, state, _, _ in rounds_of(policy("pmed", prior=prior), world, 200):
        if t % 20 == 0:
            assert np.isfinite(state.planner.q).all()
            assert np.isfinite(state.plan.weights).all()


@pytest.mark.slow
def test_ties_are_broken_at_random():
    """Nobody ever clicks: after the first pass all items are alike, and each is the best equally often."""
    first = np.zeros(4)
    for seed in range(400):
        state, rng = PMED.init(4, 2), np.random.default_rng(seed)
        for _ in range(4):
            PMED.learn(state, PMED.decide(state, rng), [0, 0])
        first[state.order[0]] += 1
    assert np.abs(first / 400 - 0.25).max() < 0.09


def test_a_window_forgets():
    learner = policy("pmed", window=100)
    state = trained(learner, 5, 3, 250)
    assert state.counts.shown.sum() == 300
    assert state.counts.rounds[0] == 100


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("settings", [{"window": 1500}, {"discount": 0.999}])
def test_forgetting_follows_users_who_change(settings):
    world = bothworlds.world("paper/periodic-items", gap=0.1, phase=4000)
    rewards = {}
    for learner in (PMED, policy("pmed", **settings)):
        reward = bothworlds.play(learner, world, 8000, replications=4, checkpoints=8).reward
        rewards[learner.label] = (reward[:, 7] - reward[:, 5]).mean()
    plain, forgetful = rewards.values()
    assert forgetful > plain


@pytest.mark.slow
def test_regret_is_near_the_lower_bound():
    """The paper's world has C* = 103: with 50000 rounds the bound is 1119, and no policy need be better by much."""
    result = bothworlds.play(PMED, "paper/stochastic", 50_000, replications=6, checkpoints=5)
    regret = result.regret()[:, -1].mean()
    assert 500.0 < regret < 1.6 * 103.4 * log(50_000)
