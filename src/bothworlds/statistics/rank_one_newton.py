r"""The rank-one fit by Newton's method in log-parameters, where it is a concave problem.

The positions' Schur complement is the Laplacian of a graph: its edges say how strongly two positions are compared by
the items shown at both. Solved as a network of resistors, the step is accurate however unevenly the lists were shown,
and the free scale falls out as the position that is left over.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..kernels import Floats, Ints, inner_kernel, kernel
from .network import eliminate, substitute

__all__ = [
    "EDGE",
    "Effort",
    "Workspace",
    "cell",
    "choose",
    "derive",
    "make_workspace",
    "newton",
]

EDGE = 1e-6  # missing clicks that any pair has at least: keeps probabilities below 1
FAINT = 1e-5  # curvature of a pair never shown that is nothing beside that of an item with a click, at least 1
STEPS = 200  # never needed, unless clicks and impressions are many orders of magnitude apart


class Workspace(NamedTuple):
    """The fit, where the next one may start, and room to work."""

    a: Floats  # (n,) log attraction; -inf for an item without clicks, 0 for one never shown
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
    block: Ints  # (m,) positions of one block are held equal; -1 for positions without clicks


class Effort(NamedTuple):
    """How a fit went."""

    steps: int
    converged: bool


def make_workspace(n: int, m: int) -> Workspace:
    """Room for fits of n items at m positions."""
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


@kernel
def newton(
    shown: Floats,
    clicked: Floats,
    prior: float,
    ordered: bool,
    warm: bool,
    tolerance: float,
    w: Workspace,
    many: bool = False,
    sparse: bool = False,
) -> Effort:
    """Fit ``w.a`` and ``w.b`` to the counts (n, m), starting from what they are if ``warm``.

    ``prior`` pseudo-clicks in twice as many pseudo-impressions are added to every pair that was shown. ``ordered``
    asks that examination does not rise from position to position. It is over when the step's gain is ``tolerance`` in
    log-likelihood: the fit is then within the root of that in standard errors. Where items are ``many``, those that
    reach their limit do not hold up the others. A step is O(n m^2). Where what was shown is ``sparse`` and holds all
    positions together, it is O(m) for every item and every pair that was shown, and O(m^3) besides.
    """
    choose(shown, clicked, prior, ordered, w)
    _start(shown, clicked, prior, ordered, warm, w)
    value = _value(shown, clicked, prior, w, 0.0)
    for step in range(STEPS):
        derive(shown, clicked, prior, w, sparse and step < STEPS // 2)
        decrement = _direction(w)
        if decrement <= tolerance:
            if ordered and _release(w, tolerance):
                continue
            _normal_form(shown, w)
            return Effort(step, True)
        if many and not ordered and _bend(shown, clicked, prior, w):
            trial = _value(shown, clicked, prior, w, 1.0)
            if trial > value + 1e-4 * decrement:
                value = trial
                _move(w, 1.0)
                continue
            _direction(w)
        stuck, size = _longest(w, ordered)
        if size > 0.0:
            longest = size
            trial = _value(shown, clicked, prior, w, size)
            # What is lost in rounding must not look like a step too long.
            while trial < value + 1e-4 * size * decrement - 1e-13 * abs(value) and size > 1e-12:
                size *= 0.5
                trial = _value(shown, clicked, prior, w, size)
            value = trial
            _move(w, size)
            stuck = stuck if size == longest else -1
        if stuck >= 0:
            _tie(w, stuck)
    _normal_form(shown, w)
    return Effort(STEPS, False)


@inner_kernel
def cell(shown: Floats, clicked: Floats, prior: float, i: int, j: int) -> tuple[float, float]:
    """Clicks and missing clicks of a pair, pseudo-counts included."""
    # A pair that is all but forgotten has all but no pseudo-counts.
    extra = prior * min(shown[i, j], 1.0)
    return clicked[i, j] + extra, max(shown[i, j] - clicked[i, j] + extra, EDGE)


@inner_kernel
def choose(shown: Floats, clicked: Floats, prior: float, ordered: bool, w: Workspace) -> None:
    """Leave out items and positions without clicks: they have probability 0 and say nothing of the others."""
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
        # In order, a position is examined if a later one is.
        if total > EDGE or (ordered and later and impressions > EDGE):
            later = True
            w.block[j] = 0
    for j in range(m):
        if w.block[j] == 0:
            w.block[j] = blocks
            blocks += 1


@inner_kernel
def _start(shown: Floats, clicked: Floats, prior: float, ordered: bool, warm: bool, w: Workspace) -> None:
    """A point with all probabilities below 1, and in order: the last fit, or click rates by position, then by item."""
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
def _value(shown: Floats, clicked: Floats, prior: float, w: Workspace, size: float) -> float:
    """The log-likelihood so far along the step."""
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
                    total += s * u + f * math.log(-math.expm1(u))
    return total


@inner_kernel
def derive(shown: Floats, clicked: Floats, prior: float, w: Workspace, sparse: bool = False) -> None:
    """First and second derivatives of the log-likelihood; if ``sparse``, without the faint second ones.

    A pair that was never shown curves the likelihood only where it is near its limit. Elsewhere the step does without
    it, and ends where it would have ended, since the first derivatives are whole.
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
                    miss = -math.expm1(w.a[i] + w.b[j])
                    odds = (1.0 - miss) / miss
                    gain, weight = s - f * odds, f * odds / miss
                    if sparse and shown[i, j] == 0.0 and weight < FAINT:
                        weight = 0.0
                    w.curvature[i, j] = weight
                    w.gain_a[i] += gain
                    w.gain_b[j] += gain
                    w.weight_a[i] += weight
                    w.weight_b[j] += weight


