r"""The cheapest exploration that distinguishes the fitted model from every model with another best list.

Items are sorted by attraction, the best list shows item l at position l. Showing pairs :math:`q_{ij}` times costs

.. math:: \min_q \; \sum_{ij} (\theta_j - \theta_i) \kappa_j q_{ij}

and must distinguish every alternative (``alternatives.py``): :math:`\sum_{i \ne j} q_{ij} kl_{ij} \ge 1`.
Every position of a list is filled: columns of q sum to some s, rows to at most s. The best list itself costs nothing,
so s may be arbitrarily large, and the remaining condition is that an item of the best list is shown at other positions
no more often than other items are shown at its own:

.. math:: \sum_{i \ne l} q_{il} \ge \sum_{j \ne l} q_{lj} \quad\text{for}\quad l \le m.

There are infinitely many alternatives; those that a solution violates most are added as cuts, and the linear programme
is solved again. At the end q is scaled up to satisfy all constraints. The scale bounds the relative excess cost.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...kernels import Floats, inner_kernel, kernel
from .alternatives import Alternative, fill_cut, load_weights, make_alternative
from .interior_point import closest_alternative
from .linear_program import (
    LinearProgram,
    add_row,
    drop_slack_rows,
    make_linear_program,
    optimize,
    pivot,
    read_solution,
    restart,
)

LEAST_COST = 1e-5  # relative to the largest cost


class Planner(NamedTuple):
    """The problem, the plan and all work arrays."""

    alternative: Alternative
    lp: LinearProgram
    q: Floats  # (n, m) the plan
    row: Floats  # (n m,) costs, a cut or a solution


def make_planner(n: int, m: int, most_cuts: int) -> Planner:
    """Allocate a planner that holds one cut for every alternative and ``most_cuts`` more."""
    return Planner(
        alternative=make_alternative(n, m),
        lp=make_linear_program(n * m, m + n - 1 + most_cuts),
        q=np.ones((n, m)),
        row=np.zeros(n * m),
    )


@kernel
def plan(p: Planner, tolerance: float, rounds: int) -> float:
    """Fill q for the model in ``alternative``; return a bound on its excess cost, relative to the least cost.

    The search for cuts starts from the previous plan.
    """
    n, m = p.q.shape
    set_up_program(p)
    # The first pass adds a cut for every alternative, violated or not: the previous plan may explore too much.
    enough, worst = math.inf, 0.0
    for turn in range(rounds + 1):
        cutting = turn < rounds  # the last pass only evaluates q
        load_weights(p.alternative, p.q)
        worst = min(enough, 1.0)
        if p.lp.n_rows[0] + n > p.lp.table.shape[0]:
            drop_slack_rows(p.lp, m)
        for k in range(n - 1):
            value = closest_alternative(p.alternative, k, enough)
            if value < enough:
                worst = min(worst, value)
                if cutting:
                    fill_cut(p.alternative, k, p.row)
                    cutting = add_cut(p)
        if worst == enough or not cutting:
            break
        enough = 1.0 - tolerance
        pivots = optimize(p.lp, 50 * (n + m) + 1000)
        if pivots == 0:
            worst = 1.0  # the violation is below the accuracy of the solver
        if pivots <= 0:
            break
        read_solution(p.lp, p.row)
        for k in range(n * m):
            p.q[k // m, k % m] = p.row[k]
    scale = 1.0 / max(worst, 1e-3)  # limits the scale where the plan is far from feasible
    for i in range(n):
        for j in range(m):
            p.q[i, j] *= scale
    return scale - 1.0


@inner_kernel
def set_up_program(p: Planner) -> None:
    """Set the costs and the flow constraints, with items shown one position too high in the basis.

    In that basis no reduced cost is negative. Pairs that cost nothing, such as a swap of positions with equal
    examination, get a small cost, without which their number would be unbounded.
    """
    n, m = p.q.shape
    r = p.alternative
    for k in range(n * m):
        i, j = k // m, k % m
        p.row[k] = (math.exp(r.log_theta[j]) - math.exp(r.log_theta[i])) * math.exp(r.log_kappa[j])
    restart(p.lp, p.row)
    for own in range(m):
        for k in range(n * m):
            i, j = k // m, k % m
            p.row[k] = 0.0 if i == j else (1.0 if j == own else (-1.0 if i == own else 0.0))
        add_row(p.lp, p.row, 0.0)
    for j in range(min(m, n - 1)):
        pivot(p.lp, j + 1, (j + 1) * m + j + 1)
    for k in range(1, n * m + 1):
        p.lp.table[0, k] += LEAST_COST * p.lp.largest_cost[0]


@inner_kernel
def add_cut(p: Planner) -> bool:
    """Add ``row`` as a constraint, scaled to a largest entry of 1; returns False if the table is full."""
    largest = 0.0
    for k in range(p.row.size):
        largest = max(largest, p.row[k])
    for k in range(p.row.size):
        p.row[k] /= largest
    return add_row(p.lp, p.row, 1.0 / largest)
