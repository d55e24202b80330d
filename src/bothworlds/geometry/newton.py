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

from ..kernels import Floats, inline_kernel, inner_kernel, kernel
from .regularizers import primal, slope

__all__ = ["Effort", "Workspace", "certified_gap", "climb", "make_workspace", "polish", "repair", "solve"]

MAX_STEPS = 100
PATIENCE = 12  # steps without halving the violation before a block-coordinate sweep is tried
MAX_SWEEPS = 500
MAX_EXCHANGES = 40
HALVINGS = 30
VANISHED = 1e-290  # slopes below this have no usable inverse
NOISE = 1e-14  # residuals of a unit of mass below this are rounding
EASY = 10.0  # rate times spread of losses up to which Newton needs no help from a cold start
GROWTH = 4.0  # how much the losses are scaled up from one stage to the next
ROUGHLY = 1e-2  # violation at which an intermediate stage is good enough


class Workspace(NamedTuple):
    """Everything a solve writes to, allocated once."""

    z: Floats  # (n, m) L + lam + mu
    x: Floats  # (n, m) marginals
    h: Floats  # (n, m) -dx/dz
    trial_z: Floats  # (n, m) where a step would lead
    trial_mu: Floats  # (n,)
    column: Floats  # (m,) residuals c: column sums minus 1
    row: Floats  # (n,) residuals r: row sums minus 1
    weights: Floats  # (m, m) the reduced Newton system: a Laplacian,
    excess: Floats  # (m,) a diagonal,
    rhs: Floats  # (m,) and a right-hand side
    d_lam: Floats  # (m,) the step
    d_mu: Floats  # (n,)
    line_z: Floats  # (n,) one row or column at a time
    line_rate: Floats  # (n,)
    free: NDArray[np.bool_]  # (n,) rows that the step treats as equations


class Effort(NamedTuple):
    """What a solve took: Newton steps, block-coordinate sweeps, and the violation it ended with."""

    steps: int
    sweeps: int
    violation: float


def make_workspace(n: int, m: int) -> Workspace:
    """Allocate the arrays a solve of an n x m problem writes to."""
    return Workspace(
        z=np.zeros((n, m)),
        x=np.zeros((n, m)),
        h=np.zeros((n, m)),
        trial_z=np.zeros((n, m)),
        trial_mu=np.zeros(n),
        column=np.zeros(m),
        row=np.zeros(n),
        weights=np.zeros((m, m)),
        excess=np.zeros(m),
        rhs=np.zeros(m),
        d_lam=np.zeros(m),
        d_mu=np.zeros(n),
        line_z=np.zeros(n),
        line_rate=np.zeros(n),
        free=np.zeros(n, np.bool_),
    )


def rate_at(rate: Any, i: int, j: int) -> float:
    """The rate of one pair, whether there is one for all or one each."""
    return float(rate[i, j]) if isinstance(rate, np.ndarray) else float(rate)


@overload(rate_at, inline="always", strict=False)
def _rate_at(rate: Any, i: Any, j: Any) -> Any:
    if isinstance(rate, types.Array):
        return lambda rate, i, j: rate[i, j]
    return lambda rate, i, j: rate


@kernel
def solve(reg: Any, loss: Floats, rate: Any, lam: Floats, mu: Floats, tol: float, w: Workspace) -> Effort:
    """Move (lam, mu) from a nearby start to the optimum; ``w.x`` holds the marginals there. Returns an Effort."""
    set_z(loss, 1.0, lam, mu, w.z)
    return iterate(reg, rate, lam, mu, tol, w)


@kernel
def climb(reg: Any, loss: Floats, rate: Any, lam: Floats, mu: Floats, tol: float, w: Workspace) -> Effort:
    """Find the optimum from nothing: solve for the losses scaled down to where that is easy, then scale them up.

    With losses far larger than 1/rate the problem is nearly a linear programme, and Newton's region of convergence
    nearly a point. Along this path every optimum is a good start for the next.
    """
    spread = 0.0
    for j in range(loss.shape[1]):
        low, high = math.inf, -math.inf
        for i in range(loss.shape[0]):
            low, high = min(low, loss[i, j] * rate_at(rate, i, j)), max(high, loss[i, j] * rate_at(rate, i, j))
        spread = max(spread, high - low)
    scale = min(1.0, EASY / spread) if spread > 0.0 else 1.0
    lam[:] = 0.0
    mu[:] = 0.0
    set_z(loss, scale, lam, mu, w.z)
    sweep_columns(reg, rate, lam, w)
    steps, sweeps = 0, 0
    while True:
        effort = iterate(reg, rate, lam, mu, tol if scale == 1.0 else ROUGHLY, w)
        steps += effort.steps
        sweeps += effort.sweeps
        if scale == 1.0:
            return Effort(steps, sweeps, effort.violation)
        growth = min(GROWTH, 1.0 / scale)
        scale = 1.0 if growth < GROWTH else scale * growth
        for j in range(lam.size):
            lam[j] *= growth
        for i in range(mu.size):
            mu[i] *= growth
        set_z(loss, scale, lam, mu, w.z)
        for _ in range(3):
            sweep_rows(reg, rate, mu, w)
            sweep_columns(reg, rate, lam, w)


