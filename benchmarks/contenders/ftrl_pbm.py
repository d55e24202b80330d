"""The paper's Algorithms 1 to 3 on SciPy, as printed except for necessary corrections.

Each round: Frank-Wolfe with K = 100 assignments for the leader, completion to a doubly stochastic matrix, full
Birkhoff decomposition by bipartite matching, one permutation drawn from it.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching


class PaperProcedure:
    """FTRL-PBM as the paper computes it."""

    def __init__(self, n: int, m: int, assignments: int = 100) -> None:
        self.n, self.m, self.assignments = n, m, assignments
        self.loss = np.zeros((n, m))
        self.x = np.full((n, m), 1.0 / n)
        self.t = 0

    def decide(self, rng: np.random.Generator) -> np.ndarray:
        """Find the leader and draw a ranking with (nearly) its marginals."""
        self.t += 1
        self.x = self._frank_wolfe(0.5 / np.sqrt(self.t))
        weights, rankings = self._decompose()
        return rankings[rng.choice(len(weights), p=weights / weights.sum())]

    def learn(self, ranking: np.ndarray, clicks: np.ndarray) -> None:
        """Add the importance-weighted losses."""
        positions = np.arange(self.m)
        self.loss[ranking, positions] += (1.0 - clicks) / self.x[ranking, positions]

    def _frank_wolfe(self, rate: float) -> np.ndarray:
        x = self.x
        for k in range(1, self.assignments + 1):
            gradient = self.loss - 0.5 / (rate * np.sqrt(x))
            items, positions = linear_sum_assignment(gradient)
            vertex = np.zeros_like(x)
            vertex[items, positions] = 1.0
            x = x + 2.0 / (k + 2.0) * (vertex - x)
        return x

    def _decompose(self) -> tuple[np.ndarray, np.ndarray]:
        n, m = self.n, self.m
        left = np.empty((n, n))
        left[:, :m] = self.x
        if n > m:
            left[:, m:] = ((1.0 - self.x.sum(axis=1)) / (n - m))[:, None]
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
