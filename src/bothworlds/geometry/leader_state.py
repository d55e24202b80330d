r"""The state that policies with a regularised leader share, and their update in every round.

*Follow the regularised leader* minimises the sum of all estimated losses plus the regulariser in every round, starting
from the multipliers of the last round. *Mirror descent* takes one step from the last point and projects it to the
polytope: the same problem, whose multipliers start from zero and are not kept. Both then make the point feasible
and prepare it for sampling; the feasible point gives the propensities.
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
    """The marginals of the next decision, and what the next update needs."""

    marginals: Floats  # (n, m) exactly feasible
    lam: Floats  # (m,) multipliers of the columns; the next solve starts from them
    mu: Floats  # (n,) multipliers of the rows
    tolerance: float
    effort: SolverEffort
    urn: Urn
    work: Workspace


def make_leading(n: int, m: int, tolerance: float) -> Leading:
    """Return uniform marginals for n items at m positions; ``reset`` sets the multipliers of a regulariser."""
    leading = Leading(
        marginals=np.full((n, m), 1.0 / n),
        lam=np.zeros(m),
        mu=np.zeros(n),
        tolerance=max(float(tolerance), 1e-13),  # less is lost in rounding
        effort=SolverEffort(*np.zeros((3, 1), np.int64)),
        urn=make_urn(n, m),
        work=make_workspace(n, m),
    )
    prepare(leading.marginals, leading.urn)
    return leading


@kernel
def reset(reg: Any, rate: float, leading: Leading) -> float:
    """Set uniform marginals and their multipliers at this rate; returns the z of these marginals."""
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
    """Compute the leader for these losses; ``rate`` is a number or an array (n, m)."""
    w, effort = leading.work, leading.effort
    took = solve(reg, loss, rate, leading.lam, leading.mu, leading.tolerance, w)
    repair(w.x, w.row, leading.marginals, w.rhs, w.trial_mu)
    effort.steps[0] += took.steps
    effort.most_steps[0] = max(effort.most_steps[0], took.steps)
    effort.sweeps[0] += took.sweeps


@kernel
def lead_afresh(reg: Any, loss: Floats, rate: float, leading: Leading) -> None:
    """Compute the leader for arbitrary losses without a starting point, and prepare it for sampling."""
    w = leading.work
    climb(reg, loss, rate, leading.lam, leading.mu, leading.tolerance, False, w)
    repair(w.x, w.row, leading.marginals, w.rhs, w.trial_mu)
    prepare(leading.marginals, leading.urn)


@spliced_kernel
def project(reg: Any, potential: Floats, rate: float, share: float, mixing: float, leading: Leading) -> None:
    """Project the end of a mirror descent step to the polytope.

    ``potential`` (n, m) is the z of that point, so that the point is x(z); it is replaced by the z of the projection.
    The projection is then mixed with a ``share`` of the uniform point, and the marginals that are played, but not the
    projection, with a further share ``mixing``.
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
    """Prepare the marginals for sampling; call it once after ``reset``, ``lead`` or ``project``."""
    prepare(leading.marginals, leading.urn)


@spliced_kernel
def show(leading: Any, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    """Draw a ranking from ``leading.marginals``, with ``leading.urn``; fill in its propensities."""
    draw(leading.marginals, rng, leading.urn, ranking)
    for j in range(ranking.size):
        propensity[j] = leading.marginals[ranking[j], j]
