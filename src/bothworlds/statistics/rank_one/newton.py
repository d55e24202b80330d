r"""The rank-one fit by Newton's method in log-parameters, in which the problem is concave.

The Schur complement of the positions is the Laplacian of a graph: an edge weighs how strongly the items shown at two
positions compare them. Elimination as in a network of resistors keeps the step accurate for unevenly shown lists, and
the undetermined scale is the potential of the last node.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...kernels import Floats, inner_kernel, kernel
from .laplacian import eliminate_nodes, substitute
from .likelihood import Workspace, cell, chances, choose, derive, normal_form, start, value_along

MAX_STEPS = 200  # reached only if clicks and impressions differ by many orders of magnitude
ROUNDING = 1e-13  # rounding error of a log-likelihood, relative to it
MAX_SPREAD = 20.0  # of the steps of positions: beyond it, probabilities and curvature may vanish


class Effort(NamedTuple):
    """The number of steps or passes of a fit, and whether it converged."""

    steps: int
    converged: bool


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
    """Fit ``w.a`` and ``w.b`` to the counts (n, m), starting from their present values if ``warm``.

    ``prior`` pseudo-clicks in twice as many pseudo-impressions are added to every pair that was shown. With
    ``ordered``, examination does not rise from position to position. The fit ends when a step gains at most
    ``tolerance`` in log-likelihood, which bounds the error by its root in standard errors, or when the gain is lost in
    rounding. With ``many`` items, one that reaches its limit does not shorten the step of the others. A step takes
    O(n m^2). With ``sparse``, for counts whose pairs connect all positions, it takes O(m) for every item and every pair
    that was shown, plus O(m^3).
    """
    choose(shown, clicked, prior, ordered, w)
    start(shown, clicked, prior, ordered, warm, w)
    value = value_along(shown, clicked, prior, w, 0.0)
    for step in range(MAX_STEPS):
        derive(shown, clicked, prior, w, sparse and step < MAX_STEPS // 2)
        decrement = _direction(w)
        if decrement <= tolerance:
            if ordered and _release(w, tolerance):
                continue
            normal_form(shown, w)
            return Effort(step, True)
        if many and not ordered and _bend(shown, clicked, prior, w):
            trial = value_along(shown, clicked, prior, w, 1.0)
            if trial > value + 1e-4 * decrement:
                value = trial
                _move(w, 1.0)
                continue
            _direction(w)
        before = value
        value, stuck = _walk(shown, clicked, prior, ordered, w, value, decrement)
        if stuck >= 0:
            _tie(w, stuck)
        elif not ordered and value <= before and decrement <= ROUNDING * abs(value):
            normal_form(shown, w)
            return Effort(step + 1, True)
    normal_form(shown, w)
    return Effort(MAX_STEPS, False)


@inner_kernel
def _direction(w: Workspace) -> float:
    """Compute the Newton step, by blocks of positions; return twice its predicted gain."""
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
    eliminate_nodes(w.edges, blocks)
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
def _walk(
    shown: Floats, clicked: Floats, prior: float, ordered: bool, w: Workspace, value: float, decrement: float
) -> tuple[float, int]:
    """Line search: return the value at its end, and the position that reaches the one before it, or -1."""
    stuck, size = _longest(w, ordered)
    if size <= 0.0:
        return value, stuck
    longest, trial = size, value_along(shown, clicked, prior, w, size)
    # A loss within rounding error does not mean that the step is too long.
    while trial < value + 1e-4 * size * decrement - ROUNDING * abs(value) and size > 1e-12:
        size *= 0.5
        trial = value_along(shown, clicked, prior, w, size)
    _move(w, size)
    return trial, stuck if size == longest else -1


@inner_kernel
def _longest(w: Workspace, ordered: bool) -> tuple[int, float]:
    """Return the position that reaches the one before it at the end of the step, or -1, and the step's largest size."""
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
    """Replace the step of an item that would leave the domain by its best step for the step of positions.

    Returns whether there was such an item.
    """
    bent, lowest, highest = False, math.inf, -math.inf
    for j in range(w.b.size):
        if w.block[j] >= 0:
            lowest, highest = min(lowest, w.step_b[j]), max(highest, w.step_b[j])
    if highest - lowest > MAX_SPREAD:
        return False
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
    """Return the Newton step of one item, after the step of positions."""
    gain, weight, highest = 0.0, 0.0, -math.inf
    for j in range(w.b.size):
        if w.block[j] >= 0:
            u = w.a[i] + w.step_a[i] + w.b[j] + w.step_b[j]
            s, f = cell(shown, clicked, prior, i, j)
            p, miss = chances(u)
            odds = p / miss
            gain += s - f * odds
            weight += f * odds / miss
            highest = max(highest, u)
    return min(gain / weight, -0.99 * highest)


@inner_kernel
def _move(w: Workspace, size: float) -> None:
    """Move by ``size`` times the step; the largest examination stays 1, so that the free scale costs no accuracy."""
    top = -math.inf
    for j in range(w.b.size):
        if w.block[j] >= 0:
            w.b[j] += size * w.step_b[j]
            top = max(top, w.b[j])
    for j in range(w.b.size):
        if w.block[j] >= 0:
            w.b[j] -= top
    for i in range(w.a.size):
        if w.fitted[i] == 1:
            w.a[i] += size * w.step_a[i] + top


@inner_kernel
def _tie(w: Workspace, j: int) -> None:
    """Merge the block of position j with the block before it, at the smaller of their values."""
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
    """Split a block where its upper part would rise most, in standard errors; return False if it would nowhere."""
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
