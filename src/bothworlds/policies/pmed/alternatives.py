r"""Alternative models: among those with another best list, the one that is hardest to distinguish from the fit.

Items are sorted by attraction :math:`\theta`, so that the best list shows item l at position l. While it is shown, an
alternative :math:`(\theta', \kappa')` with the same click rates there, :math:`\theta'_l \kappa'_l = \theta_l \kappa_l`,
cannot be told from it; only other pairs distinguish the two. If they are shown :math:`q_{ij}` times, its divergence is
at least

.. math:: \min_{\theta', \kappa'} \; \sum_{i \ne j} q_{ij} \, kl(\theta_i \kappa_j, \theta'_i \kappa'_j)

over :math:`1 = \kappa'_1 \ge \kappa'_2 \ge \ldots` and :math:`\theta' \le 1` in which another list is best. Between any
such model and the true one there is a point where two neighbours tie for the first time, :math:`\theta'_l =
\theta'_{l+1}` or :math:`\theta'_m = \theta'_i` with i > m, and by convexity its divergence is no larger. So there are
n - 1 problems, each convex in :math:`b = \log \kappa'` and :math:`a = \log \theta'`, since :math:`kl(p, e^u)` is convex
in u. Items on the list have :math:`a_l = \log(\theta_l \kappa_l) - b_l`; every other item has its own variable a, which
is eliminated from every Newton step. The order of positions and :math:`\theta' \le 1` are inequality constraints on b,
enforced by the interior point method of ``interior_point.py``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...kernels import Floats, Ints, inner_kernel, kernel

SMALLEST_SLACK = 1e-15  # less is lost in rounding
REGULARIZATION = 1e-7  # weight of the squared distance from the truth; makes the minimum unique


class Alternative(NamedTuple):
    """An alternative model for n items and m positions, and the work arrays of the search for it.

    Pairs that are shown are kept as a sparse matrix in row-major order. Constraint c < m - 1 says that b falls from
    position c to the next, constraint m + j that theta' at j is at most 1.
    """

    log_theta: Floats  # (n,) descending
    a: Floats  # (n,) log theta' of items that are not on the list
    a_step: Floats  # (n,)
    a_gradient: Floats  # (n,) first derivative in every a
    a_curvature: Floats  # (n,) second derivative in every a
    log_kappa: Floats  # (m,) descending from 0
    log_shared: Floats  # (m,) log click rates of the best list, shared by all alternatives
    b: Floats  # (m,) log kappa'
    b_step: Floats  # (m,)
    gradient: Floats  # (m,) in b
    solution: Floats  # (m,) of the Newton system
    weight: Floats  # (n m,) weight of every pair
    rate: Floats  # (n m,) click probability of every pair
    curvature: Floats  # (n m,) second derivative of every pair's divergence
    slack: Floats  # (2 m,) of the constraints; infinite for a constraint without a variable
    slack_step: Floats  # (2 m,)
    lam: Floats  # (2 m,) multipliers of the constraints
    lam_step: Floats  # (2 m,)
    hessian: Floats  # (m, m) in b
    system: Floats  # (m, m) matrix of the Newton step, then its Cholesky factor
    head: Ints  # (n + 1,) where the pairs of an item begin
    column: Ints  # (n m,) position of every pair
    variable: Ints  # (m,) index of the variable that b of a position follows, or -1


def make_alternative(n: int, m: int) -> Alternative:
    """Allocate an alternative for n items and m positions."""
    items, positions, pairs, constraints = (np.zeros(shape) for shape in ((5, n), (6, m), (3, n * m), (4, 2 * m)))
    indices = (np.zeros(size, np.int64) for size in (n + 1, n * m, m))
    return Alternative(*items, *positions, *pairs, *constraints, *np.zeros((2, m, m)), *indices)


@kernel
def load_weights(r: Alternative, q: Floats) -> None:
    """Load the pairs with a positive weight in q (n, m), except those of the best list: all models agree there."""
    n, m = q.shape
    count = 0
    for j in range(m):
        r.log_shared[j] = r.log_theta[j] + r.log_kappa[j]
    for i in range(n):
        r.head[i] = count
        for j in range(m):
            if q[i, j] > 0.0 and i != j:
                r.column[count] = j
                r.weight[count] = q[i, j]
                r.rate[count] = math.exp(r.log_theta[i] + r.log_kappa[j])
                count += 1
    r.head[n] = count


@inner_kernel
def set_starting_point(r: Alternative, k: int) -> None:
    """Assign variables to positions for alternative k, and set (a, b) to a point well inside all constraints.

    log kappa' falls half as fast as the shared click rates; at the two positions whose items tie it falls as fast.
    """
    m, shared = r.log_shared.size, r.log_shared
    r.variable[0] = -1
    r.b[0] = 0.0
    free = 0
    for j in range(1, m):
        fall = shared[j] - shared[j - 1]
        if j == k + 1:
            r.variable[j] = r.variable[j - 1]
        else:
            r.variable[j] = free
            free += 1
            fall *= 0.5
        r.b[j] = r.b[j - 1] + fall
    for i in range(m, r.log_theta.size):
        r.a[i] = 0.0
        for e in range(r.head[i], r.head[i + 1]):
            r.a[i] = min(r.a[i], math.log(r.rate[e]) - r.b[r.column[e]])


@inner_kernel
def set_slack(r: Alternative) -> None:
    """Compute the slack of every constraint at b."""
    m, b = r.log_shared.size, r.b
    for j in range(m):
        r.slack[j] = math.inf
        if j < m - 1 and r.variable[j] != r.variable[j + 1]:
            r.slack[j] = max(b[j] - b[j + 1], SMALLEST_SLACK)
        r.slack[m + j] = max(b[j] - r.log_shared[j], SMALLEST_SLACK) if r.variable[j] >= 0 else math.inf


@inner_kernel
def anchor(i: int, k: int, m: int) -> int:
    """The position whose b determines theta' of item i: its own, the last one for item k + 1, otherwise -1."""
    return i if i < m else (m - 1 if i == k + 1 else -1)


