"""OSMD and MW against their definitions: the step, the projection, the mixing, the share."""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import pytest

from bothworlds.core import Decision, copy_state
from bothworlds.geometry import leader
from bothworlds.policies import policy
from bothworlds.worlds import stochastic
from tests.policies.by_hand import WORLDS, rounds_of, trained, weighted

T = 400


def mirror_step(name, x, estimate, eta):
    """One step and the projection, from x alone."""
    if name == "osmd":
        return leader(x**-0.5 + eta * estimate, 0.5).marginals
    return leader(-np.log(x) + eta * estimate, 1.0, regularizer="shannon").marginals


def constants(name, n, horizon):
    """gamma and eta of the publication."""
    if name == "osmd":
        return 0.0, sqrt(2.0 / horizon)
    gamma = min(0.5, sqrt(n * log(n) / horizon))
    return gamma, sqrt((1.0 - gamma) * log(n) / (n * horizon))


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.05])
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
@pytest.mark.parametrize("name", ["osmd", "mw"])
def test_every_round_is_one_step_from_the_last(name, world, share):
    n, m = world.n_items, world.n_positions
    gamma, eta = constants(name, n, T)
    x = np.full((n, m), 1.0 / n)
    for _, state, decision, clicks in rounds_of(policy(name, horizon=T, share=share), world, T):
        played = (1.0 - gamma) * x + gamma / n
        np.testing.assert_allclose(state.leading.marginals, played, rtol=0, atol=2e-5)
        x = (state.leading.marginals - gamma / n) / (1.0 - gamma)  # so that differences do not add up
        estimate = weighted(decision, 1.0 - clicks, (n, m))
        x = (1.0 - share) * mirror_step(name, np.maximum(x, 1e-12), estimate, eta) + share / n


def test_osmd_is_the_lazy_leader_until_a_row_is_full():
    """Greedy and lazy agree while only columns press; after the first full row they part."""
    learner = policy("osmd", horizon=300, tolerance=1e-12)
    loss, was_full, parted = np.zeros((3, 2)), False, 0.0
    for _, state, decision, clicks in rounds_of(learner, stochastic([0.9, 0.5, 0.1], [1.0, 0.6]), 300):
        lazy = leader(loss, 0.5 * sqrt(2.0 / 300))
        away = np.abs(lazy.marginals - state.leading.marginals).max()
        was_full = was_full or lazy.mu.max() > 0.0
        if was_full:
            parted = max(parted, away)
        else:
            assert away < 1e-9
        loss += weighted(decision, 1.0 - clicks, (3, 2))
    assert parted > 1e-3


def cyclic_projection(w, rounds=20_000):
    """The publication's: columns to 1, then full rows down to 1, each remembering by how much it was shrunk."""
    x, k = w.copy(), np.ones(len(w))
    for _ in range(rounds):
        x /= x.sum(axis=0)
        f = np.minimum(k, 1.0 / x.sum(axis=1))
        k /= f
        x *= f[:, None]
    return x / x.sum(axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_projection_of_mw_is_the_published_one(seed):
    rng = np.random.default_rng(seed)
    learner = policy("mw", horizon=1000, mixing=0, tolerance=1e-12)
    state, ranking = trained(learner, 4, 3, 200, seed), rng.permutation(4)[:3]
    w = np.exp(-state.loss)
    assert w.sum(axis=1).max() > 0.9
    eta = sqrt(log(4) / (4 * 1000))
    propensity = np.full(3, 0.01)
    w[ranking, np.arange(3)] *= np.exp(-eta / propensity)
    learner.learn(state, Decision(ranking, propensity), np.zeros(3))
    np.testing.assert_allclose(state.leading.marginals, cyclic_projection(w), atol=1e-9)


@pytest.mark.parametrize("name", ["osmd", "mw"])
@pytest.mark.parametrize("shape", [(10, 5), (4, 4), (2, 1)])
def test_a_round_without_losses_changes_nothing(name, shape):
    learner = policy(name, horizon=500, tolerance=1e-12)
    state = trained(learner, *shape, 200)
    before = copy_state(state).leading.marginals
    learner.learn(state, learner.decide(state, np.random.default_rng(0)), np.ones(shape[1]))
    np.testing.assert_allclose(state.leading.marginals, before, atol=1e-11)


@pytest.mark.slow
def test_mw_never_shows_a_pair_less_often_than_its_uniform_lists():
    gamma = sqrt(10 * log(10) / 3000)
    for _, state, _, _ in rounds_of(policy("mw", horizon=3000), WORLDS["yandex"], 3000):
        least = state.leading.marginals.min()
        assert least >= gamma / 10 * (1 - 1e-12)
    assert least < 1.01 * gamma / 10


def test_mw_mixes_at_most_one_half():
    for _, state, _, _ in rounds_of(policy("mw", horizon=5), WORLDS["paper"], 5):
        assert state.leading.marginals.min() >= 0.05


@pytest.mark.slow
def test_mw_continues_where_probabilities_underflow():
    learner = policy("mw", horizon=100_000, rate=400.0)
    for _, state, _, _ in rounds_of(learner, WORLDS["yandex"], 4000):
        x = state.leading.marginals
        assert np.abs(x.sum(axis=0) - 1.0).max() < 1e-9
        assert x.sum(axis=1).max() < 1.0 + 1e-9
    assert state.loss.max() > 750.0
    assert np.isfinite(state.loss).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["osmd", "mw"])
def test_a_share_lets_it_follow_a_list_that_changes(name):
    """Rewards of a world that turns around: with a share the new best item is found much sooner."""
    late = {}
    for share in (0.0, 0.01):
        learner = policy(name, horizon=2000, share=share, rate=4.0)
        state, rng, late[share] = learner.init(5, 1), np.random.default_rng(0), 0.0
        for t in range(2000):
            decision = learner.decide(state, rng)
            best = decision.ranking[0] == (0 if t < 1000 else 4)
            late[share] += float(best) * (t >= 1000)
            learner.learn(state, decision, [float(best)])
    assert late[0.01] > 1.5 * late[0.0] + 50


@pytest.mark.parametrize("name", ["osmd", "mw"])
def test_without_a_horizon_it_uses_the_doubling_trick(name):
    learner, fresh = policy(name), policy(name, horizon=2048).init(3, 2)
    for t, state, decision, clicks in rounds_of(learner, stochastic([0.9, 0.5, 0.1], [1.0, 0.5]), 1100):
        if t == 1024:
            assert np.ptp(state.leading.marginals) > 0.1
        if t > 1024:
            assert (state.leading.marginals == fresh.leading.marginals).all()
            learner.learn(fresh, decision, clicks)


def test_mw_refuses_a_negative_mixing():
    with pytest.raises(ValueError, match="mixing must be"):
        policy("mw", mixing=-1)
