"""Estimates in worlds whose truth is known: bias, intervals, and what breaks them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from bothworlds.clicks import evaluate
from tests.clicks.evaluation_logs import as_log, as_marginals, logging_policy, pages

REPLICATIONS = {"position-based": 50, "of another form": 100}
PAGES = 1500
TARGET = np.array([[0.7, 0.1], [0.2, 0.6], [0.1, 0.2], [0.0, 0.1]])
POSITION_BASED = np.outer([0.5, 0.35, 0.25, 0.1], [1.0, 0.6])
OF_ANOTHER_FORM = np.array([[0.1, 0.5], [0.5, 0.1], [0.3, 0.3], [0.05, 0.6]])  # some like it lower down
WORLDS = {"position-based": POSITION_BASED, "of another form": OF_ANOTHER_FORM}
MOODS = {"position-based": 0.0, "of another form": 0.6}  # which tie the positions of a page together


@cache
def replications(world):
    """Values and standard errors of the whole page by every estimator, in many logs of one world."""
    rates = WORLDS[world]
    found = {}
    for k in range(REPLICATIONS[world]):
        rng = np.random.default_rng([2024, k])
        logging = logging_policy(4, 2, np.random.default_rng(5))
        log = as_log(*pages(rng, logging, rates, PAGES, MOODS[world]), logging.marginals)
        for one in evaluate(log, marginals=as_marginals(TARGET)).estimates:
            if one.position is None:
                found.setdefault(one.estimator, []).append((one.value, one.standard_error))
    return {name: np.array(values).T for name, values in found.items()}


def truth(world):
    return (TARGET * WORLDS[world]).sum()


def bias_in_errors(world, name):
    values = replications(world)[name][0]
    return (values.mean() - truth(world)) / (values.std(ddof=1) / np.sqrt(values.size))


def coverage(world, name):
    values, errors = replications(world)[name]
    return (abs(values - truth(world)) <= 1.96 * errors).mean()


def least_coverage(world):
    """95% less four standard errors of its number of replications."""
    return 0.95 - 4.0 * np.sqrt(0.95 * 0.05 / REPLICATIONS[world])


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ["ips", "snips", "clipped", "dr"])
def test_weighted_estimates_are_unbiased_under_any_click_rates(world, name):
    assert abs(bias_in_errors(world, name)) < 4.0


def test_the_direct_method_is_right_where_its_model_is():
    assert abs(bias_in_errors("position-based", "pbm")) < 4.0


def test_the_direct_method_is_wrong_where_its_model_is():
    assert abs(bias_in_errors("of another form", "pbm")) > 10.0


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ["ips", "snips", "clipped", "dr"])
def test_intervals_cover_the_truth_as_often_as_they_say(world, name):
    assert coverage(world, name) >= least_coverage(world)


@cache
def single_positions():
    """(400,) distances from the truth in standard errors: in four logs, a hundred positions with items of their own."""
    found = {}
    for k in range(4):
        rng = np.random.default_rng([7, k])
        logged, target = rng.dirichlet(np.full(4, 3.0), 100), rng.dirichlet(np.full(4, 1.0), 100)
        rates = rng.uniform(0.05, 0.6, (100, 4))
        place = np.repeat(np.arange(100), 800)
        item = (rng.random((place.size, 1)) > logged.cumsum(axis=1)[place, :3]).sum(axis=1)
        click = (rng.random(place.size) < rates[place, item]).astype(np.int64)
        log = {"item": place * 4 + item, "position": place, "click": click, "propensity": logged[place, item]}
        x = np.zeros((400, 100))
        x[np.arange(400), np.arange(400) // 4] = target.ravel()
        judged = evaluate(log, marginals={str(i): row for i, row in enumerate(x.tolist())})
        truth = (target * rates).sum(axis=1)
        for name in ("ips", "snips", "dr"):
            parts = [judged.estimate(name, j) for j in range(100)]
            found.setdefault(name, []).extend((e.value - t) / e.standard_error for e, t in zip(parts, truth.tolist()))
    return {name: np.array(distances) for name, distances in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ips", "snips", "dr"])
def test_intervals_of_single_positions_cover_as_often_as_they_say(name):
    distances = single_positions()[name]
    assert abs(distances.mean()) < 4 / np.sqrt(400)
    assert 0.905 <= (abs(distances) <= 1.96).mean() <= 0.99  # 95% less 4 standard errors of 400 replications


def test_the_interval_of_the_direct_method_covers_where_its_model_is_right():
    assert coverage("position-based", "pbm") >= least_coverage("position-based")


def test_the_model_makes_the_doubly_robust_estimate_steadier():
    spread = {name: part[0].std() for name, part in replications("position-based").items()}
    assert spread["dr"] < 0.95 * spread["ips"]


@pytest.mark.slow
def test_standard_errors_know_that_moods_tie_positions_together(rng):
    logging = logging_policy(4, 2)
    page, clicks = pages(rng, logging, POSITION_BASED, 4000, mood=0.9)
    target = as_marginals(logging.marginals)
    together, apart = (
        evaluate(as_log(page, clicks, logging.marginals, paged=paged), marginals=target).estimate("ips").standard_error
        for paged in (True, False)
    )
    assert together == pytest.approx(clicks.sum(axis=1).std() / np.sqrt(4000), rel=1e-3)
    assert apart < 0.95 * together  # what it would be if nobody looked at pages
