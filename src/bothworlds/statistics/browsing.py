r"""The user browsing model: a click depends on its rank and on the rank of the last click above it.

:math:`P(c_k = 1 \mid c_{<k}) = \alpha_{d_k} \gamma_{k k'}`, where k' is the rank of the last click above k, 0 if there
is none. The pair (k, k') is a *column*, numbered k (k - 1) / 2 + k'.
"""

from __future__ import annotations

from typing import Any

from ..kernels import Floats, Ints, kernel


def column_number(rank: int, last: int) -> int:
    """Return the number of a column, for a rank from 1 and the rank of the last click above it, or 0.

    >>> [column_number(rank, last) for rank in (1, 2, 3) for last in range(rank)]
    [0, 1, 2, 3, 4, 5]
    """
    return rank * (rank - 1) // 2 + last


def ranks_of_column(column: int) -> tuple[int, int]:
    """Return the rank and the rank of the last click of a column.

    >>> [ranks_of_column(column) for column in range(4)]
    [(1, 0), (2, 0), (2, 1), (3, 0)]
    """
    rank = 1
    while rank * (rank + 1) // 2 <= column:
        rank += 1
    return rank, column - rank * (rank - 1) // 2


@kernel
def columns_of(starts: Ints, rank: Any, click: Any, column: Ints) -> None:
    """Fill in the column of every result; ``rank`` counts from 0."""
    for page in range(starts.size - 1):
        last = 0
        for k in range(starts[page], starts[page + 1]):
            above = int(rank[k])
            column[k] = above * (above + 1) // 2 + last
            if click[k] == 1:
                last = above + 1


@kernel
def marginal_probabilities(
    starts: Ints, row: Any, rank: Any, alpha: Floats, gamma: Floats, work: Floats, p: Floats
) -> None:
    r"""Fill in :math:`P(c_k = 1)` of every result.

    With :math:`a_k(j)` the probability that the last click above k is at j, it is :math:`\sum_j a_k(j) \alpha_k
    \gamma_{kj}`. ``work`` needs an entry for every rank and one more.
    """
    for page in range(starts.size - 1):
        for j in range(work.size):
            work[j] = 0.0
        work[0] = 1.0
        for k in range(starts[page], starts[page + 1]):
            above, total = int(rank[k]), 0.0
            first = above * (above + 1) // 2
            for j in range(above + 1):
                hit = work[j] * alpha[row[k]] * gamma[first + j]
                total += hit
                work[j] -= hit
            work[above + 1] = total
            p[k] = total


@kernel
def simulate(rng: Any, starts: Ints, row: Any, rank: Any, alpha: Floats, gamma: Floats, click: Any) -> None:
    """Draw the clicks of every page, with one uniform number for every result."""
    for page in range(starts.size - 1):
        last = 0
        for k in range(starts[page], starts[page + 1]):
            above = int(rank[k])
            click[k] = rng.random() < alpha[row[k]] * gamma[above * (above + 1) // 2 + last]
            if click[k] == 1:
                last = above + 1
