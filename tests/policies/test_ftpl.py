"""FTPL against its definition: the perturbed leader, and counts of redraws that estimate inverse probabilities."""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import linear_sum_assignment

from bothworlds.core import copy_state
from bothworlds.policies import policy
from bothworlds.policies.parts.random_stream import make_stream
from tests.policies.by_hand import WORLDS, rounds_of, trained

FTPL = policy("ftpl")


@pytest.mark.parametrize("shape", [(10, 5), (4, 4), (6, 1)])
def test_a_decision_is_the_best_list_for_perturbed_losses(shape):
    state = trained(policy("ftpl", rate=0.7), *shape, 50)
    for seed in range(30):
        decision = policy("ftpl").decide(state, np.random.default_rng(seed))
        frechet = 1.0 / np.sqrt(-np.log(np.random.default_rng(seed).random(shape)))
        items, positions = linear_sum_assignment(state.loss - frechet * sqrt(51) / 0.7)
        assert (decision.ranking[positions] == items).all()
        assert np.isnan(decision.propensity).all()


@pytest.mark.slow
def test_with_two_items_and_one_position_probabilities_are_an_integral():
    """P(L_0 - s r_0 < L_1 - s r_1) for Frechet r: the density 2 r^-3 exp(-r^-2) against the tail of the other."""
    state = FTPL.init(2, 1)
    state.loss[0, 0] = 1.3

    def beaten(r):
        other = max(r - 1.3, 0.0)  # what the second needs at most, with s = 1 in the first round
        return 2.0 * r**-3 * np.exp(-(r**-2)) * (np.exp(-(other**-2)) if other > 0.0 else 0.0)

    chance, _ = quad(beaten, 0.0, np.inf)
    rng, draws = np.random.default_rng(0), 20_000
    seen = sum(FTPL.decide(state, rng).ranking[0] == 0 for _ in range(draws)) / draws
    assert abs(seen - chance) < 5 * sqrt(chance * (1 - chance) / draws)


@pytest.mark.slow
def test_redraws_estimate_inverse_probabilities():
    state = trained(FTPL, 3, 2, 400)
    rng, draws, positions = np.random.default_rng(1), 20_000, np.arange(2)
    seen = np.zeros((3, 2))
    for _ in range(draws):
        seen[FTPL.decide(state, rng).ranking, positions] += 1
    p = seen / draws
    ranking = FTPL.decide(state, rng)
    counts = []
    for k in range(3000):
        twin = copy_state(state)._replace(stream=make_stream(k))
        FTPL.learn(twin, ranking, np.zeros(2))
        counts.append((twin.loss - state.loss)[ranking.ranking, positions])
    x = p[ranking.ranking, positions]
    assert x.min() > 0.05  # the cap of 50 is far away
    error = np.std(counts, axis=0) / sqrt(3000) + np.sqrt((1 - x) / (x * draws)) / x
    assert (np.abs(np.mean(counts, axis=0) - 1.0 / x) < 5 * error).all()


def test_a_click_adds_nothing_and_no_loss_exceeds_the_cap():
    for t, state, decision, clicks in rounds_of(FTPL, WORLDS["hopeless"], 60):
        before = copy_state(state).loss
        gained = (FTPL.learn(copy_state(state), decision, clicks).loss - before)[decision.ranking, np.arange(3)]
        assert (gained >= 1.0).all()
        assert (gained <= ceil(sqrt(6 * 3 * t))).all()
        assert (gained == np.round(gained)).all()
        assert (FTPL.learn(copy_state(state), decision, np.ones(3)).loss == before).all()


def test_the_cap_is_a_setting():
    state = trained(FTPL, 10, 5, 20)
    capped = copy_state(state)._replace(cap=1e-9)
    decision = FTPL.decide(capped, np.random.default_rng(0))
    FTPL.learn(capped, decision, np.zeros(5))
    assert ((capped.loss - state.loss)[decision.ranking, np.arange(5)] == 1.0).all()