@inner_kernel
def iterate(reg: Any, rate: Any, lam: Floats, mu: Floats, tol: float, w: Workspace) -> Effort:
    """Newton steps from z, with block-coordinate sweeps where they stop making progress."""
    v = evaluate(reg, rate, w.z, mu, w)
    if v == math.inf:
        sweep_columns(reg, rate, lam, w)
        v = evaluate(reg, rate, w.z, mu, w)
    best, patience, sweeps = v, PATIENCE, 0
    for step in range(MAX_STEPS):
        if v <= tol:
            return Effort(step, sweeps, v)
        newton_direction(mu, w)
        v = line_search(reg, rate, lam, mu, v, w)
        patience = PATIENCE if v <= 0.5 * best else patience - 1
        best = min(best, v)
        while patience <= 0 and v > tol and sweeps < MAX_SWEEPS:
            sweep_rows(reg, rate, mu, w)
            sweep_columns(reg, rate, lam, w)
            v = evaluate(reg, rate, w.z, mu, w)
            sweeps += 1
            if v <= 0.5 * best:
                best, patience = v, PATIENCE
    return Effort(MAX_STEPS, sweeps, v)


@kernel
def polish(reg: Any, rate: Any, lam: Floats, mu: Floats, w: Workspace) -> bool:
    """One Newton step beyond the tolerance, taken if it helps; near the optimum it squares the violation."""
    v = evaluate(reg, rate, w.z, mu, w)
    newton_direction(mu, w)
    if try_step(reg, rate, mu, 1.0, w) < v:
        take_step(lam, mu, 1.0, w)
        return True
    evaluate(reg, rate, w.z, mu, w)
    return False


@inline_kernel
def least_mu(n: int, m: int) -> float:
    """The lower limit of mu: 0, unless there are as many positions as items.

    Then every row is full because all columns are, its constraint is an equation, and its multiplier has any sign.
    """
    return 0.0 if n > m else -math.inf


@inline_kernel
def set_z(loss: Floats, scale: float, lam: Floats, mu: Floats, z: Floats) -> None:
    n, m = loss.shape
    for i in range(n):
        for j in range(m):
            z[i, j] = (scale * loss[i, j] + lam[j]) + mu[i]


@inline_kernel
def evaluate(reg: Any, rate: Any, z: Floats, mu: Floats, w: Workspace) -> float:
    """Fill x, h, the residuals (column, row); return the largest violation of the optimality conditions.

    Infinite where z has left the regulariser's domain.
    """
    n, m = z.shape
    x, h, column, row = w.x, w.h, w.column, w.row
    # Entry by entry first, with nothing carried from one to the next: this loop becomes vector code.
    for i in range(n):
        for j in range(m):
            x[i, j], h[i, j] = primal(reg, rate_at(rate, i, j), z[i, j])
    for j in range(m):
        column[j] = -1.0
    least = least_mu(n, m)
    worst = 0.0
    for i in range(n):
        r = -1.0
        for j in range(m):
            r += x[i, j]
            column[j] += x[i, j]
        row[i] = r
        worst = max(worst, r if r > 0.0 else min(mu[i] - least, -r))
    for j in range(m):
        if not abs(column[j]) < math.inf:  # infinite, or not a number
            return math.inf
        worst = max(worst, abs(column[j]))
    return worst


@inline_kernel
def newton_direction(mu: Floats, w: Workspace) -> None:
    """The Newton step on the dual: rows pressed against their limit are equations, the others go to mu = 0.

    Which rows those are is part of the step's own little problem. A row whose multiplier would turn negative leaves
    the equations, one that the step would overfill joins them, until the choice is consistent. The problem has an
    M-matrix, for which this exchange settles; clipping multipliers afterwards instead would leave the columns with
    corrections that never happen.
    """
    n, m = w.h.shape
    h, row, free, d_lam, d_mu = w.h, w.row, w.free, w.d_lam, w.d_mu
    least = least_mu(n, m)
    for i in range(n):
        free[i] = mu[i] > least or row[i] > 0.0
    for _ in range(MAX_EXCHANGES):
        assemble(mu, w)
        eliminate(w.weights, w.excess, w.rhs, d_lam)
        settled = True
        for i in range(n):
            over = row[i]  # by how much the step would leave the row overfilled
            for j in range(m):
                over -= h[i, j] * d_lam[j]
            if free[i]:
                d_mu[i] *= over
                if mu[i] + d_mu[i] < least:
                    free[i] = False
                    settled = False
            else:
                if mu[i] > 0.0:
                    for j in range(m):
                        over += h[i, j] * mu[i]
                d_mu[i] = -mu[i]
                if over > 0.0:
                    free[i] = True
                    settled = False
        if settled:
            break


