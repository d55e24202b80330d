"""Splitting the pages of a log at random, query by query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...kernels import Ints
from ..pages import Pages


class Split(NamedTuple):
    """Three disjoint parts of a log."""

    train: Pages
    validation: Pages
    test: Pages


def split_pages(pages: Pages, shares: tuple[float, float, float], seed: int) -> Split:
    """Split every query at random into three parts with these shares of its pages, rounded down for the last two.

    Pages are in an order that depends only on the pages themselves, so that the same log and seed give the same parts.

    >>> pages = Pages.from_arrays([["a"], ["a"]], [[0], [1]], count=[60, 40])
    >>> [part.pages for part in split_pages(pages, (0.6, 0.2, 0.2), seed=0)]
    [60, 20, 20]
    """
    rng = np.random.default_rng(seed)
    counts = np.zeros((3, len(pages)), np.int64)
    order = np.argsort(pages.query, kind="stable")
    first = 0
    for last in (np.flatnonzero(np.append(np.diff(pages.query[order]), 1)) + 1).tolist():
        own = order[first:last]
        counts[:, own] = _split_counts(rng, pages.count[own], shares)
        first = last
    train, validation, test = (pages.with_counts(part) for part in counts)
    return Split(train, validation, test)


def _split_counts(rng: np.random.Generator, count: Ints, shares: tuple[float, float, float]) -> Ints:
    """(3, P) the counts of three parts that are drawn without replacement."""
    total = int(count.sum())
    validation, test = (int(share * total + 1e-9) for share in shares[1:])
    drawn = rng.multivariate_hypergeometric(count, test, method="marginals")
    left = count - drawn
    also = rng.multivariate_hypergeometric(left, validation, method="marginals")
    return np.array([left - also, also, drawn])
