"""The cyclic lists (s, s+1, ..., s+m-1) that are due: those with a pair of item and position that was never shown.

To show every pair once takes n rounds, and to look through all pairs takes as long in every one of them. With many
items, and counts that forget nothing, it is kept which lists are complete.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...geometry.item_rows import Rows, add_row, fill_rows, make_rows
from ...kernels import Ints, inner_kernel
from .counts import Counts, lacking_list

__all__ = ["CyclicLists", "all_complete", "complete_lists", "count_complete_lists", "due_list", "make_cyclic_lists"]


class CyclicLists(NamedTuple):
    """Which lists are complete, by their first item; used only if this is ``kept``."""

    kept: bool
    complete: Rows  # the first items of complete lists have rows of their own


def make_cyclic_lists(n: int, *, kept: bool) -> CyclicLists:
    """Return the lists of n items, none of which is complete."""
    return CyclicLists(kept, make_rows(n if kept else 0, sharing=True))


def count_complete_lists(lists: CyclicLists, counts: Counts) -> None:
    """Find out which lists are complete, from arbitrary counts."""
    if lists.kept:
        shown = counts.shown > 0.0
        fill_rows(lists.complete, np.all([np.roll(shown[:, j], -j) for j in range(shown.shape[1])], axis=0))


@inner_kernel
def all_complete(lists: CyclicLists) -> bool:
    """Return whether no list is due; only if this is kept."""
    return lists.complete.own[0] == lists.complete.item.size


@inner_kernel
def due_list(lists: CyclicLists, counts: Counts, rng: np.random.Generator, ranking: Ints) -> int:
    """Fill in a random one of the lists that are due; returns the number of these, or 0 and no list."""
    if not lists.kept:
        return lacking_list(counts, 0.0, rng, ranking)
    n, own, item = lists.complete.item.size, lists.complete.own[0], lists.complete.item
    if own < n:
        first = item[own + int(rng.random() * (n - own))]
        for j in range(ranking.size):
            ranking[j] = (first + j) % n
    return n - own


@inner_kernel
def complete_lists(lists: CyclicLists, counts: Counts, ranking: Ints) -> None:
    """Note the lists that the last round, which is already in ``counts``, has completed."""
    n, m = counts.shown.shape
    if not lists.kept or all_complete(lists):
        return
    for j in range(m):
        first = (ranking[j] - j) % n
        complete = True
        for k in range(m):
            complete = complete and counts.shown[(first + k) % n, k] > 0.0
        if complete:
            add_row(lists.complete, first)
