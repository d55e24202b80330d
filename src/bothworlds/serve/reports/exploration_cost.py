"""What exploration costs a surface now, and whether its learned order has settled.

The order has settled if at least ``ENOUGH_PAGES`` pages were learned from before the recent window, and exploration
costs at most ``LITTLE`` of the clicks.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...geometry.assignment import best_ranking
from ..engine.learner import centred
from ..engine.served_surface import ServedSegment

__all__ = ["ENOUGH_PAGES", "LITTLE", "cost_of", "is_settled"]

ENOUGH_PAGES = 1000
LITTLE = 0.05  # of the clicks


def cost_of(shelves: Iterable[ServedSegment]) -> float | None:
    r"""The share of clicks that exploration costs now, by the learner's own estimates; None before the first click.

    With the losses :math:`L` that the segments have counted and the probabilities :math:`x` that lists are drawn with,
    this is :math:`\langle L, x \rangle - \min_\sigma \langle L, \sigma \rangle`, summed over segments, over the number
    of clicks: how many more clicks the best list for these losses would have got. Items that do equally well cost
    nothing, however often they take turns; losses of which little is known differ by chance, and so cost much.
    """
    lost = clicks = 0.0
    for shelf in shelves:
        lost += _lost(shelf)
        clicks += float(shelf.counters.clicked.sum())
    return lost / clicks if clicks else None


def _lost(shelf: ServedSegment) -> float:
    policy = shelf.unconstrained.learner
    if not policy.free:
        return 0.0
    loss = centred(shelf.counters.loss[np.ix_([item.index for item in policy.eligible], policy.free)])
    best = best_ranking(-loss)
    return float((loss * policy.marginals).sum() - loss[best, np.arange(len(best))].sum())


def is_settled(rounds: int, recent_pages: int, cost: float | None) -> bool:
    """Whether the order has settled, after ``rounds`` pages of which ``recent_pages`` are in the recent window.

    >>> is_settled(4000, 1500, cost=0.03), is_settled(4000, 1500, cost=0.2), is_settled(4000, 3500, cost=0.03)
    (True, False, False)
    """
    return rounds - recent_pages >= ENOUGH_PAGES and cost is not None and cost <= LITTLE
