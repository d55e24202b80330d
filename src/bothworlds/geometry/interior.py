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

from ..kernels import inner_kernel, kernel
from .alternatives import Rival, divergence, is_free, place, set_slack

__all__ = ["closest"]

STEPS = 80  # a dozen or two are enough
HALVINGS = 30
GAP = 1e-9
CENTRING = 0.1  # the gap aimed at by a step, relative to the present one


@kernel
def closest(r: Rival, k: int, enough: float) -> float:
    """The divergence of alternative k, in which item k + 1 ties with item k or, beyond the list, with its last one.

    The search ends early once the divergence is certain to be ``enough``; the bound is a little lower than the value
    returned in any case, by at most 1e-9 of it.
    """
    m = r.b.size
    place(r, k)
    set_slack(r)
    value = divergence(r, k)
    count = 0
    for c in range(2 * m):
        r.lam[c] = 0.0
        if r.slack[c] < math.inf:
            r.lam[c] = max(value, 1e-3) / r.slack[c]
            count += 1
    width = m * (1.0 - r.log_shared[m - 1])  # no b is further from another
    for _ in range(STEPS):
        gap = complementarity(r)
        if gap + width * residual(r, k) <= max(value - enough, GAP * max(1.0, value)):
            break
        new = advance(r, k, CENTRING * gap / max(count, 1))
        if new < 0.0:
            break  # only rounding is left
        value = new
    return value


@inner_kernel
def complementarity(r: Rival) -> float:
    gap = 0.0
    for c in range(r.lam.size):
        if r.slack[c] < math.inf:
            gap += r.lam[c] * r.slack[c]
    return gap


@inner_kernel
def stationarity(r: Rival, v: int) -> float:
    """The derivative of the Lagrangian in variable v."""
    m, total = r.b.size, 0.0
    for j in range(m):
        if r.variable[j] == v:
            total += r.gradient[j] - r.lam[j] - r.lam[m + j]
            if j > 0:
                total += r.lam[j - 1]
    return total


@inner_kernel
def residual(r: Rival, k: int) -> float:
    total = 0.0
    for v in range(r.b.size - 1):
        total += abs(stationarity(r, v))
    for i in range(r.b.size, r.a.size):
        if is_free(r, i, k):
            total += abs(r.pull[i])
    return total


@inner_kernel
def merit(r: Rival, k: int, mu: float) -> float:
    """The squared violation of all equations of the path."""
    total = 0.0
    for v in range(r.b.size - 1):
        total += stationarity(r, v) ** 2
    for i in range(r.b.size, r.a.size):
        if is_free(r, i, k):
            total += r.pull[i] ** 2
    for c in range(r.lam.size):
        if r.slack[c] < math.inf:
            total += (r.lam[c] * r.slack[c] - mu) ** 2
    return total


@inner_kernel
def advance(r: Rival, k: int, mu: float) -> float:
    """One step towards the point of the path at mu; return the divergence there, or -1 if no step helps."""
    before = merit(r, k, mu)
    find_step(r, k, mu)
    length = 1.0
    for c in range(r.lam.size):
        if r.slack[c] < math.inf:
            if r.step_lam[c] < 0.0:
                length = min(length, -0.99 * r.lam[c] / r.step_lam[c])
            if r.step_slack[c] < 0.0:
                length = min(length, -0.99 * r.slack[c] / r.step_slack[c])
    done = 0.0
    for _ in range(HALVINGS):
        move(r, length - done)
        done = length
        value = divergence(r, k)
        if value < math.inf and merit(r, k, mu) <= (1.0 - 0.02 * length) * before:
            return value
        length *= 0.5
    move(r, -done)
    divergence(r, k)
    return -1.0


@inner_kernel
def move(r: Rival, length: float) -> None:
    for j in range(r.b.size):
        r.b[j] += length * r.step_b[j]
    for i in range(r.b.size, r.a.size):
        r.a[i] += length * r.step_a[i]
    for c in range(r.lam.size):
        r.lam[c] += length * r.step_lam[c]
    set_slack(r)


@inner_kernel
def find_step(r: Rival, k: int, mu: float) -> None:
    """Newton's step: first of the variables, then of all that follows from them."""
    m, n = r.b.size, r.a.size
    for j in range(m):
        r.step_b[j] = -r.gradient[j]
    for i in range(m, n):
        if is_free(r, i, k):
            eliminate(r, i)
    add_constraints(r, mu)
    gather(r)
    solve_in_place(r)
    for j in range(m):
        r.step_b[j] = r.step[r.variable[j]] if r.variable[j] >= 0 else 0.0
    for i in range(m, n):
        r.step_a[i] = 0.0
        if is_free(r, i, k):
            total = r.pull[i]
            for e in range(r.head[i], r.head[i + 1]):
                total += r.curve[e] * r.step_b[r.column[e]]
            r.step_a[i] = -total / r.bend[i]
    for c in range(2 * m):
        j = c if c < m else c - m
        change = r.step_b[j] - (r.step_b[j + 1] if c < m - 1 else 0.0)
        r.step_slack[c] = change
        r.step_lam[c] = (mu - r.lam[c] * change) / r.slack[c] - r.lam[c] if r.slack[c] < math.inf else 0.0


@inner_kernel
def eliminate(r: Rival, i: int) -> None:
    """Take the a of a free item out of the equations for b."""
    for e in range(r.head[i], r.head[i + 1]):
        share = r.curve[e] / r.bend[i]
        r.step_b[r.column[e]] += share * r.pull[i]
        for f in range(r.head[i], r.head[i + 1]):
            r.hessian[r.column[e], r.column[f]] -= share * r.curve[f]


@inner_kernel
def add_constraints(r: Rival, mu: float) -> None:
    m = r.b.size
    for c in range(2 * m):
        if r.slack[c] < math.inf:
            j = c if c < m else c - m
            push, stiffness = mu / r.slack[c], r.lam[c] / r.slack[c]
            r.step_b[j] += push
            r.hessian[j, j] += stiffness
            if c < m:
                r.step_b[j + 1] -= push
                r.hessian[j + 1, j + 1] += stiffness
                r.hessian[j, j + 1] -= stiffness
                r.hessian[j + 1, j] -= stiffness


@inner_kernel
def gather(r: Rival) -> None:
    """From positions to variables; those that are not in use get an equation of their own."""
    m = r.b.size
    for v in range(m):
        r.step[v] = 0.0
        for w in range(m):
            r.system[v, w] = 0.0
    for j in range(m):
        v = r.variable[j]
        if v >= 0:
            r.step[v] += r.step_b[j]
            for l in range(m):
                if r.variable[l] >= 0:
                    r.system[v, r.variable[l]] += r.hessian[j, l]
    for v in range(m):
        if r.system[v, v] == 0.0:
            r.system[v, v] = 1.0


@inner_kernel
def solve_in_place(r: Rival) -> None:
    """Cholesky's method on ``system`` and ``step``."""
    a, x, m = r.system, r.step, r.step.size
    for v in range(m):
        for w in range(v + 1):
            total = a[v, w]
            for l in range(w):
                total -= a[v, l] * a[w, l]
            a[v, w] = math.sqrt(max(total, 1e-14 * a[v, v] + 1e-300)) if v == w else total / a[w, w]
        for w in range(v):
            x[v] -= a[v, w] * x[w]
        x[v] /= a[v, v]
    for v in range(m - 1, -1, -1):
        for w in range(v + 1, m):
            x[v] -= a[w, v] * x[w]
        x[v] /= a[v, v]
