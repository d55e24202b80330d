r"""How often every item was shown and clicked at every position: all of the past, a window of it, or discounted.

A sliding window forgets what is more than :math:`W` rounds ago; a discount :math:`\gamma < 1` weighs a round that is
:math:`s` rounds ago with :math:`\gamma^s`. ``rounds`` is how many rounds that amounts to, which takes the place of t in
confidence bounds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...kernels import Floats, Ints, inner_kernel

__all__ = ["Counts", "lacking_list", "make_counts", "record"]


class Counts(NamedTuple):
    """What has been seen, as far as it is remembered."""

    shown: Floats  # (n, m)
    clicked: Floats  # (n, m)
    rounds: Floats  # (1,) rounds remembered
    learned: Ints  # (1,) rounds in all
    discount: float
    past: Ints  # (window, m) the rounds in the window: 2 * item + click; none if there is no window


def make_counts(n: int, m: int, window: int | None = None, discount: float = 1.0) -> Counts:
    """Empty counts of n items at m positions."""
    return Counts(
        shown=np.zeros((n, m)),
        clicked=np.zeros((n, m)),
        rounds=np.zeros(1),
        learned=np.zeros(1, np.int64),
        discount=float(discount),
        past=np.zeros((window or 0, m), np.int64),
    )


@inner_kernel
def record(counts: Counts, ranking: Ints, clicks: Floats) -> None:
    """Count one round, and forget what it pushes out."""
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
                item, click = counts.past[slot, j] // 2, counts.past[slot, j] % 2
                counts.shown[item, j] -= 1.0
                counts.clicked[item, j] -= click
            counts.rounds[0] -= 1.0
        for j in range(m):
            counts.past[slot, j] = 2 * ranking[j] + (1 if clicks[j] > 0.5 else 0)
    for j in range(m):
        counts.shown[ranking[j], j] += 1.0
        counts.clicked[ranking[j], j] += clicks[j]
    counts.rounds[0] += 1.0
    counts.learned[0] += 1


@inner_kernel
def lacking_list(counts: Counts, least: float, rng: np.random.Generator, ranking: Ints) -> int:
    """Fill in a cyclic list (s, s+1, ..., s+m-1) that has a pair never shown, or less than ``least`` times.

    Of several, those whose rarest pair is rarest, and one of these at random; returns how many these are. No two of
    them agree in any pair. 0, and no list, if none is lacking. Nothing has to be remembered about who has had a turn,
    and after forgetting they have it again.
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
