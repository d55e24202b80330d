r"""Many rank-one fits in one call, and the variances of their estimates.

A group (query) g has the rows ``starts[g]`` to ``starts[g + 1]`` and its own examination; a table with one group is one
fit.

Variances follow from the Laplacian of the Newton step, taken as a network of resistors: the variance of :math:`\log
\beta_j - \log \beta_r` is the effective resistance between positions j and r, and the variance of an item adds its own
noise to that of its positions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...kernels import Floats, Ints, inner_kernel, kernel
from .em import click_rates, em
from .laplacian import eliminate_nodes, substitute
from .likelihood import Workspace, choose, derive
from .newton import newton

LIMIT = -1e-4  # log attraction above this is at its upper limit


class GroupFits(NamedTuple):
    """Fits of R items in G groups at m positions, and work arrays."""

    a: Floats  # (R,) log attraction
    b: Floats  # (G, m) log examination
    work_a: Floats  # (3, R) derivatives and steps of a
    curvature: Floats  # (R, m)
    fitted: Ints  # (R,)
    block: Ints  # (G, m)
    joined: Ints  # (G,) 1 if the pairs that were shown are known to connect all positions
    iterations: Ints  # (G,) Newton steps or EM passes
    converged: Ints  # (G,) 1 or 0
    work_b: Floats  # (5, m) derivatives and steps of b, of one group at a time
    edges: Floats  # (m, m)
    resistance: Floats  # (m, m)


def make_group_fits(rows: int, groups: int, m: int) -> GroupFits:
    """Allocate fits of ``rows`` items in ``groups`` groups at m positions."""
    return GroupFits(
        a=np.zeros(rows),
        b=np.zeros((groups, m)),
        work_a=np.zeros((3, rows)),
        curvature=np.zeros((rows, m)),
        fitted=np.zeros(rows, np.int64),
        block=np.zeros((groups, m), np.int64),
        joined=np.zeros(groups, np.int64),
        iterations=np.zeros(groups, np.int64),
        converged=np.zeros(groups, np.int64),
        work_b=np.zeros((5, m)),
        edges=np.zeros((m, m)),
        resistance=np.zeros((m, m)),
    )


@inner_kernel
def _of_group(fits: GroupFits, g: int, first: int, last: int) -> Workspace:
    """Return the workspace of one group, as views of the arrays of all groups."""
    return Workspace(
        a=fits.a[first:last],
        b=fits.b[g],
        gain_a=fits.work_a[0, first:last],
        gain_b=fits.work_b[0],
        weight_a=fits.work_a[1, first:last],
        weight_b=fits.work_b[1],
        step_a=fits.work_a[2, first:last],
        step_b=fits.work_b[2],
        curvature=fits.curvature[first:last],
        edges=fits.edges,
        row=fits.work_b[3],
        drive=fits.work_b[4],
        fitted=fits.fitted[first:last],
        block=fits.block[g],
    )


@kernel
def newton_each(
    shown: Floats,
    clicked: Floats,
    starts: Ints,
    ordered: bool,
    warm: bool,
    tolerance: float,
    fits: GroupFits,
) -> None:
    """Fit every group by Newton's method."""
    for g in range(starts.size - 1):
        first, last = starts[g], starts[g + 1]
        w = _of_group(fits, g, first, last)
        n, s, sparse = shown[first:last], clicked[first:last], fits.joined[g] == 1 and not ordered
        done = newton(n, s, 0.0, ordered, warm, tolerance, w, True, sparse)
        fits.iterations[g] = done.steps
        fits.converged[g] = 1 if done.converged else 0