@inline_kernel
def assemble(mu: Floats, w: Workspace) -> None:
    """The Newton system reduced to the columns: a Laplacian, an excess on its diagonal, a right-hand side.

    Eliminating a free row leaves weights h_ij h_ik / sum_l h_il between columns; a standing row adds h_ij to the
    excess. ``d_mu`` is left holding 1 / sum_l h_il for the free rows.
    """
    n, m = w.h.shape
    h, row, weights, excess, rhs = w.h, w.row, w.weights, w.excess, w.rhs
    for j in range(m):
        excess[j] = 0.0
        rhs[j] = w.column[j]
        for k in range(m):
            weights[j, k] = 0.0
    for i in range(n):
        if w.free[i]:
            total = 0.0
            for j in range(m):
                total += h[i, j]
            inverse = 1.0 / total if total > VANISHED else 0.0
            w.d_mu[i] = inverse
            for j in range(m):
                share = h[i, j] * inverse
                rhs[j] -= share * row[i]
                for k in range(m):  # the whole square, of which half is used: one loop of full length is faster
                    weights[j, k] += share * h[i, k]
        else:
            for j in range(m):
                excess[j] += h[i, j]
            if mu[i] > 0.0:
                for j in range(m):
                    rhs[j] += h[i, j] * mu[i]


@inline_kernel
def eliminate(weights: Floats, excess: Floats, rhs: Floats, solution: Floats) -> None:
    """Solve (Laplacian(weights) + diag(excess)) solution = rhs; weights are read above the diagonal only.

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
        solution[k] = 1.0 / pivot if pivot > VANISHED else 0.0
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


@inline_kernel
def line_search(reg: Any, rate: Any, lam: Floats, mu: Floats, v: float, w: Workspace) -> float:
    """Take the Newton step, halved until it is safe; return the violation where it ends.

    Safe is a point where the violation has halved, or where the dual still rises along the step: by concavity it has
    then risen all the way. Neither test compares two large dual values, so neither stalls in their rounding.
    """
    s = 1.0
    for _ in range(HALVINGS):
        new = try_step(reg, rate, mu, s, w)
        if new <= 0.5 * v or (new < math.inf and rise(mu, s, w) >= 0.0):
            take_step(lam, mu, s, w)
            return new
        s *= 0.5
    return evaluate(reg, rate, w.z, mu, w)


@inline_kernel
def try_step(reg: Any, rate: Any, mu: Floats, s: float, w: Workspace) -> float:
    """Evaluate the point that s times the Newton step leads to."""
    n, m = w.z.shape
    z, trial_z, trial_mu, d_lam, d_mu = w.z, w.trial_z, w.trial_mu, w.d_lam, w.d_mu
    least = least_mu(n, m)
    for i in range(n):
        step = max(s * d_mu[i], least - mu[i])
        trial_mu[i] = mu[i] + step
        for j in range(m):
            trial_z[i, j] = z[i, j] + (s * d_lam[j] + step)
    return evaluate(reg, rate, trial_z, trial_mu, w)


@inline_kernel
def take_step(lam: Floats, mu: Floats, s: float, w: Workspace) -> None:
    """Make the point tried last the present one."""
    n, m = w.z.shape
    for j in range(m):
        lam[j] += s * w.d_lam[j]
    for i in range(n):
        mu[i] = w.trial_mu[i]
        for j in range(m):
            w.z[i, j] = w.trial_z[i, j]


@inline_kernel
def rise(mu: Floats, s: float, w: Workspace) -> float:
    """The derivative of the dual along the step, at its end."""
    total = 0.0
    for j in range(w.d_lam.size):
        total += s * w.d_lam[j] * w.column[j]
    for i in range(mu.size):
        total += (w.trial_mu[i] - mu[i]) * w.row[i]
    return total


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


@kernel
def repair(x: Floats, row: Floats, repaired: Floats, column: Floats, spare: Floats) -> None:
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
        column[j] = 1.0 / max(1.0, column[j])
    room = 0.0
    for i in range(n):
        total = 0.0
        for j in range(m):
            repaired[i, j] = x[i, j] * (spare[i] * column[j])
            total += repaired[i, j]
        spare[i] = max(0.0, 1.0 - total)
        room += spare[i]
    if short > 0.0 and room > 0.0:
        fill(repaired, spare, room)


@inner_kernel
def fill(x: Floats, spare: Floats, room: float) -> None:
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
def certified_gap(reg: Any, rate: Any, mu: Floats, repaired: Floats, w: Workspace) -> float:
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
            if y > 0.0 and y != w.x[i, j]:
                eta = rate_at(rate, i, j)
                gap += abs((y - w.x[i, j]) * (slope(reg, y) / eta + w.z[i, j]))
        gap += mu[i] * max(0.0, 1.0 - total)
    return gap
