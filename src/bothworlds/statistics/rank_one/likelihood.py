r"""The log-likelihood of counts under the position-based model, in log-parameters, with its derivatives.

With :math:`a = \log \alpha` and :math:`b = \log \beta` it is :math:`\sum S (a_i + b_j) + F \log(1 - e^{a_i + b_j})`,
for clicks S and missing clicks F: concave, and defined where all probabilities are below 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...kernels import Floats, Ints, inner_kernel

EDGE = 1e-6  # least number of missing clicks of a pair: keeps probabilities below 1
FAINT = 1e-5  # curvature of a pair without impressions that is negligible beside that of an item with a click


class Workspace(NamedTuple):
    """The fit, from which the next one may start, and work arrays."""

    a: Floats  # (n,) log attraction; -inf for an item without clicks, 0 without impressions
    b: Floats  # (m,) log examination, largest 0
    gain_a: Floats  # (n,) derivatives of the log-likelihood
    gain_b: Floats  # (m,)
    weight_a: Floats  # (n,) minus its second derivatives
    weight_b: Floats  # (m,)
    step_a: Floats  # (n,)
    step_b: Floats  # (m,)
    curvature: Floats  # (n, m) of single pairs
    edges: Floats  # (m, m)
    row: Floats  # (m,)
    drive: Floats  # (m,)
    fitted: Ints  # (n,) 1 for items that have clicks
    block: Ints  # (m,) positions of one block have equal examination; -1 for positions without clicks


def make_workspace(n: int, m: int) -> Workspace:
    """Allocate the workspace of fits of n items at m positions."""
    items, positions = np.zeros((4, n)), np.zeros((6, m))
    return Workspace(
        a=items[0],
        b=positions[0],
        gain_a=items[1],
        gain_b=positions[1],
        weight_a=items[2],
        weight_b=positions[2],
        step_a=items[3],
        step_b=positions[3],
        curvature=np.zeros((n, m)),
        edges=np.zeros((m, m)),
        row=positions[4],
        drive=positions[5],
        fitted=np.zeros(n, np.int64),
        block=np.zeros(m, np.int64),
    )


@inner_kernel
def cell(shown: Floats, clicked: Floats, prior: float, i: int, j: int) -> tuple[float, float]:
    """Return the clicks and the missing clicks of a pair, including pseudo-counts."""
    # A pair that is nearly forgotten has few pseudo-counts too.
    extra = prior * min(shown[i, j], 1.0)
    return clicked[i, j] + extra, max(shown[i, j] - clicked[i, j] + extra, EDGE)


@inner_kernel
def chances(u: float) -> tuple[float, float]:
    """Return the probabilities of a click and of no click, both with full relative accuracy."""
    if u < -1.0:
        p = math.exp(u)
        return p, 1.0 - p
    miss = -math.expm1(u)
    return 1.0 - miss, miss


@inner_kernel
def choose(shown: Floats, clicked: Floats, prior: float, ordered: bool, w: Workspace) -> None:
    """Exclude items and positions without clicks: they have probability 0 and carry no information on the others."""
    n, m = shown.shape
    for i in range(n):
        total = 0.0
        for j in range(m):
            total += cell(shown, clicked, prior, i, j)[0]
        w.fitted[i] = 1 if total > EDGE else 0
    later, blocks = False, 0
    for back in range(m):
        j = m - 1 - back
        total, impressions = 0.0, 0.0
        for i in range(n):
            total += cell(shown, clicked, prior, i, j)[0]
            impressions += shown[i, j]
        w.block[j] = -1
        # With ordered positions, a position is examined if a later one is.
        if total > EDGE or (ordered and later and impressions > EDGE):
            later = True
            w.block[j] = 0
    for j in range(m):
        if w.block[j] == 0:
            w.block[j] = blocks
            blocks += 1
    # An item may have clicks in total, but too few at every position.
    if blocks == 0:
        for i in range(n):
            w.fitted[i] = 0


@inner_kernel
def start(shown: Floats, clicked: Floats, prior: float, ordered: bool, warm: bool, w: Workspace) -> None:
    """Set a feasible starting point: the last fit if ``warm``, otherwise click rates of positions, then of items."""
    n, m = shown.shape
    top = -math.inf
    for j in range(m):
        if w.block[j] >= 0 and not (warm and -50.0 < w.b[j] <= 0.0):
            clicks, impressions = 0.5, 1.0
            for i in range(n):
                clicks += clicked[i, j]
                impressions += shown[i, j]
            w.b[j] = math.log(clicks / impressions)
        if w.block[j] >= 0:
            top = max(top, w.b[j])
    lowest = 0.0
    for j in range(m):
        if w.block[j] >= 0:
            w.b[j] -= top
            if ordered:
                lowest = min(lowest, w.b[j])
                w.b[j] = lowest
    for i in range(n):
        if w.fitted[i] == 1:
            if not (warm and -50.0 < w.a[i] <= 0.0):
                clicks, impressions = 0.5, 1.0
                for j in range(m):
                    if w.block[j] >= 0:
                        clicks += clicked[i, j]
                        impressions += shown[i, j] * math.exp(w.b[j])
                w.a[i] = math.log(clicks / impressions)
            w.a[i] = min(w.a[i] + top if warm else w.a[i], -1e-3)


@inner_kernel
def value_along(shown: Floats, clicked: Floats, prior: float, w: Workspace, size: float) -> float:
    """Return the log-likelihood at ``size`` times the step; minus infinity outside the domain."""
    n, m = shown.shape
    total = 0.0
    for i in range(n):
        if w.fitted[i] == 1:
            a = w.a[i] + size * w.step_a[i] if size > 0.0 else w.a[i]
            for j in range(m):
                if w.block[j] >= 0:
                    u = a + (w.b[j] + size * w.step_b[j] if size > 0.0 else w.b[j])
                    if u >= 0.0:
                        return -math.inf
                    s, f = cell(shown, clicked, prior, i, j)
                    total += s * u + f * (math.log1p(-math.exp(u)) if u < -1.0 else math.log(-math.expm1(u)))
    return total


@inner_kernel
def derive(shown: Floats, clicked: Floats, prior: float, w: Workspace, sparse: bool = False) -> None:
    """Compute first and second derivatives of the log-likelihood; if ``sparse``, drop negligible second ones.

    A pair without impressions has curvature only near its limit. Elsewhere the step ignores it; the fit is the same,
    since the first derivatives are complete.
    """
    n, m = shown.shape
    for j in range(m):
        w.gain_b[j] = 0.0
        w.weight_b[j] = 0.0
    for i in range(n):
        w.gain_a[i] = 0.0
        w.weight_a[i] = 0.0
        if w.fitted[i] == 1:
            for j in range(m):
                if w.block[j] >= 0:
                    s, f = cell(shown, clicked, prior, i, j)
                    p, miss = chances(w.a[i] + w.b[j])
                    odds = p / miss
                    gain, weight = s - f * odds, f * odds / miss
                    if sparse and shown[i, j] == 0.0 and weight < FAINT:
                        weight = 0.0
                    w.curvature[i, j] = weight
                    w.gain_a[i] += gain
                    w.gain_b[j] += gain
                    w.weight_a[i] += weight
                    w.weight_b[j] += weight


@inner_kernel
def normal_form(shown: Floats, w: Workspace) -> None:
    """Scale the fit to a largest examination of 1, and set the values of excluded items and positions."""
    n, m = shown.shape
    top, any_click = -math.inf, False
    for j in range(m):
        if w.block[j] >= 0:
            top = max(top, w.b[j])
            any_click = True
    for j in range(m):
        impressions = 0.0
        for i in range(n):
            impressions += shown[i, j]
        if w.block[j] >= 0:
            w.b[j] -= top
        else:
            w.b[j] = -math.inf if any_click and impressions > EDGE else 0.0
    for i in range(n):
        impressions = 0.0
        for j in range(m):
            impressions += shown[i, j]
        if w.fitted[i] == 1:
            w.a[i] = min(w.a[i] + top, 0.0)
        else:
            w.a[i] = -math.inf if impressions > EDGE else 0.0
