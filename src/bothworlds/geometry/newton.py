r"""The compiled solver for the regularised leader: projected Newton on the dual, one small linear system a step.

Problem, with :math:`\phi` from ``regularizers`` and a rate :math:`\eta_{ij}`:

.. math:: \min_x \sum_{ij} L_{ij} x_{ij} + \phi(x_{ij}) / \eta_{ij}
          \quad\text{over}\quad x \ge 0,\ \sum_i x_{ij} = 1,\ \sum_j x_{ij} \le 1 .

Multipliers :math:`\lambda_j` (columns, free) and :math:`\mu_i \ge 0` (rows) enter only through
:math:`z_{ij} = L_{ij} + \lambda_j + \mu_i`, and :math:`x_{ij}` is the marginal at which
:math:`\phi'(x) = -\eta z`. What is left is to make the residuals :math:`c_j = \sum_i x_{ij} - 1` vanish and
:math:`r_i = \sum_j x_{ij} - 1` non-positive, zero where :math:`\mu_i > 0`.

Two choices make this accurate as well as fast:

* ``z`` itself is carried from step to step. It is computed from L once and then moved by small increments, so losses
  of 1e7 do not drown a ``z`` of 0.05 in rounding: what rounding there is acts as a change of L by a few ulps.
* The reduced system is a graph Laplacian plus a non-negative diagonal. It is kept in that form (weights and
  "excess") and eliminated with additions only, so it needs no ridge when the problem is nearly a vertex, or square.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from ..kernels import kernel
from .regularizers import primal, slope

__all__ = ["Effort", "Workspace", "certified_gap", "make_workspace", "repair", "solve"]

MAX_STEPS = 200
HALVINGS = 30
PATIENCE = 12  # steps without halving the violation before a block-coordinate sweep is tried
MAX_SWEEPS = 500
MAX_EXCHANGES = 40
NOISE = 1e-14


class Workspace(NamedTuple):
    """Everything a solve writes to, allocated once. Shapes: (n, m) for pairs, (m,) for columns, (n,) for rows."""

    z: NDArray[np.float64]
    x: NDArray[np.float64]
    h: NDArray[np.float64]
    trial_z: NDArray[np.float64]
    trial_mu: NDArray[np.float64]
    column: NDArray[np.float64]
    row: NDArray[np.float64]
    weights: NDArray[np.float64]
    excess: NDArray[np.float64]
    rhs: NDArray[np.float64]
    d_lam: NDArray[np.float64]
    d_mu: NDArray[np.float64]
    free: NDArray[np.bool_]


class Effort(NamedTuple):
    """What a solve took: Newton steps, block-coordinate sweeps, and the violation it ended with."""

    steps: int
    sweeps: int
    violation: float


def make_workspace(n: int, m: int) -> Workspace:
    """Allocate the arrays a solve of an n x m problem writes to."""
    pair, col, row = (n, m), (m,), (n,)
    shapes = (pair, pair, pair, pair, row, col, row, (m, m), col, col, col, row)
    return Workspace(*(np.zeros(s) for s in shapes), np.zeros(n, np.bool_))


def rate_at(rate: Any, i: int, j: int) -> float:
    """The rate of one pair, whether there is one for all or one each."""
    return float(rate[i, j]) if isinstance(rate, np.ndarray) else float(rate)


@overload(rate_at, inline="always")
def _rate_at(rate, i, j):
    if isinstance(rate, types.Array):
        return lambda rate, i, j: rate[i, j]
    return lambda rate, i, j: rate


@kernel
def solve(reg, loss, rate, lam, mu, tol, max_steps, w):
    """Move (lam, mu) from where they are to the optimum; ``w.x`` holds the marginals there. Returns an Effort."""
    set_z(loss, lam, mu, w.z)
    v = evaluate(reg, rate, w.z, mu, w)
    if v == math.inf:
        sweep(reg, rate, lam, mu, w, False)
        v = evaluate(reg, rate, w.z, mu, w)
    best, patience, sweeps = v, PATIENCE, 0
    for step in range(max_steps):
        if v <= tol:
            return Effort(step, sweeps, v)
        newton_direction(mu, w)
        v = line_search(reg, rate, lam, mu, v, w)
        patience = PATIENCE if v <= 0.5 * best else patience - 1
        best = min(best, v)
        while patience <= 0 and v > tol and sweeps < MAX_SWEEPS:
            sweep(reg, rate, lam, mu, w, True)
            v = evaluate(reg, rate, w.z, mu, w)
            sweeps += 1
            if v <= 0.5 * best:
                best, patience = v, PATIENCE
    return Effort(max_steps, sweeps, v)


@kernel
def set_z(loss, lam, mu, z):
    n, m = loss.shape
    for i in range(n):
        for j in range(m):
            z[i, j] = (loss[i, j] + lam[j]) + mu[i]


@kernel
def evaluate(reg, rate, z, mu, w):
    """Fill x, h, the residuals (column, row); return the largest violation of the optimality conditions.

    Infinite where z has left the regulariser's domain.
    """
    n, m = z.shape
    for j in range(m):
        w.column[j] = -1.0
    for i in range(n):
        r = 0.0
        for j in range(m):
            x, h = primal(reg, rate_at(rate, i, j), z[i, j])
            w.x[i, j] = x
            w.h[i, j] = h
            r += x
            w.column[j] += x
        w.row[i] = r - 1.0
    worst = 0.0
    for j in range(m):
        worst = max(worst, abs(w.column[j]))
    for i in range(n):
        worst = max(worst, w.row[i] if w.row[i] > 0.0 else min(mu[i], -w.row[i]))
    return worst if worst < math.inf else math.inf


@kernel
def newton_direction(mu, w):
    """The Newton step on the dual: rows pressed against their limit are equations, the others go to mu = 0.

    Which rows those are is part of the step's own little problem. A row whose multiplier would turn negative leaves
    the equations, one that the step would overfill joins them, until the choice is consistent. The problem has an
    M-matrix, for which this exchange settles; clipping multipliers afterwards instead would leave the columns with
    corrections that never happen.
    """
    n, m = w.h.shape
    for i in range(n):
        w.free[i] = mu[i] > 0.0 or w.row[i] > 0.0
    for _ in range(MAX_EXCHANGES):
        assemble(mu, w)
        eliminate(w.weights, w.excess, w.rhs, w.d_lam)
        settled = True
        for i in range(n):
            left = w.row[i]
            for j in range(m):
                left -= w.h[i, j] * w.d_lam[j]
            if w.free[i]:
                w.d_mu[i] *= left
                if mu[i] + w.d_mu[i] < 0.0:
                    w.free[i] = False
                    settled = False
            else:
                for j in range(m):
                    left += w.h[i, j] * mu[i]
                w.d_mu[i] = -mu[i]
                if left > 0.0:
                    w.free[i] = True
                    settled = False
        if settled:
            break


@kernel
def assemble(mu, w):
    """The Newton system reduced to the columns: a Laplacian, an excess on its diagonal, a right-hand side.

    Eliminating a free row leaves weights h_ij h_ik / sum_l h_il between columns; a standing row adds h_ij to the
    excess. ``d_mu`` is left holding 1 / sum_l h_il for the free rows.
    """
    n, m = w.h.shape
    for j in range(m):
        w.excess[j] = 0.0
        w.rhs[j] = w.column[j]
        for k in range(j + 1, m):
            w.weights[j, k] = 0.0
    for i in range(n):
        if w.free[i]:
            total = 0.0
            for j in range(m):
                total += w.h[i, j]
            w.d_mu[i] = 1.0 / total if total > 0.0 else 0.0
            for j in range(m):
                share = w.h[i, j] * w.d_mu[i]
                w.rhs[j] -= share * w.row[i]
                for k in range(j + 1, m):
                    w.weights[j, k] += share * w.h[i, k]
        else:
            for j in range(m):
                w.excess[j] += w.h[i, j]
                w.rhs[j] += w.h[i, j] * mu[i]


@kernel
def eliminate(weights, excess, rhs, solution):
    """Solve (Laplacian(weights) + diag(excess)) solution = rhs; weights in the strict upper triangle.

    No subtraction touches the matrix, so every pivot has full relative accuracy, however small. The right-hand side
    has an absolute accuracy instead: it is a sum of residuals of a unit of mass. What is left of it at rounding level
    is taken as zero, or a group of columns tied to the rest by links of 1e-60 would be sent far away by noise.
    """
    m = rhs.size
    for k in range(m):
        if abs(rhs[k]) <= NOISE:
            rhs[k] = 0.0
        pivot = excess[k]
        for j in range(k + 1, m):
            pivot += weights[k, j]
        solution[k] = 1.0 / pivot if pivot > 0.0 else 0.0
        for i in range(k + 1, m):
            share = weights[k, i] * solution[k]
            rhs[i] += share * rhs[k]
            excess[i] += share * excess[k]
            for j in range(i + 1, m):
                weights[i, j] += share * weights[k, j]
    for k in range(m - 1, -1, -1):
        s = rhs[k]
        for j in range(k + 1, m):
            s += weights[k, j] * solution[j]
        solution[k] *= s


@kernel
def line_search(reg, rate, lam, mu, v, w):
    """Take the Newton step, halved until it is safe; return the violation where it ends.

    Safe is a point where the violation has halved, or where the dual still rises along the step: by concavity it has
    then risen all the way. Neither test compares two large dual values, so neither stalls in their rounding.
    """
    n, m = w.z.shape
    s = 1.0
    for _ in range(HALVINGS):
        for i in range(n):
            step = s * w.d_mu[i]
            w.trial_mu[i] = max(0.0, mu[i] + step)
            for j in range(m):
                w.trial_z[i, j] = w.z[i, j] + (s * w.d_lam[j] + step)
        new = evaluate(reg, rate, w.trial_z, w.trial_mu, w)
        if new <= 0.5 * v or (new < math.inf and rise(lam, mu, s, w) >= 0.0):
            for j in range(m):
                lam[j] += s * w.d_lam[j]
            for i in range(n):
                mu[i] = w.trial_mu[i]
                for j in range(m):
                    w.z[i, j] = w.trial_z[i, j]
            return new
        s *= 0.5
    return evaluate(reg, rate, w.z, mu, w)


@kernel
def rise(lam, mu, s, w):
    """The derivative of the dual along the step, at its end."""
    total = 0.0
    for j in range(lam.size):
        total += s * w.d_lam[j] * w.column[j]
    for i in range(mu.size):
        total += (w.trial_mu[i] - mu[i]) * w.row[i]
    return total


@kernel
def sweep(reg, rate, lam, mu, w, rows):
    """One exact block-coordinate pass over the dual: every row (if asked for), then every column."""
    n, m = w.z.shape
    if rows:
        for i in range(n):
            d = max(root_shift(reg, rate, w.z, i, -1), -mu[i])
            mu[i] += d
            for j in range(m):
                w.z[i, j] += d
    for j in range(m):
        d = root_shift(reg, rate, w.z, -1, j)
        lam[j] += d
        for i in range(n):
            w.z[i, j] += d


@kernel
def root_shift(reg, rate, z, row, column):
    """The d for which row ``row`` (or column ``column``) of x(z + d) sums to 1.

    At the left end of the bracket one entry alone is 1, at the right end none exceeds 1/size. In between, Newton on
    the logarithm of the sum, kept inside the bracket.
    """
    n, m = z.shape
    size = m if row >= 0 else n
    low, high = -math.inf, -math.inf
    for k in range(size):
        i, j = (row, k) if row >= 0 else (k, column)
        eta = rate_at(rate, i, j)
        low = max(low, -slope(reg, 1.0) / eta - z[i, j])
        high = max(high, -slope(reg, 1.0 / size) / eta - z[i, j])
    d = low
    for _ in range(100):
        total, fall = 0.0, 0.0
        for k in range(size):
            i, j = (row, k) if row >= 0 else (k, column)
            x, h = primal(reg, rate_at(rate, i, j), z[i, j] + d)
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


@kernel
def repair(x, row, repaired, column, spare):
    """A feasible point next to x: rows above 1 are shrunk, then columns above 1, then short columns are filled.

    What column j is short of (d_j) is spread over the rows in proportion to what they have left (e_i), as
    e_i d_j / sum(e). Columns then sum to 1 and rows to at most 1, up to rounding. ``row`` holds row sums minus 1;
    ``column`` and ``spare`` are room to work in.
    """
    n, m = x.shape
    for j in range(m):
        column[j] = 0.0
    for i in range(n):
        shrink = 1.0 / (1.0 + row[i]) if row[i] > 0.0 else 1.0
        spare[i] = shrink
        for j in range(m):
            column[j] += x[i, j] * shrink
    short = 0.0
    for j in range(m):
        short += max(0.0, 1.0 - column[j])
        column[j] = max(1.0, column[j])
    room = 0.0
    for i in range(n):
        total = 0.0
        for j in range(m):
            repaired[i, j] = x[i, j] * spare[i] / column[j]
            total += repaired[i, j]
        spare[i] = max(0.0, 1.0 - total)
        room += spare[i]
    if short > 0.0 and room > 0.0:
        fill(repaired, spare, room)


@kernel
def fill(x, spare, room):
    """Bring columns that sum to less than 1 up to 1, out of what the rows have to spare."""
    n, m = x.shape
    for j in range(m):
        missing = 1.0
        for i in range(n):
            missing -= x[i, j]
        if missing > 0.0:
            for i in range(n):
                x[i, j] += missing * spare[i] / room


@kernel
def certified_gap(reg, rate, mu, repaired, w):
    """How far the feasible point ``repaired`` can be above the optimum, from the dual point (z, mu).

    With columns summing to 1 the multipliers of the columns cancel, and what remains is a Bregman divergence (bounded
    by its symmetrised form) plus complementary slackness. Every term is non-negative: nothing cancels.
    """
    n, m = repaired.shape
    gap = 0.0
    for i in range(n):
        total = 0.0
        for j in range(m):
            y = repaired[i, j]
            total += y
            if y != w.x[i, j]:
                eta = rate_at(rate, i, j)
                gap += abs((y - w.x[i, j]) * (slope(reg, y) / eta + w.z[i, j]))
        gap += mu[i] * max(0.0, 1.0 - total)
    return gap
