r"""The dual simplex method for small dense linear programmes to which cuts are added one by one.

.. math:: \min_q \; c \cdot q \quad\text{with}\quad A q \ge b,\ q \ge 0

A *dictionary* expresses the objective and the variables that are in the basis by those that are not,

.. math:: z = z_0 + \sum_k d_k x_k, \qquad x_r = v_r + \sum_k D_{rk} x_k,

where the slack of every row is a variable too. As long as all :math:`d \ge 0` the objective is a lower
bound, and the dual simplex method raises it, taking variables with a negative value out of the basis until none is
left. A new row enters with its slack in the basis, which changes no :math:`d`, so the method continues from the last
optimum. A row whose slack is in the basis does not bind and can be dropped.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...kernels import Floats, Ints, inner_kernel, kernel

SMALLEST_PIVOT = 1e-9
ROUNDING = 1e-13  # variables this far below zero, relative to the largest bound, are zero
SLACK_TOLERANCE = 1e-7  # slacks this far below zero, relative to their own bound, are zero
HARRIS = 1e-11  # reduced costs may fall this far below zero, relative to the costs, to allow a larger pivot


class LinearProgram(NamedTuple):
    """A dictionary: row 0 is the objective, column 0 the values; variables from ``c.size`` on are slacks."""

    table: Floats  # (most rows + 1, variables + 1)
    allowed: Floats  # (most rows + variables + 2,) how far below zero a row's variable, then a column's, may be
    largest_cost: Floats  # (1,) in absolute value
    largest_bound: Floats  # (1,) in absolute value
    basis: Ints  # (most rows + 1,) the variable of every row; entry 0 is not used
    outside: Ints  # (variables + 1,) the variable of every column; entry 0 is not used
    place: Ints  # (variables,) the row of a variable, or minus its column
    n_rows: Ints  # (1,) rows in the table
    n_added: Ints  # (1,) rows ever added, including dropped ones


def make_linear_program(variables: int, most_rows: int) -> LinearProgram:
    """Allocate a linear programme."""
    rows, columns = most_rows + 1, variables + 1
    indices = (np.zeros(size, np.int64) for size in (rows, columns, variables, 1, 1))
    return LinearProgram(np.zeros((rows, columns)), np.zeros(rows + columns), *np.zeros((2, 1)), *indices)


@kernel
def restart(lp: LinearProgram, costs: Floats) -> None:
    """Remove all rows and set the costs; before ``optimize`` all reduced costs must be made non-negative."""
    lp.n_rows[0] = lp.n_added[0] = 0
    lp.largest_cost[0] = lp.largest_bound[0] = 0.0
    lp.table[0, 0] = 0.0
    for k in range(costs.size):
        lp.table[0, k + 1] = costs[k]
        lp.outside[k + 1] = k
        lp.allowed[lp.basis.size + k + 1] = 0.0
        lp.place[k] = -(k + 1)
        lp.largest_cost[0] = max(lp.largest_cost[0], abs(costs[k]))


@kernel
def add_row(lp: LinearProgram, coefficients: Floats, bound: float) -> bool:
    """Add the constraint ``coefficients . q >= bound``; returns False if the table is full."""
    r = lp.n_rows[0] + 1
    if r >= lp.table.shape[0]:
        return False
    table, columns = lp.table, lp.table.shape[1]
    for c in range(columns):
        table[r, c] = 0.0
    table[r, 0] = -bound
    for k in range(coefficients.size):
        if coefficients[k] == 0.0:
            continue
        at = lp.place[k]
        if at < 0:
            table[r, -at] += coefficients[k]
        else:
            for c in range(columns):
                table[r, c] += coefficients[k] * table[at, c]
    lp.basis[r] = coefficients.size + lp.n_added[0]
    lp.allowed[r] = SLACK_TOLERANCE * abs(bound)
    lp.n_rows[0] = r
    lp.n_added[0] += 1
    lp.largest_bound[0] = max(lp.largest_bound[0], abs(bound))
    return True


@kernel
def pivot(lp: LinearProgram, r: int, c: int) -> None:
    """Exchange the variable of row r with that of column c."""
    table, columns, variables = lp.table, lp.table.shape[1], lp.place.size
    inverse = 1.0 / table[r, c]
    for k in range(columns):
        table[r, k] *= -inverse
    table[r, c] = inverse
    for i in range(lp.n_rows[0] + 1):
        weight = table[i, c]
        if i != r and weight != 0.0:
            table[i, c] = 0.0
            for k in range(columns):
                table[i, k] += weight * table[r, k]
    column = lp.basis.size + c
    lp.basis[r], lp.outside[c] = lp.outside[c], lp.basis[r]
    lp.allowed[r], lp.allowed[column] = lp.allowed[column], lp.allowed[r]
    if lp.basis[r] < variables:
        lp.place[lp.basis[r]] = r
    if lp.outside[c] < variables:
        lp.place[lp.outside[c]] = -c


@kernel
def optimize(lp: LinearProgram, most_pivots: int) -> int:
    """Raise the objective until no variable is negative; return the number of pivots, or -1 if there is no solution.

    Also returns -1 after ``most_pivots``. Of the columns that keep the reduced costs non-negative up to rounding, the
    one with the largest pivot enters (Harris), which keeps the table accurate and steps of length zero rare.
    """
    for step in range(most_pivots):
        r = leaving_row(lp)
        if r == 0:
            return step
        c = entering_column(lp, r)
        if c == 0:
            return -1
        pivot(lp, r, c)
        for k in range(1, lp.table.shape[1]):
            lp.table[0, k] = max(lp.table[0, k], 0.0)
    return -1


@inner_kernel
def leaving_row(lp: LinearProgram) -> int:
    """Return the row whose variable is furthest below zero; 0 if there is none."""
    worst, row = 0.0, 0
    for r in range(1, lp.n_rows[0] + 1):
        value = lp.table[r, 0]
        if value < worst and value < -max(lp.allowed[r], ROUNDING * lp.largest_bound[0]):
            worst, row = value, r
    return row


@inner_kernel
def entering_column(lp: LinearProgram, r: int) -> int:
    """Return the column that replaces row r in the basis; 0 if there is none."""
    table, columns = lp.table, lp.table.shape[1]
    largest = 0.0
    for c in range(1, columns):
        largest = max(largest, table[r, c])
    least = SMALLEST_PIVOT * largest
    slack, limit = HARRIS * lp.largest_cost[0], math.inf
    for c in range(1, columns):
        if table[r, c] > least:
            limit = min(limit, (table[0, c] + slack) / table[r, c])
    best, column = 0.0, 0
    for c in range(1, columns):
        if table[r, c] > max(least, best) and table[0, c] <= limit * table[r, c]:
            best, column = table[r, c], c
    return column


@kernel
def drop_slack_rows(lp: LinearProgram, first: int) -> None:
    """Remove the rows that do not bind, except the ``first`` rows that were added."""
    columns, keep = lp.table.shape[1], lp.place.size + first
    for r in range(lp.n_rows[0], 0, -1):
        if lp.basis[r] >= keep:
            last = lp.n_rows[0]
            for c in range(columns):
                lp.table[r, c] = lp.table[last, c]
            lp.basis[r] = lp.basis[last]
            lp.allowed[r] = lp.allowed[last]
            if lp.basis[r] < lp.place.size:
                lp.place[lp.basis[r]] = r
            lp.n_rows[0] -= 1


@kernel
def read_solution(lp: LinearProgram, q: Floats) -> float:
    """Fill in the variables; return the objective."""
    for k in range(q.size):
        at = lp.place[k]
        q[k] = max(lp.table[at, 0], 0.0) if at > 0 else 0.0
    return lp.table[0, 0]
