"""Impressions and clicks of every item at every position."""

from __future__ import annotations

import numpy as np


class Counts:
    """The state of policies that count; ``t`` is the number of the next round."""

    def __init__(self, n: int, m: int) -> None:
        self.n, self.m, self.t = n, m, 1
        self.shown = np.zeros((n, m))
        self.clicked = np.zeros((n, m))

    def add(self, ranking: np.ndarray, clicks: np.ndarray) -> None:
        """Count a list and its clicks."""
        positions = np.arange(self.m)
        self.shown[ranking, positions] += 1
        self.clicked[ranking, positions] += clicks
        self.t += 1


def ranking_by(scores: np.ndarray, examination: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the list with the k-th largest score at the k-th most examined position; ties are broken at random."""
    items = np.lexsort((rng.random(scores.size), -scores))
    ranking = np.empty(examination.size, np.int64)
    ranking[np.argsort(-examination)] = items[: examination.size]
    return ranking
