"""Linear programmes with added rows, against HiGHS, with a certificate: feasible, dual feasible, no gap."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from bothworlds.policies.pmed.linear_program import (
    add_row,
    drop_slack_rows,
    make_linear_program,
    optimize,
    pivot,
    read_solution,
    restart,
)
from tests.cases import case


def solved(costs, rows, bounds, *, room=0, drop=False, first=0):
    """Add row after row, with an optimum in between; q, the objective and the programme."""
    lp = make_linear_program(len(costs), room or len(rows))
    restart(lp, np.array(costs, float))
    for row, bound in zip(rows, bounds):
        if drop and lp.n_rows[0] + 1 >= lp.table.shape[0]:
            drop_slack_rows(lp, first)
        assert add_row(lp, np.array(row, float), float(bound))
        if optimize(lp, 10_000) < 0:
            return None, None, lp
    q = np.empty(len(costs))
    return q, read_solution(lp, q), lp


def multipliers(lp, rows):
    """Of the rows, from the reduced costs of their slacks."""
    y = np.zeros(rows)
    for column, variable in enumerate(lp.outside[1:], start=1):
        if variable >= lp.place.size:
            y[variable - lp.place.size] = lp.table[0, column]
    return y


def random_programme(seed, degenerate):
    rng = np.random.default_rng(seed)
    variables, rows = rng.integers(1, 12), rng.integers(1, 15)
    if degenerate:  # small whole numbers: ties in every ratio, repeated rows, costs of zero
        costs, a = rng.integers(0, 3, variables), rng.integers(-1, 3, (rows, variables))
        a[rng.random(rows) < 0.3] = a[0]
        return costs.astype(float), a.astype(float), rng.integers(0, 3, rows).astype(float)
    return rng.random(variables), rng.normal(size=(rows, variables)) + 0.3, 10.0 ** rng.uniform(-2, 4, rows)


@pytest.mark.parametrize("degenerate", [False, True])
def test_the_optimum_is_that_of_highs_and_certified(degenerate):
    for seed in range(60):
        with case(seed=seed):
            check_optimum(seed, degenerate)


def check_optimum(seed, degenerate):
    costs, a, b = random_programme(seed, degenerate)
    q, value, lp = solved(costs, a, b)
    twin = linprog(costs, -a, -b, method="highs")
    assert (q is None) == (twin.status == 2)
    if q is None:
        return
    scale = max(1.0, b.max())
    assert value == pytest.approx(twin.fun, rel=1e-7, abs=1e-9 * scale)
    assert costs @ q == pytest.approx(value, rel=1e-7, abs=1e-9 * scale)
    assert (a @ q >= b - 1e-6 * np.abs(b) - 1e-9 * scale).all()
    y = multipliers(lp, len(b))
    assert y.min() >= 0.0
    assert (costs - a.T @ y).min() >= -1e-8
    assert b @ y == pytest.approx(value, rel=1e-7, abs=1e-8 * scale)


@pytest.mark.parametrize("seed", range(20))
def test_rows_that_do_not_bind_can_be_dropped(seed):
    rng = np.random.default_rng(seed)
    costs, a, b = rng.random(4) + 0.1, rng.random((40, 4)), np.ones(40)
    for _ in range(4):  # what was dropped may bind again later: the rows come round once more
        a, b = np.concatenate([a, a[:40]]), np.concatenate([b, b[:40]])
    _, value, lp = solved(costs, a, b, room=12, drop=True)
    assert lp.n_rows[0] <= 12
    assert value == pytest.approx(linprog(costs, -a, -b).fun, rel=1e-6)


def test_a_row_without_room_is_refused():
    lp = make_linear_program(2, 1)
    restart(lp, np.ones(2))
    assert add_row(lp, np.ones(2), 1.0)
    assert not add_row(lp, np.ones(2), 1.0)


def test_what_cannot_be_is_said():
    assert solved([1.0], [[-1.0]], [1.0])[0] is None


def test_negative_costs_need_a_pivot_first():
    """min y - x / 2 with y >= x: x is paid for by y, once it is expressed by it."""
    lp = make_linear_program(2, 3)
    restart(lp, np.array([-0.5, 1.0]))
    add_row(lp, np.array([-1.0, 1.0]), 0.0)
    pivot(lp, 1, 2)
    assert lp.table[0, 1:].min() >= 0.0
    add_row(lp, np.array([1.0, 0.0]), 3.0)
    assert optimize(lp, 10) == 1
    q = np.empty(2)
    assert read_solution(lp, q) == pytest.approx(1.5)
    assert q == pytest.approx([3.0, 3.0])
