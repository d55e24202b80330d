"""The orders of two models against a count by hand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from bothworlds.clicks import Pages, compare_models, fit
from bothworlds.clicks.comparison.item_order import compare_orders


@pytest.fixture(scope="module")
def pages():
    """Two queries, and users who leave with their first click."""
    rng = np.random.default_rng(0)
    lists = np.array([rng.permutation(6)[:4] for _ in range(3_000)])
    query = rng.integers(0, 2, len(lists))
    rate = np.array([[0.6, 0.5, 0.4, 0.3, 0.2, 0.1], [0.1, 0.5, 0.2, 0.3, 0.6, 0.4]])[query[:, None], lists]
    wanted = rng.random(lists.shape) < rate
    return Pages.from_arrays(lists, wanted & (np.cumsum(wanted, axis=1) == 1), query=query)


def by_hand(reference, model, pages):
    """The shares of pairs and of first items that differ, page by page."""
    ours, theirs = (dict(zip(zip(one.queries, one.items), one.attraction)) for one in (model, reference))
    pairs = different = first = 0
    for p, count in enumerate(pages.count.tolist()):
        query = pages.queries[pages.query[p]]
        shown = [(query, pages.items[i]) for i in pages.item[pages.starts[p] : pages.starts[p + 1]]]
        for one, other in combinations(shown, 2):
            pairs += count
            different += count * ((ours[one] > ours[other]) != (theirs[one] > theirs[other]))
        first += count * (max(shown, key=ours.__getitem__) != max(shown, key=theirs.__getitem__))
    return different / pairs, first / pages.pages


def test_shares_are_those_by_hand(pages):
    reference, model = fit(pages, model="dcm"), fit(pages.counts(), model="item-ctr")
    rates = fit(pages.counts(), model="pbm")
    found = compare_orders(rates, reference, ("pbm", "dcm"), pages, 0)
    assert (found.pairs, found.first) == pytest.approx(by_hand(rates, reference, pages))
    assert compare_orders(model, reference, ("item-ctr", "dcm"), pages, 0).pairs < 0.5


def test_the_clicks_of_users_who_leave_do_not_depend_on_the_order(pages):
    model = fit(pages, model="cascade")
    found = compare_orders(fit(pages.counts(), model="pbm"), model, ("pbm", "cascade"), pages, 0)
    assert found.by_model == pytest.approx(found.by_reference) == pytest.approx(found.shown)
    assert "hardly matters" in found.sentence()


def test_an_order_that_is_reversed_has_all_pairs_and_fewer_clicks(pages):
    """The broken twin: a model that holds the worst items for the best."""
    model = fit(pages.counts(), model="pbm")
    found = compare_orders(fit(reversed_items(pages).counts(), model="pbm"), model, ("ubm", "pbm"), pages, 0)
    assert found.pairs > 0.8
    assert found.first > 0.8
    assert found.by_reference < found.shown < found.by_model
    assert found.low > 0.0
    assert "this matters" in found.sentence()


def reversed_items(pages):
    """Pages whose results are clicked where they were not, and not where they were."""
    return Pages(**{**vars(pages), "click": (1 - pages.click).astype(np.uint8)})


def test_one_model_and_models_without_items_have_no_orders_to_compare(pages):
    model = fit(pages.counts(), model="pbm")
    assert compare_orders(model, model, ("pbm", "pbm"), pages, 0) is None
    assert compare_orders(fit(pages.counts(), model="rank-ctr"), model, ("rank-ctr", "pbm"), pages, 0) is None


def test_a_comparison_says_what_it_matters_for_the_order(pages):
    found = compare_models(pages, ["pbm", "cascade"], priors=(0, 1))
    assert found.best.model == "cascade"
    assert found.order.sentence() in found.sentence()
    assert found.document()["item_order"]["pairs"] == found.order.pairs
