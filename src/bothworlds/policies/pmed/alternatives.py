r"""What else could be true: the model in which another list is best, and which is hardest to tell from the present one.

Items are sorted by attraction :math:`\theta`, so that the best list shows item l at position l. While it is shown, an
alternative :math:`(\theta', \kappa')` with the same click rates there, :math:`\theta'_l \kappa'_l = \theta_l \kappa_l`,
looks the same; it is told apart by showing other pairs, :math:`q_{ij}` times each:

.. math:: \min_{\theta', \kappa'} \; \sum_{i \ne j} q_{ij} \, kl(\theta_i \kappa_j, \theta'_i \kappa'_j)

over :math:`1 = \kappa'_1 \ge \kappa'_2 \ge \ldots` and :math:`\theta' \le 1` in which another list is best. Between any
such model and the true one there is a point where two neighbours tie for the first time, :math:`\theta'_l =
\theta'_{l+1}` or :math:`\theta'_m = \theta'_i` with i > m, and by convexity it is no easier to tell apart. So there are
n - 1 problems, each convex in :math:`b = \log \kappa'` and :math:`a = \log \theta'`, since :math:`kl(p, e^u)` is convex
in u. Items that are on the list have :math:`a_l = \log(\theta_l \kappa_l) - b_l`; those that are not have an a of their
own, which is eliminated from every Newton step. The order of positions and :math:`\theta' \le 1` are inequalities
between the b, kept by the interior point method of ``interior.py``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...kernels import Floats, Ints, inner_kernel, kernel

__all__ = ["Rival", "divergence", "fill_cut", "is_free", "load", "make_rival", "place", "set_slack"]

EPS = 1e-15  # slack that is lost in rounding
NEAR = 1e-7  # weight of the squared distance from the truth: chooses where the divergence leaves a choice
WEIGHT, RATE, CURVE = 0, 1, 2  # what is known of a pair that is shown
PULL, BEND = 0, 1  # first and second derivative in one a
HERE, STEP = 0, 1  # a point, and a step from it


class Rival(NamedTuple):
    """One alternative and the room to find it in, for n items and m positions.

    Constraints c < m - 1 say that b falls from position c to the next, constraints m + j that theta' at j is at most 1.
    """

    log_theta: Floats  # (n,) descending
    log_kappa: Floats  # (m,) descending from 0
    log_shared: Floats  # (m,) their sum: the click rates that all alternatives share
    head: Ints  # (n + 1,) where the pairs of an item begin
    column: Ints  # (n m,) their positions
    pair: Floats  # (3, n m) their weights, click probabilities and second derivatives
    b: Floats  # (2, m) log kappa', and a step
    a: Floats  # (2, n) log theta' of items that are not on the list, and a step
    slack: Floats  # (2, 2 m) of constraints, and a step; infinite where no variable is concerned
    lam: Floats  # (2, 2 m) multipliers, and a step
    force: Floats  # (2, n) derivatives in a
    gradient: Floats  # (m,) in b
    hessian: Floats  # (m, m)
    variable: Ints  # (m,) which variable moves b, or -1
    system: Floats  # (m, m) Newton's equations,
    step: Floats  # (m,) and their solution


def make_rival(n: int, m: int) -> Rival:
    """Allocate the room to find alternatives in."""
    return Rival(
        log_theta=np.zeros(n),
        log_kappa=np.zeros(m),
        log_shared=np.zeros(m),
        head=np.zeros(n + 1, np.int64),
        column=np.zeros(n * m, np.int64),
        pair=np.zeros((3, n * m)),
        b=np.zeros((2, m)),
        a=np.zeros((2, n)),
        slack=np.zeros((2, 2 * m)),
        lam=np.zeros((2, 2 * m)),
        force=np.zeros((2, n)),
        gradient=np.zeros(m),
        hessian=np.zeros((m, m)),
        variable=np.zeros(m, np.int64),
        system=np.zeros((m, m)),
        step=np.zeros(m),
    )


@kernel
def load(r: Rival, q: Floats) -> None:
    """Take the pairs with a weight from q (n, m), except those of the best list, which tell nothing apart."""
    n, m = q.shape
    count = 0
    for j in range(m):
        r.log_shared[j] = r.log_theta[j] + r.log_kappa[j]
    for i in range(n):
        r.head[i] = count
        for j in range(m):
            if q[i, j] > 0.0 and i != j:
                r.column[count] = j
                r.pair[WEIGHT, count] = q[i, j]
                r.pair[RATE, count] = math.exp(r.log_theta[i] + r.log_kappa[j])
                count += 1
    r.head[n] = count


@inner_kernel
def place(r: Rival, k: int) -> None:
    """Assign variables to positions for alternative k, and start well inside all constraints.

    Halfway between all positions alike and the decline of the shared click rates, except where two items tie: there
    kappa' falls as the shared click rates do.
    """
    m, shared = r.log_shared.size, r.log_shared
    r.variable[0] = -1
    r.b[HERE, 0] = 0.0
    free = 0
    for j in range(1, m):
        fall = shared[j] - shared[j - 1]
        if j == k + 1:
            r.variable[j] = r.variable[j - 1]
        else:
            r.variable[j] = free
            free += 1
            fall *= 0.5
        r.b[HERE, j] = r.b[HERE, j - 1] + fall
    for i in range(m, r.log_theta.size):
        r.a[HERE, i] = 0.0
        for e in range(r.head[i], r.head[i + 1]):
            r.a[HERE, i] = min(r.a[HERE, i], math.log(r.pair[RATE, e]) - r.b[HERE, r.column[e]])


@inner_kernel
def set_slack(r: Rival) -> None:
    """How far b is inside its constraints."""
    m, b = r.log_shared.size, r.b
    for j in range(m):
        r.slack[HERE, j] = math.inf
        if j < m - 1 and r.variable[j] != r.variable[j + 1]:
            r.slack[HERE, j] = max(b[HERE, j] - b[HERE, j + 1], EPS)
        r.slack[HERE, m + j] = max(b[HERE, j] - r.log_shared[j], EPS) if r.variable[j] >= 0 else math.inf


@inner_kernel
def anchor(i: int, k: int, m: int) -> int:
    """The position whose b fixes theta' of item i: its own, the last for the challenger, -1 if there is none."""
    return i if i < m else (m - 1 if i == k + 1 else -1)


