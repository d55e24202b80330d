"""Pages with the row of every result: a row is a (query, item), as in the tables of the position-based model."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...kernels import Ints
from ..pages import Pages, different_keys


class PageRows(NamedTuple):
    """Pages, and their rows; rows ``firsts[q]`` to ``firsts[q + 1]`` are those of query q."""

    pages: Pages
    items: tuple[str, ...]  # of the R rows
    queries: tuple[str, ...]
    firsts: Ints  # (Q + 1,)
    row: Ints  # (K,)
    counts: Ints  # (2, R) impressions and clicks

    @property
    def mean_rate(self) -> float:
        """The click rate of all impressions."""
        return float(self.counts[1].sum() / self.counts[0].sum())


def rows_of(pages: Pages) -> PageRows:
    """Return the rows of pages. Raises ValueError if there are no pages."""
    if not len(pages):
        raise ValueError(f"there is nothing to fit: no pages{f' in {pages.origin}' if pages.origin else ''}")
    page, n = pages.of_page(), len(pages.items)
    pairs, row = different_keys(pages.query[page] * n + pages.item, len(pages.queries) * n)
    weight = pages.count[page]
    counts = np.array([np.bincount(row, part, pairs.size) for part in (weight, weight * pages.click)])
    return PageRows(
        pages=pages,
        items=tuple(pages.items[k] for k in (pairs % n).tolist()),
        queries=tuple(pages.queries[k] for k in (pairs // n).tolist()),
        firsts=np.searchsorted(pairs // n, np.arange(len(pages.queries) + 1)).astype(np.int64),
        row=row,
        counts=counts.astype(np.int64),
    )
