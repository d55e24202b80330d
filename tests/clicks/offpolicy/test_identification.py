"""Bounds against a linear programme, and against broken twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from bothworlds.clicks import Counts
from bothworlds.clicks.offpolicy import identification
from bothworlds.clicks.offpolicy.evaluation import Evaluator


def judge_of(seed, items=5, m=4):
    """A log of one query that shows few placements, so that there are several components."""
    rng = np.random.default_rng(seed)
    shown = np.where(rng.random((items, m)) < 0.3, rng.integers(200, 900, (items, m)), 0)
    shown[np.arange(items), rng.integers(m, size=items)] = 400
    shown[rng.integers(items, size=m), np.arange(m)] += 300
    rates = np.outer(rng.uniform(0.1, 0.6, items), np.sort(rng.uniform(0.2, 1.0, m))[::-1])
    clicked = np.clip(rng.binomial(shown, rates), np.minimum(shown, 1), np.maximum(shown - 1, 0))
    return Evaluator(Counts.from_tables(shown, clicked))


@pytest.mark.slow
@given(st.integers(0, 10**6))
def test_bounds_are_those_of_a_linear_programme(seed):
    judge = judge_of(seed)
    fit, (_, items, m, _) = judge.fit("pbm"), judge.logged.shape
    gauges, falling = identification._gauges(fit)
    groups = len(gauges.distance) - 1
    rows, limits = [], []

    def at_most(plus, minus, limit):
        row = np.zeros(groups + 1)
        row[plus] += 1.0
        row[minus] -= 1.0
        rows.append(row)
        limits.append(limit)

    for j in range(m):
        at_most(gauges.columns[j], groups, -gauges.b[j])
        for k in range(j + 1, m):
            if falling and gauges.columns[j] != gauges.columns[k]:
                at_most(gauges.columns[k], gauges.columns[j], gauges.b[j] - gauges.b[k])
    for i in range(items):
        at_most(groups, gauges.rows[i], -gauges.a[i])
    grid = np.array(list(np.ndindex(items, m)))
    is_open = ~fit.fitted.determined(grid[:, 0], grid[:, 1:])
    low, high, _ = identification._bounds(fit, grid[:, 0], grid[:, 1], is_open)
    for t in np.flatnonzero(is_open)[:6]:
        i, j = grid[t]
        goal = np.zeros(groups + 1)
        goal[gauges.columns[j]] += 1.0
        goal[gauges.rows[i]] -= 1.0
        ends = []
        for sign in (1.0, -1.0):
            found = linprog(sign * goal, np.array(rows), limits, bounds=[(-50.0, 50.0)] * groups + [(0.0, 0.0)])
            ends.append(np.exp(sign * found.fun + gauges.a[i] + gauges.b[j]))
        if ends[0] > 1e-12:
            assert low[t] == pytest.approx(ends[0], rel=1e-5)
        assert high[t] == pytest.approx(min(ends[1], 1.0), rel=1e-5)


def test_rising_examination_drops_the_constraint_and_says_so():
    """Positions 2 and 4 of one component lie above and below those of another in the wrong order."""
    shown = np.array([[500, 0, 500, 0], [0, 500, 0, 500]])
    clicked = np.array([[50, 0, 300, 0], [0, 300, 0, 50]])
    judge = Evaluator(Counts.from_tables(shown, clicked, items=["a", "b"]))
    assert identification._gauges(judge.fit("pbm"))[1] is False
    found = judge.evaluate(["b", "a", "c", "d"])
    assert any("the log contradicts it" in warning for warning in found.warnings)
    assert found.lower_bound < found.upper_bound