@inner_kernel
def is_free(r: Rival, i: int, k: int) -> bool:
    """Whether item i has an a of its own that matters; one that is shown at a single position adapts to it."""
    return i >= r.log_shared.size and i != k + 1 and r.head[i + 1] - r.head[i] > 1


@inner_kernel
def divergence(r: Rival, k: int) -> float:
    """The divergence at (a, b), with gradient and Hessian in b, and in every a; infinite outside the domain."""
    m = r.log_shared.size
    total = 0.0
    for j in range(m):
        r.gradient[j] = NEAR * (r.b[HERE, j] - r.log_kappa[j])
        for other in range(m):
            r.hessian[j, other] = NEAR if j == other else 0.0
    for i in range(r.log_theta.size):
        at = anchor(i, k, m)
        if at < 0 and not is_free(r, i, k):
            continue
        a = r.a[HERE, i] if at < 0 else r.log_shared[at] - r.b[HERE, at]
        pull, bend = 0.0, 0.0
        for e in range(r.head[i], r.head[i + 1]):
            j, w, p = r.column[e], r.pair[WEIGHT, e], r.pair[RATE, e]
            u = a + r.b[HERE, j]
            if not u < 0.0:
                return math.inf
            rest = -math.expm1(u)
            odds = (1.0 - rest) / rest
            total += w * max(p * (math.log(p) - u) + (1.0 - p) * (math.log1p(-p) - math.log(rest)), 0.0)
            slope, curve = w * ((1.0 - p) * odds - p), w * (1.0 - p) * odds / rest
            pull += slope
            bend += curve
            r.gradient[j] += slope
            r.hessian[j, j] += curve
            r.pair[CURVE, e] = curve
            if at >= 0:
                r.hessian[j, at] -= curve
                r.hessian[at, j] -= curve
        r.force[PULL, i] = pull
        r.force[BEND, i] = bend
        if at >= 0:  # this a is a constant minus b[at]
            r.gradient[at] -= pull
            r.hessian[at, at] += bend
    return total


@kernel
def fill_cut(r: Rival, k: int, cut: Floats) -> None:
    """The divergence of every pair, row by row (n m,), in the alternative found last.

    An item that has no weight anywhere is given the attraction that fits it best at all positions alike.
    """
    n, m = r.log_theta.size, r.log_shared.size
    for i in range(n):
        at, first = anchor(i, k, m), r.head[i]
        a = r.log_shared[at] - r.b[HERE, at] if at >= 0 else r.a[HERE, i]
        if at < 0 and r.head[i + 1] == first + 1:
            a = math.log(r.pair[RATE, first]) - r.b[HERE, r.column[first]]
        elif at < 0 and r.head[i + 1] == first:
            a = best_fit(r, i)
        for j in range(m):
            v, u = r.log_theta[i] + r.log_kappa[j], min(a + r.b[HERE, j], -1e-15)
            gap = math.exp(v) * (v - u) - math.expm1(v) * math.log(math.expm1(v) / math.expm1(u))
            cut[i * m + j] = max(gap, 0.0) if i != j else 0.0


@inner_kernel
def best_fit(r: Rival, i: int) -> float:
    """The a that minimises the divergence of item i with equal weights, by Newton's method from below."""
    m, a = r.log_shared.size, 0.0
    for j in range(m):
        a = min(a, r.log_theta[i] + r.log_kappa[j] - r.b[HERE, j])
    for _ in range(20):
        pull, bend = 0.0, 0.0
        for j in range(m):
            p, rest = math.exp(r.log_theta[i] + r.log_kappa[j]), -math.expm1(a + r.b[HERE, j])
            odds = (1.0 - rest) / rest
            pull += (1.0 - p) * odds - p
            bend += (1.0 - p) * odds / rest
        step = min(-pull / bend, -0.5 * a)
        a += step
        if abs(step) < 1e-9:
            break
    return a