@inner_kernel
def _direction(w: Workspace) -> float:
    """Newton's step, by blocks of positions; returns twice the gain it promises."""
    n, m = w.curvature.shape
    blocks = 0
    for j in range(m):
        blocks = max(blocks, w.block[j] + 1)
        w.drive[j] = 0.0
        for k in range(m):
            w.edges[j, k] = 0.0
    for j in range(m):
        if w.block[j] >= 0:
            w.drive[w.block[j]] += w.gain_b[j]
    for i in range(n):
        if w.fitted[i] == 1:
            _by_block(w, i)
            for k in range(blocks):
                if w.row[k] > 0.0:
                    w.drive[k] -= w.row[k] * w.gain_a[i] / w.weight_a[i]
                    for other in range(k):
                        w.edges[k, other] += w.row[k] * w.row[other] / w.weight_a[i]
    eliminate(w.edges, blocks)
    substitute(w.edges, w.drive, blocks)
    decrement = 0.0
    for j in range(m):
        w.step_b[j] = w.drive[w.block[j]] if w.block[j] >= 0 else 0.0
        decrement += w.gain_b[j] * w.step_b[j]
    for i in range(n):
        w.step_a[i] = 0.0
        if w.fitted[i] == 1:
            pull = w.gain_a[i]
            for j in range(m):
                if w.block[j] >= 0:
                    pull -= w.curvature[i, j] * w.step_b[j]
            w.step_a[i] = pull / w.weight_a[i]
            decrement += w.gain_a[i] * w.step_a[i]
    return decrement


@inner_kernel
def _by_block(w: Workspace, i: int) -> None:
    for k in range(w.row.size):
        w.row[k] = 0.0
    for j in range(w.row.size):
        if w.block[j] >= 0:
            w.row[w.block[j]] += w.curvature[i, j]


@inner_kernel
def _longest(w: Workspace, ordered: bool) -> tuple[int, float]:
    """How far the step may go, 1 at most, and the position that then meets the one before it (-1 if none does)."""
    size, stuck, before = 1.0, -1, -1
    for i in range(w.a.size):
        if w.fitted[i] == 1:
            for j in range(w.b.size):
                rise = w.step_a[i] + w.step_b[j]
                if w.block[j] >= 0 and rise > 0.0:
                    size = min(size, -0.99 * (w.a[i] + w.b[j]) / rise)
    if ordered:
        for j in range(w.b.size):
            if w.block[j] >= 0:
                if before >= 0 and w.block[j] != w.block[before]:
                    closing = w.step_b[j] - w.step_b[before]
                    if closing > 0.0 and w.b[before] - w.b[j] <= size * closing:
                        size = max(w.b[before] - w.b[j], 0.0) / closing
                        stuck = j
                before = j
    return stuck, size


@inner_kernel
def _bend(shown: Floats, clicked: Floats, prior: float, w: Workspace) -> bool:
    """Where an item would leave what is possible, let it go where it is best off after the positions' step instead."""
    bent = False
    for i in range(w.a.size):
        if w.fitted[i] == 1:
            most = math.inf
            for j in range(w.b.size):
                if w.block[j] >= 0:
                    most = min(most, -0.99 * (w.a[i] + w.b[j]) - w.step_b[j])
            if w.step_a[i] > most:
                w.step_a[i] = most
                for _ in range(8):
                    w.step_a[i] += _alone(shown, clicked, prior, w, i)
                bent = True
    return bent


@inner_kernel
def _alone(shown: Floats, clicked: Floats, prior: float, w: Workspace, i: int) -> float:
    """Newton's step of one item, after the positions' step."""
    gain, weight, highest = 0.0, 0.0, -math.inf
    for j in range(w.b.size):
        if w.block[j] >= 0:
            u = w.a[i] + w.step_a[i] + w.b[j] + w.step_b[j]
            s, f = cell(shown, clicked, prior, i, j)
            miss = -math.expm1(u)
            odds = (1.0 - miss) / miss
            gain += s - f * odds
            weight += f * odds / miss
            highest = max(highest, u)
    return min(gain / weight, -0.99 * highest)


@inner_kernel
def _move(w: Workspace, size: float) -> None:
    for i in range(w.a.size):
        if w.fitted[i] == 1:
            w.a[i] += size * w.step_a[i]
    for j in range(w.b.size):
        if w.block[j] >= 0:
            w.b[j] += size * w.step_b[j]


@inner_kernel
def _tie(w: Workspace, j: int) -> None:
    """Make the block of position j one with the block before it, at the lower of their heights."""
    joined, level = w.block[j], w.b[j]
    for k in range(w.b.size):
        if joined - 1 <= w.block[k] <= joined:
            level = min(level, w.b[k])
    for k in range(w.b.size):
        if joined - 1 <= w.block[k] <= joined:
            w.b[k] = level
        if w.block[k] >= joined:
            w.block[k] -= 1


@inner_kernel
def _release(w: Workspace, tolerance: float) -> bool:
    """Cut a block where its upper part would rise if it could: the most eager place, in standard errors."""
    gain, weight, before, cut = 0.0, 0.0, -1, -1
    worst = 10.0 * math.sqrt(tolerance)
    for j in range(w.b.size):
        if w.block[j] >= 0:
            if before >= 0 and w.block[j] == w.block[before]:
                if gain > worst * math.sqrt(weight):
                    worst = gain / math.sqrt(weight)
                    cut = j
            else:
                gain, weight = 0.0, 0.0
            gain += w.gain_b[j]
            weight += w.weight_b[j]
            before = j
    if cut < 0:
        return False
    for j in range(cut, w.b.size):
        if w.block[j] >= 0:
            w.block[j] += 1
    return True


@inner_kernel
def _normal_form(shown: Floats, w: Workspace) -> None:
    """Largest examination 1; values for what was left out."""
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
