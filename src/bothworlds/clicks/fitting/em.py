"""The position-based model by expectation-maximisation: the method of the first papers, slow near the maximum."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...kernels import Floats, Ints, kernel

CAP = 1.0 - 1e-6  # a value of 1 would never change again
PASSES = 100_000  # at most, unless their number is given
TOLERANCE = 1e-10  # share by which a product changes in the last pass


class Reached(NamedTuple):
    """Attraction of rows and examination of columns after some passes."""

    alpha: Floats
    beta: Floats
    passes: int
    converged: bool


def fit_em(
    row: Ints, column: Ints, shown: Floats, clicked: Floats, sizes: tuple[int, int], passes: int | None
) -> Reached:
    """Start from click rates, and repeat until no product changes by more than a share of 1e-10, or for some passes."""
    sums = [[np.bincount(code, part, size) for part in (clicked, shown)] for code, size in zip((row, column), sizes)]
    alpha, beta = ((clicks + 0.5) / (trials + 1.0) for clicks, trials in sums)
    alpha, beta = np.minimum(alpha, CAP), np.minimum(beta / beta[sums[1][1] > 0.0].max(), CAP)
    work = np.zeros((2, sizes[0])), np.zeros((2, sizes[1]))
    tolerance = TOLERANCE if passes is None else -1.0
    done, change = 0, np.inf
    while change > tolerance and done < (passes or PASSES):
        change, done = em_pass(row, column, clicked, shown - clicked, alpha, beta, *work), done + 1
    if passes is None:  # values that tend to 0 do not reach it
        for values, (clicks, trials) in zip((alpha, beta), sums):
            values[(clicks == 0.0) & (trials > 0.0)] = 0.0
    return Reached(alpha, beta, done, change <= tolerance)


@kernel
def em_pass(
    row: Ints, column: Ints, clicked: Floats, missed: Floats, alpha: Floats, beta: Floats, of_rows: Floats,
    of_columns: Floats,
) -> float:  # fmt: skip
    """Replace attraction and examination by their expected shares; return the largest change of a product."""
    of_rows[:], of_columns[:] = 0.0, 0.0
    for k in range(row.size):
        i, j, s, f = row[k], column[k], clicked[k], missed[k]
        miss = f / (1.0 - alpha[i] * beta[j])
        # Expected missing clicks on attractive items, and at examined positions.
        of_rows[0, i] += s + miss * alpha[i] * (1.0 - beta[j])
        of_columns[0, j] += s + miss * beta[j] * (1.0 - alpha[i])
        of_rows[1, i] += s + f
        of_columns[1, j] += s + f
    up, down = 1.0, 1.0
    for values, sums in ((alpha, of_rows), (beta, of_columns)):
        largest, smallest = 1.0, 1.0
        for k in range(values.size):
            if sums[1, k] > 0.0 and values[k] > 0.0:
                new = min(sums[0, k] / sums[1, k], CAP)
                if values[k] > 1e-12:  # a value that tends to 0 shrinks by a constant factor forever
                    largest, smallest = max(largest, new / values[k]), min(smallest, new / values[k])
                values[k] = new
        up, down = up * largest, down * smallest
    return max(up - 1.0, 1.0 - down)
