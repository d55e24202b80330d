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
from .alternatives import Alternative, divergence, is_free, set_slack, set_starting_point

MAX_TRIALS = 200  # points evaluated; ten to twenty are usually enough
SHORTEST_STEP = 1e-4  # a step that must be shortened to less fails because of rounding
TOLERANCE = 1e-8  # relative to the divergence, or to 1
CENTRING = 0.1  # target gap of a step, relative to the present gap


@kernel
def closest_alternative(r: Alternative, k: int, enough: float) -> float:
    """Return the divergence of alternative k, in which item k + 1 ties with item k, or with the last item of the list.

    The search ends early once the divergence is known to be at least ``enough``. Otherwise the value exceeds the
    minimum by at most 1e-8, relative to the value or to 1. If rounding ends the search, a lower bound is returned.
    """
    m = r.log_shared.size
    set_starting_point(r, k)
    set_slack(r)
    count = 0
    for c in range(2 * m):
        r.lam[c] = 0.1 / r.slack[c]
        count += 1 if r.slack[c] < math.inf else 0
    width = m * (1.0 - r.log_shared[m - 1])  # no two b are further apart
    value, excess, mu, before, length, undo = 0.0, math.inf, 0.0, math.inf, 0.0, False
    for _ in range(MAX_TRIALS):
        here = divergence(r, k)
        slope, off, spread, gap = residuals(r, k)
        if undo:
            break
        if here < math.inf and off + spread - 2.0 * mu * gap + count * mu * mu <= (1.0 - 0.02 * length) * before:
            value, excess = here, gap + width * slope
            if excess <= max(value - enough, TOLERANCE * max(1.0, value)):
                return value
            mu = CENTRING * gap / max(count, 1)
            before = off + spread - 2.0 * mu * gap + count * mu * mu
            newton_step(r, k, mu)
            length = longest_step(r)
            move = length
        else:
            undo = length < SHORTEST_STEP
            move = -length if undo else -0.5 * length
            length *= 0.5
        for j in range(m):
            r.b[j] += move * r.b_step[j]
        for i in range(m, r.log_theta.size):
            r.a[i] += move * r.a_step[i]
        for c in range(2 * m):
            r.lam[c] += move * r.lam_step[c]
        set_slack(r)
    return max(value - excess, 0.0)


@inner_kernel
def residuals(r: Alternative, k: int) -> tuple[float, float, float, float]:
    """Return the sum of absolute values and the sum of squares of the Lagrangian's derivatives (slope, off).

    Then the sum of squares and the sum of lam * slack (spread, gap).
    """
    m = r.log_shared.size
    slope, off, spread, gap = 0.0, 0.0, 0.0, 0.0
    for v in range(m - 1):
        total = 0.0
        for j in range(1, m):
            if r.variable[j] == v:
                total += r.gradient[j] + r.lam[j - 1] - r.lam[j] - r.lam[m + j]
        slope += abs(total)
        off += total * total
    for i in range(m, r.log_theta.size):
        if is_free(r, i, k):
            slope += abs(r.a_gradient[i])
            off += r.a_gradient[i] ** 2
    for c in range(2 * m):
        if r.slack[c] < math.inf:
            product = r.lam[c] * r.slack[c]
            gap += product
            spread += product * product
    return slope, off, spread, gap


@inner_kernel
def longest_step(r: Alternative) -> float:
    """Return the largest step length, at most 1, at which multipliers and slacks stay positive."""
    length = 1.0
    for c in range(r.lam.size):
        if r.slack[c] < math.inf:
            if r.lam_step[c] < 0.0:
                length = min(length, -0.99 * r.lam[c] / r.lam_step[c])
            if r.slack_step[c] < 0.0:
                length = min(length, -0.99 * r.slack[c] / r.slack_step[c])
    return length


@inner_kernel
def newton_step(r: Alternative, k: int, mu: float) -> None:
    """Compute the Newton step: first of b, then of a, slack and lam, which follow from it."""
    m, n = r.log_shared.size, r.log_theta.size
    for j in range(m):
        r.b_step[j] = -r.gradient[j]
    for i in range(m, n):
        if is_free(r, i, k):
            eliminate_item(r, i)
    add_constraints(r, mu)
    solve(r)
    for j in range(m):
        r.b_step[j] = r.solution[r.variable[j]] if r.variable[j] >= 0 else 0.0
    for i in range(m, n):
        r.a_step[i] = 0.0
        if is_free(r, i, k):
            total = r.a_gradient[i]
            for e in range(r.head[i], r.head[i + 1]):
                total += r.curvature[e] * r.b_step[r.column[e]]
            r.a_step[i] = -total / r.a_curvature[i]
    for c in range(2 * m):
        room, lam = r.slack[c], r.lam[c]
        change = r.b_step[c % m] - (r.b_step[c + 1] if c < m - 1 else 0.0)
        r.slack_step[c] = change
        r.lam_step[c] = (mu - lam * change) / room - lam if room < math.inf else 0.0


@inner_kernel
def eliminate_item(r: Alternative, i: int) -> None:
    """Eliminate the variable a of item i from the equations for b."""
    for e in range(r.head[i], r.head[i + 1]):
        share = r.curvature[e] / r.a_curvature[i]
        r.b_step[r.column[e]] += share * r.a_gradient[i]
        for f in range(r.head[i], r.head[i + 1]):
            r.hessian[r.column[e], r.column[f]] -= share * r.curvature[f]


@inner_kernel
def add_constraints(r: Alternative, mu: float) -> None:
    """Add the constraints to the equations for b, with their multipliers eliminated."""
    m = r.log_shared.size
    for c in range(2 * m):
        if r.slack[c] < math.inf:
            j = c % m
            push, stiffness = mu / r.slack[c], r.lam[c] / r.slack[c]
            r.b_step[j] += push
            r.hessian[j, j] += stiffness
            if c < m:
                r.b_step[j + 1] -= push
                r.hessian[j + 1, j + 1] += stiffness
                r.hessian[j, j + 1] -= stiffness
                r.hessian[j + 1, j] -= stiffness


@inner_kernel
def solve(r: Alternative) -> None:
    """Sum the equations of positions that share a variable, and solve them by Cholesky's method."""
    a, x, m = r.system, r.solution, r.solution.size
    for v in range(m):
        x[v] = 0.0
        for w in range(m):
            a[v, w] = 0.0
    for j in range(1, m):
        v = r.variable[j]
        if v >= 0:
            x[v] += r.b_step[j]
            for other in range(1, m):
                if r.variable[other] >= 0:
                    a[v, r.variable[other]] += r.hessian[j, other]
    for v in range(m):
        if a[v, v] == 0.0:
            a[v, v] = 1.0  # there is no such variable
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
