"""Which cyclic lists (s, s+1, ..., s+m-1) are complete: every pair of item and position in them was shown.

To show every pair once takes n rounds, and ``counts.lacking_list`` reads all pairs in each of them. If there
are many items and no count falls, complete lists are remembered instead: their first items have rows of their own in
``Rows``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...geometry.item_rows import Rows, add_row
from ...kernels import Floats, Ints, inner_kernel


def is_complete(shown: Floats) -> NDArray[np.bool_]:
    """Return, for every first item, whether the list is complete (n,), given the impressions of all pairs (n, m).

    >>> is_complete(np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 0.0]]))
    array([ True, False, False])
    """
    return np.logical_and.reduce([np.roll(shown[:, j] > 0.0, -j) for j in range(shown.shape[1])])


@inner_kernel
def all_complete(complete: Rows) -> bool:
    """Return whether no list is due."""
    return complete.own[0] == complete.item.size


@inner_kernel
def due_list(complete: Rows, rng: np.random.Generator, ranking: Ints) -> int:
    """Fill in a random one of the lists that are not complete; returns the number of these, or 0 and no list."""
    n, own = complete.item.size, complete.own[0]
    if own < n:
        first = complete.item[own + int(rng.random() * (n - own))]
        for j in range(ranking.size):
            ranking[j] = (first + j) % n
    return n - own


@inner_kernel
def complete_lists(complete: Rows, shown: Floats, ranking: Ints) -> None:
    """Remember the lists that the last round, which is already in ``shown``, has completed."""
    n, m = shown.shape
    if all_complete(complete):
        return
    for j in range(m):
        if ranking[j] < 0:
            continue
        first, missing = (ranking[j] - j) % n, 0
        for k in range(m):
            missing += shown[(first + k) % n, k] <= 0.0
        if missing == 0:
            add_row(complete, first)
