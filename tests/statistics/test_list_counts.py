"""The hash table of lists against a dictionary."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bothworlds.kernels import kernel
from bothworlds.statistics.list_counts import (
    HEADER,
    close_list,
    make_list_table,
    make_room,
    merge_lists,
    next_values,
    settle,
)

LISTS = st.lists(st.lists(st.integers(-3, 3), min_size=0, max_size=4), min_size=1, max_size=60)


@kernel
def add_lists(starts, values, table):
    """Add the lists ``values[starts[p] : starts[p + 1]]``, as those who count pages do."""
    for p in range(starts.size - 1):
        length = starts[p + 1] - starts[p]
        at = next_values(table)
        for k in range(length):
            table.book[at + k] = values[starts[p] + k]
        close_list(table, length, 1)
    settle(table)


def filled(lists):
    starts = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
    values = np.array([value for one in lists for value in one], np.int64)
    table = make_room(make_list_table(16), values.size, len(lists))
    add_lists(starts, values, table)
    return table


def contents(table):
    found, at = {}, 0
    while at < table.fill[0]:
        length = int(table.book[at])
        key = tuple(table.book[at + HEADER : at + HEADER + length].tolist())
        assert key not in found
        found[key] = int(table.book[at + 1])
        at += HEADER + length
    assert len(found) == table.fill[1]
    return found


@given(LISTS)
def test_lists_are_counted_as_by_a_dictionary(lists):
    assert contents(filled(lists)) == Counter(map(tuple, lists))


@given(LISTS, LISTS)
def test_tables_are_merged_and_grow(one, other):
    left, right = filled(one), filled(other)
    grown = make_room(left, int(right.fill[0]), int(right.fill[1]))
    merge_lists(right, grown)
    assert contents(grown) == Counter(map(tuple, one + other))
