"""BatchRank against its definition: batches, stages, splits and drops, round by round."""

from __future__ import annotations

import itertools
from math import ceil, log

import numpy as np
import pytest

import bothworlds
from bothworlds.core import Decision
from bothworlds.policies import policy
from bothworlds.statistics import kl_lower, kl_upper
from tests.reference.blocks import as_lists

SHAPES = [(5, 3), (4, 4), (6, 1), (2, 1), (7, 2), (10, 5)]


class Twin:
    """The published algorithm in plain Python; a batch is [first position, last + 1, items, stage, clicks, shown]."""

    def __init__(self, n, m, horizon, displays=16.0, loglog=3.0):
        self.log_T, self.displays, self.loglog = log(max(horizon, 3)), displays, loglog
        self.batches = [self.fresh(0, m, range(n))]

    def fresh(self, a, e, items, stage=0):
        return [a, e, set(items), stage, dict.fromkeys(items, 0.0), dict.fromkeys(items, 0)]

    def learn(self, ranking, clicks):
        after = []
        for batch in self.batches:
            a, e, items, stage, c, shown = batch
            least = min(shown.values())
            for p in range(a, e):
                if shown[ranking[p]] == least:
                    shown[ranking[p]] += 1
                    c[ranking[p]] += clicks[p]
            done = min(shown.values()) >= ceil(self.displays * 4**stage * self.log_T)
            after += self.end_stage(batch) if done and len(items) > 1 else [batch]
        self.batches = after

    def end_stage(self, batch):
        a, e, items, stage, c, shown = batch
        level = self.log_T + self.loglog * log(self.log_T)
        U = {i: kl_upper(c[i] / shown[i], shown[i], level) for i in items}
        L = {i: kl_lower(c[i] / shown[i], shown[i], level) for i in items}
        d = sorted(items, key=lambda i: -L[i])
        splits = [k for k in range(1, e - a) if L[d[k - 1]] > max(U[i] for i in d[k:])]
        if splits:
            s = max(splits)
            return [self.fresh(a, a + s, d[:s]), self.fresh(a + s, e, d[s:])]
        kept = [i for i in items if U[i] >= L[d[e - a - 1]]] if len(items) > e - a else items
        return [self.fresh(a, e, kept, stage + 1)]


