"""The leader of one problem with its certificate: solve, polish, repair, and bound the error."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..kernels import Floats, Ints, inner_kernel, kernel
from .dual import Workspace, rate_at
from .feasible import certified_gap, repair
from .newton import polish, solve

EPS = float(np.finfo(float).eps)
GAP = 1e-10  # largest relative gap at which the result of a warm start is accepted
MAX_RESTARTS = 6  # solves from the last multipliers
POLISH = 2  # Newton steps beyond the tolerance: they are cheap and reduce the gap to rounding


class Solutions(NamedTuple):
    """The results of a stack of b problems of one shape, with their certificates."""

    marginals: Floats  # (b, n, m) feasible to rounding
    lam: Floats  # (b, m) multipliers of columns
    mu: Floats  # (b, n) multipliers of rows
    gap: Floats  # (b,) bound on the error of the objective, infinite if the tolerance was not reached
    violation: Floats  # (b,) largest violation of the optimality conditions before the repair
    steps: Ints  # (b,) Newton steps
    sweeps: Ints  # (b,) block-coordinate sweeps


def make_solutions(b: int, n: int, m: int) -> Solutions:
    """Allocate the results of b problems of shape (n, m)."""
    counts = np.zeros((2, b), np.int64)
    return Solutions(np.empty((b, n, m)), np.zeros((b, m)), np.zeros((b, n)), *np.full((2, b), np.inf), *counts)


@kernel
def solve_certified(
    reg: Any,
    losses: Floats,
    rates: Floats,
    tol: float,
    warm: bool,
    start: int,
    stop: int,
    order: Ints,
    w: Workspace,
    out: Solutions,
) -> None:
    """Solve the problems from ``start`` to ``stop`` of a stack, one after the other, and fill in their results.

    ``losses`` is (b, n, m), ``rates`` (b,) or (b, n, m), ``order`` 0 to n - 1. With ``warm``, the solver starts from
    the multipliers in ``out``; otherwise, and if that result is inaccurate, from nothing.
    """
    for k in range(start, stop):
        steps, sweeps, violation, gap = certified(
            reg, losses[k], order, rates[k], out.lam[k], out.mu[k], tol, warm, w, out.marginals[k]
        )
        out.steps[k], out.sweeps[k], out.violation[k], out.gap[k] = steps, sweeps, violation, gap


@inner_kernel
def certified(
    reg: Any,
    loss: Floats,
    order: Ints,
    rate: Any,
    lam: Floats,
    mu: Floats,
    tol: float,
    warm: bool,
    w: Workspace,
    marginals: Floats,
) -> tuple[int, int, float, float]:
    """Solve one problem; returns Newton steps, sweeps, violation and gap."""
    steps, sweeps, restarts = 0, 0, 0
    resume, fresh = warm, not warm
    while True:
        effort = solve(reg, loss, order, rate, lam, mu, tol, resume, w)
        steps += effort.steps
        sweeps += effort.sweeps
        normalise(lam, mu, w)
        if effort.violation <= tol:
            # After many steps from a distant start, rounding makes z and the multipliers differ. Solving again from
            # these multipliers takes few steps, after which it does not.
            if drift(loss, lam, mu, w.z) > 16.0 * EPS * magnitude(loss, lam, mu):
                resume = True
                restarts += 1
                if restarts <= MAX_RESTARTS:
                    continue
            else:
                for _ in range(POLISH):
                    if not polish(reg, rate, lam, mu, w):
                        break
                    steps += 1
                gap = finish(reg, loss, rate, lam, mu, w, marginals)
                if gap < math.inf and (fresh or gap <= acceptable_gap(loss, rate)):
                    return steps, sweeps, effort.violation, gap
        if fresh:
            break
        # The start is so far away that the multipliers or the certificate are inaccurate.
        resume, fresh, restarts = False, True, 0
    return steps, sweeps, math.inf if effort.violation <= tol else effort.violation, math.inf


@inner_kernel
def acceptable_gap(loss: Floats, rate: Any) -> float:
    """Return the largest gap at which the result of a warm start is accepted."""
    n, m = loss.shape
    spread, slowest = 0.0, math.inf
    for j in range(m):
        low, high = math.inf, -math.inf
        for i in range(n):
            low, high = min(low, loss[i, j]), max(high, loss[i, j])
            slowest = min(slowest, rate_at(rate, i, j))
        spread = max(spread, high - low)
    return m * (GAP * (spread + 1.0 / slowest) + 256.0 * EPS * largest(loss))


@inner_kernel
def finish(reg: Any, loss: Floats, rate: Any, lam: Floats, mu: Floats, w: Workspace, marginals: Floats) -> float:
    """Make the solution feasible and return its gap, with what rounding can add to it.

    The solver's z is that of slightly different losses.
    """
    normalise(lam, mu, w)
    repair(w.x, w.copies, w.row, marginals, w.rhs, w.trial_mu)
    rounding = drift(loss, lam, mu, w.z) + 4.0 * EPS * magnitude(loss, lam, mu)
    return certified_gap(reg, rate, mu, marginals, w) + 2.0 * loss.shape[1] * rounding


@inner_kernel
def normalise(lam: Floats, mu: Floats, w: Workspace) -> None:
    """Make the smallest mu 0 if there are as many positions as items: rows and columns then share a free constant."""
    if w.least_mu < 0.0:
        shift = math.inf
        for i in range(mu.size):
            shift = min(shift, mu[i])
        for i in range(mu.size):
            mu[i] -= shift
        for j in range(lam.size):
            lam[j] += shift


@inner_kernel
def drift(loss: Floats, lam: Floats, mu: Floats, z: Floats) -> float:
    """Return the largest difference between the solver's z and the z of its multipliers."""
    n, m = loss.shape
    worst = 0.0
    for i in range(n):
        for j in range(m):
            worst = max(worst, abs(z[i, j] - (loss[i, j] + lam[j] + mu[i])))
    return worst


@inner_kernel
def magnitude(loss: Floats, lam: Floats, mu: Floats) -> float:
    """Return the size of the terms of z, on which its rounding errors depend."""
    most_lam, most_mu = 0.0, 0.0
    for j in range(lam.size):
        most_lam = max(most_lam, abs(lam[j]))
    for i in range(mu.size):
        most_mu = max(most_mu, abs(mu[i]))
    return largest(loss) + most_lam + most_mu


@inner_kernel
def largest(loss: Floats) -> float:
    """Return the largest absolute loss."""
    n, m = loss.shape
    most = 0.0
    for i in range(n):
        for j in range(m):
            most = max(most, abs(loss[i, j]))
    return most
