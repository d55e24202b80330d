"""Gibbs-TS: its chain has the posterior as its distribution, and decisions rank by the drawn parameters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import bothworlds
from bothworlds.core import copy_state
from bothworlds.kernels import kernel
from bothworlds.policies import policy
from bothworlds.policies.parts.gibbs_chain import sweep, unread_share
from tests.policies.pairs import last_state, remembered, rounds_of
from tests.reference.posterior import off, posterior

TABLES = {  # shown, clicked
    "2x1": ([[9], [6]], [[3], [4]]),
    "2x2": ([[6, 3], [2, 8]], [[4, 1], [0, 3]]),
    "never shown": ([[5, 0], [0, 7]], [[2, 0], [0, 1]]),
}


@kernel
def chain(counts, items, prior, source, attraction, examination, tally, out):
    for k in range(out.shape[0]):
        sweep(counts, items, prior, source, attraction, examination, tally)
        for i in range(attraction.size):
            out[k, i] = attraction[i]
        for j in range(examination.size):
            out[k, attraction.size + j] = examination[j]


def sampled(shown, clicked, prior, sweeps):
    """Attraction and examination, one column each, along a chain with fixed counts."""
    state = policy("gibbs-ts").init(*np.shape(shown))
    state.counts.shown[:], state.counts.clicked[:] = shown, clicked
    out = np.empty((sweeps, sum(np.shape(shown))))
    rng = np.random.default_rng(7)
    chain(state.counts, state.rows.item, prior, rng, state.attraction, state.examination, state.work.sums, out)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("prior", [1.0, 2.5])
@pytest.mark.parametrize("table", TABLES)
def test_the_distribution_of_the_chain_is_the_posterior(table, prior):
    shown, clicked = map(np.array, TABLES[table])
    n, m = shown.shape
    axis = stats.beta(prior, prior).ppf((np.arange(40) + 0.5) / 40)
    exact = posterior(clicked, shown - clicked, [axis] * n, [axis] * m)
    assert off(sampled(shown, clicked, prior, 200_000), *exact, slack=5e-4) < 5.0


def test_missing_clicks_are_explained_as_in_the_e_step():
    """The share of a missing click that goes to attraction is the weight that EM gives it."""
    share = getattr(unread_share, "py_func", unread_share)
    for alpha, beta in ((0.3, 0.8), (0.9, 0.1), (1.0, 0.5), (0.5, 1.0)):
        attracted = (alpha * (1.0 - beta)) / (alpha * (1 - beta) + (1 - alpha) * beta + (1 - alpha) * (1 - beta))
        assert share(alpha, beta) == pytest.approx(attracted)
    assert 0.0 <= share(1.0, 1.0) <= 1.0


def test_decisions_rank_by_the_drawn_parameters():
    learner, rng = policy("gibbs-ts"), np.random.default_rng(0)
    state = last_state(learner, 50)
    for _ in range(50):
        ranking = learner.decide(state, rng).ranking
        best = np.argsort(-state.work.items)[:3]
        assert (ranking[np.argsort(-state.work.positions)] == best).all()


def test_the_first_list_is_uniform():
    learner, rng = policy("gibbs-ts"), np.random.default_rng(1)
    state, seen = learner.init(4, 2), np.zeros((4, 2))
    for _ in range(2000):
        seen[learner.decide(state, rng).ranking, [0, 1]] += 1
    assert all(stats.chisquare(column).pvalue > 1e-4 for column in seen.T)


def test_learning_moves_the_chain_and_deciding_does_not():
    learner, rng = policy("gibbs-ts"), np.random.default_rng(2)
    state = last_state(learner, 20)
    before = copy_state(state)
    decision = learner.decide(state, rng)
    assert (state.attraction == before.attraction).all()
    assert (state.work.items != state.attraction).all()
    learner.learn(state, decision, [1, 0, 1])
    assert (state.attraction != before.attraction).all()
    assert (state.examination != before.examination).all()


@pytest.mark.parametrize("forget", [{}, {"window": 30}, {"discount": 0.9}])
def test_counts_are_those_of_the_remembered_rounds(forget):
    for state, _, _, past in rounds_of(policy("gibbs-ts", **forget), 100):
        shown, clicked, _ = remembered(past, (5, 3), **forget)
        np.testing.assert_allclose(state.counts.shown, shown, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(state.counts.clicked, clicked, rtol=1e-9, atol=1e-12)


def test_fractions_of_missing_clicks_are_rounded_with_the_right_mean():
    state, rng = policy("gibbs-ts").init(2, 1), np.random.default_rng(3)
    state.counts.shown[:], state.counts.clicked[:] = [[2.7], [0.0]], [[0.4], [0.0]]
    misses, sums = [], state.work.sums
    for _ in range(3000):
        chain(state.counts, state.rows.item, 1.0, rng, state.attraction, state.examination, sums, np.empty((1, 3)))
        assert sums[0, 0] == 0.4
        misses.append(sums[1:, 0].sum())
    assert set(misses) == {2.0, 3.0}
    assert abs(np.mean(misses) - 2.3) < 5.0 * np.std(misses) / np.sqrt(3000)


def test_more_sweeps_at_first():
    one, three = (last_state(policy("gibbs-ts", early_sweeps=k, early=10), 9) for k in (1, 3))
    late = last_state(policy("gibbs-ts", early_sweeps=3, early=0), 9)
    assert (one.attraction == late.attraction).all()
    assert (one.attraction != three.attraction).any()


@pytest.mark.slow
@pytest.mark.nightly
def test_forgetting_follows_the_season():
    world = bothworlds.world("paper/periodic-both", phase=10_000)
    keep, forget = (bothworlds.play(policy("gibbs-ts", window=w), world, 40_000, replications=4) for w in (None, 5_000))
    assert forget.final()[0] > keep.final()[0] + 0.03
