"""What the choice of a click model matters for the order of items.

The items of every page are sorted by their attraction in one model and in another. Both orders are valued by the second
model, which describes the users better: the clicks that it expects on a page.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...kernels import Floats, Ints, kernel
from ..model.click_model import ClickModel
from ..model.model import Model
from ..model.predictions import attraction_of_results, predict
from ..pages import Pages

RESAMPLES = 1_000
SMALL = 0.01  # a relative gain in clicks that hardly matters


class ItemOrder(NamedTuple):
    """How the orders of two models differ on some pages. Expected clicks are those of ``model``, per page."""

    reference: str
    model: str
    pairs: float  # share of the pairs of items of a page whose order differs
    first: float  # share of the pages whose first item differs
    shown: float  # expected clicks of the lists as they were shown
    by_reference: float  # of the same items in the order of the reference
    by_model: float  # in the order of the model
    low: float  # 95% interval of by_model - by_reference if other queries had been seen; NaN with one query
    high: float

    def sentence(self) -> str:
        """Return in words how much the choice of the model matters for the order of items."""
        gain = self.by_model - self.by_reference
        limits = f"; 95% interval {self.low:+.4f} to {self.high:+.4f} if other queries had been seen"
        judged = "hardly matters" if abs(gain) < SMALL * self.by_reference else "matters"
        judged = "may matter" if judged == "matters" and not self.low > 0.0 else judged
        return (
            f"For the order of items this {judged}: sorted by attraction, {self.model} orders {self.pairs:.1%} of the "
            f"pairs of items of a page in another way than {self.reference}, and has another first item on "
            f"{self.first:.1%} of the pages. Of its own order, {self.model} expects {self.by_model:.4f} clicks per "
            f"page, of that of {self.reference} {self.by_reference:.4f} ({gain:+.4f}"
            f"{limits if math.isfinite(self.low) else ''}), and of the lists as they were shown {self.shown:.4f}."
        )


def compare_orders(
    reference: Model | ClickModel, model: Model | ClickModel, names: tuple[str, str], pages: Pages, seed: int
) -> ItemOrder | None:
    """Return how the orders of two fitted models, with these names, differ on some pages.

    None if they are the same model, or if one of them is ``rank-ctr``, which knows no items.
    """
    if names[0] == names[1] or "rank-ctr" in names:
        return None
    ours, theirs = attraction_of_results(model, pages), attraction_of_results(reference, pages)
    found = np.zeros((3, len(pages)))
    _compare(pages.starts, ours, theirs, found)
    pairs, different, first = found
    values = [_expected(model, pages, by) for by in (None, theirs, ours)]
    weight = pages.count.astype(float)
    shown, by_reference, by_model = (float(value @ weight / weight.sum()) for value in values)
    low, high = _interval(values[2] - values[1], pages, seed)
    return ItemOrder(
        *names,
        pairs=float(different @ weight / max(pairs @ weight, 1.0)),
        first=float(first @ weight / weight.sum()),
        shown=shown,
        by_reference=by_reference,
        by_model=by_model,
        low=low,
        high=high,
    )


def _expected(model: Model | ClickModel, pages: Pages, by: Floats | None) -> Floats:
    """(P,) the clicks that a model expects on every page, with the items sorted by some values, largest first."""
    if by is not None:
        # Items of equal value stay in the order in which they were shown.
        order = np.lexsort((np.arange(by.size), -by, pages.of_page()))
        pages = replace(pages, item=pages.item[order], click=np.zeros_like(pages.click))
    return np.add.reduceat(predict(model, pages).marginal, pages.starts[:-1])


def _interval(gain: Floats, pages: Pages, seed: int) -> tuple[float, float]:
    """The 95% interval of the mean gain over resampled queries."""
    queries = np.unique(pages.query)
    if queries.size == 1:
        return math.nan, math.nan
    sums, sizes = (np.bincount(pages.query, pages.count * part)[queries] for part in (gain, np.ones(gain.size)))
    even = np.full(queries.size, 1.0 / queries.size)
    drawn = np.random.default_rng([seed, 2]).multinomial(queries.size, even, size=RESAMPLES)
    low, high = np.quantile((drawn @ sums) / (drawn @ sizes), (0.025, 0.975))
    return float(low), float(high)


@kernel
def _compare(starts: Ints, ours: Floats, theirs: Floats, found: Any) -> None:
    """Fill in, for every page, its pairs of items, those in another order, and whether the first items differ."""
    for p in range(starts.size - 1):
        best, other = starts[p], starts[p]
        for k in range(starts[p], starts[p + 1]):
            best = k if ours[k] > ours[best] else best
            other = k if theirs[k] > theirs[other] else other
            for before in range(starts[p], k):
                found[0, p] += 1.0
                if (ours[k] - ours[before]) * (theirs[k] - theirs[before]) < 0.0:
                    found[1, p] += 1.0
        found[2, p] = best != other
