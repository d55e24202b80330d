"""FTRL-PBM against its definition: the rounds one by one, the estimates, the special case, the regret."""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import pytest
from scipy.optimize import brentq

import bothworlds
from bothworlds.core import Decision
from bothworlds.geometry import leader
from bothworlds.policies import policy
from bothworlds.worlds import stochastic
from tests.policies.by_hand import WORLDS, expected_estimate, rounds_of, trained

FTRL = policy("ftrl-pbm")
SHAPES = [(10, 5), (3, 2), (4, 4), (6, 1), (2, 1), (2, 2), (25, 3)]


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_the_first_list_is_uniform(n, m):
    state = FTRL.init(n, m)
    assert (state.leading.marginals == 1.0 / n).all()
    assert (FTRL.decide(state, np.random.default_rng(0)).propensity == 1.0 / n).all()
    np.testing.assert_allclose(leader(np.zeros((n, m)), 0.5).marginals, 1.0 / n, atol=1e-12)


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
def test_every_round_is_played_with_the_leader_of_the_rounds_before(world):
    for t, state, _, _ in rounds_of(FTRL, world, 400):
        if t < 20 or t % 20 == 0:
            exact = leader(state.loss, 1.0 / (2.0 * sqrt(t))).marginals
            np.testing.assert_allclose(state.leading.marginals, exact, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_the_leader_is_still_right_after_many_rounds_on_one_warm_start():
    for t, state, _, _ in rounds_of(FTRL, WORLDS["yandex"], 5000, seed=3):
        if t % 500 == 0:
            exact = leader(state.loss, 1.0 / (2.0 * sqrt(t))).marginals
            np.testing.assert_allclose(state.leading.marginals, exact, rtol=0, atol=1e-5)


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
def test_marginals_are_always_a_point_of_the_polytope(world):
    for _, state, decision, _ in rounds_of(FTRL, world, 300):
        x = state.leading.marginals
        assert x.min() > 0.0
        assert np.abs(x.sum(axis=0) - 1.0).max() < 1e-12
        assert x.sum(axis=1).max() < 1.0 + 1e-12
        assert (decision.propensity == x[decision.ranking, np.arange(world.n_positions)]).all()


def test_a_round_uses_its_own_rate_and_only_the_losses_before_it():
    for t, state, decision, clicks in rounds_of(FTRL, WORLDS["paper"], 30):
        rates = {shift: 1.0 / (2.0 * sqrt(t + shift)) for shift in (-1, 0, 1) if t + shift > 0}
        played = state.leading.marginals
        off = {k: np.abs(leader(state.loss, rate).marginals - played).max() for k, rate in rates.items()}
        assert off[0] < 1e-5
        if t >= 3:
            # A neighbouring rate would show, and so would this round's losses.
            assert min(off[-1], off[1]) > 1e-4
        if t > 1 and not clicks.all():
            hindsight = state.loss.copy()
            hindsight[decision.ranking, np.arange(5)] += (1.0 - clicks) / decision.propensity
            assert np.abs(leader(hindsight, rates[0]).marginals - state.leading.marginals).max() > 1e-4


def test_a_missing_click_adds_its_weighted_loss_and_nothing_else_changes():
    expected = np.zeros((10, 5))
    for t, state, decision, clicks in rounds_of(FTRL, WORLDS["paper"], 100):
        assert (state.loss == expected).all()
        assert state.epochs.rounds[0] == t - 1
        for j, i in enumerate(decision.ranking):
            expected[i, j] += (1.0 - clicks[j]) / decision.propensity[j]


def test_late_feedback_is_weighted_with_the_propensity_it_was_decided_with():
    state, rng = FTRL.init(4, 2), np.random.default_rng(1)
    early = FTRL.decide(state, rng)
    for _ in range(50):
        decision = FTRL.decide(state, rng)
        FTRL.learn(state, decision, (decision.ranking == 0).astype(float))
    before = state.loss.copy()
    FTRL.learn(state, early, [0, 0])
    gained = (state.loss - before)[early.ranking, [0, 1]]
    assert gained == pytest.approx([4.0, 4.0])
    assert (state.leading.marginals[early.ranking, [0, 1]] != 0.25).all()


@pytest.mark.parametrize("rounds", [0, 1, 40])
def test_loss_estimates_are_unbiased_by_enumeration(rounds):
    p = np.array([[0.9, 0.3], [0.5, 0.6], [0.2, 0.1]])
    np.testing.assert_allclose(expected_estimate(FTRL, trained(FTRL, 3, 2, rounds), p), 1.0 - p, atol=1e-9)


@pytest.mark.slow
def test_decided_lists_follow_the_marginals():
    state, rng, draws = trained(FTRL, 5, 3, 60), np.random.default_rng(8), 40_000
    seen = np.zeros((5, 3))
    for _ in range(draws):
        seen[FTRL.decide(state, rng).ranking, np.arange(3)] += 1
    x = state.leading.marginals
    off = np.abs(seen / draws - x) / np.sqrt(x * (1.0 - x) / draws)
    assert off.max() < 4.5


def tsallis_inf(loss, t):
    """Tsallis-INF's distribution in closed form: x_i = 4 / (eta (L_i - c))^2 with eta = 2 / sqrt(t), summing to 1."""
    eta = 2.0 / sqrt(t)

    def x(c):
        return 4.0 / (eta * (loss - c)) ** 2

    n, low = loss.size, loss.min()
    return x(
        brentq(lambda c: x(c).sum() - 1.0, low - 2.0 * sqrt(n) / eta - 1.0, low - 2.0 / eta * (1.0 - 1e-12), xtol=1e-13)
    )


@pytest.mark.parametrize("n", [2, 6, 20])
def test_with_one_position_it_is_tsallis_inf(n):
    world = stochastic(np.linspace(0.8, 0.1, n), [1.0])
    for t, state, _, _ in rounds_of(FTRL, world, 300):
        if t % 10 == 1:
            closed_form = tsallis_inf(state.loss[:, 0], t)
            np.testing.assert_allclose(state.leading.marginals[:, 0], closed_form, rtol=0, atol=1e-5)


@pytest.mark.parametrize("rate", [0.1, 0.5, 2.0])
def test_the_rate_is_a_setting(rate):
    for t, state, _, _ in rounds_of(policy("ftrl-pbm", rate=rate), WORLDS["paper"], 60):
        exact = leader(state.loss, rate / sqrt(t)).marginals
        np.testing.assert_allclose(state.leading.marginals, exact, rtol=0, atol=1e-5)


def test_a_smaller_tolerance_comes_nearer_to_the_leader():
    off = {}
    for tolerance in (1e-2, 1e-12):
        learner = policy("ftrl-pbm", tolerance=tolerance)
        for t, state, _, _ in rounds_of(learner, WORLDS["paper"], 200):
            last = np.abs(state.leading.marginals - leader(state.loss, 0.5 / sqrt(t)).marginals).max()
            off[tolerance] = max(off.get(tolerance, 0.0), last)
    assert off[1e-12] < 1e-9 < off[1e-2]


def test_at_any_tolerance_estimates_use_the_marginals_that_are_played():
    for _, state, decision, _ in rounds_of(policy("ftrl-pbm", tolerance=0.1), WORLDS["paper"], 100):
        assert np.abs(state.leading.marginals.sum(axis=0) - 1.0).max() < 1e-12
        assert state.leading.marginals.sum(axis=1).max() < 1.0 + 1e-12
        assert (decision.propensity == state.leading.marginals[decision.ranking, np.arange(5)]).all()


def test_other_labels_give_the_same_marginals_under_other_labels():
    relabel = np.array([4, 2, 0, 1, 3])
    ours, theirs = FTRL.init(5, 3), FTRL.init(5, 3)
    rng = np.random.default_rng(2)
    for _ in range(200):
        decision = FTRL.decide(ours, rng)
        clicks = (rng.random(3) < 0.8 / (1.0 + decision.ranking)).astype(float)
        FTRL.learn(ours, decision, clicks)
        FTRL.learn(theirs, Decision(relabel[decision.ranking], decision.propensity), clicks)
    np.testing.assert_allclose(theirs.leading.marginals[relabel], ours.leading.marginals, atol=1e-5)


def gaps(alpha, beta):
    """The paper's Delta_ij of item i != j at position j, with items and positions in order and beta_{m+1} = 0."""
    beta = [*beta, 0.0]
    for j in range(len(beta) - 1):
        for i in range(len(alpha)):
            if i > j:
                yield (beta[j] - beta[j + 1]) * (alpha[j] - alpha[i])
            elif i < j:
                yield (beta[j - 1] - beta[j]) * (alpha[i] - alpha[j])


@pytest.mark.slow
def test_regret_is_of_the_known_order_and_below_both_theorems():
    n, m, rounds = 10, 5, 10_000
    world = bothworlds.world("paper/stochastic")
    result = bothworlds.play(FTRL, world, rounds, replications=10, checkpoints=20)
    assert 400 < result.regret()[:, -1].mean() < 1300
    for t, regret in zip(result.rounds, result.regret().max(axis=0)):
        adversarial = 3 * m + 2 * m * (1 + log(t)) + 6 * m * sqrt(n * t)
        stochastic_bound = (18 * sum(1 / gap for gap in gaps(world.attraction, world.examination)) + 4 * m) * log(
            t
        ) + 6 * m
        assert regret < adversarial
        assert regret < stochastic_bound


def test_the_stochastic_bound_is_the_one_of_the_card():
    world = bothworlds.world("paper/stochastic")
    bound = (18 * sum(1 / gap for gap in gaps(world.attraction, world.examination)) + 20) * log(1e6) + 30
    assert bound == pytest.approx(1.6e6, rel=0.05)


@pytest.mark.slow
def test_regret_grows_slower_and_slower_with_steady_users():
    result = bothworlds.play(FTRL, "paper/stochastic", 20_000, replications=10, checkpoints=4)
    mean = result.regret().mean(axis=0)
    steps = np.diff(np.concatenate([[0.0], mean]))
    assert (np.diff(steps) < 0).all()


@pytest.mark.slow
def test_regret_against_the_best_fixed_list_stays_small_with_seasonal_users():
    world = bothworlds.world("paper/periodic-both", phase=1_000)
    result = bothworlds.play(FTRL, world, 20_000, replications=10, checkpoints=10)
    uniform = bothworlds.play("uniform", world, 20_000, replications=10, checkpoints=10)
    t = result.rounds
    assert (result.regret().max(axis=0) < 15 + 10 * (1 + np.log(t)) + 30 * np.sqrt(10 * t)).all()
    assert result.regret()[:, -1].mean() < 0.6 * uniform.regret()[:, -1].mean()
