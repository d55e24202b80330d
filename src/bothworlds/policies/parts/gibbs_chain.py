"""A Gibbs sampler of attraction and examination, given the impressions and clicks of every pair; see ``gibbs-ts``."""

from __future__ import annotations

from typing import Any

from ...kernels import Floats, Ints, inner_kernel
from .counts import Counts
from .samplers import beta, binomial, round_at_random


@inner_kernel
def sweep(
    counts: Counts, items: Ints, prior: float, source: Any, attraction: Floats, examination: Floats, sums: Floats
) -> None:
    """Draw the cause of every missing click, then attraction and examination.

    ``items`` (k,) must contain all items that were shown; ``attraction[i]`` is that of ``items[i]``. Users who were not
    attracted looked with probability ``examination[j]`` for every item: one draw per position.
    """
    m = examination.size
    # For every position: clicks, attracted users who did not look, users who were not attracted.
    clicked, unseen, unattracted = sums[0], sums[1], sums[2]
    for j in range(m):
        clicked[j] = unseen[j] = unattracted[j] = 0.0
    for i in range(items.size):
        item, attracted, not_attracted = items[i], prior, prior
        for j in range(m):
            if counts.shown[item, j] > 0.0:
                clicks = counts.clicked[item, j]
                misses = round_at_random(source, max(0.0, counts.shown[item, j] - clicks))
                unread = binomial(source, misses, unread_share(attraction[i], examination[j]))
                attracted += clicks + unread
                not_attracted += misses - unread
                clicked[j] += clicks
                unseen[j] += unread
                unattracted[j] += misses - unread
        attraction[i] = beta(source, attracted, not_attracted)
    for j in range(m):
        looked = binomial(source, unattracted[j], examination[j])
        examination[j] = beta(source, prior + clicked[j] + looked, prior + unseen[j] + unattracted[j] - looked)


@inner_kernel
def unread_share(attraction: float, examination: float) -> float:
    """Return the share of missing clicks by users who were attracted but did not look."""
    both = 1.0 - attraction * examination
    return attraction * (1.0 - examination) / both if both > 0.0 else 0.5
