"""Logs under the names of open bandit pipeline, there and back."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.clicks import evaluate, from_obp, to_obp
from tests.clicks.evaluation_logs import as_log, logging_policy, pages
from tests.clicks.written import counts

FIELDS = {"n_rounds", "n_actions", "action", "position", "reward", "pscore", "context", "action_context"}


@pytest.fixture
def logged(rng):
    logging = logging_policy(4, 2, rng)
    return logging, *pages(rng, logging, np.full((4, 2), 0.3), 500)


def test_the_fields_are_those_of_open_bandit_pipeline(logged):
    logging, ranking, clicks = logged
    feedback = to_obp(as_log(ranking, clicks, logging.marginals))
    assert feedback.keys() >= FIELDS
    assert (feedback["n_rounds"], feedback["n_actions"]) == (1000, 4)
    assert (feedback["action"] == ranking.ravel()).all()
    assert (feedback["position"] == np.tile([0, 1], 500)).all()
    assert (feedback["reward"] == clicks.ravel()).all()
    assert feedback["pscore"] == pytest.approx(logging.marginals[ranking, np.arange(2)].ravel())


@pytest.mark.slow
def test_there_and_back_changes_nothing(logged):
    logging, ranking, clicks = logged
    feedback = to_obp(as_log(ranking, clicks, logging.marginals))
    again = to_obp(from_obp(feedback))
    for name in FIELDS | {"action_names"}:
        assert np.array_equal(again[name], feedback[name])


@pytest.mark.slow
def test_a_log_converted_forth_and_back_is_evaluated_equally(logged):
    logging, ranking, clicks = logged
    log = as_log(ranking, clicks, logging.marginals, paged=False)
    one, other = evaluate(log, list("ab")), evaluate(from_obp(to_obp(log)), list("ab"))
    assert [e.value for e in other.estimates] == [e.value for e in one.estimates]


def test_feedback_without_names_and_positions_is_one_position_of_numbered_items():
    log = from_obp({"action": [0, 1, 1], "reward": [0, 1, 0], "pscore": [0.5, 0.5, 0.5]})
    counted = log.counts()
    assert (counted.items, counted.positions, counted.shown.tolist()) == (("0", "1"), (0,), [1, 2])


@pytest.mark.parametrize(
    ("feedback", "message"),
    [
        ({"action": [0]}, "reward is missing"),
        ({"action": [0.5], "reward": [0]}, "whole numbers"),
        ({"action": [0, 1], "reward": [0]}, "the same length"),
        ({"action": [0], "reward": [0.5]}, "0 or 1"),
        ({"action": [-1], "reward": [0]}, "from 0"),
        ({"action": [2], "reward": [0], "action_names": ["a", "b"]}, "from 0 to 1"),
        ({"action": [0], "reward": [0], "pscore": [0.0]}, "above 0"),
        ({"action": [0], "reward": [0], "pscore": ["half"]}, "above 0"),
        ([0, 1], "must be a dictionary of fields; got list"),
    ],
)
def test_feedback_that_makes_no_sense_is_refused(feedback, message):
    with pytest.raises(ValueError, match=message):
        from_obp(feedback)


def test_impressions_without_propensity_cannot_go(logged):
    logging, ranking, clicks = logged
    with pytest.raises(ValueError, match="1,000 impressions have no propensity"):
        to_obp(as_log(ranking, clicks, logging.marginals, propensity=False))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("propensity", 0.0, "the table, row 2: propensity must be above 0 and at most 1; got '0.0'"),
        ("propensity", -1.0, "propensity must be above 0"),
        ("propensity", 1.5, "propensity must be above 0"),
        ("propensity", "x", "the table cannot be read"),
        ("click", 0.6, "click must be 0 or 1; got '0.6'"),
        ("click", None, "click must be 0 or 1"),
        ("position", 1.5, "position must be a whole number"),
        ("position", -1, "position must be a whole number"),
        ("item", None, "item must not be missing"),
        ("item", "", "item must not be missing"),
    ],
)
def test_a_log_in_memory_is_checked_like_a_file(column, value, message):
    columns = {"item": ["a", "b"], "position": [1, 2], "click": [0, 1], "propensity": [0.5, None]}
    assert counts(columns).shown.tolist() == [1, 1]
    with pytest.raises(ValueError, match=message):
        counts(columns | {column: [columns[column][0], value]})
    with pytest.raises(ValueError, match=r"the table cannot be read: .*length"):
        counts(columns | {"click": [1]})
