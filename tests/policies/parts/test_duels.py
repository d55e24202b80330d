"""Duels are counted as defined, also when feedback is late."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.kernels import kernel
from bothworlds.policies.parts import duels as fights
from bothworlds.policies.parts.blocks import make_blocks
from bothworlds.policies.parts.duels import make_duels
from tests.policies.parts.test_blocks import draw_list, partition
from tests.reference.blocks import add_duels, as_lists


@kernel
def record_duels(duels, blocks, ranking, clicks, sizes):
    fights.record_duels(duels, blocks, ranking, clicks, sizes)


@kernel
def forget_duels(duels):
    fights.forget_duels(duels)


@pytest.mark.parametrize(
    ("n", "m", "cuts"), [(5, 3, []), (5, 3, [1]), (6, 4, [1, 3]), (4, 4, [2]), (3, 1, []), (5, 2, [2])]
)
def test_wins_are_sums_and_numbers_of_differing_clicks(n, m, cuts, rng):
    blocks, duels = partition(n, cuts), make_duels(n, m)
    S, N = np.zeros((n, n)), np.zeros((n, n))
    ranking, propensity = np.empty(m, np.int64), np.empty(m)
    for _ in range(200):
        draw_list(blocks, rng, ranking, propensity)
        clicks = (rng.random(m) < 0.5).astype(float)
        record_duels(duels, blocks, ranking, clicks, 1.0 / propensity)
        add_duels(S, N, as_lists(blocks), ranking, clicks)
    assert (duels.wins - duels.wins.T == S).all()
    assert (duels.wins + duels.wins.T == N).all()
    forget_duels(duels)
    assert not duels.wins.any()


def wins_after(blocks, ranking, sizes, clicks):
    duels = make_duels(blocks.order.size, len(ranking))
    record_duels(duels, blocks, np.array(ranking), np.array(clicks, float), np.array(sizes, float))
    return {(int(i), int(j)) for i, j in np.argwhere(duels.wins)}


def test_late_feedback_counts_where_two_shared_a_block_then_and_do_now():
    together = make_blocks(4)
    assert wins_after(together, [0, 1], [4, 4], [1, 0]) == {(0, 1), (0, 2), (0, 3)}
    assert wins_after(together, [0, 1], [1, 3], [1, 0]) == set()
    assert wins_after(together, [0, 1], [1, 3], [0, 1]) == set()  # 2 and 3 are off the page, who knows where
    assert wins_after(partition(4, [1]), [0, 1], [1, 3], [0, 1]) == {(1, 2), (1, 3)}
    assert wins_after(together, [0, 1], [2, 2], [1, 0]) == {(0, 1)}
    assert wins_after(partition(4, [1]), [0, 1], [4, 4], [1, 0]) == set()
    assert wins_after(partition(4, [2]), [0, 1], [4, 4], [1, 0]) == {(0, 1)}


def test_without_a_note_the_present_blocks_count():
    assert wins_after(partition(4, [2]), [0, 1], [], [1, 0]) == {(0, 1)}
    assert wins_after(make_blocks(4), [0, 1], [], [1, 0]) == {(0, 1), (0, 2), (0, 3)}
