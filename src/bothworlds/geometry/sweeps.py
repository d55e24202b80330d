"""Block-coordinate ascent on the dual: slow, but it gets there from anywhere.

Every row, then every column, gets the multiplier that is best while the others are held still. Where Newton steps stop
making progress, and at the start, a few of these passes help.
"""

from __future__ import annotations

import math
from typing import Any

from ..kernels import Floats, inner_kernel
from .dual import Workspace, least_mu, rate_at
from .regularizers import primal, slope

__all__ = ["sweep_columns", "sweep_rows"]


@inner_kernel
def sweep_rows(reg: Any, rate: Any, mu: Floats, w: Workspace) -> None:
    """Half a block-coordinate pass over the dual: the best multiplier for every row, the rest held still."""
    n, m = w.z.shape
    for i in range(n):
        for j in range(m):
            w.line_z[j] = w.z[i, j]
            w.line_rate[j] = rate_at(rate, i, j)
        d = max(root_shift(reg, w.line_rate, w.line_z, m), least_mu(n, m) - mu[i])
        mu[i] += d
        for j in range(m):
            w.z[i, j] += d


@inner_kernel
def sweep_columns(reg: Any, rate: Any, lam: Floats, w: Workspace) -> None:
    """The other half: the best multiplier for every column."""
    n, m = w.z.shape
    for j in range(m):
        for i in range(n):
            w.line_z[i] = w.z[i, j]
            w.line_rate[i] = rate_at(rate, i, j)
        d = root_shift(reg, w.line_rate, w.line_z, n)
        lam[j] += d
        for i in range(n):
            w.z[i, j] += d


@inner_kernel
def root_shift(reg: Any, rate: Floats, z: Floats, size: int) -> float:
    """The d for which the first ``size`` marginals x(z + d) sum to 1.

    At the left end of the bracket one of them alone is 1, at the right end none exceeds 1/size. In between, Newton on
    the logarithm of the sum, kept inside the bracket.
    """
    low, high = -math.inf, -math.inf
    for k in range(size):
        low = max(low, -slope(reg, 1.0) / rate[k] - z[k])
        high = max(high, -slope(reg, 1.0 / size) / rate[k] - z[k])
    d = low
    for _ in range(100):
        total, fall = 0.0, 0.0
        for k in range(size):
            x, h = primal(reg, rate[k], z[k] + d)
            total += x
            fall += h
        if total > 1.0:
            low = d
        else:
            high = d
        new = d + math.log(total) * total / fall
        if not (low <= new <= high):
            new = 0.5 * (low + high)
        if abs(total - 1.0) <= 1e-15 * size or new == d:
            break
        d = new
    return d
