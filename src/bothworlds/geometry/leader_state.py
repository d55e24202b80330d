r"""From round to round with a leader: what every policy of this family carries along and does in a round.

*Following the regularised leader* minimises all estimated losses plus the regulariser anew in every round, from the
last round's multipliers. *Mirror descent* takes one step from the last point and projects it back: the same problem,
with the step's own multipliers starting from zero and forgotten afterwards. Both then make the point exactly feasible
and ready to draw from, and both use that feasible point as their propensities.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..kernels import Floats, Ints, kernel, spliced_kernel
from .dual import Workspace, make_workspace
from .feasible import repair
from .newton import climb, solve
from .regularizers import slope
from .sampling import Urn, draw, make_urn, prepare

__all__ = ["Leading", "lead", "lead_afresh", "make_leading", "project", "ready", "reset", "show"]


class SolverEffort(NamedTuple):
    """What the solver did since the state was made."""

    steps: Ints  # (1,) Newton steps
    most_steps: Ints  # (1,) the most Newton steps in one round
    sweeps: Ints  # (1,) block-coordinate sweeps


class Leading(NamedTuple):
    """The point that is played, and what is needed to move it on."""

    marginals: Floats  # (n, m) of the next decision, exactly feasible
    lam: Floats  # (m,) multipliers of the columns, where the next solve starts
    mu: Floats  # (n,) multipliers of the rows
    tolerance: float
    effort: SolverEffort
    urn: Urn
    work: Workspace


def make_leading(n: int, m: int, tolerance: float) -> Leading:
    """A uniform start for n items at m positions; ``reset`` gives it the multipliers of a regulariser."""
    leading = Leading(
        marginals=np.full((n, m), 1.0 / n),
        lam=np.zeros(m),
        mu=np.zeros(n),
        tolerance=max(float(tolerance), 1e-13),  # below that there is only rounding
        effort=SolverEffort(*np.zeros((3, 1), np.int64)),
        urn=make_urn(n, m),
        work=make_workspace(n, m),
    )
    prepare(leading.marginals, leading.urn)
    return leading


@kernel
def reset(reg: Any, rate: float, leading: Leading) -> float:
    """Begin with uniform marginals; returns the z that belongs to them at this rate, the first multiplier."""
    n, m = leading.marginals.shape
    z = -slope(reg, 1.0 / n) / rate
    for i in range(n):
        leading.mu[i] = 0.0
        for j in range(m):
            leading.marginals[i, j] = 1.0 / n
    for j in range(m):
        leading.lam[j] = z
    return z


@spliced_kernel
def lead(reg: Any, loss: Floats, rate: Any, leading: Leading) -> None:
    """Move on to the leader for these losses, at one rate or at one for every pair."""
    w, effort = leading.work, leading.effort
    took = solve(reg, loss, rate, leading.lam, leading.mu, leading.tolerance, w)
    repair(w.x, w.row, leading.marginals, w.rhs, w.trial_mu)
    effort.steps[0] += took.steps
    effort.most_steps[0] = max(effort.most_steps[0], took.steps)
    effort.sweeps[0] += took.sweeps


@kernel
def lead_afresh(reg: Any, loss: Floats, rate: float, leading: Leading) -> None:
    """The leader for losses that have not been met before, from nothing, and ready to draw from."""
    w = leading.work
    climb(reg, loss, rate, leading.lam, leading.mu, leading.tolerance, w)
    repair(w.x, w.row, leading.marginals, w.rhs, w.trial_mu)
    prepare(leading.marginals, leading.urn)


@spliced_kernel
def project(reg: Any, potential: Floats, rate: float, share: float, mixing: float, leading: Leading) -> None:
    """Move on to the point of the polytope nearest to the one that a step has led to.

    ``potential`` (n, m) is that point as the z at which x(z) is it; it is replaced by the z of its projection. A
    ``share`` of the uniform point is then blended into the point itself, ``mixing`` of it into what is played only.
    """
    n, m = potential.shape
    x = leading.marginals
    leading.lam[:] = 0.0
    leading.mu[:] = 0.0
    lead(reg, potential, rate, leading)
    for i in range(n):
        for j in range(m):
            potential[i, j] = leading.work.z[i, j]
            if share > 0.0:
                x[i, j] = (1.0 - share) * x[i, j] + share / n
                potential[i, j] = -slope(reg, x[i, j]) / rate
            x[i, j] = (1.0 - mixing) * x[i, j] + mixing / n


@spliced_kernel
def ready(leading: Leading) -> None:
    """Get ready to draw from the point that has been moved: once a round, after ``reset``, ``lead`` or ``project``."""
    prepare(leading.marginals, leading.urn)


@spliced_kernel
def show(leading: Any, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    """Draw a list with the marginals of anything that has some and an urn for them; they are its propensities."""
    draw(leading.marginals, rng, leading.urn, ranking)
    for j in range(ranking.size):
        propensity[j] = leading.marginals[ranking[j], j]
