"""The best ranking against brute force and against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linear_sum_assignment

from bothworlds.geometry import best_ranking
from bothworlds.geometry.assignment import candidates
from tests.geometry.problems import shapes
from tests.reference.assignment import best_value_by_brute_force, value_of


def check_ranking(ranking, scores):
    n, m = scores.shape
    assert ranking.shape == (m,)
    assert ranking.dtype == np.int64
    assert ranking.min() >= 0
    assert ranking.max() < n
    assert len(set(ranking.tolist())) == m, "an item is used twice"


def check_best(ranking, scores, best):
    check_ranking(ranking, scores)
    slack = 1e-12 * max(1.0, np.abs(scores).max()) * scores.shape[1]
    value = value_of(ranking, scores)
    assert value >= best - slack, f"a value of {value}, but {best} is possible"


def check_against_scipy(scores):
    rows, columns = linear_sum_assignment(scores, maximize=True)
    check_best(best_ranking(scores), scores, scores[rows, columns].sum())


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data())
def test_no_ranking_is_better(data):
    shape = data.draw(shapes(most=5))
    elements = data.draw(st.sampled_from([st.integers(-2, 2).map(float), st.floats(-1e6, 1e6)]))
    scores = data.draw(arrays(float, shape, elements=elements))
    check_best(best_ranking(scores), scores, best_value_by_brute_force(scores))


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (6, 6), (9, 3), (30, 30), (40, 39), (200, 20), (1000, 3), (500, 30)])
@pytest.mark.parametrize("kind", ["floats", "ties", "negative", "products", "huge and tiny"])
def test_agrees_with_scipy(shape, kind):
    rng = np.random.default_rng([len(kind), *shape])
    for _ in range(5):
        scores = {
            "floats": rng.standard_normal(shape),
            "ties": rng.integers(0, 3, shape).astype(float),
            "negative": -rng.random(shape) - 5.0,
            "products": np.outer(rng.random(shape[0]), rng.random(shape[1])),
            "huge and tiny": 10.0 ** rng.uniform(-9, 9, shape) * rng.choice([-1.0, 1.0], shape),
        }[kind]
        check_against_scipy(scores)


def test_products_are_matched_in_order():
    """Attraction times examination: sort both and match in order."""
    alpha, beta = np.array([0.2, 0.9, 0.5, 0.7]), np.array([0.3, 1.0, 0.6])
    assert best_ranking(np.outer(alpha, beta)).tolist() == [2, 1, 3]


def test_equal_scores_give_some_ranking():
    scores = np.ones((7, 7))
    check_ranking(best_ranking(scores), scores)


def test_a_ranking_that_is_not_best_is_caught():
    scores = np.array([[0.9, 0.8], [0.8, 0.1], [0.2, 0.3]])
    best = best_value_by_brute_force(scores)
    with pytest.raises(AssertionError, match="is possible"):
        check_best(np.array([0, 2]), scores, best)
    with pytest.raises(AssertionError, match="used twice"):
        check_best(np.array([0, 0]), scores, best)


def test_the_greedy_ranking_is_caught():
    rng = np.random.default_rng(1)
    caught = 0
    for _ in range(20):
        scores = rng.random((4, 3))
        left, greedy = list(range(4)), []
        for j in range(3):
            greedy.append(max(left, key=lambda i, j=j: scores[i, j]))
            left.remove(greedy[-1])
        try:
            check_best(np.array(greedy), scores, best_value_by_brute_force(scores))
        except AssertionError:
            caught += 1
    assert caught > 5


@pytest.mark.parametrize("kind", ["floats", "ties"])
@pytest.mark.parametrize("shape", [(1, 1), (7, 1), (9, 3), (6, 6), (60, 8)])
def test_candidates_are_the_best_of_every_position(shape, kind):
    rng = np.random.default_rng([*shape, len(kind)])
    scores = rng.random(shape) if kind == "floats" else rng.integers(0, 4, shape).astype(float)
    expected = {int(i) for column in scores.T for i in np.argsort(-column, kind="stable")[: shape[1]]}
    found = candidates(scores)
    assert found.tolist() == sorted(expected)
    assert value_of(found[best_ranking(scores[found])], scores) == pytest.approx(value_of(best_ranking(scores), scores))


def test_too_few_candidates_are_caught():
    """The best item of every position is not enough: here it is the same for all."""
    scores = np.array([[9.0, 9.0], [8.0, 1.0], [1.0, 7.0], [0.0, 0.0]])
    check_best(best_ranking(scores), scores, 17.0)
    with pytest.raises(AssertionError, match=r"17\.0 is possible"):
        check_best(np.array([2, 0]), scores, 17.0)
    short = np.unique(np.argsort(-scores, axis=0)[:1])
    assert len(short) < scores.shape[1] <= len(candidates(scores))
