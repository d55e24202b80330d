r"""The search for the closest alternative: a primal-dual interior point method in at most m - 1 variables.

With slacks :math:`s_c(b) \ge 0` of the constraints and multipliers :math:`\lambda_c` it follows
:math:`\nabla f = \sum_c \lambda_c \nabla s_c`, :math:`\lambda_c s_c = \mu` to :math:`\mu = 0` by Newton steps. As f is
convex, :math:`f - \sum_c \lambda_c s_c` is a lower bound on the minimum wherever the first equation holds.

References
----------
Boyd, Vandenberghe: Convex Optimization, 2004, section 11.7.
"""

from __future__ import annotations

import math

from ...kernels import inner_kernel, kernel
from .alternatives import BEND, CURVE, HERE, PULL, STEP, Rival, divergence, is_free, place, set_slack

__all__ = ["closest"]

TRIALS = 200  # points looked at; a dozen or two are enough
SHORTEST = 1e-4  # a step that must be shortened to this much is lost in rounding
GAP = 1e-8
CENTRING = 0.1  # the gap aimed at by a step, relative to the present one


@kernel
def closest(r: Rival, k: int, enough: float) -> float:
    """The divergence of alternative k, in which item k + 1 ties with item k or, beyond the list, with its last one.

    The search ends early once the divergence is certain to be ``enough``; otherwise the least divergence is below the
    value returned by no more than 1e-8 of it, or of 1. Should rounding end the search, a lower bound is returned.
    """
    m = r.log_shared.size
    place(r, k)
    set_slack(r)
    count = 0
    for c in range(2 * m):
        r.lam[HERE, c] = 0.1 / r.slack[HERE, c]
        count += 1 if r.slack[HERE, c] < math.inf else 0
    width = m * (1.0 - r.log_shared[m - 1])  # no two b are further apart
    value, doubt, mu, before, length, undo = 0.0, math.inf, 0.0, math.inf, 0.0, False
    for _ in range(TRIALS):
        here = divergence(r, k)
        slope, off, spread, gap = residuals(r, k)
        if undo:
            break
        if here < math.inf and off + spread - 2.0 * mu * gap + count * mu * mu <= (1.0 - 0.02 * length) * before:
            value, doubt = here, gap + width * slope
            if doubt <= max(value - enough, GAP * max(1.0, value)):
                return value
            mu = CENTRING * gap / max(count, 1)
            before = off + spread - 2.0 * mu * gap + count * mu * mu
            find_step(r, k, mu)
            length = longest(r)
            move = length
        else:
            undo = length < SHORTEST
            move = -length if undo else -0.5 * length
            length *= 0.5
        for j in range(m):
            r.b[HERE, j] += move * r.b[STEP, j]
        for i in range(m, r.log_theta.size):
            r.a[HERE, i] += move * r.a[STEP, i]
        for c in range(2 * m):
            r.lam[HERE, c] += move * r.lam[STEP, c]
        set_slack(r)
    return max(value - doubt, 0.0)


@inner_kernel
def residuals(r: Rival, k: int) -> tuple[float, float, float, float]:
    """Of the Lagrangian's derivatives the sum and the sum of squares; of lam times slack the squares and the sum."""
    m = r.log_shared.size
    slope, off, spread, gap = 0.0, 0.0, 0.0, 0.0
    for v in range(m - 1):
        total = 0.0
        for j in range(1, m):
            if r.variable[j] == v:
                total += r.gradient[j] + r.lam[HERE, j - 1] - r.lam[HERE, j] - r.lam[HERE, m + j]
        slope += abs(total)
        off += total * total
    for i in range(m, r.log_theta.size):
        if is_free(r, i, k):
            slope += abs(r.force[PULL, i])
            off += r.force[PULL, i] ** 2
    for c in range(2 * m):
        if r.slack[HERE, c] < math.inf:
            product = r.lam[HERE, c] * r.slack[HERE, c]
            gap += product
            spread += product * product
    return slope, off, spread, gap


