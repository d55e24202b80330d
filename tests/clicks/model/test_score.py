"""Scores: log-likelihood per page, perplexities, unseen items, impossible events."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.clicks import Pages, fit, score
from bothworlds.clicks.model.model import MODELS
from bothworlds.clicks.model.predict import filled_columns, predict
from tests.clicks.page_logs import simulated


def fitted(name, pages, **options):
    return fit(pages, name, **options)


@pytest.mark.parametrize("name", MODELS)
def test_conditional_perplexity_is_at_least_that_of_all_impressions_together(name):
    train, test = simulated("ubm", 1_000, seed=1), simulated("ubm", 500, seed=2)
    found = score(fitted(name, train, prior=1.0), test)
    assert found.conditional_perplexity >= np.exp(-found.log_likelihood / 4) - 1e-12
    logs = np.log(found.conditional_perplexities)
    assert logs.sum() == pytest.approx(-found.log_likelihood, rel=1e-12)


def test_perplexity_of_a_fair_coin_is_two():
    pages = Pages.from_arrays([["a", "b"], ["a", "b"]], [[1, 0], [0, 1]])
    found = score(fit(pages, "rank-ctr"), pages)
    assert found.perplexity == pytest.approx(2.0)
    assert found.log_likelihood == pytest.approx(-2.0 * np.log(2.0))


@pytest.mark.slow
def test_marginal_is_conditional_only_for_independent_clicks():
    pages = simulated("dbn", 1_000, seed=3)
    for name, model in MODELS.items():
        prediction = predict(fitted(name, pages), pages)
        assert np.array_equal(prediction.marginal, prediction.conditional) is not model.dependent


@pytest.mark.parametrize("name", ["ubm", "dbn", "ccm", "dcm", "sdbn"])
def test_marginals_have_the_mean_of_conditionals(name):
    """Averaged over pages drawn from the model, the conditional probability of a rank is its marginal one."""
    pages = simulated(name, 30_000, n=4, m=4, seed=4)
    prediction = predict(fitted(name, pages), pages)
    weight = pages.count[pages.of_page()]
    for rank in range(4):
        own = pages.position == rank
        means = [np.average(p[own], weights=weight[own]) for p in (prediction.marginal, prediction.conditional)]
        assert means[0] == pytest.approx(means[1], abs=0.01)


@pytest.mark.parametrize("name", MODELS)
def test_unseen_items_get_the_mean_and_are_reported(name):
    train = Pages.from_arrays([["a", "b"], ["b", "a"]] * 40, [[1, 0], [0, 1], [0, 0], [1, 1]] * 20)
    test = Pages.from_arrays([["a", "new"], ["a", "b"]], [[0, 1], [1, 0]])
    found = score(fitted(name, train, prior=0.5), test)
    assert found.known.tolist() == [items == ["a", "b"] for items in page_items(test)]
    assert np.isfinite(found.log_likelihoods).all()


def page_items(pages):
    return [[pages.items[i] for i in pages.item[first:last]] for first, last in zip(pages.starts, pages.starts[1:])]


def test_impossible_events_are_counted_and_never_infinite():
    train = Pages.from_arrays([["a", "b"], ["b", "a"]] * 20, [[1, 0], [0, 1]] * 20)
    test = Pages.from_arrays([["a", "b"]], [[0, 1]], count=[3])
    found = score(fit(train, "item-ctr"), test)
    assert found.impossible == 6  # a missing click on a, and a click on b, on each of three pages
    assert found.log_likelihood == pytest.approx(2.0 * np.log(1e-6))


def test_a_position_that_the_model_lacks_is_refused():
    short = Pages.from_arrays([["a", "b"]] * 9, [[1, 0]] * 9)
    long = Pages.from_arrays([["a", "b", "c"]], [[1, 0, 0]])
    with pytest.raises(ValueError, match="no position 3"):
        score(fit(short, "rank-ctr"), long)


def test_unseen_columns_are_taken_from_the_nearest():
    gamma = np.arange(10) / 10.0
    assert filled_columns(gamma).tolist() == gamma.tolist()
    lost = gamma.copy()
    lost[9] = np.nan  # rank 4 after 3: the same distance at rank 3 is column 5
    assert filled_columns(lost)[9] == gamma[5]
    lost = gamma.copy()
    lost[6] = np.nan  # rank 4 without a click: the nearest last click of the rank
    assert filled_columns(lost)[6] == gamma[7]
    assert filled_columns(np.full(3, np.nan)).tolist() == [0.5] * 3
