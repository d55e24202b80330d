"""Impressions and clicks of items, as far down the list as the user is known to have read, and bounds from them.

In the cascade model the user reads down to the first click; in the dependent click model at least down to the last one.
A list without a click was read to the end in both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...kernels import Floats, Ints, inner_kernel
from ...statistics.kl import kl_upper, round_level


class ExaminedCounts(NamedTuple):
    """Counts of items, over all positions."""

    examined: Floats  # (n,)
    clicked: Floats  # (n,)
    rounds: Floats  # (1,)


LEAVES = {"counts.examined": "i", "counts.clicked": "i", "counts.rounds": ""}


def make_examined_counts(n: int) -> ExaminedCounts:
    """Return empty counts of n items."""
    return ExaminedCounts(np.zeros(n), np.zeros(n), np.zeros(1))


@inner_kernel
def record_to_first_click(counts: ExaminedCounts, ranking: Ints, clicks: Floats) -> None:
    """Count the items down to the first click, or all of them if there is none."""
    counts.rounds[0] += 1.0
    for k in range(ranking.size):
        if ranking[k] >= 0:
            counts.examined[ranking[k]] += 1.0
        if clicks[k] > 0.0:
            if ranking[k] >= 0:
                counts.clicked[ranking[k]] += 1.0
            return


@inner_kernel
def record_to_last_click(counts: ExaminedCounts, ranking: Ints, clicks: Floats) -> None:
    """Count the items down to the last click, or all of them if there is none."""
    counts.rounds[0] += 1.0
    end = 0
    for k in range(ranking.size):
        if clicks[k] > 0.0:
            end = k + 1
    if end == 0:
        end = ranking.size
    for k in range(end):
        if ranking[k] >= 0:
            counts.examined[ranking[k]] += 1.0
            if clicks[k] > 0.0:
                counts.clicked[ranking[k]] += 1.0


@inner_kernel
def kl_bounds(counts: ExaminedCounts, bounds: Floats) -> None:
    """Fill in the Kullback-Leibler upper bound of every item in the next round; 1 for items that were not examined."""
    level = round_level(counts.rounds[0] + 1.0)
    for i in range(bounds.size):
        bounds[i] = 1.0
        if counts.examined[i] > 0.0:
            bounds[i] = kl_upper(counts.clicked[i] / counts.examined[i], counts.examined[i], level)
