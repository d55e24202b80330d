"""A point of the dual: multipliers give z, z gives marginals and residuals; and the workspace of the solver.

Items with the same losses and rates have the same marginals, so the solver works on distinct rows: row i stands for
``copies[i]`` items, and counts that often in every sum over items.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from ..kernels import Floats, Ints, inner_kernel
from .regularizers import primal


class Workspace(NamedTuple):
    """The arrays that the solver writes to, allocated once, and how many items each row stands for."""

    z: Floats  # (n, m) L + lam + mu
    x: Floats  # (n, m) marginals
    h: Floats  # (n, m) -dx/dz
    trial_z: Floats  # (n, m) at the end of a trial step
    trial_mu: Floats  # (n,)
    row: Floats  # (n,) residuals r: row sums minus 1
    d_mu: Floats  # (n,) the step
    copies: Floats  # (n,) number of items that a row stands for
    free: NDArray[np.bool_]  # (n,) rows that the step treats as equations
    column: Floats  # (m,) residuals c: column sums minus 1
    weights: Floats  # (m, m) the reduced Newton system: a Laplacian,
    excess: Floats  # (m,) a diagonal,
    rhs: Floats  # (m,) and a right-hand side
    d_lam: Floats  # (m,) the step
    line_z: Floats  # (max(n, m),) z of one row or column
    line_rate: Floats  # (max(n, m),) its rates
    line_copies: Floats  # (max(n, m),) how often its entries count
    least_mu: float  # lower limit of mu


class Effort(NamedTuple):
    """The number of Newton steps and of block-coordinate sweeps of a solve, and its final violation."""

    steps: int
    sweeps: int
    violation: float


def make_workspace(n: int, m: int, copies: Floats | None = None) -> Workspace:
    """Allocate the workspace of a problem with n rows and m positions; row i stands for ``copies[i]`` items, or one.

    The lower limit of mu is 0, or minus infinity if there are as many positions as items. In the latter case all rows
    sum to 1 because all columns do, so the constraint of a row is an equation and its multiplier may have either sign.
    """
    copies = np.ones(n) if copies is None else np.ascontiguousarray(copies, dtype=np.float64)
    least_mu = 0.0 if copies.sum() > m else -math.inf
    (column, excess, rhs, d_lam), lines = np.zeros((4, m)), np.zeros((3, max(n, m)))
    of_rows = [*np.zeros((4, n, m)), *np.zeros((3, n)), copies, np.zeros(n, np.bool_)]
    return Workspace(*of_rows, *[column, np.zeros((m, m)), excess, rhs, d_lam], *lines, *[least_mu])


def rate_at(rate: Any, i: int, j: int) -> float:
    """Return the rate of one pair; ``rate`` is a number or an array (n, m)."""
    return float(rate[i, j]) if isinstance(rate, np.ndarray) else float(rate)


@overload(rate_at, inline="always", strict=False)
def _rate_at(rate: Any, i: Any, j: Any) -> Any:
    if isinstance(rate, types.Array):
        return lambda rate, i, j: rate[i, j]
    return lambda rate, i, j: rate


@inner_kernel
def first_rows(w: Workspace, k: int) -> Workspace:
    """Return the workspace of the first k rows only."""
    return Workspace(
        w.z[:k],
        w.x[:k],
        w.h[:k],
        w.trial_z[:k],
        w.trial_mu[:k],
        w.row[:k],
        w.d_mu[:k],
        w.copies[:k],
        w.free[:k],
        w.column,
        w.weights,
        w.excess,
        w.rhs,
        w.d_lam,
        w.line_z,
        w.line_rate,
        w.line_copies,
        w.least_mu,
    )


@inner_kernel
def set_z(loss: Floats, item: Ints, scale: float, lam: Floats, mu: Floats, z: Floats) -> None:
    """Fill z = scale * loss + lam + mu; row i has the losses of ``item[i]``."""
    n, m = z.shape
    for i in range(n):
        for j in range(m):
            z[i, j] = (scale * loss[item[i], j] + lam[j]) + mu[i]


@inner_kernel
def evaluate(reg: Any, rate: Any, z: Floats, mu: Floats, w: Workspace) -> float:
    """Fill x, h and the residuals ``column`` and ``row``; return the largest violation of the optimality conditions.

    Returns infinity where z is outside the regulariser's domain.
    """
    n, m = z.shape
    x, h, column, row, copies = w.x, w.h, w.column, w.row, w.copies
    # The entries are independent of one another, so the compiler vectorises this loop.
    for i in range(n):
        for j in range(m):
            x[i, j], h[i, j] = primal(reg, rate_at(rate, i, j), z[i, j])
    for j in range(m):
        column[j] = -1.0
    worst = 0.0
    for i in range(n):
        r = -1.0
        for j in range(m):
            r += x[i, j]
            column[j] += copies[i] * x[i, j]
        row[i] = r
        worst = max(worst, r if r > 0.0 else min(mu[i] - w.least_mu, -r))
    for j in range(m):
        if not abs(column[j]) < math.inf:  # infinite or NaN
            return math.inf
        worst = max(worst, abs(column[j]))
    return worst
