"""PB-MHB: its steps are in detailed balance with the posterior, the distribution of its chain."""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import pytest
from scipy import stats

import bothworlds
from bothworlds.core import copy_state
from bothworlds.kernels import kernel
from bothworlds.policies import policy
from bothworlds.policies.pb_mhb import item_gain, mass_within, position_gain, run_sweeps
from tests.policies.pairs import last_state, remembered, rounds_of
from tests.reference.posterior import off, posterior


def interpreted(function):
    return getattr(function, "py_func", function)


@kernel
def chain(state, source, out):
    for k in range(out.shape[0]):
        run_sweeps(state, source, state.attraction, state.examination)
        for i in range(state.attraction.size):
            out[k, i] = state.attraction[i]
        for j in range(state.examination.size):
            out[k, state.attraction.size + j] = state.examination[j]


def with_counts(shown, clicked, **settings):
    state = policy("pb-mhb", **settings).init(*np.shape(shown))
    state.counts.shown[:], state.counts.clicked[:] = shown, clicked
    return state


def log_likelihood(state, attraction, examination):
    p = np.outer(attraction, examination)
    clicks, shown = state.counts.clicked, state.counts.shown
    return ((state.prior + clicks) * np.log(p) + (state.prior + shown - clicks) * np.log1p(-p)).sum()


@pytest.mark.parametrize(("old", "new"), [(0.2, 0.7), (0.01, 0.99), (0.5, 0.50001)])
def test_gains_are_differences_of_the_log_likelihood(old, new):
    state = with_counts([[9, 4], [6, 0], [2, 2]], [[3, 1], [4, 0], [0, 2]])
    attraction, examination = np.array([0.3, 0.6, 0.9]), np.array([1.0, 0.4])

    def change(which, k):
        before, after = [attraction.copy(), examination.copy()], [attraction.copy(), examination.copy()]
        before[which][k], after[which][k] = old, new
        return log_likelihood(state, *after) - log_likelihood(state, *before)

    assert interpreted(item_gain)(state.counts, 0.5, 1, old, new, examination) == pytest.approx(change(0, 1))
    assert interpreted(position_gain)(state.counts, 0.5, 1, old, new, attraction) == pytest.approx(change(1, 1))


@pytest.mark.parametrize("sigma", [1e-3, 0.05, 0.5, 3.0, 1e3])
def test_mass_within_is_that_of_the_normal_distribution(sigma):
    for v in (1e-9, 0.2, 0.5, 0.999):
        exact = stats.norm.cdf((1.0 - v) / sigma) - stats.norm.cdf(-v / sigma)
        assert interpreted(mass_within)(v, sigma) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("sigma", [0.1, 0.5, 100.0])
def test_two_points_are_in_detailed_balance(sigma):
    """Posterior times density of the step times acceptance, the same from a to b as from b to a."""
    state = with_counts([[9, 4], [6, 0]], [[3, 1], [4, 0]])
    examination, a, b = np.array([1.0, 0.4]), 0.15, 0.4

    def flow(old, new):
        step = stats.truncnorm(-old / sigma, (1.0 - old) / sigma, loc=old, scale=sigma).logpdf(new)
        gain = interpreted(item_gain)(state.counts, 0.5, 0, old, new, examination)
        mass = interpreted(mass_within)
        accepted = min(0.0, gain + log(mass(old, sigma) / mass(new, sigma)))
        return log_likelihood(state, np.array([old, 0.5]), examination) + step + accepted

    assert flow(a, b) == pytest.approx(flow(b, a))


@pytest.mark.slow
@pytest.mark.parametrize("step", [0.3, 1000.0])
def test_the_distribution_of_the_chain_is_the_posterior(step):
    shown, clicked = np.array([[6, 3], [2, 8]]), np.array([[4, 1], [0, 3]])
    state = with_counts(shown, clicked, step=step)
    sample = np.empty((400_000, 4))
    chain(state, np.random.default_rng(5), sample)
    assert (sample[:, 2] == 1.0).all()
    axis = (np.arange(200) + 0.5) / 200
    exact = posterior(clicked + 0.5, shown - clicked + 0.5, [axis] * 2, [[1.0], axis])
    assert off(sample, *exact, slack=5e-4) < 5.0


def test_with_one_position_the_distribution_of_the_chain_is_a_beta_distribution():
    state = with_counts([[9], [20]], [[3], [1]], step=0.5)
    sample = np.empty((200_000, 3))
    chain(state, np.random.default_rng(6), sample)
    for i, (clicks, misses) in enumerate([(3, 6), (1, 19)]):
        assert stats.kstest(sample[::100, i], stats.beta(1.5 + clicks, 1.5 + misses).cdf).pvalue > 1e-4


def test_steps_become_shorter_like_the_root_of_time():
    """Short steps show how far they reach: nearly all are accepted."""
    lengths = []
    for rounds in (0, 99):
        state = with_counts([[0], [0]], [[0], [0]], step=1e-3)
        state.counts.rounds[0] = rounds
        sample = np.empty((2000, 3))
        chain(state, np.random.default_rng(7), sample)
        lengths.append(np.diff(sample[:, 0]).std())
    assert lengths[0] == pytest.approx(1e-3, rel=0.1)
    assert lengths[0] / lengths[1] == pytest.approx(sqrt(100.0), rel=0.1)


def test_decisions_rank_by_the_drawn_parameters_and_do_not_change_the_chain():
    learner, rng = policy("pb-mhb", step=1.0), np.random.default_rng(0)
    state = last_state(learner, 50)
    before = copy_state(state)
    for _ in range(50):
        ranking = learner.decide(state, rng).ranking
        chosen = state.work.items[ranking[np.argsort(-state.work.positions)]]
        assert (chosen == np.sort(state.work.items)[::-1][:3]).all()
        assert state.work.positions[0] == 1.0
    assert (state.attraction == before.attraction).all()


def test_the_first_list_is_uniform():
    learner, rng = policy("pb-mhb"), np.random.default_rng(1)
    state, seen = learner.init(4, 2), np.zeros((4, 2))
    for _ in range(2000):
        seen[learner.decide(state, rng).ranking, [0, 1]] += 1
    assert all(stats.chisquare(column).pvalue > 1e-4 for column in seen.T)


@pytest.mark.parametrize("forget", [{}, {"window": 30}, {"discount": 0.9}])
def test_counts_are_those_of_the_remembered_rounds(forget):
    for state, _, _, past in rounds_of(policy("pb-mhb", **forget), 100):
        shown, clicked, _ = remembered(past, (5, 3), **forget)
        np.testing.assert_allclose(state.counts.shown, shown, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(state.counts.clicked, clicked, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_forgetting_follows_the_season():
    world = bothworlds.world("paper/periodic-items", phase=10_000)
    keep, forget = (bothworlds.play(policy("pb-mhb", window=w), world, 40_000, replications=4) for w in (None, 5_000))
    assert forget.final()[0] > keep.final()[0] + 0.03


@pytest.mark.slow
def test_it_learns_the_best_list():
    result = bothworlds.play("pb-mhb", "paper/stochastic", 100_000, replications=4)
    assert result.final()[0] > 2.0877 - 0.01
