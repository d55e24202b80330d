"""How many clicks exploration costs a surface now, and whether its learned order has settled.

The order has settled if at least ``MIN_PAGES`` pages were learned from before the recent window, and exploration costs
at most ``MAX_COST`` of the clicks.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...geometry.assignment import best_ranking
from .inputs import SegmentState

__all__ = ["MAX_COST", "MIN_PAGES", "exploration_cost", "is_settled"]

MIN_PAGES = 1000
MAX_COST = 0.05  # share of the clicks


def exploration_cost(segments: Iterable[SegmentState]) -> float | None:
    r"""Return the share of clicks that exploration costs now, as the learner estimates it; None before the first click.

    With the losses :math:`L` that the segments have counted and the probabilities :math:`x` that lists are drawn with,
    this is :math:`\langle L, x \rangle - \min_\sigma \langle L, \sigma \rangle`, summed over segments, over the number
    of clicks. The numerator is how many more clicks the best list for these losses would have got. Items with equal
    losses cost nothing, however often they alternate. Losses estimated from few pages differ by chance, so the cost is
    high at first.
    """
    lost = clicks = 0.0
    for segment in segments:
        lost += _lost_clicks(segment)
        clicks += float(segment.clicked.sum()) - segment.other_clicks
    return lost / clicks if clicks else None


def _lost_clicks(segment: SegmentState) -> float:
    loss = segment.loss
    if loss.shape[1] == 0:
        return 0.0
    best = best_ranking(-loss)
    return float((loss * segment.marginals).sum() - loss[best, np.arange(len(best))].sum())


def is_settled(rounds: int, recent_pages: int, cost: float | None) -> bool:
    """Return whether the order has settled, after ``rounds`` pages with ``recent_pages`` in the recent window.

    >>> is_settled(4000, 1500, cost=0.03), is_settled(4000, 1500, cost=0.2), is_settled(4000, 3500, cost=0.03)
    (True, False, False)
    """
    return rounds - recent_pages >= MIN_PAGES and cost is not None and cost <= MAX_COST
