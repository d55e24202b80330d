"""A table of lists against a dictionary."""

from __future__ import annotations

import numpy as np

from bothworlds.kernels import kernel
from bothworlds.policies.parts.list_table import make_tally, set_times, times_of


@kernel
def count(tally, ranking):
    set_times(tally, ranking, times_of(tally, ranking) + 1.0)


@kernel
def look_up(tally, ranking):
    return times_of(tally, ranking)


def test_few_lists_are_counted_exactly():
    tally, rng, seen = make_tally(1024), np.random.default_rng(0), {}
    lists = [rng.permutation(12)[:5] for _ in range(200)]
    for _ in range(3000):
        one = lists[rng.integers(200)]
        count(tally, one)
        seen[tuple(one)] = seen.get(tuple(one), 0) + 1
    assert all(look_up(tally, np.array(one)) == times for one, times in seen.items())
    assert look_up(tally, np.array([0, 1, 2, 3, 11])) == 0.0


def test_lists_that_differ_by_order_only_are_told_apart():
    tally = make_tally()
    count(tally, np.array([1, 2]))
    assert [look_up(tally, np.array(one)) for one in ([1, 2], [2, 1], [1], [1, 2, 0])] == [1.0, 0.0, 0.0, 0.0]


def test_looking_up_changes_nothing():
    tally = make_tally(8)
    for item in range(20):
        look_up(tally, np.array([item]))
    assert not tally.keys.any()


def test_where_there_are_too_many_the_frequent_ones_are_kept():
    tally, rng = make_tally(64), np.random.default_rng(1)
    often = [np.array([k, k + 1]) for k in range(10)]
    for t in range(5000):
        count(tally, often[t % 10])
        count(tally, rng.integers(100, 10**6, size=2))
    assert tally.keys.size == 64
    assert [look_up(tally, one) for one in often] == [500.0] * 10
