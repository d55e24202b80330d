"""Lists from scores: the best one, with ties that do not depend on labels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bothworlds.kernels import kernel
from bothworlds.policies.parts.placement import make_placement_work, place_best, place_in_order, sort_largest
from bothworlds.policies.parts.random_stream import make_stream
from tests.reference.assignment import best_value_by_brute_force, value_of

SHAPES = [(5, 3), (4, 4), (6, 1), (2, 1), (2, 2)]


@kernel
def best(scores, source, ranking, work):
    place_best(scores, source, ranking, work)


@kernel
def in_order(attraction, examination, source, ranking, work):
    place_in_order(attraction, examination, source, ranking, work)


@kernel
def largest(values, indices, count, source):
    sort_largest(values, indices, count, source)


def lists(make, draws, n, m):
    """How often every item is at every position."""
    source, work, ranking = np.random.default_rng(0), make_placement_work(n, m), np.empty(m, np.int64)
    seen = np.zeros((n, m))
    for _ in range(draws):
        make(source, ranking, work)
        assert len(set(ranking.tolist())) == m
        seen[ranking, np.arange(m)] += 1
    return seen


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("source", [np.random.default_rng(1), make_stream(1)], ids=["generator", "stream"])
def test_no_list_has_a_larger_sum(shape, source):
    rng, ranking = np.random.default_rng(shape), np.empty(shape[1], np.int64)
    for scores in (rng.random(shape), rng.integers(0, 3, shape).astype(float)):
        best(scores, source, ranking, make_placement_work(*shape))
        assert value_of(ranking, scores) == pytest.approx(best_value_by_brute_force(scores))


@pytest.mark.parametrize("shape", SHAPES)
def test_where_all_scores_are_equal_every_item_is_equally_likely_everywhere(shape):
    n, m = shape
    for make in (
        lambda source, ranking, work: best(np.ones(shape), source, ranking, work),
        lambda source, ranking, work: in_order(np.ones(n), np.ones(m), source, ranking, work),
    ):
        seen = lists(make, 3000, n, m)
        assert all(stats.chisquare(column).pvalue > 1e-4 for column in seen.T)


def test_the_best_item_goes_to_the_most_examined_position():
    ranking = np.empty(3, np.int64)
    attraction, examination = np.array([0.2, 0.9, 0.1, 0.5]), np.array([0.3, 0.2, 0.8])
    in_order(attraction, examination, np.random.default_rng(0), ranking, make_placement_work(4, 3))
    assert ranking.tolist() == [3, 0, 1]
    best(np.outer(attraction, examination), np.random.default_rng(0), ranking, make_placement_work(4, 3))
    assert ranking.tolist() == [3, 0, 1]


def test_the_largest_come_first_and_ties_are_even():
    values, rng, indices = np.array([1.0, 3.0, 3.0, 3.0, 2.0]), np.random.default_rng(2), np.empty(5, np.int64)
    first = np.zeros(5)
    for _ in range(3000):
        largest(values, indices, 4, rng)
        assert sorted(indices[:3].tolist()) == [1, 2, 3]
        assert indices[3:].tolist() == [4, 0]
        first[indices[0]] += 1
    assert stats.chisquare(first[1:4]).pvalue > 1e-4


def test_of_many_values_the_largest_come_first_and_ties_are_even():
    rng, indices = np.random.default_rng(3), np.empty(600, np.int64)
    for values in (rng.random(600), rng.integers(0, 200, 600).astype(float), np.ones(600), np.arange(600.0)):
        largest(values, indices, 7, rng)
        assert values[indices[:7]].tolist() == sorted(values, reverse=True)[:7]
        assert sorted(indices.tolist()) == list(range(600))
    # Two items are above four equal ones, of which two are chosen: 12 pairs, in whichever order the items come.
    values, seen = np.zeros(600), np.zeros((4, 4))
    tied = np.array([5, 100, 101, 599])
    values[[50, 300]], values[tied] = [2.0, 3.0], 1.0
    for _ in range(3000):
        largest(values, indices, 4, rng)
        assert indices[:2].tolist() == [300, 50]
        seen[np.searchsorted(tied, indices[2]), np.searchsorted(tied, indices[3])] += 1
    assert stats.chisquare(seen[~np.eye(4, dtype=bool)]).pvalue > 1e-4
    always_the_first = np.where(np.arange(12) == 0, 3000.0, 0.0)
    assert stats.chisquare(always_the_first).pvalue < 1e-4
