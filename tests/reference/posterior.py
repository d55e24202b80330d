"""The posterior of attraction and examination on a grid, a reference for samplers."""

from __future__ import annotations

import numpy as np

from bothworlds.kernels import kernel
from bothworlds.policies.pbm_ts import HAT, draw, put_hat


def posterior(clicks, misses, items, positions):
    """Nodes (one column for each item, then for each position) and their weights.

    ``items`` and ``positions`` hold one list of values for every parameter, equally likely before any click.
    """
    grid = np.stack(np.meshgrid(*items, *positions, indexing="ij"), axis=-1).reshape(-1, len(items) + len(positions))
    log_weight = np.zeros(len(grid))
    for i in range(len(items)):
        for j in range(len(positions)):
            p = grid[:, i] * grid[:, len(items) + j]
            log_weight += clicks[i][j] * np.log(p) + misses[i][j] * np.log1p(-p)
    weight = np.exp(log_weight - log_weight.max())
    return grid, weight / weight.sum()


def off(sample, grid, weight, slack):
    """By how many standard errors, at most, averages along a chain (rows) are off those of the posterior."""
    worst = 0.0
    for statistic in (
        lambda x: x,
        lambda x: x**2,
        lambda x: x[:, :1] * x[:, -1:],
        lambda x: (x[:, :1] > x[:, 1:2]) + 0.5 * (x[:, :1] == x[:, 1:2]),
    ):
        batches = statistic(sample).reshape(100, len(sample) // 100, -1).mean(axis=1)
        error = batches.std(axis=0, ddof=1) / 10.0
        apart = np.abs(batches.mean(axis=0) - weight @ statistic(grid))
        worst = max(worst, (np.maximum(apart - slack, 0.0) / np.maximum(error, 1e-12)).max())
    return worst


def draw_many(shown, clicked, examination, size, rng):
    """Draws of an item's attraction, given its counts (n_positions,) at every position of known examination."""
    counts = (np.ascontiguousarray(given, np.float64) for given in (shown, clicked, examination))
    draws = np.empty(size)
    _fill(*counts, np.zeros(HAT), rng, draws)
    return draws


@kernel
def _fill(shown, clicked, examination, hat, rng, draws):
    put_hat(shown, clicked, examination, hat)
    for k in range(draws.size):
        draws[k] = draw(shown, clicked, examination, hat, rng)
