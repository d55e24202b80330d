r"""The compiled solver for the regularised leader: projected Newton on the dual, one small linear system a step.

Problem, with :math:`\phi` from ``regularizers`` and a rate :math:`\eta_{ij}`:

.. math:: \min_x \sum_{ij} L_{ij} x_{ij} + \phi(x_{ij}) / \eta_{ij}
          \quad\text{over}\quad x \ge 0,\ \sum_i x_{ij} = 1,\ \sum_j x_{ij} \le 1 .

Multipliers :math:`\lambda_j` (columns, free) and :math:`\mu_i \ge 0` (rows) enter only through
:math:`z_{ij} = L_{ij} + \lambda_j + \mu_i`, and :math:`x_{ij}` is the marginal at which
:math:`\phi'(x) = -\eta z`. At the optimum the residuals :math:`c_j = \sum_i x_{ij} - 1` are zero and
:math:`r_i = \sum_j x_{ij} - 1` non-positive, zero where :math:`\mu_i > 0`.

Two choices make this accurate as well as fast:

* ``z`` itself is updated from step to step. It is computed from L once and then changed by small increments, so a
  ``z`` of 0.05 stays accurate with losses of 1e7: rounding acts as a change of L by a few ulps.
* The reduced system is a graph Laplacian plus a non-negative diagonal. It is stored in that form (weights and
  "excess") and eliminated with additions only, so it needs no regularisation near a vertex or with n = m.
"""

from __future__ import annotations

import math
from typing import Any

from ..kernels import Floats, Ints, inner_kernel, kernel
from .dual import Effort, Workspace, evaluate, rate_at, set_z
from .sweeps import sweep_columns, sweep_rows

MAX_STEPS = 2000  # in all stages of a solve
PATIENCE = 12  # steps without halving the violation after which every step is followed by a sweep
MAX_EXCHANGES = 40
HALVINGS = 60
VANISHED = 1e-290  # slopes below this have no usable inverse
NOISE = 1e-14  # residuals of a unit of mass below this are rounding
EASY = 10.0  # rate times spread of losses up to which Newton converges from a cold start
LEAST_SCALE = 1e-18  # of the first stage, so that there are few stages; smaller differences of losses are rounding
GROWTH = 4.0  # factor of the losses from one stage to the next
STAGE_TOLERANCE = 1e-2  # violation at which an intermediate stage ends


@kernel
def solve(
    reg: Any, loss: Floats, item: Ints, rate: Any, lam: Floats, mu: Floats, tol: float, warm: bool, w: Workspace
) -> Effort:
    """Move (lam, mu) to the optimum; ``w.x`` holds the marginals there. Row i has the losses of ``item[i]``.

    From a nearby start, which is ``warm``, by Newton steps. Without one, it first solves for scaled-down losses, then
    scales them up in stages: with losses far larger than 1/rate the problem is nearly a linear programme, and Newton's
    method converges from nearby only. The optimum of every stage is near that of the next.
    """
    scale = 1.0
    if not warm:
        scale = easy_scale(loss, item, rate, w)
        lam[:] = 0.0
        mu[:] = 0.0
    set_z(loss, item, scale, lam, mu, w.z)
    if not warm:
        sweep_columns(reg, rate, lam, w)
    steps, sweeps = 0, 0
    while True:
        effort = iterate(reg, rate, lam, mu, tol if scale == 1.0 else STAGE_TOLERANCE, MAX_STEPS - steps, w)
        steps += effort.steps
        sweeps += effort.sweeps
        if scale == 1.0:
            break
        growth = min(GROWTH, 1.0 / scale)
        scale = 1.0 if growth < GROWTH else scale * growth
        for j in range(lam.size):
            lam[j] *= growth
        for i in range(mu.size):
            mu[i] *= growth
        set_z(loss, item, scale, lam, mu, w.z)
        for _ in range(3):
            sweep_rows(reg, rate, mu, w)
            sweep_columns(reg, rate, lam, w)
    return Effort(steps, sweeps, effort.violation)


