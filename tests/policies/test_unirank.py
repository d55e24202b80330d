"""UniRank against its definition: the leader and the merged blocks around it, round by round."""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import pytest

import bothworlds
from bothworlds.policies import policy
from bothworlds.statistics import kl_upper
from tests.reference.blocks import add_duels, as_lists, levels

SHAPES = [(5, 3), (4, 4), (6, 1), (2, 1), (7, 2), (8, 5)]


class Twin:
    """The algorithm in plain NumPy; ``s[i, j]`` is the mean of C_i - C_j where they differ."""

    def __init__(self, n, m, horizon):
        self.n, self.m, self.level, self.t = n, m, log(horizon), 0
        self.S, self.N = np.zeros((n, n)), np.zeros((n, n))
        self.leader = [list(range(n))]

    def learn(self, explored, ranking, clicks):
        self.t += 1
        add_duels(self.S, self.N, explored, ranking, clicks)
        s = self.S / np.maximum(self.N, 1)
        with np.errstate(divide="ignore"):
            kept_up = s + np.sqrt(log(log(self.t + 3)) / self.N) >= 0
        self.leader = levels(~kept_up.T & (self.N > 0))  # worse[i, j]: j does not keep up with i

    def hope(self, j, i):
        if self.N[j, i] == 0:
            return 1.0
        return kl_upper(0.5 + 0.5 * self.S[j, i] / self.N[j, i], self.N[j, i], self.level)

    def explored(self):
        """The explored blocks, with all items that may join the last of them, and whether one must."""
        blocks, d, filled = [], 0, 0
        while filled < self.m:
            block = list(self.leader[d])
            if filled + len(block) >= self.m:
                return [*blocks, block], self.invited(d)
            after = self.leader[d + 1]
            merged = any(self.hope(j, i) > 0.5 for i in block for j in after)
            blocks.append(sorted(block + after) if merged else block)
            d += 2 if merged else 1
            filled += len(blocks[-1])
        return blocks, []

    def invited(self, d):
        for below in self.leader[d + 1 :]:
            hopes = {j: max(self.hope(j, i) for i in self.leader[d]) for j in below}
            if max(hopes.values()) > 0.5:
                return [j for j in below if hopes[j] > max(hopes.values()) - 1e-12]
        return []


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_every_round_agrees_with_the_reference_implementation(n, m, generator):
    rng, horizon = generator(n, m), 200
    learner, twin = policy("unirank", horizon=horizon), Twin(n, m, horizon)
    state, attraction = learner.init(n, m), np.linspace(0.9, 0.1, n)
    for t in range(1500):
        if t == 900:
            attraction = attraction[::-1]
        explored = as_lists(state.explored)
        decision = learner.decide(state, rng)
        clicks = rng.random(m) < attraction[decision.ranking] / sqrt(1.0 + t % 3)
        learner.learn(state, decision, clicks)
        twin.learn(explored, decision.ranking, clicks)
        assert as_lists(state.leader) == twin.leader
        blocks, joining = twin.explored()
        ours = as_lists(state.explored)[: len(blocks)]
        if joining:
            extra = set(ours[-1]) - set(blocks[-1])
            assert len(extra) == 1
            assert extra <= set(joining)
            blocks[-1] = sorted({*blocks[-1], *extra})
        assert ours == blocks


def consistent(blocks):
    n = blocks.order.size
    sizes = np.diff(blocks.first[: blocks.n_blocks[0] + 1])
    in_place = (blocks.place[blocks.order] == np.arange(n)).all()
    return (
        in_place and (blocks.block[blocks.order] == np.repeat(np.arange(sizes.size), sizes)).all() and sizes.min() > 0
    )


def test_it_begins_with_one_block_and_never_merges_more_than_two(rng):
    n, m = 8, 5
    learner = policy("unirank", horizon=300)
    state = learner.init(n, m)
    assert as_lists(state.explored) == as_lists(state.leader) == [list(range(n))]
    for _ in range(800):
        decision = learner.decide(state, rng)
        learner.learn(state, decision, rng.random(m) < np.linspace(0.9, 0.2, n)[decision.ranking])
        assert consistent(state.explored)
        assert consistent(state.leader)
        for b, block in enumerate(as_lists(state.explored)):
            if state.explored.first[b] < m:
                assert len({int(state.leader.block[i]) for i in block}) <= 2


def test_clicks_without_noise_lead_to_single_items(rng):
    """Users click the best item, or the two best, or the three best, ...: the better of two wins every duel."""
    n, m = 5, 3
    learner = policy("unirank", horizon=100)
    state = learner.init(n, m)
    for t in range(2000):
        decision = learner.decide(state, rng)
        learner.learn(state, decision, decision.ranking <= t % (n - 1))
    assert as_lists(state.leader)[:m] == as_lists(state.explored)[:m] == [[0], [1], [2]]


def test_it_changes_its_mind_when_users_do():
    world = bothworlds.world("paper/periodic-items", phase=4000, gap=0.1)
    rewards = [
        bothworlds.play(name, world, 8000, replications=6, checkpoints=2).reward for name in ("unirank", "toprank")
    ]
    unirank, toprank = ((r[:, 1] - r[:, 0]).mean() / 4000 for r in rewards)
    assert unirank > toprank + 0.1


def test_factors_of_the_bounds_are_settings(rng):
    def blocks_after(**settings):
        learner = policy("unirank", horizon=1000, **settings)
        state, users = learner.init(4, 2), np.random.default_rng(1)
        for _ in range(150):
            decision = learner.decide(state, users)
            learner.learn(state, decision, users.random(2) < np.array([0.9, 0.6, 0.5, 0.1])[decision.ranking])
        return state.leader.n_blocks[0], (learner.decide(state, users).propensity < 1.0).sum()

    assert blocks_after(exploration=100.0)[1] == 2
    assert blocks_after(exploration=1e-6)[1] < 2
    assert blocks_after(margin=1000.0)[0] == 1
