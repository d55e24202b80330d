"""Estimated losses with predictions: only the errors of the predictions are weighted; see ``ftrl-va``."""

from __future__ import annotations

import math

from ...kernels import Floats, Ints, inner_kernel
from .counts import Counts

LEAST_ERROR = 0.1  # what a round adds to R at least, times the share of the leader
CAP = 4.0  # a prediction is at most p sqrt(R) / (4 sqrt(x))


@inner_kernel
def predicted_loss(counts: Counts, i: int, j: int) -> float:
    """Return b, the predicted loss of item i at position j."""
    return 1.0 - (counts.clicked[i, j] + 0.5) / (counts.shown[i, j] + 1.0)


@inner_kernel
def add_losses(
    loss: Floats,
    spread: Floats,
    counts: Counts,
    x: Floats,
    s: Floats,
    w: float,
    w_drawn: float,
    ranking: Ints,
    propensity: Floats,
    clicks: Floats,
    absent: Ints,
) -> None:
    """Add the estimated losses of one round to ``loss``, and its errors to ``spread``; ``absent`` as in ``observe``.

    The next decision has the marginals p = w x + (1 - w) s (n, m), where x are those of the leader. When the page was
    drawn, the leader had the share ``w_drawn``.
    """
    n, m = x.shape
    limit = math.sqrt(spread[0]) / CAP
    for j in range(m):
        i = ranking[j]
        if i >= 0:
            loss[i, j] += (1.0 - clicks[j] - capped(counts, x, s, w, limit, i, j)) / propensity[j]
            for k in absent:
                loss[k, j] += 1.0 - clicks[j] - capped(counts, x, s, w, limit, k, j)
    for i in range(n):
        for j in range(m):
            loss[i, j] += capped(counts, x, s, w, limit, i, j) if ranking[j] >= 0 else 0.0
    errors, learned = 0.0, 0
    for j in range(m):
        if ranking[j] >= 0:
            error = 1.0 - clicks[j] - predicted_loss(counts, ranking[j], j)
            errors += error * error
            learned += 1
    spread[0] += max(LEAST_ERROR, 4.0 / learned * errors) / w_drawn


@inner_kernel
def capped(counts: Counts, x: Floats, s: Floats, w: float, limit: float, i: int, j: int) -> float:
    """Return b', the predicted loss that is used."""
    p = w * x[i, j] + (1.0 - w) * s[i, j]
    return min(predicted_loss(counts, i, j), limit * p / math.sqrt(x[i, j]))
