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
from typing import Any

from ..kernels import Floats, inline_kernel, kernel, spliced_kernel
from .dual import Effort, Workspace, evaluate, least_mu, rate_at, set_z
from .sweeps import sweep_columns, sweep_rows

__all__ = ["climb", "polish", "solve"]

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


@spliced_kernel
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
        solve_laplacian(w.weights, w.excess, w.rhs, d_lam)
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
def solve_laplacian(weights: Floats, excess: Floats, rhs: Floats, solution: Floats) -> None:
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
