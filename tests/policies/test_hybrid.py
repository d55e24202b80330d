"""HYBRID against its definition."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from bothworlds.geometry import leader
from bothworlds.policies import policy
from tests.policies.by_hand import WORLDS, expected_estimate, rounds_of, trained, weighted

HYBRID = policy("hybrid")


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
def test_every_round_is_played_with_the_leader_of_the_rounds_before(world):
    loss = np.zeros((world.n_items, world.n_positions))
    for t, state, decision, clicks in rounds_of(HYBRID, world, 300):
        if t < 10 or t % 20 == 0:
            exact = leader(loss, 1.0 / sqrt(t), regularizer="hybrid").marginals
            np.testing.assert_allclose(state.leading.marginals, exact, rtol=0, atol=1e-5)
        loss += weighted(decision, 1.0 - clicks, loss.shape)


def test_at_twice_the_rate_losses_are_those_of_the_publication():
    """Losses from -1 to 1, whose estimates are (loss + 1) / x - 1 where shown and -1 elsewhere."""
    loss = np.zeros((10, 5))
    for t, state, decision, clicks in rounds_of(policy("hybrid", rate=2.0), WORLDS["paper"], 200):
        if t % 10 == 1:
            exact = leader(loss, 1.0 / sqrt(t), regularizer="hybrid").marginals
            np.testing.assert_allclose(state.leading.marginals, exact, rtol=0, atol=1e-5)
        loss += weighted(decision, (1.0 - 2.0 * clicks) + 1.0, loss.shape) - 1.0


def test_with_little_entropy_it_is_ftrl_pbm_at_twice_its_rate():
    tsallis = policy("ftrl-pbm", rate=1.0)
    twin = tsallis.init(10, 5)
    for _, state, decision, clicks in rounds_of(policy("hybrid", gamma=1e-7), WORLDS["paper"], 100):
        np.testing.assert_allclose(state.leading.marginals, twin.leading.marginals, rtol=0, atol=1e-5)
        tsallis.learn(twin, decision, clicks)


def test_the_entropy_of_the_complement_holds_back_what_is_nearly_certain():
    loss = np.array([[0.0, 9.0], [9.0, 0.0], [9.0, 9.0]])
    assert leader(loss, 1.0, regularizer="hybrid").marginals[0, 0] < leader(loss, 1.0).marginals[0, 0]


def test_loss_estimates_are_unbiased_by_enumeration():
    p = np.array([[0.9, 0.3], [0.5, 0.6], [0.2, 0.1]])
    np.testing.assert_allclose(expected_estimate(HYBRID, trained(HYBRID, 3, 2, 40), p), 1.0 - p, atol=1e-9)
