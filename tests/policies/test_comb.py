"""CombUCB1, KL-CombUCB and CombTS against their definitions, round by round."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from scipy import stats

import bothworlds
from bothworlds.core import Decision
from bothworlds.policies import policy
from bothworlds.statistics import kl_upper
from tests.policies.pairs import is_best, last_state, remembered, rounds_of

FORGET = [{}, {"window": 40}, {"discount": 0.95}]
NAMES = ("comb-ucb", "kl-comb-ucb", "comb-ts")


def ucb_index(shown, clicked, rounds, width=1.5):
    with np.errstate(divide="ignore", invalid="ignore"):
        index = clicked / shown + np.sqrt(width * log(max(1.0, rounds)) / shown)
    return np.where(shown > 0.0, np.minimum(index, 1000.0), 1000.0)


def kl_index(shown, clicked, level):
    index = np.ones(shown.shape)
    for i, j in np.argwhere(shown > 0.0):
        index[i, j] = kl_upper(min(1.0, clicked[i, j] / shown[i, j]), shown[i, j], level)
    return index


@pytest.mark.slow
@pytest.mark.parametrize("forget", FORGET)
@pytest.mark.parametrize("width", [1.5, 0.1])
def test_comb_ucb_shows_a_list_with_the_largest_sum_of_bounds(forget, width):
    for _, decision, _, past in rounds_of(policy("comb-ucb", width=width, **forget), 200):
        shown, clicked, rounds = remembered(past, (5, 3), **forget)
        if (shown[:, 0] > 0.0).all():
            assert is_best(decision.ranking, ucb_index(shown, clicked, rounds, width))
        else:
            assert shown[decision.ranking[0], 0] <= 0.0


def test_comb_ucb_first_shows_every_item_once_at_every_position():
    for n, m in ((5, 3), (4, 4), (6, 1), (2, 1)):
        state = last_state(policy("comb-ucb"), n, n, m)
        assert (state.counts.shown == 1.0).all()


@pytest.mark.slow
@pytest.mark.parametrize("forget", FORGET)
@pytest.mark.parametrize("level", ["log T", "log t"])
def test_kl_comb_ucb_shows_a_list_with_the_largest_sum_of_bounds(forget, level):
    learner = policy("kl-comb-ucb", level=level, horizon=500, **forget)
    longest = {"window": 40.0, "discount": 20.0}.get(next(iter(forget), ""), 500.0)
    for _, decision, _, past in rounds_of(learner, 200):
        shown, clicked, rounds = remembered(past, (5, 3), **forget)
        t = rounds + 1.0
        f = log(longest) if level == "log T" else log(t) + 3.0 * max(0.0, log(max(1.0, log(t))))
        index = kl_index(shown, clicked, f)
        assert (index >= np.where(shown > 0.0, clicked / np.maximum(shown, 1e-300), 0.0) - 1e-12).all()
        assert is_best(decision.ranking, index)


def test_without_a_horizon_the_level_doubles_and_nothing_is_forgotten():
    state = last_state(policy("kl-comb-ucb"), 1025)
    assert state.level[0] == pytest.approx(log(2048))
    assert state.counts.shown.sum() == 3 * 1025
    np.testing.assert_allclose(state.bounds, kl_index(state.counts.shown, state.counts.clicked, log(2048)), rtol=1e-9)


@pytest.mark.slow
def test_comb_ts_draws_every_pair_from_its_posterior():
    learner = policy("comb-ts", prior=2.0)
    state = last_state(learner, 30)
    shown, clicked = state.counts.shown, state.counts.clicked
    rng, samples = np.random.default_rng(1), []
    for _ in range(2000):
        ranking = learner.decide(state, rng).ranking
        assert is_best(ranking, state.work.scores)
        samples.append(state.work.scores.copy())
    for i in range(5):
        for j in range(3):
            posterior = stats.beta(2.0 + clicked[i, j], 2.0 + shown[i, j] - clicked[i, j])
            assert stats.kstest(np.array(samples)[:, i, j], posterior.cdf).pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["comb-ucb", "kl-comb-ucb"])
def test_with_one_position_it_is_the_bandit_of_that_name(name):
    for _, decision, _, past in rounds_of(policy(name, horizon=300) if name[0] == "k" else policy(name), 200, 4, 1):
        shown, clicked, rounds = remembered(past, (4, 1))
        index = ucb_index(shown, clicked, rounds) if name == "comb-ucb" else kl_index(shown, clicked, log(300))
        assert index[decision.ranking[0], 0] == pytest.approx(index.max(), rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_ties_are_broken_at_random(name):
    """The first list, and a later one without any clicks before."""
    learner, rng = policy(name), np.random.default_rng(4)
    fresh, tired = learner.init(4, 2), learner.init(4, 2)
    for start in range(4):
        learner.learn(tired, Decision(np.array([start, (start + 1) % 4]), np.full(2, np.nan)), [0, 0])
    for state in (fresh, tired):
        seen = np.zeros((4, 2))
        for _ in range(2000):
            seen[learner.decide(state, rng).ranking, [0, 1]] += 1
        assert all(stats.chisquare(column).pvalue > 1e-4 for column in seen.T)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("forget", FORGET)
def test_counts_are_those_of_the_remembered_rounds(name, forget):
    for state, _, _, past in rounds_of(policy(name, **forget), 100):
        shown, clicked, rounds = remembered(past, (5, 3), **forget)
        np.testing.assert_allclose(state.counts.shown, shown, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(state.counts.clicked, clicked, rtol=1e-9, atol=1e-12)
        assert state.counts.rounds[0] == pytest.approx(rounds)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_forgetting_follows_the_season(name):
    world = bothworlds.world("paper/periodic-both", phase=10_000)
    keep, forget = (bothworlds.play(policy(name, window=w), world, 40_000, replications=4) for w in (None, 5_000))
    assert forget.final()[0] > keep.final()[0] + 0.01
