r"""How much of which exploration is needed to be sure of the best list, at the least cost.

Items are sorted by attraction, the best list shows item l at position l. Showing pairs :math:`q_{ij}` times costs

.. math:: \min_q \; \sum_{ij} (\theta_j - \theta_i) \kappa_j q_{ij}

and must be enough to tell every alternative apart (``alternatives.py``): :math:`\sum_{i \ne j} q_{ij} kl_{ij} \ge 1`.
Lists have all their positions filled: columns of q sum to some s, rows to at most s. The best list itself is free, so s
may be as large as one likes, and what remains of these conditions is that an item of the list is shown at other
positions no more often than others take its own:

.. math:: \sum_{i \ne l} q_{il} \ge \sum_{j \ne l} q_{lj} \quad\text{for}\quad l \le m.

There are infinitely many alternatives; those that a solution violates most are added as cuts and the programme is
solved again. At the end q is scaled up so that all are satisfied: by as much the cost can be too high, relatively.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...kernels import Floats, Ints, inner_kernel, kernel
from .alternatives import Rival, fill_cut, load, make_rival
from .interior_point import closest
from .linear_program import Programme, add_row, drop_slack_rows, make_programme, optimize, pivot, read_solution, restart

__all__ = ["Planner", "make_planner", "plan"]


EXERTION = 1e-5  # the least price, relative to the highest


class Planner(NamedTuple):
    """Everything a plan writes to."""

    rival: Rival
    lp: Programme
    q: Floats  # (n, m) the plan
    row: Floats  # (n m,) costs, a cut or a solution
    effort: Ints  # (6,) plans, programmes solved, cuts, pivots; plans that rounding ended, and that could not be solved


def make_planner(n: int, m: int, most_cuts: int) -> Planner:
    """Allocate what a plan needs; ``most_cuts`` cuts are kept beside one for every alternative."""
    return Planner(
        rival=make_rival(n, m),
        lp=make_programme(n * m, m + n - 1 + most_cuts),
        q=np.zeros((n, m)),
        row=np.zeros(n * m),
        effort=np.zeros(6, np.int64),
    )


@kernel
def plan(p: Planner, tolerance: float, rounds: int) -> float:
    """Fill q for the logarithms in ``rival``; return by how much its cost can be too high, relative to the least.

    The last plan is where the search for alternatives starts.
    """
    n, m = p.q.shape
    p.effort[0] += 1
    begin(p)
    # At first there is a cut for every alternative, told apart or not: the last plan may well be too much.
    enough, worst = math.inf, 0.0
    for turn in range(rounds + 1):
        cutting = turn < rounds  # the last time q is only looked at
        load(p.rival, p.q)
        worst = min(enough, 1.0)
        if p.lp.size[0] + n > p.lp.table.shape[0]:
            drop_slack_rows(p.lp, m)
        for k in range(n - 1):
            value = closest(p.rival, k, enough)
            if value < enough:
                worst = min(worst, value)
                if cutting:
                    fill_cut(p.rival, k, p.row)
                    cutting = add_cut(p)
        if worst == enough or not cutting:
            break
        enough = 1.0 - tolerance
        pivots = optimize(p.lp, 50 * (n + m) + 1000)
        if pivots == 0:
            worst = 1.0  # what is missing is lost in rounding
        if pivots <= 0:
            p.effort[4 if pivots == 0 else 5] += 1
            break
        p.effort[1] += 1
        p.effort[3] += pivots
        read_solution(p.lp, p.row)
        for k in range(n * m):
            p.q[k // m, k % m] = p.row[k]
    scale = 1.0 / max(worst, 1e-3)  # a plan that is off by more than a thousandfold is no plan
    for i in range(n):
        for j in range(m):
            p.q[i, j] *= scale
    return scale - 1.0


@inner_kernel
def begin(p: Planner) -> None:
    """Costs and flows, with items shown one place too high in the basis: so no reduced cost is negative.

    What costs nothing, such as a swap of positions that are alike, is given a price all the same, or it might be asked
    for without end.
    """
    n, m = p.q.shape
    r = p.rival
    for k in range(n * m):
        i, j = k // m, k % m
        p.row[k] = (math.exp(r.log_theta[j]) - math.exp(r.log_theta[i])) * math.exp(r.log_kappa[j])
        if p.effort[0] <= 1:
            p.q[i, j] = 1.0
    restart(p.lp, p.row)
    for own in range(m):
        for k in range(n * m):
            i, j = k // m, k % m
            p.row[k] = 0.0 if i == j else (1.0 if j == own else (-1.0 if i == own else 0.0))
        add_row(p.lp, p.row, 0.0)
    for j in range(min(m, n - 1)):
        pivot(p.lp, j + 1, (j + 1) * m + j + 1)
    for k in range(1, n * m + 1):
        p.lp.table[0, k] += EXERTION * p.lp.scale[0]


@inner_kernel
def add_cut(p: Planner) -> bool:
    """Add ``row``, scaled to a largest entry of 1; False if there is no room."""
    largest = 0.0
    for k in range(p.row.size):
        largest = max(largest, p.row[k])
    for k in range(p.row.size):
        p.row[k] /= largest
    return add_row(p.lp, p.row, 1.0 / largest)
    p.effort[2] += 1
