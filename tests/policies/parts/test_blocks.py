"""Ordered partitions: drawn lists, cuts, sorting, and rebuilding from a relation."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothworlds.core import NONE_ABSENT, copy_state
from bothworlds.kernels import kernel
from bothworlds.policies.parts import blocks as parts
from bothworlds.policies.parts.blocks import make_blocks
from tests.reference.blocks import as_lists, levels


@kernel
def arrange_present(blocks, worse, behind, absent):
    parts.arrange(blocks, worse, behind, absent)


def arrange(blocks, worse, absent=NONE_ABSENT):
    arrange_present(blocks, worse, np.zeros(len(worse), np.int64), absent)


@kernel
def cut(blocks, at):
    parts.cut(blocks, at)


@kernel
def draw_list(blocks, rng, ranking, propensity):
    parts.draw_list(blocks, rng, ranking, propensity)


@kernel
def exchange(blocks, p, q):
    parts.exchange(blocks, p, q)


@kernel
def one_block(blocks):
    parts.one_block(blocks)


@kernel
def sort_block(blocks, b, score):
    parts.sort_block(blocks, b, score)


def partition(n, cuts):
    blocks = make_blocks(n)
    for at in cuts:
        cut(blocks, at)
    return blocks


def assert_consistent(blocks):
    """Every item in one place and one block, blocks in order and none empty."""
    n, count = blocks.order.size, blocks.n_blocks[0]
    assert sorted(blocks.order) == list(range(n))
    assert (blocks.place[blocks.order] == np.arange(n)).all()
    assert blocks.first[0] == 0
    assert (blocks.first[count:] == n).all()
    assert (np.diff(blocks.first[: count + 1]) > 0).all()
    sizes = np.diff(blocks.first[: count + 1])
    assert (blocks.block[blocks.order] == np.repeat(np.arange(count), sizes)).all()


relations = st.integers(2, 7).flatmap(
    lambda n: st.lists(st.booleans(), min_size=n * n, max_size=n * n).map(lambda b: np.array(b).reshape(n, n))
)


@pytest.mark.slow
@given(relations)
def test_blocks_of_a_relation_are_those_of_its_definition(worse):
    n = len(worse)
    np.fill_diagonal(worse, False)
    blocks = partition(n, [1])
    arrange(blocks, worse)
    assert_consistent(blocks)
    assert as_lists(blocks) == levels(worse)


@pytest.mark.slow
@given(relations, st.sets(st.integers(0, 6)))
def test_blocks_without_some_items_are_those_of_the_relation_of_the_others(worse, absent):
    n = len(worse)
    np.fill_diagonal(worse, False)
    present = np.array([i for i in range(n) if i not in absent], int)
    blocks = partition(n, [1])
    arrange(blocks, worse, np.array([i for i in absent if i < n], np.int64))
    count = blocks.n_blocks[0]
    assert (blocks.first[count:] == len(present)).all()
    assert as_lists(blocks) == [[int(present[i]) for i in level] for level in levels(worse[np.ix_(present, present)])]


def test_an_order_gives_single_items_and_no_relation_one_block():
    blocks = make_blocks(5)
    total = np.triu(np.ones((5, 5), bool), 1)[::-1, ::-1]
    arrange(blocks, np.ascontiguousarray(total))
    assert as_lists(blocks) == [[4], [3], [2], [1], [0]]
    arrange(blocks, np.zeros((5, 5), bool))
    assert as_lists(blocks) == [[0, 1, 2, 3, 4]]


@given(st.integers(2, 9), st.lists(st.integers(0, 9), max_size=12))
def test_a_cut_starts_a_block_and_moves_no_item(n, cuts):
    blocks = partition(n, [at for at in cuts if at <= n])
    assert_consistent(blocks)
    assert blocks.order.tolist() == list(range(n))
    assert blocks.first[: blocks.n_blocks[0]].tolist() == sorted({0, *(at for at in cuts if at < n)})


def test_sorting_a_block_keeps_to_the_block_and_ties_stay():
    blocks = partition(6, [1, 5])
    sort_block(blocks, 1, np.array([9.0, 0.2, 0.5, 0.5, 0.7, 9.0]))
    assert_consistent(blocks)
    assert blocks.order.tolist() == [0, 4, 2, 3, 1, 5]


def test_exchanged_items_know_their_places():
    blocks = make_blocks(4)
    exchange(blocks, 1, 3)
    exchange(blocks, 2, 2)
    assert_consistent(blocks)
    assert blocks.order.tolist() == [0, 3, 2, 1]


def test_one_block_again():
    blocks = partition(5, [2, 3])
    exchange(blocks, 0, 1)
    one_block(blocks)
    assert all(np.array_equal(a, b) for a, b in zip(blocks[:5], make_blocks(5)[:5]))


@pytest.mark.slow
@pytest.mark.parametrize("cuts", [[], [1], [2], [3], [1, 2, 3], [2, 4]])
def test_lists_are_uniform_inside_blocks_and_blocks_keep_their_order(cuts, rng):
    n, m, draws = 5, 3, 12_000
    blocks = partition(n, cuts)
    before, seen = copy_state(blocks), Counter()
    ranking, propensity = np.empty(m, np.int64), np.empty(m)
    for _ in range(draws):
        draw_list(blocks, rng, ranking, propensity)
        seen[tuple(ranking)] += 1
    assert all(np.array_equal(a, b) for a, b in zip(blocks[:5], before[:5]))
    possible = {tuple(o[:m]) for o in permutations(range(n)) if (np.diff(blocks.block[list(o)]) >= 0).all()}
    assert set(seen) == possible
    expected = draws / len(possible)
    assert max(abs(count - expected) for count in seen.values()) < 5 * np.sqrt(expected)
    sizes = np.diff([0, *cuts, n])
    assert propensity.tolist() == [1.0 / size for size in np.repeat(sizes, sizes)[:m]]
