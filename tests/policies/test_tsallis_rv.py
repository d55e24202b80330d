"""Tsallis-RV against its definition, and the settings with which it is FTRL-PBM."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from bothworlds.core import Decision
from bothworlds.geometry import leader
from bothworlds.policies import policy
from tests.policies.by_hand import WORLDS, expected_estimate, rounds_of, trained, weighted

RV = policy("tsallis-rv")


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
def test_every_round_is_played_with_the_leader_of_the_rounds_before(world):
    for t, state, _, _ in rounds_of(RV, world, 400):
        if t < 20 or t % 20 == 0:
            exact = leader(state.loss, 1.0 / sqrt(t)).marginals
            np.testing.assert_allclose(state.leading.marginals, exact, rtol=0, atol=1e-5)


def test_every_pair_shown_often_enough_has_the_baseline():
    expected = np.zeros((10, 5))
    baselines = 0.0
    for t, state, decision, clicks in rounds_of(RV, WORLDS["paper"], 500):
        np.testing.assert_allclose(state.loss, expected, rtol=1e-12, atol=1e-9)
        baseline = np.where(state.leading.marginals >= 16.0 / t, 0.5, 0.0)
        baselines += baseline.sum()
        shown = baseline[decision.ranking, np.arange(5)]
        expected += baseline + weighted(decision, 1.0 - clicks - shown, (10, 5))
    assert 0.0 < baselines < 0.5 * 500 * 50


@pytest.mark.parametrize("rounds", [0, 1, 60, 300])
def test_estimates_of_pairs_that_were_not_shown_are_unbiased(rounds):
    state = trained(RV, 3, 2, rounds)
    p = np.array([[0.9, 0.3], [0.5, 0.6], [0.2, 0.1]])
    assert (state.leading.marginals >= 16.0 / (rounds + 1)).any() == (rounds >= 60)
    np.testing.assert_allclose(expected_estimate(RV, state, p), 1.0 - p, atol=1e-9)


def test_without_a_baseline_it_is_ftrl_pbm():
    ours, theirs = policy("tsallis-rv", baseline=0, rate=0.5), policy("ftrl-pbm")
    for (_, state, *_), (_, twin, *_) in zip(*(rounds_of(p, WORLDS["paper"], 100) for p in (ours, theirs))):
        assert (state.leading.marginals == twin.leading.marginals).all()


@pytest.mark.parametrize("shape", [(10, 5), (5, 5), (6, 1)])
def test_an_estimate_that_falls_far_leaves_the_leader_right(shape):
    """Late clicks on what was rare: losses fall by far more than the regulariser's domain has room for."""
    state, rng, m = trained(RV, *shape, 300), np.random.default_rng(0), shape[1]
    for k in range(40):
        ranking = rng.permutation(shape[0])[:m]
        RV.learn(state, Decision(ranking, np.full(m, 10.0 ** -(k % 5))), np.full(m, float(k % 3 > 0)))
        exact = leader(state.loss, 1.0 / sqrt(state.epochs.rounds[0] + 1.0)).marginals
        np.testing.assert_allclose(state.leading.marginals, exact, rtol=0, atol=1e-5)
