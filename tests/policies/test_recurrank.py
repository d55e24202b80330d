"""RecurRank for one-hot features against its definition: displays at the head, splits, drops, round by round."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, log, sqrt

import numpy as np
import pytest

from bothworlds.core import Decision
from bothworlds.policies import policy
from tests.reference.blocks import as_lists

SHAPES = [(5, 3), (4, 4), (6, 1), (2, 1), (7, 2), (10, 5)]


def displays(size, m, stage, delta):
    """T_l = ceil(log(|A| / delta_l) / (2 Delta_l^2)), delta_l = delta / (m l (l + 1)), Delta_l = 2^-l."""
    return ceil(log(size * m * stage * (stage + 1) / delta) / (2.0 * 0.25**stage))


class Node:
    """A block in plain Python: its items, its first position, its stage; only the head is read."""

    def __init__(self, items, k, m, stage, delta):
        self.items, self.k, self.m, self.stage, self.delta = list(items), k, m, stage, delta
        self.M = min(len(self.items), m - k)
        self.T = displays(len(self.items), m, stage, delta)
        self.shown, self.clicked = dict.fromkeys(items, 0), dict.fromkeys(items, 0.0)

    def learn(self, ranking, clicks):
        """The nodes that take its place, and the items that are dropped."""
        if len(self.items) == 1:
            return [self]
        self.shown[ranking[self.k]] += 1
        self.clicked[ranking[self.k]] += clicks[self.k]
        if min(self.shown.values()) < self.T:
            return [self]
        rate = {i: self.clicked[i] / self.T for i in self.items}
        gap = 2.0 * 0.5**self.stage
        ranked = sorted(self.items, key=lambda i: -rate[i])
        kept = [i for i in ranked if rate[ranked[self.M - 1]] - rate[i] < gap]
        cuts = [u for u in range(1, self.M) if rate[ranked[u - 1]] - rate[ranked[u]] >= gap]
        pieces = [kept[a:b] for a, b in pairwise([0, *cuts, len(kept)])]
        starts = [0, *cuts]
        return [Node(p, self.k + s, self.m, self.stage + 1, self.delta) for p, s in zip(pieces, starts)]


def nodes_of(state):
    """First position, items and stage of every node."""
    m, first = state.shape.n_positions, state.blocks.first
    return [
        (int(a), sorted(state.blocks.order[a:e].tolist()), int(state.stage[a])) for a, e in pairwise(first) if a < m
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_every_round_agrees_with_the_reference_implementation(n, m, generator):
    rng = generator(n, m)
    learner = policy("recurrank", confidence=0.5, horizon=10_000)
    state, nodes = learner.init(n, m), [Node(range(n), 0, m, 1, 0.5)]
    attraction = 0.95 * 0.5 ** np.arange(n)
    for _ in range(2500):
        decision = learner.decide(state, rng)
        for node in nodes:
            head = decision.ranking[node.k]
            assert head in node.items
            assert len(node.items) == 1 or node.shown[head] < node.T
        clicks = rng.random(m) < attraction[decision.ranking] * 0.9 ** np.arange(m)
        learner.learn(state, decision, clicks)
        nodes = [child for node in nodes for child in node.learn(decision.ranking, clicks)]
        assert nodes_of(state) == [(node.k, sorted(node.items), node.stage) for node in nodes]
        assert sum(node.M for node in nodes) == m
        for a, b in pairwise(nodes):
            assert a.k + a.M == b.k
    assert len(nodes) > 1 or m == 1


def test_the_others_follow_in_the_order_of_their_rates(rng):
    learner = policy("recurrank", horizon=100)
    state = learner.init(5, 4)
    taste = np.array([0.5, 0.8, 0.2, 0.4, 0.6])
    while not state.sorted[0]:
        decision = learner.decide(state, rng)
        learner.learn(state, decision, rng.random(4) < taste[decision.ranking])
    order = state.blocks.order.tolist()
    assert state.blocks.n_blocks[0] == 1
    for _ in range(50):
        ranking = learner.decide(state, rng).ranking.tolist()
        assert ranking[1:] == [i for i in order if i != ranking[0]][:3]


@pytest.mark.parametrize(("gap", "stage"), [(1.0, 1), (0.5, 2), (0.25, 3)])
def test_the_first_cut_comes_at_the_predicted_stage(gap, stage, rng):
    """Rates 1 and 1 - gap, as exact as so many displays allow: cut in the first stage with 2 Delta <= gap."""
    learner = policy("recurrank", horizon=100)
    state = learner.init(2, 2)
    while state.blocks.n_blocks[0] == 1:
        decision = learner.decide(state, rng)
        assert state.stage[0] <= stage
        turn, at = state.shown[decision.ranking[0]], decision.ranking[0]
        share = 1.0 if at == 0 else 1.0 - gap
        clicks = [int((turn + 1) * share) - int(turn * share), 0]
        last = state.stage[0]
        learner.learn(state, decision, clicks)
    assert last == stage
    assert as_lists(state.blocks) == [[0], [1]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "m", "rounds"), [(5, 3, 0), (5, 3, 40), (5, 3, 130), (5, 5, 130), (4, 2, 150), (6, 1, 120)]
)
def test_propensities_are_the_frequencies_of_many_draws(n, m, rounds, rng):
    learner, draws = policy("recurrank", horizon=100), 20_000
    state, seen, stated = learner.init(n, m), np.zeros((n, m)), np.zeros((n, m))
    for _ in range(rounds):
        decision = learner.decide(state, rng)
        learner.learn(state, decision, rng.random(m) < 0.9 * 0.5**decision.ranking)
    for _ in range(draws):
        decision = learner.decide(state, rng)
        seen[decision.ranking, np.arange(m)] += 1
        stated[decision.ranking, np.arange(m)] = decision.propensity
    np.testing.assert_allclose(stated.sum(axis=0), 1.0)
    assert np.abs(seen / draws - stated).max() < 5 * 0.5 / np.sqrt(draws)


def test_the_default_confidence_is_one_over_the_root_of_the_horizon():
    for horizon in (10, 10_000):
        state = policy("recurrank", horizon=horizon).init(6, 3)
        assert state.displays[0] == displays(6, 3, 1, 1.0 / sqrt(horizon))


def test_equal_rates_are_ordered_at_random(rng):
    learner, tops = policy("recurrank", horizon=10), set()
    for _ in range(60):
        state = learner.init(3, 1)
        while not state.sorted[0]:
            learner.learn(state, learner.decide(state, rng), [0])
        tops.add(tuple(state.blocks.order))
    assert len(tops) == 6


def test_late_feedback_of_items_that_have_had_their_turns_is_ignored():
    learner = policy("recurrank", horizon=100)
    state = learner.init(3, 2)
    turns = int(state.displays[0])
    for _ in range(turns + 5):
        learner.learn(state, Decision(np.array([1, 0]), np.full(2, 1 / 3)), [1, 0])
    assert state.shown.tolist() == [0, turns, 0]
    assert state.clicked.tolist() == [0, turns, 0]
    assert state.due[0] == 2
