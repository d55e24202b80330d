"""The table of lists against a dictionary."""

from __future__ import annotations

import numpy as np

from bothworlds.kernels import kernel
from bothworlds.policies.grab import count_of, make_frequent_lists, set_count


@kernel
def count(table, ranking):
    set_count(table, ranking, count_of(table, ranking) + 1.0)


@kernel
def look_up(table, ranking):
    return count_of(table, ranking)


def test_few_lists_are_counted_exactly():
    table, rng, seen = make_frequent_lists(1024), np.random.default_rng(0), {}
    lists = [rng.permutation(12)[:5] for _ in range(200)]
    for _ in range(3000):
        one = lists[rng.integers(200)]
        count(table, one)
        seen[tuple(one)] = seen.get(tuple(one), 0) + 1
    assert all(look_up(table, np.array(one)) == times for one, times in seen.items())
    assert look_up(table, np.array([0, 1, 2, 3, 11])) == 0.0


def test_lists_that_differ_by_order_only_have_their_own_counts():
    table = make_frequent_lists()
    count(table, np.array([1, 2]))
    assert [look_up(table, np.array(one)) for one in ([1, 2], [2, 1], [1], [1, 2, 0])] == [1.0, 0.0, 0.0, 0.0]


def test_looking_up_changes_nothing():
    table = make_frequent_lists(8)
    for item in range(20):
        look_up(table, np.array([item]))
    assert not table.keys.any()


def test_in_a_full_table_frequent_lists_are_kept():
    table, rng = make_frequent_lists(64), np.random.default_rng(1)
    often = [np.array([k, k + 1]) for k in range(10)]
    for t in range(5000):
        count(table, often[t % 10])
        count(table, rng.integers(100, 10**6, size=2))
    assert table.keys.size == 64
    assert [look_up(table, one) for one in often] == [500.0] * 10
