"""Designs: cells of pages and counts, and the influence of pages against fits without them."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.clicks import Counts, Pages
from bothworlds.clicks.fitting.design import Factor, design_of_counts, design_of_pages, positions_of


def a_log(seed=0, pages=4_000):
    rng = np.random.default_rng(seed)
    lists = np.array([rng.permutation(5)[:3] for _ in range(pages)])
    p = np.array([0.6, 0.5, 0.4, 0.3, 0.2])[lists] * np.array([1.0, 0.6, 0.4])
    return Pages.from_arrays(lists, rng.random(p.shape) < p, query=rng.integers(0, 2, pages))


def test_pages_and_their_counts_have_the_same_cells():
    pages = a_log()
    one, other = design_of_pages(pages, [positions_of(pages)]), design_of_counts(pages.counts())
    for name in ("row", "columns", "shown", "clicked"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert (one.items, one.queries, one.labels) == (other.items, other.queries, other.labels)
    assert one.row_counts.sum() == one.level_counts().sum() == one.shown.sum() + one.clicked.sum()


def test_an_item_that_was_never_shown_has_a_row_without_cells_in_a_log_of_one_query():
    counts = Counts.from_tables([[9, 9], [0, 0], [9, 9]], [[3, 2], [0, 0], [4, 1]], items=["a", "b", "c"])
    design = design_of_counts(counts)
    assert design.items == ("a", "b", "c")
    assert np.isnan(design.fit().row_effect).tolist() == [False, True, False]
    with pytest.raises(ValueError, match="no impressions"):
        design_of_counts(Counts.from_tables([[0]], [[0]]))


@pytest.mark.parametrize("windows", [1, 3])
def test_the_influence_of_a_page_is_what_the_fit_loses_without_it(windows):
    pages = a_log()
    window = np.random.default_rng(1).integers(0, windows, len(pages))[pages.of_page()]
    factors = [positions_of(pages), Factor(tuple("uvw"[:windows]), window)]
    design = design_of_pages(pages, factors)
    names = list(zip(design.queries, design.items))
    row = np.array([names.index(("0", item)) for item in "432"])
    columns = np.column_stack([np.arange(3), np.zeros(3, int)])
    fitted = design.fit()
    r = fitted.predict(row, columns)
    terms = np.bincount(pages.of_page(), fitted.influence(row, columns, r)[pages.click, design.cell])
    assert abs(pages.count @ terms) < 1e-6 * (pages.count @ np.abs(terms))
    for page in (0, 7, len(pages) // 2):
        count = pages.count.copy()
        count[page] += 1
        changed = design_of_pages(Pages(**{**vars(pages), "count": count}), factors).fit().predict(row, columns)
        assert changed.sum() - r.sum() == pytest.approx(terms[page], rel=0.02, abs=1e-7), page
