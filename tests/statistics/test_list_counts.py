"""The hash table of lists against a dictionary."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothworlds.kernels import kernel
from bothworlds.statistics import list_counts
from bothworlds.statistics.list_counts import (
    close_list,
    digest_of,
    digest_order,
    list_count,
    make_list_table,
    make_room,
    next_value,
    settle,
)

LISTS = st.lists(st.lists(st.integers(-3, 3), min_size=0, max_size=4), min_size=1, max_size=60)
TOP, SAME = np.uint64(0xFFFFFFFF) << np.uint64(32), np.uint64(0x80000000) << np.uint64(32)


@kernel
def add_lists(starts, values, digests, table):
    """Add the lists ``values[starts[p] : starts[p + 1]]``, as those who count pages do; 0 is no digest."""
    for p in range(starts.size - 1):
        length = starts[p + 1] - starts[p]
        at = next_value(table)
        for k in range(length):
            table.values[at + k] = values[starts[p] + k]
        close_list(table, length, 1, digests[p] if digests[p] > 0 else digest_of(table.values, at, at + length))
    settle(table)


def extended(table, lists, digests=None):
    starts = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
    values = np.array([value for one in lists for value in one], np.int32)
    table = make_room(table, values.size, len(lists))
    add_lists(starts, values, np.zeros(len(lists), np.uint64) if digests is None else digests, table)
    return table


def contents(table):
    starts = table.starts[: list_count(table) + 1].tolist()
    keys = [tuple(table.values[start:stop].tolist()) for start, stop in pairwise(starts)]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, table.weights.tolist()))


@pytest.mark.slow
@given(LISTS)
def test_lists_are_counted_as_by_a_dictionary(lists):
    assert contents(extended(make_list_table(), lists)) == Counter(map(tuple, lists))


@pytest.mark.slow
@given(LISTS, LISTS)
def test_a_table_grows(one, other):
    table = extended(extended(make_list_table(), one), other)
    assert contents(table) == Counter(map(tuple, one + other))


@pytest.mark.slow
@pytest.mark.parametrize("half", [TOP, SAME])
@given(LISTS, st.data())
def test_lists_whose_digests_begin_alike_are_told_apart(half, lists, data):
    """Their slots follow one another, beyond the end of the index if all bits of the first half are 1."""
    of_list = {one: half | np.uint64(data.draw(st.integers(1, 3))) for one in sorted(set(map(tuple, lists)))}
    digests = np.array([of_list[tuple(one)] for one in lists], np.uint64)
    table = extended(make_list_table(), lists, digests)
    assert contents(table) == Counter(map(tuple, lists))
    assert contents(extended(table, lists, digests)) == {one: 2 * n for one, n in Counter(map(tuple, lists)).items()}
    assert_in_order(table)


@pytest.mark.slow
@given(LISTS)
def test_lists_are_put_in_the_order_of_their_digests(lists):
    assert_in_order(extended(make_list_table(), lists))


def test_the_order_is_right_for_many_lists():
    rng = np.random.default_rng(0)
    assert_in_order(extended(make_list_table(), rng.integers(0, 100, (5_000, 3)).tolist()))


def test_slots_without_sorting_are_out_of_order(monkeypatch):
    """The broken twin: the slots of an index as they are."""

    def unsorted(index, digests, head):
        slots = index[index > 0]
        index[: slots.size] = (slots & list_counts.NUMBER) - np.uint64(1)
        return slots.size

    table = extended(make_list_table(), np.random.default_rng(0).integers(0, 100, (5_000, 3)).tolist())
    monkeypatch.setattr(list_counts, "_sort_slots", unsorted)
    with pytest.raises(AssertionError):
        assert_in_order(table)


def assert_in_order(table):
    order = digest_order(table)
    assert sorted(order.tolist()) == list(range(list_count(table)))
    digests = table.digests[order]
    assert (digests[1:] >= digests[:-1]).all()