@inner_kernel
def easy_scale(loss: Floats, item: Ints, rate: Any, w: Workspace) -> float:
    """Return the factor of the losses, at most 1, with which Newton's method converges from a cold start."""
    n, m = w.z.shape
    spread = 0.0
    for j in range(m):
        low, high = math.inf, -math.inf
        for i in range(n):
            size = loss[item[i], j] * rate_at(rate, i, j)
            low, high = min(low, size), max(high, size)
        spread = max(spread, high - low)
    return min(1.0, max(LEAST_SCALE, EASY / spread)) if spread > 0.0 else 1.0


@inner_kernel
def iterate(reg: Any, rate: Any, lam: Floats, mu: Floats, tol: float, most: int, w: Workspace) -> Effort:
    """Take at most ``most`` Newton steps from z; when they stop making progress, a sweep follows every step.

    Both raise the dual, but for steps that halve the least violation so far, of which there are few: so this converges
    from every starting point. Newton steps are slow where marginals vanish, sweeps where rows and columns interact.
    """
    v = evaluate(reg, rate, w.z, mu, w)
    if v == math.inf:
        sweep_columns(reg, rate, lam, w)
        v = evaluate(reg, rate, w.z, mu, w)
        if v == math.inf:  # no floating-point numbers are near the solution
            return Effort(0, 0, v)
    best, patience, sweeps = v, PATIENCE, 0
    for step in range(most):
        if v <= tol:
            return Effort(step, sweeps, v)
        newton_direction(mu, w)
        v = line_search(reg, rate, lam, mu, min(best, 1.0), w)
        patience = PATIENCE if v <= 0.5 * best else patience - 1
        best = min(best, v)
        if patience <= 0 and v > tol:
            sweep_rows(reg, rate, mu, w)
            sweep_columns(reg, rate, lam, w)
            v = evaluate(reg, rate, w.z, mu, w)
            sweeps += 1
            if v <= 0.5 * best:
                best, patience = v, PATIENCE
    return Effort(most, sweeps, v)


@inner_kernel
def polish(reg: Any, rate: Any, lam: Floats, mu: Floats, w: Workspace) -> bool:
    """Try one more Newton step; returns whether it reduced the violation, which it squares near the optimum."""
    v = evaluate(reg, rate, w.z, mu, w)
    newton_direction(mu, w)
    if try_step(reg, rate, mu, 1.0, w) < v:
        take_step(lam, mu, 1.0, w)
        return True
    evaluate(reg, rate, w.z, mu, w)
    return False


@inner_kernel
def newton_direction(mu: Floats, w: Workspace) -> None:
    """Compute the Newton step on the dual: rows at their limit are equations, the others go to mu = 0.

    Which rows are at their limit is found by exchange: a row whose multiplier would become negative leaves the
    equations, and a row that the step would overfill joins them, until no row changes. The system has an M-matrix, for
    which this ends. Clipping multipliers afterwards would leave the columns with corrections for rows that do not move.
    """
    n, m = w.h.shape
    h, row, free, d_lam, d_mu = w.h, w.row, w.free, w.d_lam, w.d_mu
    least = w.least_mu
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
        if settled and not released(mu, w):
            break


@inner_kernel
def released(mu: Floats, w: Workspace) -> bool:
    """Release a row if all are equations, and return whether that was so.

    With more items than positions the rows cannot all be full, and the system is singular: the step may lower all mu
    and raise all lam by the same amount. That raises the dual until the first mu is 0, so this row is not an equation.
    """
    lowest = 0
    for i in range(mu.size):
        if not w.free[i]:
            return False
        if mu[i] + w.d_mu[i] < mu[lowest] + w.d_mu[lowest]:
            lowest = i
    if w.least_mu < 0.0:
        return False
    w.free[lowest] = False
    return True