@inner_kernel
def is_free(r: Alternative, i: int, k: int) -> bool:
    """Whether a of item i is a variable of the problem; an item shown at one position fits exactly there."""
    return i >= r.log_shared.size and i != k + 1 and r.head[i + 1] - r.head[i] > 1


@inner_kernel
def divergence(r: Alternative, k: int) -> float:
    """Return the divergence at (a, b), infinite outside the domain; fill in the derivatives in b and in every a."""
    m = r.log_shared.size
    total = 0.0
    for j in range(m):
        r.gradient[j] = REGULARIZATION * (r.b[j] - r.log_kappa[j])
        for other in range(m):
            r.hessian[j, other] = REGULARIZATION if j == other else 0.0
    for i in range(r.log_theta.size):
        at = anchor(i, k, m)
        if at < 0 and not is_free(r, i, k):
            continue
        a = r.a[i] if at < 0 else r.log_shared[at] - r.b[at]
        a_gradient, a_curvature = 0.0, 0.0
        for e in range(r.head[i], r.head[i + 1]):
            j, w, p = r.column[e], r.weight[e], r.rate[e]
            u = a + r.b[j]
            if not u < 0.0:
                return math.inf
            rest = -math.expm1(u)
            odds = (1.0 - rest) / rest
            total += w * max(p * (math.log(p) - u) + (1.0 - p) * (math.log1p(-p) - math.log(rest)), 0.0)
            slope, curve = w * ((1.0 - p) * odds - p), w * (1.0 - p) * odds / rest
            a_gradient += slope
            a_curvature += curve
            r.gradient[j] += slope
            r.hessian[j, j] += curve
            r.curvature[e] = curve
            if at >= 0:
                r.hessian[j, at] -= curve
                r.hessian[at, j] -= curve
        r.a_gradient[i] = a_gradient
        r.a_curvature[i] = a_curvature
        if at >= 0:  # a is a constant minus b[at]
            r.gradient[at] -= a_gradient
            r.hessian[at, at] += a_curvature
    return total


@kernel
def fill_cut(r: Alternative, k: int, cut: Floats) -> None:
    """Fill in the divergence of every pair, row by row (n m,), in the alternative that was computed last.

    An item without a weight at any position gets the attraction that fits it best with equal weights.
    """
    n, m = r.log_theta.size, r.log_shared.size
    for i in range(n):
        at, first = anchor(i, k, m), r.head[i]
        a = r.log_shared[at] - r.b[at] if at >= 0 else r.a[i]
        if at < 0 and r.head[i + 1] == first + 1:
            a = math.log(r.rate[first]) - r.b[r.column[first]]
        elif at < 0 and r.head[i + 1] == first:
            a = best_fit(r, i)
        for j in range(m):
            v, u = r.log_theta[i] + r.log_kappa[j], min(a + r.b[j], -1e-15)
            gap = math.exp(v) * (v - u) - math.expm1(v) * math.log(math.expm1(v) / math.expm1(u))
            cut[i * m + j] = max(gap, 0.0) if i != j else 0.0


@inner_kernel
def best_fit(r: Alternative, i: int) -> float:
    """Return the a that minimises the divergence of item i with equal weights, by Newton's method from below."""
    m, a = r.log_shared.size, 0.0
    for j in range(m):
        a = min(a, r.log_theta[i] + r.log_kappa[j] - r.b[j])
    for _ in range(20):
        gradient, curvature = 0.0, 0.0
        for j in range(m):
            p, rest = math.exp(r.log_theta[i] + r.log_kappa[j]), -math.expm1(a + r.b[j])
            odds = (1.0 - rest) / rest
            gradient += (1.0 - p) * odds - p
            curvature += (1.0 - p) * odds / rest
        step = min(-gradient / curvature, -0.5 * a)
        a += step
        if abs(step) < 1e-9:
            break
    return a
