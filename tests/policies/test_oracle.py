"""The best list of every round."""

from __future__ import annotations

import numpy as np
import pytest

import bothworlds
from bothworlds.policies import policy
from bothworlds.worlds import matrix, periodic, stochastic


def test_it_has_no_regret_in_a_world_that_changes():
    world = periodic([stochastic([0.9, 0.5, 0.1], [1.0, 0.2]), stochastic([0.1, 0.5, 0.9], [0.2, 1.0])], phase=7)
    result = bothworlds.play("oracle", world, 100, replications=3, inform=True)
    np.testing.assert_allclose(result.regret("dynamic"), 0.0, atol=1e-9)
    assert (result.regret("fixed")[:, -1] < -5).all()


def test_it_solves_worlds_without_product_form():
    world = matrix([[0.9, 0.8], [0.8, 0.1], [0.2, 0.3]])
    result = bothworlds.play("oracle", world, 10, replications=2, inform=True)
    np.testing.assert_allclose(result.average_reward(), 1.6)


def test_it_requires_the_world():
    with pytest.raises(ValueError, match="oracle needs world="):
        bothworlds.play("oracle", "paper/stochastic", 10, replications=1)


def test_the_world_must_have_the_right_shape():
    with pytest.raises(
        ValueError, match=r"oracle knows .* 10 items, 5 positions.* does not have 4 items and 2 positions"
    ):
        policy("oracle", world="paper/stochastic").init(4, 2)
    with pytest.raises(ValueError, match="no world named 'nowhere'"):
        policy("oracle", world="nowhere")


def test_beyond_its_horizon_it_stays_with_its_last_list(rng):
    oracle = policy("oracle", world=bothworlds.world("paper/periodic-both", phase=5), horizon=5)
    state = oracle.init(10, 5)
    for _ in range(12):
        decision = oracle.decide(state, rng)
        oracle.learn(state, decision, np.zeros(5))
        assert decision.ranking.tolist() == [0, 1, 2, 3, 4]


def test_its_label_and_settings_name_the_world():
    result = bothworlds.play("oracle", "paper/stochastic", 10, replications=1, inform=True)
    assert result.policy == "oracle"
    assert result.settings["world"] == "paper/stochastic"
