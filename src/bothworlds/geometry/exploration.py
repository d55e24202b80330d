r"""How much of which exploration is needed to be sure of the best list, at the least cost.

Items are sorted by attraction, the best list shows item l at position l. Showing pairs :math:`q_{ij}` times costs

.. math:: \min_q \; \sum_{ij} (\theta_j - \theta_i) \kappa_j q_{ij}

and must be enough to tell every alternative apart (``alternatives.py``): :math:`\sum_{i \ne j} q_{ij} kl_{ij} \ge 1`.
Lists have all their positions filled: columns of q sum to some s, rows to at most s. The best list itself is free, so s
may be as large as one likes, and what remains of these conditions is that an item of the list is shown at other
positions no more often than others take its own:

.. math:: \sum_{i \ne l} q_{il} \ge \sum_{j \ne l} q_{lj} \quad\text{for}\quad l \le m.

There are infinitely many alternatives; those that a solution violates most are added as cuts and the programme is solved
again. At the end q is scaled up so that all are satisfied: by the relative amount by which the cost can be too high.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..kernels import Floats, Ints, inner_kernel, kernel
from .alternatives import Rival, fill_cut, load, make_rival
from .interior import closest
from .linear import Programme, add_row, drop_slack_rows, make_programme, optimize, pivot, read_solution, restart

__all__ = ["Planner", "make_planner", "plan"]


class Planner(NamedTuple):
    """Everything a plan writes to."""

    rival: Rival
    lp: Programme
    q: Floats  # (n, m) the plan
    costs: Floats  # (n m,)
    row: Floats  # (n m,) a cut
    effort: Ints  # (4,) plans, rounds of cuts, cuts, pivots, in all


def make_planner(n: int, m: int, most_cuts: int) -> Planner:
    """Allocate what a plan needs; ``most_cuts`` cuts are kept beside one for every alternative."""
    return Planner(
        rival=make_rival(n, m),
        lp=make_programme(n * m, m + n - 1 + most_cuts),
        q=np.zeros((n, m)),
        costs=np.zeros(n * m),
        row=np.zeros(n * m),
        effort=np.zeros(4, np.int64),
    )


@kernel
def plan(p: Planner, tolerance: float, rounds: int) -> float:
    """Fill q for the logarithms in ``rival``; return by how much its cost can be too high, relative to the least."""
    n, m = p.q.shape
    r = p.rival
    for j in range(m):
        r.log_shared[j] = r.log_theta[j] + r.log_kappa[j]
    p.effort[0] += 1
    begin(p)
    # The last plan is where the search for alternatives starts, enough or not: it may well be too much.
    cut_off(p, math.inf)
    worst = 0.0
    for s in range(rounds):
        pivots = optimize(p.lp, 50 * (n + m) + 1000)
        p.effort[3] += max(pivots, 0)
        if pivots < 0:
            break
        read(p)
        worst = cut_off(p, 1.0 - tolerance)
        p.effort[1] += 1
        if worst >= 1.0 - tolerance:
            break
    scale = 1.0 / max(min(worst, 1.0), 1e-3)
    for i in range(n):
        for j in range(m):
            p.q[i, j] *= scale
    return scale - 1.0


@inner_kernel
def begin(p: Planner) -> None:
    """Costs and flows, with the swaps of neighbours in the basis: their prices make all reduced costs non-negative."""
    n, m = p.q.shape
    r = p.rival
    for i in range(n):
        for j in range(m):
            p.costs[i * m + j] = (math.exp(r.log_theta[j]) - math.exp(r.log_theta[i])) * math.exp(r.log_kappa[j])
            if p.effort[0] <= 1:
                p.q[i, j] = 1.0
    restart(p.lp, p.costs)
    for l in range(m):
        for k in range(n * m):
            i, j = k // m, k % m
            p.row[k] = 0.0 if i == j else (1.0 if j == l else (-1.0 if i == l else 0.0))
        add_row(p.lp, p.row, 0.0)
    for l in range(min(m, n - 1)):
        pivot(p.lp, l + 1, (l + 1) * m + l + 1)


@inner_kernel
def read(p: Planner) -> None:
    n, m = p.q.shape
    read_solution(p.lp, p.row)
    for i in range(n):
        for j in range(m):
            p.q[i, j] = p.row[i * m + j]


@inner_kernel
def cut_off(p: Planner, enough: float) -> float:
    """Add a cut for every alternative whose divergence is not ``enough``; return the least divergence, or 1."""
    n, m = p.q.shape
    load(p.rival, p.q)
    worst = 1.0
    if p.lp.size[0] + n > p.lp.table.shape[0]:
        drop_slack_rows(p.lp, m)
    cut = p.row.reshape(n, m)
    for k in range(n - 1):
        value = closest(p.rival, k, enough)
        worst = min(worst, value)
        if value < enough:
            fill_cut(p.rival, k, cut)
            largest = 0.0
            for e in range(n * m):
                largest = max(largest, p.row[e])
            for e in range(n * m):
                p.row[e] /= largest
            add_row(p.lp, p.row, 1.0 / largest)
            p.effort[2] += 1
    return worst
