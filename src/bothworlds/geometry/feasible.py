"""From nearly feasible to feasible, and a bound on what that and everything else has cost."""

from __future__ import annotations

from typing import Any

from ..kernels import Floats, inner_kernel, kernel
from .dual import Workspace, rate_at
from .regularizers import slope

__all__ = ["certified_gap", "repair"]


@kernel
def repair(x: Floats, row: Floats, repaired: Floats, column: Floats, spare: Floats) -> None:
    """A feasible point next to x: rows above 1 are shrunk, then columns above 1, then short columns are filled.

    What column j is short of (d_j) is spread over the rows in proportion to what they have left (e_i), as
    e_i d_j / sum(e). Columns then sum to 1 and rows to at most 1, up to rounding. ``row`` holds row sums minus 1;
    ``column`` and ``spare`` are room to work in.
    """
    n, m = x.shape
    for j in range(m):
        column[j] = 0.0
    for i in range(n):
        shrink = 1.0 / (1.0 + row[i]) if row[i] > 0.0 else 1.0
        spare[i] = shrink
        for j in range(m):
            column[j] += x[i, j] * shrink
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
        room += spare[i]
    if short > 0.0 and room > 0.0:
        fill(repaired, spare, room)


@inner_kernel
def fill(x: Floats, spare: Floats, room: float) -> None:
    """Bring columns that sum to less than 1 up to 1, out of what the rows have to spare."""
    n, m = x.shape
    for j in range(m):
        missing = 1.0
        for i in range(n):
            missing -= x[i, j]
        if missing > 0.0:
            for i in range(n):
                x[i, j] += missing * spare[i] / room


@kernel
def certified_gap(reg: Any, rate: Any, mu: Floats, repaired: Floats, w: Workspace) -> float:
    """How far the feasible point ``repaired`` can be above the optimum, from the dual point (z, mu).

    With columns summing to 1 the multipliers of the columns cancel, and what remains is a Bregman divergence (bounded
    by its symmetrised form) plus complementary slackness. Every term is non-negative: nothing cancels.
    """
    n, m = repaired.shape
    gap = 0.0
    for i in range(n):
        total = 0.0
        for j in range(m):
            y = repaired[i, j]
            total += y
            if y > 0.0 and y != w.x[i, j]:
                eta = rate_at(rate, i, j)
                gap += abs((y - w.x[i, j]) * (slope(reg, y) / eta + w.z[i, j]))
        gap += mu[i] * max(0.0, 1.0 - total)
    return gap
