"""Two plausible but wrong samplers, which a test of marginals must catch."""

from __future__ import annotations

import numpy as np


def column_after_column(x, rng):
    """Draw every position from its column, renormalised over the items that are left."""
    n, m = x.shape
    left = np.ones(n, bool)
    ranking = np.empty(m, np.int64)
    for j in range(m):
        odds = np.where(left, x[:, j], 0.0)
        if odds.sum() <= 0.0:  # a dead end: another sign that this is no way to do it
            odds = left.astype(float)
        ranking[j] = rng.choice(n, p=odds / odds.sum())
        left[ranking[j]] = False
    return ranking


def plackett_luce(x, rng):
    """Sort by noisy log scores: the items with the largest log(row sum) + Gumbel noise, best first."""
    with np.errstate(divide="ignore"):
        noisy = np.log(x.sum(axis=1)) + rng.gumbel(size=len(x))
    return np.argsort(-noisy)[: x.shape[1]]