@inner_kernel
def assemble(mu: Floats, w: Workspace) -> None:
    """Assemble the Newton system of the columns: a Laplacian, an excess on its diagonal, a right-hand side.

    Eliminating a free row gives weights h_ij h_ik / sum_l h_il between columns; any other row adds h_ij to the excess.
    Both count once for every item that the row stands for. On return ``d_mu`` holds 1 / sum_l h_il for the free rows.
    """
    n, m = w.h.shape
    h, row, copies, weights, excess, rhs = w.h, w.row, w.copies, w.weights, w.excess, w.rhs
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
                share = copies[i] * h[i, j] * inverse
                rhs[j] -= share * row[i]
                for k in range(m):  # only one half is used, but a loop of full length is faster
                    weights[j, k] += share * h[i, k]
        else:
            for j in range(m):
                excess[j] += copies[i] * h[i, j]
            if mu[i] > 0.0:
                for j in range(m):
                    rhs[j] += copies[i] * h[i, j] * mu[i]


@inner_kernel
def solve_laplacian(weights: Floats, excess: Floats, rhs: Floats, solution: Floats) -> None:
    """Solve (Laplacian(weights) + diag(excess)) solution = rhs; weights are read above the diagonal only.

    The matrix is computed without subtractions, so every pivot has full relative accuracy, however small. The
    right-hand side is a sum of residuals of a unit of mass and has absolute accuracy only: entries at rounding level
    are set to zero. Otherwise noise would move a group of columns that is linked to the rest by weights of 1e-60.
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


@inner_kernel
def line_search(reg: Any, rate: Any, lam: Floats, mu: Floats, least: float, w: Workspace) -> float:
    """Take the Newton step, halved until it is accepted; return the violation at its end.

    A step is accepted if the dual still rises at its end: by concavity it has then risen all the way; or if it halves
    the ``least`` violation so far, or 1, which is that of empty columns: halving a larger one can lead far away from
    the optimum. Neither test compares two large dual values, so rounding does not stop the search.
    """
    s = 1.0
    for _ in range(HALVINGS):
        new = try_step(reg, rate, mu, s, w)
        if new <= 0.5 * least or (new < math.inf and rise(mu, s, w) >= 0.0):
            take_step(lam, mu, s, w)
            return new
        s *= 0.5
    return evaluate(reg, rate, w.z, mu, w)


@inner_kernel
def try_step(reg: Any, rate: Any, mu: Floats, s: float, w: Workspace) -> float:
    """Evaluate the point at s times the Newton step; return its violation."""
    n, m = w.z.shape
    z, trial_z, trial_mu, d_lam, d_mu = w.z, w.trial_z, w.trial_mu, w.d_lam, w.d_mu
    least = w.least_mu
    for i in range(n):
        step = max(s * d_mu[i], least - mu[i])
        trial_mu[i] = mu[i] + step
        for j in range(m):
            trial_z[i, j] = z[i, j] + (s * d_lam[j] + step)
    return evaluate(reg, rate, trial_z, trial_mu, w)


@inner_kernel
def take_step(lam: Floats, mu: Floats, s: float, w: Workspace) -> None:
    """Move to the point that was evaluated last."""
    n, m = w.z.shape
    for j in range(m):
        lam[j] += s * w.d_lam[j]
    for i in range(n):
        mu[i] = w.trial_mu[i]
        for j in range(m):
            w.z[i, j] = w.trial_z[i, j]


@inner_kernel
def rise(mu: Floats, s: float, w: Workspace) -> float:
    """Return the derivative of the dual along the step, at its end."""
    total = 0.0
    for j in range(w.d_lam.size):
        total += s * w.d_lam[j] * w.column[j]
    for i in range(mu.size):
        total += w.copies[i] * (w.trial_mu[i] - mu[i]) * w.row[i]
    return total
