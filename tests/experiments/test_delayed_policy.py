"""FTRL-PBM as the service runs it: without changes it is FTRL-PBM itself, and each change has an effect."""

from __future__ import annotations

import numpy as np
import pytest

import bothworlds
from bothworlds.experiments.delayed_policy import DelayedFtrl
from bothworlds.experiments.service_cost import newcomers

WORLD = "paper/stochastic"


def regret(policy, rounds=2000):
    return bothworlds.play(policy, WORLD, rounds, seeds=2, checkpoints=4, progress=False).regret()


@pytest.mark.slow
def test_with_default_settings_it_is_ftrl_pbm():
    assert np.array_equal(regret(DelayedFtrl()), regret("ftrl-pbm"))


@pytest.mark.parametrize("changed", [{"refresh": 10}, {"delay": 5}, {"floor": 0.1}, {"fixed_point": True}])
def test_each_change_has_an_effect_but_a_small_one(changed):
    # Whole numbers differ from others in the last digits only, which takes a while to show in a list.
    plain, other = regret("ftrl-pbm"), regret(DelayedFtrl(**changed))
    assert "fixed_point" in changed or not np.array_equal(plain, other)
    assert abs(other - plain).max() < 0.5 * plain.max()


@pytest.mark.slow
def test_a_newcomer_is_not_shown_before_it_arrives():
    policy = DelayedFtrl(newcomer=2, arrives=50, floor=0.05, refresh=5, delay=3)
    state, rng, seen = policy.init(5, 2), np.random.default_rng(0), []
    for _ in range(400):
        decision = policy.decide(state, rng)
        seen.append(2 in decision.ranking)
        state = policy.learn(state, decision, (decision.ranking == 2).astype(float))
    assert not any(seen[:50])
    assert any(seen[50:])


def test_a_newcomer_keeps_its_identity_when_items_are_relabelled():
    labels = np.array([3, 1, 0, 2])
    assert labels[DelayedFtrl(newcomer=2).relabelled(labels).newcomer] == 2


def test_starting_at_zero_lets_the_worst_item_take_over():
    rounds = 4000
    late = newcomers(10, rounds)
    zero, median = (regret(late[f"worst item starts at {start}"], rounds)[:, -1].mean() for start in ("zero", "median"))
    assert zero > median
