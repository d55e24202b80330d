"""Sums over positions for every item: clicks, impressions, and impressions weighted by examination.

A round changes those of the items on its page only. With many items, and counts that forget nothing, they are kept
from round to round; otherwise they are added up for every decision. Both give the same numbers to the last digit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...kernels import Floats, Ints, inner_kernel, kernel
from .counts import Counts


class ItemTotals(NamedTuple):
    """The sums, and whether they are ``kept`` from round to round."""

    kept: bool
    clicks: Floats  # (n,)
    impressions: Floats  # (n,)
    looks: Floats  # (n,) impressions at each position times its examination


def make_item_totals(n: int, *, kept: bool) -> ItemTotals:
    """Return the sums of n items without impressions; there are none if they are not ``kept``."""
    return ItemTotals(kept, *np.zeros((3, n if kept else 0)))


@inner_kernel
def sums_of(counts: Counts, examination: Floats, i: int) -> tuple[float, float, float]:
    """Return the clicks, the impressions and the looks of item i."""
    clicks, impressions, looks = 0.0, 0.0, 0.0
    for j in range(examination.size):
        clicks += counts.clicked[i, j]
        impressions += counts.shown[i, j]
        looks += examination[j] * counts.shown[i, j]
    return clicks, impressions, looks


@kernel
def add_up_all(totals: ItemTotals, counts: Counts, examination: Floats) -> None:
    """Add up the counts of all items."""
    for i in range(totals.clicks.size):
        totals.clicks[i], totals.impressions[i], totals.looks[i] = sums_of(counts, examination, i)


@inner_kernel
def add_up_shown(totals: ItemTotals, counts: Counts, examination: Floats, ranking: Ints) -> None:
    """Add up the counts of the items on a page, which is already in ``counts``."""
    for j in range(ranking.size):
        i = ranking[j]
        if i < 0:
            continue
        totals.clicks[i], totals.impressions[i], totals.looks[i] = sums_of(counts, examination, i)


@inner_kernel
def weigh_again(totals: ItemTotals, counts: Counts, examination: Floats) -> None:
    """Add up the looks of all items for another examination."""
    for i in range(totals.looks.size):
        if totals.impressions[i] > 0.0:
            totals.looks[i] = sums_of(counts, examination, i)[2]
