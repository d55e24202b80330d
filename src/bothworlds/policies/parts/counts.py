r"""Impressions and clicks of every item at every position: of all rounds, of a sliding window, or discounted.

A sliding window forgets rounds that are more than :math:`W` rounds ago; with a discount :math:`\gamma < 1` a round that
is :math:`s` rounds ago has the weight :math:`\gamma^s`. ``rounds`` is the total weight of all rounds. It replaces t in
confidence bounds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...kernels import Floats, Ints, inner_kernel


class Counts(NamedTuple):
    """The counts, and the rounds in the window."""

    shown: Floats  # (n, m)
    clicked: Floats  # (n, m)
    rounds: Floats  # (1,) total weight of the rounds that are remembered
    learned: Ints  # (1,) number of all rounds
    discount: float
    past: Ints  # (window, m) the items of the rounds in the window, or -1; empty without a window
    past_clicks: Floats  # (window, m) their clicks


LEAVES = {
    "counts.shown": "ij",
    "counts.clicked": "ij",
    "counts.rounds": "",
    "counts.learned": "",
    "counts.past": "j items",
    "counts.past_clicks": "j",
}


def make_counts(n: int, m: int, window: int | None = None, discount: float = 1.0) -> Counts:
    """Return empty counts of n items at m positions."""
    return Counts(
        shown=np.zeros((n, m)),
        clicked=np.zeros((n, m)),
        rounds=np.zeros(1),
        learned=np.zeros(1, np.int64),
        discount=float(discount),
        past=np.full((window or 0, m), -1),
        past_clicks=np.zeros((window or 0, m)),
    )


@inner_kernel
def record(counts: Counts, ranking: Ints, clicks: Floats) -> None:
    """Count one round; forget the round that leaves the window, or discount all earlier rounds."""
    window, m = counts.past.shape
    if counts.discount < 1.0:
        for i in range(counts.shown.shape[0]):
            for j in range(m):
                counts.shown[i, j] *= counts.discount
                counts.clicked[i, j] *= counts.discount
        counts.rounds[0] *= counts.discount
    if window > 0:
        slot = counts.learned[0] % window
        if counts.learned[0] >= window:
            for j in range(m):
                item = counts.past[slot, j]
                if item >= 0:
                    counts.shown[item, j] -= 1.0
                    counts.clicked[item, j] = max(0.0, counts.clicked[item, j] - counts.past_clicks[slot, j])
            counts.rounds[0] -= 1.0
        for j in range(m):
            counts.past[slot, j], counts.past_clicks[slot, j] = ranking[j], clicks[j]
    for j in range(m):
        if ranking[j] >= 0:
            counts.shown[ranking[j], j] += 1.0
            counts.clicked[ranking[j], j] += clicks[j]
    counts.rounds[0] += 1.0
    counts.learned[0] += 1


@inner_kernel
def forget(counts: Counts) -> None:
    """Forget all rounds, but not how many there were."""
    for i in range(counts.shown.shape[0]):
        for j in range(counts.shown.shape[1]):
            counts.shown[i, j] = counts.clicked[i, j] = 0.0
    counts.rounds[0] = 0.0


@inner_kernel
def forgets(counts: Counts) -> bool:
    """Return whether a round may change the counts of items that were not shown."""
    return counts.discount < 1.0 or counts.past.shape[0] > 0


@inner_kernel
def lacking_list(counts: Counts, least: float, rng: np.random.Generator, ranking: Ints) -> int:
    """Fill in a cyclic list (s, s+1, ..., s+m-1) with a pair that was never shown, or less than ``least`` times.

    Among several, one of those whose rarest pair has the smallest count is drawn at random; returns the number of
    these, or 0 and no list if every pair was shown often enough. No two cyclic lists have a pair in common. The counts
    alone determine which lists are due, so after forgetting they are due again.
    """
    n, m = counts.shown.shape
    lacking, chosen, fewest = 0, -1, math.inf
    for s in range(n):
        rarest = math.inf
        for j in range(m):
            rarest = min(rarest, counts.shown[(s + j) % n, j])
        if rarest <= 0.0 or rarest < least:
            if rarest < fewest:
                lacking, fewest = 0, rarest
            if rarest == fewest:
                lacking += 1
                if rng.random() * lacking < 1.0:
                    chosen = s
    if lacking > 0:
        for j in range(m):
            ranking[j] = (chosen + j) % n
    return lacking