@kernel
def em_each(
    shown: Floats,
    clicked: Floats,
    starts: Ints,
    passes: int,
    tolerance: float,
    fits: GroupFits,
    sums: Floats,
) -> None:
    """Fit every group by expectation-maximisation, from click rates; ``sums`` (4, max(R, m)) is work."""
    for g in range(starts.size - 1):
        first, last = starts[g], starts[g + 1]
        n, s = shown[first:last], clicked[first:last]
        alpha, beta = fits.a[first:last], fits.b[g]
        click_rates(n, s, alpha, beta)
        done = em(n, s, 0.0, passes, tolerance, alpha, beta, sums[:, : max(last - first, beta.size)])
        fits.iterations[g] = done.steps
        fits.converged[g] = 1 if done.converged else 0
        for i in range(alpha.size):
            alpha[i] = math.log(alpha[i])
        for j in range(beta.size):
            beta[j] = math.log(beta[j])


@kernel
def variances_each(
    shown: Floats,
    clicked: Floats,
    starts: Ints,
    anchor: Ints,
    fits: GroupFits,
    of_items: Floats,
    of_positions: Floats,
) -> None:
    """Fill in the variances of log attraction (R,) and log examination (G, m), in the normal form of the fit.

    ``anchor`` (G, m) is, for every position, the one whose examination is set to 1 in its component; -1 for positions
    without clicks. Variances are NaN for items without clicks, for items at the limit, and where not determined.
    """
    for g in range(starts.size - 1):
        first, last = starts[g], starts[g + 1]
        w = _of_group(fits, g, first, last)
        choose(shown[first:last], clicked[first:last], 0.0, False, w)
        for i in range(w.a.size):
            # Such a value is determined by the limit, not by clicks.
            if w.a[i] > LIMIT:
                w.fitted[i] = 0
        derive(shown[first:last], clicked[first:last], 0.0, w)
        _resistances(shown[first:last], anchor[g], w, fits.resistance)
        for j in range(w.b.size):
            of_positions[g, j] = fits.resistance[j, j]
        _of_items(shown[first:last], w, fits.resistance, of_items[first:last])


@inner_kernel
def _resistances(shown: Floats, anchor: Ints, w: Workspace, resistance: Floats) -> None:
    """Fill in covariances of log examination, each component relative to its anchor; NaN where not determined."""
    n, m = shown.shape
    for j in range(m):
        for k in range(m):
            w.edges[j, k] = 0.0
            resistance[j, k] = math.nan
    for i in range(n):
        if w.fitted[i] == 1 and w.weight_a[i] > 0.0:
            for j in range(m):
                if shown[i, j] > 0.0:
                    for k in range(j):
                        if shown[i, k] > 0.0:
                            w.edges[j, k] += _weight(w, i, j) * _weight(w, i, k) / w.weight_a[i]
    eliminate_nodes(w.edges, m)
    for j in range(m):
        if w.block[j] >= 0 and anchor[j] >= 0:
            for k in range(m):
                w.drive[k] = 0.0
            w.drive[j] += 1.0
            w.drive[anchor[j]] -= 1.0
            substitute(w.edges, w.drive, m)
            for k in range(m):
                if anchor[k] == anchor[j]:
                    resistance[j, k] = w.drive[k] - w.drive[anchor[j]]
            # Without a comparison the variance would come out as 0.
            if j != anchor[j] and not resistance[j, j] > 0.0:
                resistance[j, j] = math.nan


@inner_kernel
def _weight(w: Workspace, i: int, j: int) -> float:
    return w.curvature[i, j] if w.block[j] >= 0 else 0.0


@inner_kernel
def _of_items(shown: Floats, w: Workspace, resistance: Floats, variance: Floats) -> None:
    n, m = shown.shape
    for i in range(n):
        variance[i] = math.nan
        if w.fitted[i] == 1 and w.weight_a[i] > 0.0:
            total = 1.0 / w.weight_a[i]
            for j in range(m):
                if shown[i, j] > 0.0 and _weight(w, i, j) > 0.0:
                    for k in range(m):
                        if shown[i, k] > 0.0 and _weight(w, i, k) > 0.0:
                            share = _weight(w, i, j) * _weight(w, i, k) / (w.weight_a[i] * w.weight_a[i])
                            total += share * resistance[j, k]
            variance[i] = total