@inner_kernel
def longest(r: Rival) -> float:
    """How much of the step leaves multipliers and slacks positive; 1 at most."""
    length = 1.0
    for c in range(r.lam.shape[1]):
        if r.slack[HERE, c] < math.inf:
            if r.lam[STEP, c] < 0.0:
                length = min(length, -0.99 * r.lam[HERE, c] / r.lam[STEP, c])
            if r.slack[STEP, c] < 0.0:
                length = min(length, -0.99 * r.slack[HERE, c] / r.slack[STEP, c])
    return length


@inner_kernel
def find_step(r: Rival, k: int, mu: float) -> None:
    """Newton's step: first of the variables, then of all that follows from them."""
    m, n = r.log_shared.size, r.log_theta.size
    for j in range(m):
        r.b[STEP, j] = -r.gradient[j]
    for i in range(m, n):
        if is_free(r, i, k):
            eliminate(r, i)
    add_constraints(r, mu)
    solve(r)
    for j in range(m):
        r.b[STEP, j] = r.step[r.variable[j]] if r.variable[j] >= 0 else 0.0
    for i in range(m, n):
        r.a[STEP, i] = 0.0
        if is_free(r, i, k):
            total = r.force[PULL, i]
            for e in range(r.head[i], r.head[i + 1]):
                total += r.pair[CURVE, e] * r.b[STEP, r.column[e]]
            r.a[STEP, i] = -total / r.force[BEND, i]
    for c in range(2 * m):
        room, lam = r.slack[HERE, c], r.lam[HERE, c]
        change = r.b[STEP, c % m] - (r.b[STEP, c + 1] if c < m - 1 else 0.0)
        r.slack[STEP, c] = change
        r.lam[STEP, c] = (mu - lam * change) / room - lam if room < math.inf else 0.0


@inner_kernel
def eliminate(r: Rival, i: int) -> None:
    """Take the a of a free item out of the equations for b."""
    for e in range(r.head[i], r.head[i + 1]):
        share = r.pair[CURVE, e] / r.force[BEND, i]
        r.b[STEP, r.column[e]] += share * r.force[PULL, i]
        for f in range(r.head[i], r.head[i + 1]):
            r.hessian[r.column[e], r.column[f]] -= share * r.pair[CURVE, f]


@inner_kernel
def add_constraints(r: Rival, mu: float) -> None:
    """The multipliers taken out of the equations for b."""
    m = r.log_shared.size
    for c in range(2 * m):
        if r.slack[HERE, c] < math.inf:
            j = c % m
            push, stiffness = mu / r.slack[HERE, c], r.lam[HERE, c] / r.slack[HERE, c]
            r.b[STEP, j] += push
            r.hessian[j, j] += stiffness
            if c < m:
                r.b[STEP, j + 1] -= push
                r.hessian[j + 1, j + 1] += stiffness
                r.hessian[j, j + 1] -= stiffness
                r.hessian[j + 1, j] -= stiffness


@inner_kernel
def solve(r: Rival) -> None:
    """Gather the equations of all b that a variable moves, and solve them by Cholesky's method."""
    a, x, m = r.system, r.step, r.step.size
    for v in range(m):
        x[v] = 0.0
        for w in range(m):
            a[v, w] = 0.0
    for j in range(1, m):
        v = r.variable[j]
        if v >= 0:
            x[v] += r.b[STEP, j]
            for other in range(1, m):
                if r.variable[other] >= 0:
                    a[v, r.variable[other]] += r.hessian[j, other]
    for v in range(m):
        if a[v, v] == 0.0:
            a[v, v] = 1.0  # not in use
        for w in range(v + 1):
            total = a[v, w]
            for u in range(w):
                total -= a[v, u] * a[w, u]
            a[v, w] = math.sqrt(max(total, 1e-14 * a[v, v])) if v == w else total / a[w, w]
        for w in range(v):
            x[v] -= a[v, w] * x[w]
        x[v] /= a[v, v]
    for v in range(m - 1, -1, -1):
        for w in range(v + 1, m):
            x[v] -= a[w, v] * x[w]
        x[v] /= a[v, v]
