"""Block-coordinate ascent on the dual: slow, but it converges from every starting point.

Every row, then every column, gets the best multiplier for fixed other multipliers. The solver uses a few of these
passes at the start, and where Newton steps stop making progress.
"""

from __future__ import annotations

import math
from typing import Any

from ..kernels import Floats, inner_kernel
from .dual import Workspace, rate_at
from .regularizers import primal, slope


@inner_kernel
def sweep_rows(reg: Any, rate: Any, mu: Floats, w: Workspace) -> None:
    """Set the multiplier of every row to its best value, one after the other."""
    n, m = w.z.shape
    for i in range(n):
        for j in range(m):
            w.line_z[j] = w.z[i, j]
            w.line_rate[j] = rate_at(rate, i, j)
            w.line_copies[j] = 1.0
        d = max(root_shift(reg, w.line_rate, w.line_z, w.line_copies, m), w.least_mu - mu[i])
        mu[i] += d
        for j in range(m):
            w.z[i, j] += d


@inner_kernel
def sweep_columns(reg: Any, rate: Any, lam: Floats, w: Workspace) -> None:
    """Set the multiplier of every column to its best value, one after the other."""
    n, m = w.z.shape
    for j in range(m):
        for i in range(n):
            w.line_z[i] = w.z[i, j]
            w.line_rate[i] = rate_at(rate, i, j)
            w.line_copies[i] = w.copies[i]
        d = root_shift(reg, w.line_rate, w.line_z, w.line_copies, n)
        lam[j] += d
        for i in range(n):
            w.z[i, j] += d


@inner_kernel
def root_shift(reg: Any, rate: Floats, z: Floats, copies: Floats, size: int) -> float:
    """Return the d for which the first ``size`` marginals x(z + d), each counted ``copies`` times, sum to 1.

    At the left end of the bracket one marginal is 1, at the right end none exceeds 1 over the number of all copies.
    Newton's method on the logarithm of the sum, safeguarded by bisection.
    """
    number = 0.0
    for k in range(size):
        number += copies[k]
    low, high = -math.inf, -math.inf
    for k in range(size):
        low = max(low, -slope(reg, 1.0) / rate[k] - z[k])
        high = max(high, -slope(reg, 1.0 / number) / rate[k] - z[k])
    d = low
    for _ in range(100):
        total, fall = 0.0, 0.0
        for k in range(size):
            x, h = primal(reg, rate[k], z[k] + d)
            total += copies[k] * x
            fall += copies[k] * h
        if total > 1.0:
            low = d
        else:
            high = d
        new = d + math.log(total) * total / fall
        if not (low <= new <= high):
            new = 0.5 * (low + high)
        if abs(total - 1.0) <= 1e-15 * number or new == d:
            break
        d = new
    return d