def batches_of(state):
    """First position, last + 1, items and stage of every batch."""
    m, first = state.shape.n_positions, state.blocks.first
    return [
        (int(a), int(min(e, m)), set(state.blocks.order[a:e].tolist()), int(state.stage[a]))
        for a, e in itertools.pairwise(first)
        if a < m
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_every_round_agrees_with_the_reference_implementation(n, m, generator):
    rng = generator(n, m)
    learner, twin = policy("batchrank", horizon=20, displays=2.0, loglog=0.5), Twin(n, m, 20, 2.0, 0.5)
    state, attraction = learner.init(n, m), 0.95 * 0.5 ** np.arange(n)
    for _ in range(3000):
        decision = learner.decide(state, rng)
        clicks = rng.random(m) < attraction[decision.ranking] * 0.8 ** np.arange(m)
        for a, e, _, _, _, shown in twin.batches:
            left_out = [shown[i] for i in shown if i not in decision.ranking[a:e]]
            assert not left_out or max(shown[i] for i in decision.ranking[a:e]) <= min(left_out)
            assert max(shown.values()) - min(shown.values()) <= 1
        learner.learn(state, decision, clicks)
        twin.learn(decision.ranking, clicks)
        # A batch of one item has no stage that matters.
        assert [b for b in batches_of(state) if len(b[2]) > 1] == [tuple(b[:4]) for b in twin.batches if len(b[2]) > 1]
        assert [b[:3] for b in batches_of(state)] == [tuple(b[:3]) for b in twin.batches]
    assert len(twin.batches) > 1 or m == 1


def test_positions_are_partitioned_and_no_item_leaves_the_interval_of_its_batch(rng):
    n, m = 8, 4
    learner = policy("batchrank", horizon=50, displays=1.0)
    state, attraction = learner.init(n, m), 0.95 * 0.5 ** np.arange(n)
    intervals = dict.fromkeys(range(n), (0, m))
    for _ in range(2000):
        decision = learner.decide(state, rng)
        learner.learn(state, decision, rng.random(m) < attraction[decision.ranking])
        batches = batches_of(state)
        assert [p for a, e, _, _ in batches for p in range(a, e)] == list(range(m))
        now = {i: (a, e) for a, e, items, _ in batches for i in items}
        for i, (a, e) in now.items():
            assert intervals[i][0] <= a < e <= intervals[i][1]
        assert now.keys() <= intervals.keys()
        intervals = now
    assert len(batches) > 1


def test_the_first_stage_ends_after_the_predicted_number_of_displays(rng):
    learner = policy("batchrank", horizon=1000)
    state = learner.init(2, 1)
    displays = ceil(16 * log(1000))
    for t in range(2 * displays):
        assert state.stage[0] == 0
        assert state.blocks.n_blocks[0] == 1
        assert state.shown[0] == t // 2
        decision = learner.decide(state, rng)
        learner.learn(state, decision, decision.ranking == 1)
    assert as_lists(state.blocks) == [[1], [0]]


def test_a_batch_with_as_many_items_as_positions_goes_on_to_the_next_stage(rng):
    learner = policy("batchrank", horizon=100, displays=1.0)
    state = learner.init(3, 3)
    for _ in range(ceil(log(100))):
        learner.learn(state, learner.decide(state, rng), [1, 1, 1])
    assert state.stage[0] == 1


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m", "rounds"), [(5, 3, 0), (5, 3, 1), (5, 2, 2), (5, 3, 2), (6, 4, 1)])
def test_propensities_are_the_frequencies_of_many_draws(n, m, rounds, rng):
    learner, draws = policy("batchrank", horizon=100), 20_000
    state, seen, stated = learner.init(n, m), np.zeros((n, m)), np.zeros((n, m))
    for _ in range(rounds):
        learner.learn(state, learner.decide(state, rng), np.zeros(m))
    for _ in range(draws):
        decision = learner.decide(state, rng)
        seen[decision.ranking, np.arange(m)] += 1
        stated[decision.ranking, np.arange(m)] = decision.propensity
    np.testing.assert_allclose(stated.sum(axis=0), 1.0)
    assert np.abs(seen / draws - stated).max() < 5 * 0.5 / np.sqrt(draws)


def test_late_feedback_counts_only_inside_the_batch_and_only_for_items_that_are_due(rng):
    learner = policy("batchrank", horizon=100, displays=1.0)
    state = learner.init(4, 2)
    early = Decision(np.array([0, 3]), np.array([0.25, 0.25]))
    for _ in range(100):
        decision = learner.decide(state, rng)
        learner.learn(state, decision, decision.ranking == 3)
    assert as_lists(state.blocks)[0] == [3]
    due, clicked = state.due.copy(), state.clicked.copy()
    learner.learn(state, early, [1, 1])  # 0 and 3 were not at positions of their present batches
    assert (state.due == due).all()
    assert (state.clicked == clicked).all()


@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_the_shortest_horizons_are_possible(horizon, rng):
    learner = policy("batchrank", horizon=horizon)
    state = learner.init(3, 2)
    for _ in range(60):
        decision = learner.decide(state, rng)
        assert len(set(decision.ranking.tolist())) == 2
        learner.learn(state, decision, [1, 0])


def test_where_items_differ_little_it_is_still_random_at_the_end():
    world = bothworlds.world("paper/stochastic", gap=0.01)
    result = bothworlds.play("batchrank", world, 20_000, replications=2, checkpoints=1)
    assert result.final()[0] == pytest.approx(2.0664, abs=0.002)
