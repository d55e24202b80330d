"""The best ranking by enumeration."""

from __future__ import annotations

from itertools import permutations

import numpy as np


def best_value_by_brute_force(scores):
    """The largest sum of scores over all rankings of m of the n items."""
    n, m = scores.shape
    return max(sum(scores[i, j] for j, i in enumerate(items)) for items in permutations(range(n), m))


def value_of(ranking, scores):
    """The sum of scores of one ranking."""
    return float(np.sum(scores[ranking, np.arange(scores.shape[1])]))
