"""How many clicks exploration costs a surface now, and whether its learned order has settled.

The order has settled if at least ``MIN_PAGES`` pages were learned from before the recent window, and exploration costs
at most ``MAX_COST`` of the clicks.
"""

from __future__ import annotations

import numpy as np

from ...geometry.assignment import best_ranking
from ...kernels import Floats, Ints
from .inputs import LearnedState

MIN_PAGES = 1000
MAX_COST = 0.05  # share of the clicks
PRIOR_SHOWS = 30  # of an average item, added to the shows of every item


def exploration_cost(learned: LearnedState) -> float | None:
    r"""Return the share of clicks that exploration costs now; None before ``MIN_PAGES`` pages and the first click.

    With click rates :math:`r` of items at slots (``shrunk_rates``) and the probabilities :math:`x` that lists are drawn
    with, this is :math:`\max_\sigma \langle r, \sigma \rangle - \langle r, x \rangle` over
    :math:`\langle r, x \rangle`. Items with equal rates cost nothing, however often they alternate. The rates of fewer
    pages are nearly equal, whatever the items are.
    """
    rates = learned.rates
    if rates.shape[1] == 0 or learned.rounds + learned.other_rounds < MIN_PAGES:
        return None
    best = best_ranking(rates)
    clicks = float((rates * learned.marginals).sum())
    lost = float(rates[best, np.arange(len(best))].sum()) - clicks
    return max(0.0, lost) / clicks if learned.clicked.any() else None  # below 0 by rounding


def shrunk_rates(shown: Ints | Floats, clicked: Ints | Floats) -> Floats:
    """Return click rates of items at slots, (items, slots), drawn towards the average item of the slot.

    Rates of items that were hardly shown at a slot differ by chance, and the best list would be chosen by chance. Rates
    weighted by the inverse of propensities would differ even more where a policy shows most items hardly ever. The
    average counts every item once: most shows are those of the best item.

    >>> shrunk_rates(np.array([[970], [0], [30]]), np.array([[485], [0], [0]])).round(2).tolist()
    [[0.5], [0.33], [0.17]]
    """
    by_page = clicked.sum(axis=0) / np.maximum(1, shown.sum(axis=0))
    average = ((clicked + by_page) / (shown + 1)).mean(axis=0)
    rates: Floats = (clicked + PRIOR_SHOWS * average) / (shown + PRIOR_SHOWS)
    return rates


def why_unsettled(rounds: int, recent_pages: int, cost: float | None, *, cost_is_known: bool = True) -> str:
    """Return why the order has not settled, after ``rounds`` pages with ``recent_pages`` in the recent window.

    Empty if it has settled.

    >>> why_unsettled(4000, 1500, cost=0.03), why_unsettled(4000, 1500, cost=0.2)
    ('', 'exploration costs 20%, and may cost at most 5%')
    >>> why_unsettled(4000, 3500, cost=0.03)
    '500 pages were learned from before the recent ones, and 1,000 are needed'
    """
    reasons = []
    early = max(0, rounds - recent_pages)  # pages may be in the history before they are learned from
    if early < MIN_PAGES:
        reasons.append(f"{early:,} pages were learned from before the recent ones, and {MIN_PAGES:,} are needed")
    if cost is None and cost_is_known and rounds >= MIN_PAGES:
        reasons.append("there are no clicks yet")
    elif cost is not None and cost > MAX_COST:
        reasons.append(f"exploration costs {cost:.0%}, and may cost at most {MAX_COST:.0%}")
    return "; ".join(reasons)
