"""The test of dependence on the rest of the page: silent where clicks are only correlated."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.clicks import evaluate, generate
from bothworlds.clicks.offpolicy import dependence as module
from bothworlds.clicks.offpolicy.evaluation import Evaluator
from tests.clicks.evaluation_logs import as_log, logging_policy, pages

RATES = np.array([0.5, 0.4, 0.3, 0.2, 0.1])[:, None] * np.array([1.0, 0.7, 0.5])
RANKED = ["a", "b", "c"]


def dependence_in(log):
    return Evaluator(log).dependence


def warned(log, **options):
    return [one for one in evaluate(log, RANKED, **options).warnings if "rest of the page" in one]


def untested(log):
    return any("too few varied pages to test it" in one for one in evaluate(log, RANKED).notes)


def position_based(seed, count=4_000, mood=0.0):
    rng = np.random.default_rng(seed)
    logging = logging_policy(5, 3, rng)
    return as_log(*pages(rng, logging, RATES, count, mood), logging.marginals)


def cascading(seed, count=4_000):
    """Users who leave with their first click."""
    rng = np.random.default_rng(seed)
    logging = logging_policy(5, 3, rng)
    ranking, clicks = pages(rng, logging, RATES, count)
    return as_log(ranking, clicks * (np.cumsum(clicks, axis=1) == 1), logging.marginals)


@pytest.mark.slow
def test_users_who_leave_with_their_first_click_are_noticed():
    (warning,) = warned(cascading(0))
    assert "clicked less often below items that are clicked more" in warning
    found = dependence_in(cascading(0))
    assert found.slope == pytest.approx(-found.rate, rel=0.5)  # a certain click above leaves no clicks


@pytest.mark.slow
@pytest.mark.parametrize("mood", [0.0, 0.9])
def test_users_who_click_more_or_less_than_others_are_not_reported(mood):
    """Their clicks go together, yet do not depend on what else is shown: estimates are right."""
    log = position_based(1, mood=mood)
    assert warned(log) == []
    clicks = np.asarray(log["click"]).reshape(-1, 3)
    assert (np.corrcoef(clicks.T)[0, 1] > 0.1) is np.bool_(mood > 0.0)


@pytest.mark.slow
def test_standard_errors_are_right_if_users_differ():
    """200 logs with few pages for each item and position: the larger of two statistics has a mean square below 2."""
    z = [found.slope / found.error for found in (dependence_in(position_based(s, 300, mood=0.9)) for s in range(200))]
    error = np.sqrt(2.0 / len(z))
    assert abs(np.mean(z)) < 4.0 * error
    assert 1.0 - 4.0 * error < np.mean(np.square(z)) < 2.0 + 4.0 * error


@pytest.mark.slow
@pytest.mark.nightly
def test_a_statistic_that_takes_expected_clicks_from_the_same_pages_is_caught(monkeypatch):
    """The broken twin: with the click rates of the same half, clicks of one page enter both factors."""
    half = module._half
    monkeypatch.setattr(
        module, "_half", lambda logged, design, below, own, other: half(logged, design, below, own, own)
    )
    with pytest.raises(AssertionError):
        test_standard_errors_are_right_if_users_differ()


@pytest.mark.slow
@pytest.mark.parametrize("world", ["dcm/yandex", "ubm/yandex", "dbn/yandex"])
def test_dependent_worlds_are_noticed(world, tmp_path):
    assert dependence_in(generate(tmp_path / "log.parquet", world, 20_000)).far > 4.0


@pytest.mark.slow
def test_logs_without_pages_and_pages_of_one_result_are_not_dependence_in():
    rng = np.random.default_rng(0)
    logging = logging_policy(5, 3)
    ranking, clicks = pages(rng, logging, RATES, 200)
    assert dependence_in(as_log(ranking, clicks, logging.marginals, paged=False)) is None
    assert dependence_in(as_log(ranking[:, :1], clicks[:, :1], logging.marginals)) is None


@pytest.mark.slow
def test_few_pages_and_logs_without_clicks_say_nothing():
    assert warned(cascading(2, count=40)) == []
    assert untested(cascading(2, count=40))
    rng = np.random.default_rng(0)
    logging = logging_policy(5, 3)
    ranking, clicks = pages(rng, logging, RATES, 200)
    no_clicks = as_log(ranking, 0 * clicks, logging.marginals)
    assert dependence_in(no_clicks) is None
    assert untested(no_clicks)


@pytest.mark.parametrize("exploring", [0.02, 1.0])
def test_pages_that_vary_too_little_for_the_test_are_reported(exploring):
    """Users who leave with their first click, and a log that shows one list on most pages, or random ones."""
    rng = np.random.default_rng(4)
    logging = logging_policy(5, 3)
    mostly = (logging.lists == np.arange(3)).all(axis=1)
    chances = exploring / len(mostly) + (1.0 - exploring) * mostly
    ranking, clicks = pages(rng, logging._replace(chances=chances), RATES, 2_000)
    log = as_log(ranking, clicks * (np.cumsum(clicks, axis=1) == 1), np.full((5, 3), 0.5))
    assert (len(warned(log)), untested(log)) == ((0, True) if exploring < 1.0 else (1, False))


def test_where_there_is_nothing_to_test_nothing_is_said_but_that_there_are_no_pages():
    rng = np.random.default_rng(0)
    logging = logging_policy(5, 3)
    ranking, clicks = pages(rng, logging, RATES, 200)
    alone = evaluate(as_log(ranking[:, :1], clicks[:, :1], logging.marginals), ["a"])
    assert not any("rest of the page" in one for one in (*alone.warnings, *alone.notes))
    unpaged = evaluate(as_log(ranking, clicks, logging.marginals, paged=False), RANKED)
    assert any("cannot be tested" in note for note in unpaged.notes)


@pytest.mark.slow
def test_of_a_large_log_some_pages_are_dependence_in(monkeypatch):
    monkeypatch.setattr(module, "MOST_PAGES", 1_000)
    some = dependence_in(position_based(3))
    monkeypatch.undo()
    every = dependence_in(position_based(3))
    assert 1.5 * every.error < some.error < 3.0 * every.error
