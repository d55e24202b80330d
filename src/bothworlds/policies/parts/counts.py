r"""Impressions and clicks of every item at every position: of all rounds, of a sliding window, or discounted.

A sliding window forgets rounds that are more than :math:`W` rounds ago; with a discount :math:`\gamma < 1` a round that
is :math:`s` rounds ago has the weight :math:`\gamma^s`. ``rounds`` is the total weight of all rounds. It replaces t in
confidence bounds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...core import Ledger
from ...kernels import Floats, Ints, inner_kernel

__all__ = ["LEAVES", "Counts", "Remembered", "lacking_list", "make_counts", "record", "remembered"]


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


class Remembered(NamedTuple):
    """What is remembered of a ledger: weighted counts, and the total weight of the rounds."""

    shown: Floats  # (n, m)
    clicked: Floats  # (n, m)
    rounds: float


def remembered(ledger: Ledger, window: int | None, discount: float) -> Remembered:
    r"""Return the counts of a ledger in a sliding window or with a discount, and since the last change.

    Rounds within a block cannot be distinguished, so each gets the mean weight of the block. The weight of a block
    of R rounds, with A later rounds, is the share of its rounds in the window, or
    :math:`\gamma^A (1 - \gamma^R) / (R (1 - \gamma))`. The total weight of all rounds is exact. Only the block at the
    end of the window is divided: if k of its R rounds are in the window, a count is wrong by at most k (1 - k/R), which
    is at most R/4. With a discount, it is wrong by at most the sum of
    :math:`R (\gamma^A - \gamma^{A + R - 1}) / 4` over all blocks.
    """
    blocks = ledger.blocks
    if ledger.changed_at is not None:
        blocks = tuple(block for block in blocks if block.start >= ledger.changed_at)
    shown, clicked = np.zeros((2, *ledger.shown.shape))
    total, later = 0.0, 0
    for block in reversed(blocks):
        weight = 1.0
        if window is not None:
            weight = min(1.0, max(0, window - later) / max(1, block.rounds))
        elif discount < 1.0 and block.rounds > 0:
            weight = discount**later * -math.expm1(block.rounds * math.log(discount)) / block.rounds / (1.0 - discount)
        if weight == 0.0:
            break
        shown += weight * block.shown
        clicked += weight * block.clicked
        total += weight * block.rounds
        later += block.rounds
    return Remembered(shown, clicked, total)


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
