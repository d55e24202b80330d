"""Repair of nearly feasible points, and a certified bound on the distance from the optimum."""

from __future__ import annotations

from typing import Any

from ..kernels import Floats, inner_kernel, kernel
from .dual import Workspace, rate_at
from .regularizers import slope


@kernel
def repair(x: Floats, copies: Floats, row: Floats, repaired: Floats, column: Floats, spare: Floats) -> None:
    """Fill in a feasible point next to x: scale down rows above 1, then columns above 1, then fill up other columns.

    The deficit d_j of column j is distributed over the rows in proportion to their slack e_i, as e_i d_j / sum(e).
    Columns then sum to 1 and rows to at most 1, up to rounding. Row i stands for ``copies[i]`` items; ``row`` holds row
    sums minus 1; ``column`` (m,) and ``spare`` (n,) are work.
    """
    n, m = x.shape
    for j in range(m):
        column[j] = 0.0
    for i in range(n):
        shrink = 1.0 / (1.0 + row[i]) if row[i] > 0.0 else 1.0
        spare[i] = shrink
        for j in range(m):
            column[j] += copies[i] * (x[i, j] * shrink)
    short = 0.0
    for j in range(m):
        short += max(0.0, 1.0 - column[j])
        column[j] = 1.0 / max(1.0, column[j])
    room = 0.0
    for i in range(n):
        total = 0.0
        for j in range(m):
            repaired[i, j] = x[i, j] * (spare[i] * column[j])
            total += repaired[i, j]
        spare[i] = max(0.0, 1.0 - total)
        room += copies[i] * spare[i]
    if short > 0.0 and room > 0.0:
        fill(repaired, copies, spare, room)


@inner_kernel
def fill(x: Floats, copies: Floats, spare: Floats, room: float) -> None:
    """Bring columns that sum to less than 1 up to 1, in proportion to the slack of the rows."""
    n, m = x.shape
    for j in range(m):
        missing = 1.0
        for i in range(n):
            missing -= copies[i] * x[i, j]
        if missing > 0.0:
            for i in range(n):
                x[i, j] += missing * spare[i] / room


@kernel
def certified_gap(reg: Any, rate: Any, mu: Floats, repaired: Floats, w: Workspace) -> float:
    """Return an upper bound on the objective of the feasible point ``repaired`` minus its minimum.

    The bound is the duality gap to the dual point (z, mu). With columns that sum to 1 the multipliers of the columns
    cancel, which leaves a Bregman divergence (bounded by its symmetrised form) plus complementary slackness. Every term
    is non-negative, so there is no cancellation.
    """
    n, m = repaired.shape
    gap = 0.0
    for i in range(n):
        total, row_gap = 0.0, 0.0
        for j in range(m):
            y = repaired[i, j]
            total += y
            if y > 0.0 and y != w.x[i, j]:
                eta = rate_at(rate, i, j)
                row_gap += abs((y - w.x[i, j]) * (slope(reg, y) / eta + w.z[i, j]))
        gap += w.copies[i] * (row_gap + mu[i] * max(0.0, 1.0 - total))
    return gap
