r"""The state that policies with a regularised leader share, and their update in every round.

*Follow the regularised leader* minimises the sum of all estimated losses plus the regulariser in every round, starting
from the multipliers of the last round. *Mirror descent* takes one step from the last point and projects it to the
polytope: the same problem, whose multipliers start from zero and are not kept. Both then make the point feasible
and prepare it for sampling; the feasible point gives the propensities.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..kernels import Floats, Ints, inner_kernel, kernel
from .dual import Workspace, first_rows, make_workspace
from .feasible import repair
from .item_rows import Rows, add_row, make_rows
from .leader import ConvergenceError
from .newton import solve
from .regularizers import slope
from .sampling import Urn, draw, make_urn, prepare

ROUNDING = 1e-6  # a violation that is not an error: smaller tolerances may be out of reach of large losses


class SolverEffort(NamedTuple):
    """What the solver did since the state was made."""

    steps: Ints  # (1,) Newton steps
    most_steps: Ints  # (1,) the most Newton steps in one round
    sweeps: Ints  # (1,) block-coordinate sweeps
    violation: Floats  # (1,) of the optimality conditions, after the last round


class Leading(NamedTuple):
    """The marginals of the next decision, and what the next update needs.

    Marginals, multipliers and workspace have a row for every item, in the order of items, unless items share a row
    (``Rows``): then use ``by_item``.
    """

    marginals: Floats  # (n, m) exactly feasible
    lam: Floats  # (m,) multipliers of the columns; the next solve starts from them
    mu: Floats  # (n,) multipliers of the rows
    cold: Ints  # (1,) 1: the next solve has no starting point
    tolerance: float
    effort: SolverEffort
    urn: Urn
    work: Workspace
    rows: Rows
    sharing: bool  # whether items share a row until they have learned something
    every: int  # rounds from one leader to the next

    def by_item(self) -> Floats:
        """Return the marginals (n, m) in the order of items."""
        last = int(self.urn.n_rows[0]) - 1
        if not self.sharing:
            return self.marginals
        return self.marginals[np.minimum(self.rows.place, last)]


def make_leading(n: int, m: int, tolerance: float, *, every: int = 1, sharing: bool = False) -> Leading:
    """Return uniform marginals for n items at m positions; ``reset`` sets the multipliers of a regulariser.

    ``every`` is the number of rounds from one leader to the next; a policy that has this setting asks ``is_due``. With
    ``sharing``, all items share one row at first. A policy must then call ``separate`` before it changes the
    losses of an item.
    """
    steps, most_steps, sweeps = np.zeros((3, 1), np.int64)
    leading = Leading(
        marginals=np.full((n, m), 1.0 / n),
        lam=np.zeros(m),
        mu=np.zeros(n),
        cold=np.zeros(1, np.int64),
        tolerance=max(float(tolerance), 1e-13),  # less is lost in rounding
        effort=SolverEffort(steps, most_steps, sweeps, np.zeros(1)),
        urn=make_urn(n, m),
        work=make_workspace(n, m),
        rows=make_rows(n, sharing=sharing),
        sharing=sharing,
        every=int(every),
    )
    prepare(leading.marginals[: rows_in_use(leading)], leading.urn)
    return leading


@kernel
def rows_in_use(leading: Leading) -> int:
    """Return the number of distinct rows."""
    return min(leading.rows.own[0] + 1, leading.rows.item.size)


@kernel
def separate(leading: Leading, i: int) -> None:
    """Give item i a row of its own, with the multiplier of the row that it shared.

    The marginals that are drawn do not change: before the next ``lead``, places that shared a row still share it.
    """
    own, n = leading.rows.own, leading.rows.item.size
    if add_row(leading.rows, i) and own[0] < n:
        leading.mu[own[0]] = leading.mu[own[0] - 1]


@kernel
def reset(reg: Any, rate: float, leading: Leading) -> float:
    """Set uniform marginals and their multipliers at this rate; returns the z of these marginals."""
    if leading.sharing:
        leading.rows.own[0] = 0
    n, m = leading.marginals.shape
    z = -slope(reg, 1.0 / n) / rate
    for i in range(rows_in_use(leading)):
        leading.mu[i] = 0.0
        for j in range(m):
            leading.marginals[i, j] = 1.0 / n
    for j in range(m):
        leading.lam[j] = z
    return z


@inner_kernel
def is_due(leading: Leading, rounds: float) -> bool:
    """Whether a new leader is computed after so many rounds of the epoch."""
    return leading.every == 1 or int(rounds) % leading.every == 0


@inner_kernel
def lead(reg: Any, loss: Floats, rate: Any, leading: Leading) -> None:
    """Compute the leader for these losses (n, m); ``rate`` is a number, or an array (n, m) if no items share a row.

    If the solver does not converge, its last point is made feasible; if that is not finite, the last leader stays.
    """
    k, effort = rows_in_use(leading), leading.effort
    w = first_rows(leading.work, k)
    if leading.sharing:
        w.copies[:] = 1.0
        w.copies[k - 1] = leading.rows.item.size - (k - 1)
    warm = leading.cold[0] == 0
    took = solve(reg, loss, leading.rows.item, rate, leading.lam, leading.mu[:k], leading.tolerance, warm, w)
    if took.violation < math.inf:
        repair(w.x, w.copies, w.row, leading.marginals[:k], w.rhs, w.trial_mu)
    effort.steps[0] += took.steps
    effort.most_steps[0] = max(effort.most_steps[0], took.steps)
    effort.sweeps[0] += took.sweeps
    effort.violation[0] = took.violation
    leading.cold[0] = 0


def check_leader(loss: Floats, leading: Leading) -> None:
    """Raise ConvergenceError if the last solve, for these losses, did not find the leader."""
    violation = leading.effort.violation[0]
    if not violation <= max(leading.tolerance, ROUNDING):
        raise ConvergenceError(
            f"no leader for losses from {loss.min():.3g} to {loss.max():.3g}: "
            f"the optimality conditions are violated by {violation:.3g}"
        )


@inner_kernel
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


@inner_kernel
def ready(leading: Leading) -> None:
    """Prepare the marginals for sampling; call it once after ``reset``, ``lead`` or ``project``."""
    prepare(leading.marginals[: rows_in_use(leading)], leading.urn)


@inner_kernel
def show(leading: Leading, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    """Draw a ranking, and fill in its propensities."""
    k = leading.urn.n_rows[0]
    draw(leading.marginals[:k], rng, leading.urn, ranking)
    for j in range(ranking.size):
        place = ranking[j]
        propensity[j] = leading.marginals[min(place, k - 1), j]
        ranking[j] = leading.rows.item[place]
