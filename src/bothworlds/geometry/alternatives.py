r"""What else could be true: the model in which another list is best, and which is hardest to tell from the present one.

Items are sorted by attraction :math:`\theta`, so that the best list shows item l at position l. While it is shown, an
alternative :math:`(\theta', \kappa')` with the same click rates there, :math:`\theta'_l \kappa'_l = \theta_l \kappa_l`,
looks the same; it is told apart by showing other pairs, :math:`q_{ij}` times each:

.. math:: \min_{\theta', \kappa'} \; \sum_{i \ne j} q_{ij} \, kl(\theta_i \kappa_j, \theta'_i \kappa'_j)

over :math:`1 = \kappa'_1 \ge \kappa'_2 \ge \ldots` and :math:`\theta' \le 1` in which another list is best. Between any
such model and the true one there is a point where two neighbours tie for the first time, :math:`\theta'_l =
\theta'_{l+1}` or :math:`\theta'_m = \theta'_i` with i > m, and by convexity it is no easier to tell apart. So there are
n - 1 problems, each convex in :math:`b = \log \kappa'` and :math:`a = \log \theta'`, since
:math:`kl(p, e^u)` is convex in u. Items that are on the list have :math:`a_l = \log(\theta_l \kappa_l) - b_l`; those that
are not have an a of their own, which is eliminated from every Newton step. The order of positions and :math:`\theta' \le
1` are inequalities between the b, kept by the interior point method of ``interior.py``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..kernels import Floats, Ints, inner_kernel, kernel

__all__ = ["Rival", "anchor", "divergence", "fill_cut", "is_free", "load", "make_rival", "place", "set_slack"]

NEAR = 1e-7  # weight of the squared distance from the truth: chooses where the divergence leaves a choice


class Rival(NamedTuple):
    """One alternative and the room to find it in. n items, m positions; constraints k < m order, k >= m limit b."""

    log_theta: Floats  # (n,) descending
    log_kappa: Floats  # (m,) descending from 0
    log_shared: Floats  # (m,) their sum: the click rates that all alternatives share
    head: Ints  # (n + 1,) where the cells of a row begin
    column: Ints  # (n m,) the cells with weight, row by row: their positions,
    weight: Floats  # (n m,) weights
    rate: Floats  # (n m,) and click probabilities p
    b: Floats  # (m,) log kappa'
    a: Floats  # (n,) log theta' of items that are not on the list
    slack: Floats  # (2 m,)
    lam: Floats  # (2 m,) multipliers
    variable: Ints  # (m,) which variable moves b, or -1
    gradient: Floats  # (m,)
    hessian: Floats  # (m, m)
    pull: Floats  # (n,) derivative in a, and
    bend: Floats  # (n,) second derivative
    curve: Floats  # (n m,) second derivative of every cell
    system: Floats  # (m, m)
    step: Floats  # (m,) of the variables
    step_b: Floats  # (m,)
    step_a: Floats  # (n,)
    step_slack: Floats  # (2 m,)
    step_lam: Floats  # (2 m,)


def make_rival(n: int, m: int) -> Rival:
    """Allocate the room to find alternatives in."""
    floats = {name: np.zeros(m) for name in ("log_kappa", "log_shared", "b", "gradient", "step", "step_b")}
    floats |= {name: np.zeros(n) for name in ("log_theta", "a", "pull", "bend", "step_a")}
    floats |= {name: np.zeros(2 * m) for name in ("slack", "lam", "step_slack", "step_lam")}
    floats |= {name: np.zeros(n * m) for name in ("weight", "rate", "curve")}
    floats |= {name: np.zeros((m, m)) for name in ("hessian", "system")}
    return Rival(
        head=np.zeros(n + 1, np.int64), column=np.zeros(n * m, np.int64), variable=np.zeros(m, np.int64), **floats
    )


@kernel
def load(r: Rival, q: Floats) -> None:
    """Take the pairs with a weight from q (n, m), except those of the best list, which tell nothing apart."""
    n, m = q.shape
    count = 0
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
def place(r: Rival, k: int) -> None:
    """Assign variables to positions for alternative k, and start well inside all constraints.

    Halfway between all positions alike and the decline of the shared click rates, except where two items tie: there
    kappa' falls as the shared click rates do.
    """
    m, shared = r.b.size, r.log_shared
    r.variable[0] = -1
    r.b[0] = 0.0
    free = 0
    for j in range(1, m):
        if j == k + 1:
            r.variable[j] = r.variable[j - 1]
            r.b[j] = r.b[j - 1] + (shared[j] - shared[j - 1])
        else:
            r.variable[j] = free
            r.b[j] = r.b[j - 1] + 0.5 * (shared[j] - shared[j - 1])
            free += 1
    for i in range(m, r.a.size):
        r.a[i] = 0.0
        for e in range(r.head[i], r.head[i + 1]):
            r.a[i] = min(r.a[i], math.log(r.rate[e]) - r.b[r.column[e]])


@inner_kernel
def set_slack(r: Rival) -> None:
    """How far b is inside its constraints; of those without a variable, one that never matters."""
    m = r.b.size
    for j in range(m):
        r.slack[j] = r.b[j] - r.b[j + 1] if j < m - 1 and r.variable[j] != r.variable[j + 1] else math.inf
        r.slack[m + j] = r.b[j] - r.log_shared[j] if r.variable[j] >= 0 else math.inf


@inner_kernel
def anchor(r: Rival, i: int, k: int) -> int:
    """The position whose b fixes theta' of item i: its own, the last for the challenger, -1 if there is none."""
    m = r.b.size
    return i if i < m else (m - 1 if i == k + 1 else -1)


