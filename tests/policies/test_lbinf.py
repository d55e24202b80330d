"""LBINF and LBINFV against a reference in NumPy that stores the whole history, and the optimality conditions."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from bothworlds.policies import policy
from bothworlds.worlds import stochastic
from tests.policies.by_hand import WORLDS, expected_estimate, rounds_of, trained

HORIZON = 1000
EXACT = {"horizon": HORIZON, "tolerance": 1e-11}
VARIANTS = {
    "lbinfv, least squares": ("lbinfv", {}),
    "lbinfv, gradient": ("lbinfv", {"prediction": "gd", "eps": 0.5, "gamma": 2.0}),
    "lbinf": ("lbinf", {}),
    "lbinf, from one half": ("lbinf", {"guess": 0.5, "step": 0.1}),
}
each_variant = pytest.mark.parametrize(("name", "settings"), VARIANTS.values(), ids=VARIANTS.keys())


class Twin:
    """Everything recomputed from the history: (pair, loss, x) of every position of every round."""

    def __init__(self, learner, shape):
        self.learner, self.shape, self.history = learner, shape, []
        self.gamma = getattr(learner, "gamma", None) or log(learner.horizon)

    def guess(self):
        return 0.5 if self.learner.name == "lbinfv" else self.learner.guess

    def predictions(self):
        """The predictions of every round so far, and of the next."""
        p, seen = np.full(self.shape, self.guess()), {}
        yield p.copy()
        for rows in self.history:
            for pair, loss, _ in rows:
                seen.setdefault(pair, []).append(loss)
                if getattr(self.learner, "prediction", "gd") == "ls":
                    p[pair] = (0.5 + sum(seen[pair])) / (1 + len(seen[pair]))
                else:
                    p[pair] += self.learner.step * (loss - p[pair])
            yield p.copy()

    def objective(self):
        """Estimated losses with the prediction added, and the weights b."""
        first = (1 + self.learner.eps) ** 2 if self.learner.name == "lbinfv" else 2.0
        total, square = np.zeros(self.shape), np.full(self.shape, first)
        *past, ahead = self.predictions()
        for p, rows in zip(past, self.history):
            total += p
            for pair, loss, x in rows:
                total[pair] += (loss - p[pair]) / x
                square[pair] += (loss - p[pair]) ** 2 * min(1, 2 * (1 - x) / (self.gamma * x**2)) / self.gamma
        return total + ahead, np.sqrt(square)

    def slope(self, x):
        if self.learner.name == "lbinfv":
            return 1 - 1 / x - self.gamma * np.log(1 - x)
        return -1 / x - self.gamma * (1 + np.log(1 - x))


@each_variant
def test_every_round_satisfies_the_optimality_conditions_of_the_history(name, settings):
    learner = policy(name, **EXACT, **settings)
    twin = Twin(learner, (10, 5))
    for t, state, decision, clicks in rounds_of(learner, WORLDS["paper"], 120):
        if t > 1 and t % 7 == 0:
            losses, b = twin.objective()
            x, mu = state.leading.marginals, state.leading.mu
            pull = losses + b * twin.slope(x) + mu[:, None]  # -lam: the same in all of a column
            assert np.ptp(pull, axis=0).max() < 1e-6 * np.abs(pull).max()
            assert mu.min() >= 0.0
            assert (mu * (1.0 - x.sum(axis=1))).max() < 1e-6
        rows = zip(zip(decision.ranking.tolist(), range(5)), 1.0 - clicks, decision.propensity)
        twin.history.append(list(rows))


@each_variant
@pytest.mark.parametrize("rounds", [0, 1, 60])
def test_estimates_are_unbiased_by_enumeration(name, settings, rounds):
    learner = policy(name, **EXACT, **settings)
    p = np.array([[0.9, 0.3], [0.5, 0.6], [0.2, 0.1]])
    np.testing.assert_allclose(expected_estimate(learner, trained(learner, 3, 2, rounds), p), 1.0 - p, atol=1e-9)


@each_variant
def test_rates_never_rise(name, settings):
    before = np.inf
    for _, state, _, _ in rounds_of(policy(name, horizon=HORIZON, **settings), WORLDS["paper"], 300):
        assert (state.rule.rates <= before).all()
        before = state.rule.rates.copy()
    assert before.min() < before.max()


@pytest.mark.slow
def test_with_deterministic_clicks_rates_stay_near_their_start():
    """The mean of equal losses is 1/(2 N + 2) from them, so that the sum of squares is below pi^2 / 24."""
    certain = stochastic([1.0, 1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    for name, most in (
        ("lbinfv", 1.44 + np.pi**2 / 24 / log(2000)),
        ("lbinf", 2.0 + 0.75**2 / (1 - 9 / 16) / log(2000)),
    ):
        for _, state, _, _ in rounds_of(policy(name, horizon=2000), certain, 2000):
            last = state.rule.spread.max()
        assert last < most


@pytest.mark.parametrize("name", ["lbinf", "lbinfv"])
def test_without_a_horizon_it_uses_the_doubling_trick(name):
    learner = policy(name)
    fresh = policy(name, horizon=2048).init(3, 2)
    for t, state, decision, clicks in rounds_of(learner, stochastic([0.9, 0.5, 0.1], [1.0, 0.5]), 1100):
        if t == 1024:
            assert np.ptp(state.leading.marginals) > 0.1
        if t > 1024:
            assert (state.leading.marginals == fresh.leading.marginals).all()
            learner.learn(fresh, decision, clicks)


@pytest.mark.parametrize("name", ["lbinf", "lbinfv"])
def test_a_horizon_of_one_round_can_be_played(name):
    for _, state, _, _ in rounds_of(policy(name, horizon=1), WORLDS["paper"], 20):
        assert np.isfinite(state.leading.marginals).all()
