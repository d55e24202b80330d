"""Judgements on a leader's result, made from the result alone: feasible, optimal, and honest about its gap.

None asks the solver anything. Each is shown to fail on a broken twin in ``test_leader_checks_can_fail.py``.
"""

from __future__ import annotations

import numpy as np

from tests.reference.leader import dual_value, objective
from tests.reference.regularizers import CURVATURE, marginal

EPS = np.finfo(float).eps


def check_feasible(x, tol=1e-12):
    """A point of the ranking polytope, to rounding."""
    assert np.isfinite(x).all(), "an entry is not finite"
    assert x.min() >= 0.0, f"an entry is negative: {x.min()}"
    off = np.abs(x.sum(axis=0) - 1.0).max()
    assert off <= tol, f"a column misses 1 by {off}"
    over = x.sum(axis=1).max() - 1.0
    assert over <= tol, f"a row exceeds 1 by {over}"


def check_optimality_conditions(result, loss, rate, regularizer, tol=1e-8):
    """The multipliers alone yield the marginals, full columns, rows within their limit, and mu only at full rows."""
    lam, mu = np.asarray(result.lam, np.longdouble), np.asarray(result.mu, np.longdouble)
    assert np.isfinite(lam).all(), "a column's multiplier is not finite"
    assert np.isfinite(mu).all(), "a row's multiplier is not finite"
    assert mu.min() >= 0.0, f"a row's multiplier is negative: {mu.min()}"
    z = loss + lam + mu[:, None]
    x = marginal(regularizer, -np.asarray(rate, np.longdouble) * z)
    tol = tol + blur(result, loss, rate)
    away = np.abs(result.marginals - x).max()
    assert away <= tol, f"the multipliers belong to marginals that differ by {away}"
    off = np.abs(x.sum(axis=0) - 1).max()
    assert off <= tol * len(x), f"a column misses 1 by {off}"
    rest = 1 - x.sum(axis=1)
    assert rest.min() >= -tol * x.shape[1], f"a row exceeds 1 by {-rest.min()}"
    # Complementary slackness in the units of the objective, relative to its scale.
    pressed = np.max(mu * np.maximum(rest, 0))
    assert pressed <= tol * scale(loss, rate) * x.shape[1], f"a row with room has a multiplier: {pressed}"


def check_gap_is_honest(result, loss, rate, regularizer, best):
    """The gap is no smaller than how far the objective is above that of another feasible point."""
    above = objective(result.marginals, loss, rate, regularizer) - objective(best, loss, rate, regularizer)
    # Both columns sum to 1 only up to rounding, and the losses may be large.
    allowed = result.gap + rounding(loss)
    assert above <= allowed, f"the objective is {above} above that of another point, the gap says {result.gap}"


def check_gap_is_small(result, loss, rate, factor=1e-8):
    """The gap, relative to the scale of the objective."""
    assert 0.0 <= result.gap <= factor * scale(loss, rate) + rounding(loss), f"the gap is {result.gap}"


def check_certificate(result, loss, rate, regularizer, factor=1e-8):
    """The dual value of the multipliers, computed from scratch, comes as near to the objective as the gap claims."""
    gap = own_gap(result, loss, rate, regularizer)
    assert gap <= result.gap + factor * scale(loss, rate) + rounding(loss), f"the gap is {gap}, claimed is {result.gap}"


def check_leader(result, loss, rate, regularizer, factor=1e-8):
    """All checks of a single result."""
    check_feasible(result.marginals)
    check_optimality_conditions(result, loss, rate, regularizer)
    check_gap_is_small(result, loss, rate, factor)
    check_certificate(result, loss, rate, regularizer, factor)


def own_gap(result, loss, rate, regularizer):
    """Objective minus dual value, in extended precision: an independent bound on the error."""
    value = objective(result.marginals, loss, rate, regularizer)
    return float(value - dual_value(result.lam, result.mu, loss, rate, regularizer))


def distance_bound(gap, rate, regularizer):
    """How far in the Euclidean norm a point with this gap can be from the optimum, by strong convexity."""
    return float(np.sqrt(2 * max(gap, 0.0) * np.max(rate) / CURVATURE[regularizer]))


def scale(loss, rate):
    """The order of magnitude of the objective: the spread of losses and the weight of the regulariser."""
    return float(np.ptp(loss, axis=0).max() + 1 / np.min(rate))


def rounding(loss):
    """What the rounding of m columns that sum to 1 and of their multipliers does to an objective with such losses."""
    return 64 * EPS * loss.shape[1] * float(np.abs(loss).max())


def blur(result, loss, rate):
    """What the rounding of losses and multipliers to double precision can do to the marginals."""
    largest = np.abs(loss).max() + np.abs(result.lam).max() + np.abs(result.mu).max()
    return 16 * EPS * float(largest * np.max(rate))