@inner_kernel
def is_free(r: Rival, i: int, k: int) -> bool:
    """Whether item i has an a of its own that matters; one that is shown at a single position adapts to it."""
    return anchor(r, i, k) < 0 and r.head[i + 1] - r.head[i] > 1


@inner_kernel
def divergence(r: Rival, k: int) -> float:
    """The divergence at (a, b), with gradient and Hessian in b, and in every a; infinite outside the domain."""
    m = r.b.size
    total = 0.0
    for j in range(m):
        r.gradient[j] = NEAR * (r.b[j] - r.log_kappa[j])
        for l in range(m):
            r.hessian[j, l] = 0.0
        r.hessian[j, j] = NEAR
    for i in range(r.a.size):
        at = anchor(r, i, k)
        if at >= 0 or is_free(r, i, k):
            total += row_divergence(r, i, r.a[i] if at < 0 else r.log_shared[at] - r.b[at])
        if at >= 0:
            tie_to(r, i, at)
    return total


@inner_kernel
def row_divergence(r: Rival, i: int, a: float) -> float:
    total, pull, bend = 0.0, 0.0, 0.0
    for e in range(r.head[i], r.head[i + 1]):
        j, p, w = r.column[e], r.rate[e], r.weight[e]
        u = a + r.b[j]
        if not u < 0.0:
            return math.inf
        rest = -math.expm1(u)
        odds = (1.0 - rest) / rest
        total += w * (p * (math.log(p) - u) + (1.0 - p) * (math.log1p(-p) - math.log(rest)))
        slope, curve = w * ((1.0 - p) * odds - p), w * (1.0 - p) * odds / rest
        pull += slope
        bend += curve
        r.gradient[j] += slope
        r.hessian[j, j] += curve
        r.curve[e] = curve
    r.pull[i], r.bend[i] = pull, bend
    return total


@inner_kernel
def tie_to(r: Rival, i: int, at: int) -> None:
    """What a row adds where its a is a constant minus b[at]."""
    r.gradient[at] -= r.pull[i]
    r.hessian[at, at] += r.bend[i]
    for e in range(r.head[i], r.head[i + 1]):
        r.hessian[r.column[e], at] -= r.curve[e]
        r.hessian[at, r.column[e]] -= r.curve[e]


@kernel
def fill_cut(r: Rival, k: int, cut: Floats) -> None:
    """The divergence of every pair (n, m) in the alternative found last.

    An item that has no weight anywhere is given the attraction that fits it best at all positions alike.
    """
    n, m = cut.shape
    for i in range(n):
        at = anchor(r, i, k)
        cells = r.head[i + 1] - r.head[i]
        a = r.log_shared[at] - r.b[at] if at >= 0 else r.a[i]
        if at < 0 and cells == 1:
            a = math.log(r.rate[r.head[i]]) - r.b[r.column[r.head[i]]]
        elif at < 0 and cells == 0:
            a = best_fit(r, i)
        for j in range(m):
            p, u = math.exp(r.log_theta[i] + r.log_kappa[j]), min(a + r.b[j], -1e-15)
            gap = p * (r.log_theta[i] + r.log_kappa[j] - u) + (1.0 - p) * (math.log1p(-p) - math.log(-math.expm1(u)))
            cut[i, j] = max(gap, 0.0) if i != j else 0.0


@inner_kernel
def best_fit(r: Rival, i: int) -> float:
    """The a that minimises the divergence of row i with equal weights, by Newton from the left, where it is convex."""
    m, a = r.b.size, 0.0
    for j in range(m):
        a = min(a, r.log_theta[i] + r.log_kappa[j] - r.b[j])
    for _ in range(20):
        pull, bend = 0.0, 0.0
        for j in range(m):
            p, rest = math.exp(r.log_theta[i] + r.log_kappa[j]), -math.expm1(a + r.b[j])
            odds = (1.0 - rest) / rest
            pull += (1.0 - p) * odds - p
            bend += (1.0 - p) * odds / rest
        step = min(-pull / bend, -0.5 * a)
        a += step
        if abs(step) < 1e-9:
            break
    return a
