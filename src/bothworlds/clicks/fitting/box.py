"""Maxima of smooth functions of probabilities, in the unit box, by first derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ...kernels import Floats

INSIDE = 1e-12  # derivatives are taken at least so far from 0 and 1
SNAP = 1e-9  # a value as near to 0 or 1 is at the bound
ROUNDS = 6
SMALL = 1e-8  # predicted gain, in nats, at which the last round ends
ENOUGH = 1e-3  # predicted gain of a fit that has converged

Objective = Callable[[Floats], tuple[float, Floats]]  # value and derivatives


class Maximum(NamedTuple):
    """A point, and how far it is from the maximum."""

    x: Floats
    value: float
    steps: int
    converged: bool
    gain: float  # half the squared derivatives in standard errors: what a Newton step gains if curvature is binomial
    starts: tuple[float, ...] = ()  # the values that all starts reached


def maximise(
    objective: Objective, start: Floats, trials: Floats, fixed: NDArray[np.bool_], rounds: int = ROUNDS
) -> Maximum:
    """Return the maximum over all variables that are not fixed, by L-BFGS.

    Variables are scaled by the standard deviation of a binomial rate of ``trials``, so that their curvatures are alike;
    every round scales anew.
    """
    x, free, steps, gain = start.copy(), ~fixed, 0, np.inf
    for _ in range(rounds):
        scale = np.sqrt(np.maximum(x * (1.0 - x), 1e-6) / trials)

        def negated(y: Floats, x: Floats = x, scale: Floats = scale) -> tuple[float, Floats]:
            value, slope = objective(_inside(_placed(x, free, y * scale[free]), free))
            return -value, -(slope * scale)[free]

        found = minimize(
            negated, x[free] / scale[free], jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0 / s) for s in scale[free]],
            options={"maxiter": 3_000, "maxfun": 6_000, "ftol": 0.0, "gtol": 2e-5, "maxcor": 20},
        )  # fmt: skip
        x, steps = _placed(x, free, found.x * scale[free]), steps + int(found.nit)
        x = np.where(x < SNAP, 0.0, np.where(x > 1.0 - SNAP, 1.0, x))
        value, slope = objective(_inside(x, free))
        held = fixed | ((x <= 0.0) & (slope <= 0.0)) | ((x >= 1.0) & (slope >= 0.0))
        gain = 0.5 * float(((slope * scale)[~held] ** 2).sum())
        if gain < SMALL:
            break
    return Maximum(x, value, steps, gain < ENOUGH, gain)


def best_of(climb: Callable[[Floats], Maximum], starts: Iterable[Floats]) -> Maximum:
    """Return the highest maximum that ``climb`` reaches from some starts."""
    reached = [climb(start) for start in starts]
    return max(reached, key=lambda one: one.value)._replace(starts=tuple(one.value for one in reached))


def _placed(x: Floats, free: NDArray[np.bool_], values: Floats) -> Floats:
    moved = x.copy()
    moved[free] = values
    return moved


def _inside(x: Floats, free: NDArray[np.bool_]) -> Floats:
    return np.where(free, np.clip(x, INSIDE, 1.0 - INSIDE), x)
