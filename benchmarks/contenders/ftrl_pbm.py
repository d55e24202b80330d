"""FTRL-PBM as the paper computes it: its Algorithms 1 to 3 on SciPy, as printed except for necessary corrections.

Each round: Frank-Wolfe with K = 100 assignments for the leader, completion to a doubly stochastic matrix, full
Birkhoff decomposition by bipartite matching, one permutation drawn from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from bothworlds import Decision
from bothworlds.policies import Policy


class State:
    """The estimated losses and the last marginals."""

    def __init__(self, n: int, m: int) -> None:
        self.t = 0
        self.loss = np.zeros((n, m))
        self.x = np.full((n, m), 1.0 / n)


@dataclass(frozen=True)
class FtrlPbm(Policy):
    """Finds the leader and draws a ranking with (nearly) its marginals."""

    assignments: int = 100

    name = "ftrl-pbm"

    def init(self, n_items, n_positions):
        return State(n_items, n_positions)

    def decide(self, state, rng):
        state.t += 1
        state.x = frank_wolfe(state.loss, state.x, 0.5 / np.sqrt(state.t), self.assignments)
        weights, rankings = decompose(state.x)
        ranking = rankings[rng.choice(len(weights), p=weights / weights.sum())]
        return Decision(ranking, state.x[ranking, np.arange(ranking.size)])

    def learn(self, state, decision, clicks):
        state.loss[decision.ranking, np.arange(decision.ranking.size)] += (1.0 - clicks) / decision.propensity
        return state


def frank_wolfe(loss: np.ndarray, x: np.ndarray, rate: float, assignments: int) -> np.ndarray:
    """Return the approximate leader after a number of steps from x, each an assignment."""
    for k in range(1, assignments + 1):
        gradient = loss - 0.5 / (rate * np.sqrt(x))
        items, positions = linear_sum_assignment(gradient)
        vertex = np.zeros_like(x)
        vertex[items, positions] = 1.0
        x = x + 2.0 / (k + 2.0) * (vertex - x)
    return x


def decompose(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and rankings whose mixture has the marginals x."""
    n, m = x.shape
    left = np.empty((n, n))
    left[:, :m] = x
    if n > m:
        left[:, m:] = ((1.0 - x.sum(axis=1)) / (n - m))[:, None]
    weights, rankings = [], []
    while left.sum() > 1e-9:
        items = maximum_bipartite_matching(csr_array(left > 1e-12), perm_type="row")
        if (items < 0).any():
            break  # rounding has broken the support
        weight = left[items, np.arange(n)].min()
        left[items, np.arange(n)] -= weight
        weights.append(weight)
        rankings.append(items[:m])
    return np.array(weights), np.array(rankings)
