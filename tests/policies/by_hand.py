"""Policies played round by round, with access to every state."""

from __future__ import annotations

from itertools import product

import numpy as np

import bothworlds
from bothworlds.core import Decision, copy_state
from bothworlds.geometry import birkhoff
from bothworlds.worlds import stochastic

WORLDS = {
    "paper": bothworlds.world("paper/stochastic"),
    "close": bothworlds.world("paper/stochastic", gap=0.01),
    "yandex": bothworlds.world("yandex/stochastic"),
    "hopeless": stochastic(np.zeros(6), [1.0, 1.0, 1.0]),
    "generous": stochastic(np.ones(4), [1.0, 1.0, 1.0, 1.0]),
    "certain": stochastic([1.0, 0.0, 0.0], [1.0, 0.5]),
}


def rounds_of(learner, world, rounds, seed=0):
    """Play by hand; yield the round, the state before its decision, the decision and the clicks."""
    state, rng = learner.init(world.n_items, world.n_positions), np.random.default_rng(seed)
    for t in range(1, rounds + 1):
        decision = learner.decide(state, rng)
        p = world.click_probabilities(t - 1)[decision.ranking, np.arange(world.n_positions)]
        clicks = (rng.random(p.size) < p).astype(float)
        yield t, state, decision, clicks
        learner.learn(state, decision, clicks)


def trained(learner, n, m, rounds, seed=5):
    """A state after some rounds in a world with steady users."""
    world = stochastic(np.linspace(0.9, 0.2, n), np.linspace(1.0, 0.5, m))
    state = learner.init(n, m)
    for _, state, _, _ in rounds_of(learner, world, rounds, seed):  # noqa: B007 - it is changed in place
        pass
    return copy_state(state)


def weighted(decision, losses, shape):
    """The losses at what was shown, divided by its propensities; nothing elsewhere."""
    estimate = np.zeros(shape)
    estimate[decision.ranking, np.arange(shape[1])] = losses / decision.propensity
    return estimate


def expected_estimate(learner, state, p):
    """What a round adds to ``state.loss`` on average: all lists with their chances, all clicks with theirs."""
    positions = np.arange(p.shape[1])
    expected = np.zeros_like(p)
    x = state.leading.by_item()
    for weight, ranking in zip(*birkhoff(x)):
        decision = Decision(ranking, x[ranking, positions])
        for clicks in product((0.0, 1.0), repeat=len(positions)):
            chance = np.where(clicks, p[ranking, positions], 1.0 - p[ranking, positions]).prod()
            expected += weight * chance * (learner.learn(copy_state(state), decision, clicks).loss - state.loss)
    return expected
