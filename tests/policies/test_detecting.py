"""The setting ``detect``: counts forget everything before a detected change, and nothing without it."""

from __future__ import annotations

import numpy as np
import pytest

import bothworlds
from bothworlds.core import Block, Ledger
from bothworlds.policies import policy
from bothworlds.policies.parts.change_detector import find_change
from tests.policies.by_hand import rounds_of

NAMES = ("comb-ucb", "gibbs-ts", "pbm-ucb-mle")
SEASONS = bothworlds.worlds.periodic(
    [
        bothworlds.worlds.stochastic([0.9, 0.7, 0.4, 0.2, 0.1], [1.0, 0.6, 0.3]),
        bothworlds.worlds.stochastic([0.1, 0.2, 0.4, 0.7, 0.9], [0.3, 0.6, 1.0]),
    ],
    phase=1_600,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_change_is_noticed_and_everything_before_it_forgotten(name):
    learner, remembered = policy(name, detect=True), []
    for t, state, _, _ in rounds_of(learner, SEASONS, 3_200):
        remembered.append(state.counts.rounds[0])
        assert state.counts.shown.sum() == 3 * remembered[-1]
        assert state.counts.learned[0] == t - 1
    assert remembered[1_600] == 1_600
    assert remembered[-1] <= 1_600
    assert state.detector.changes[0] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_earns_more_where_users_change(name):
    keep, forget = (
        bothworlds.play(policy(name, detect=detect), SEASONS, 9_600, seeds=3, progress=False)
        for detect in (False, True)
    )
    assert forget.final()[0] > keep.final()[0] + 0.03


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_with_steady_users_it_is_the_same_policy(name):
    keep, forget = (policy(name, detect=detect) for detect in (False, True))
    world = bothworlds.world("paper/stochastic")
    assert keep == policy(name)
    assert keep.init(10, 5).detector.blocks.size == 0
    one, other = (bothworlds.play(p, world, 4_000, seeds=2, progress=False) for p in (keep, forget))
    assert (one.reward == other.reward).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("other", [{"window": 100}, {"discount": 0.9}])
def test_it_is_one_of_three_ways_to_forget(name, other):
    with pytest.raises(ValueError, match="window, discount and detect are ways to forget"):
        policy(name, detect=True, **other)
    with pytest.raises(ValueError, match="detect must be True or False"):
        policy(name, detect=1)


def test_sums_without_times_are_not_enough_for_it():
    ledger = Ledger(1, *np.zeros((3, 4, 2)))
    assert policy("comb-ucb").resumed(ledger).counts.rounds[0] == 1.0
    with pytest.raises(ValueError, match="has no blocks"):
        policy("comb-ucb", detect=True).resumed(ledger)


def blocks_of_a_run(rounds, sizes, world=SEASONS):
    """The blocks of so many rounds each, of a run of uniformly random lists."""
    learner, blocks, block = policy("uniform"), [], []
    ends = set(np.cumsum(sizes).tolist())
    for t, _, decision, clicks in rounds_of(learner, world, rounds):
        block.append((decision.ranking, clicks))
        if t in ends:
            shown, clicked = np.zeros((2, 5, 3))
            for ranking, seen in block:
                shown[ranking, range(3)] += 1.0
                clicked[ranking, range(3)] += seen
            blocks.append(Block(t - len(block), float(t), len(block), shown, clicked))
            block = []
    return blocks


def test_a_change_is_found_in_blocks():
    blocks = blocks_of_a_run(2_400, [400] * 3 + [200] * 4 + [100] * 4)
    assert sum(block.rounds for block in blocks) == 2_400
    steady = [block for block in blocks if block.until <= 1_600]
    assert find_change(steady, 1_600) is None
    assert find_change(blocks, 2_400) == 1_600.0
    assert find_change(blocks[7:], 2_400) is None  # what remains is of one season
    assert find_change(blocks[:1], 400) is None
    resumed = policy("comb-ucb", detect=True).resumed(
        Ledger(2_400, *np.zeros((3, 5, 3)), tuple(blocks), changed_at=1_600.0)
    )
    assert resumed.counts.rounds[0] == 800.0
    assert resumed.detector.blocks.size == 0


def test_a_few_rounds_are_not_a_change():
    blocks = blocks_of_a_run(1_620, [800, 800, 10, 10])
    assert find_change(blocks, 1_620) is None


@pytest.mark.slow
def test_steady_blocks_raise_no_alarm():
    world = bothworlds.worlds.stochastic([0.9, 0.7, 0.4, 0.2, 0.1], [1.0, 0.6, 0.3])
    blocks = blocks_of_a_run(6_400, [64] * 100, world)
    assert all(find_change(blocks[:k], 64 * k) is None for k in range(1, 101))
