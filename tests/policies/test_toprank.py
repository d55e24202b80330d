"""TopRank against its definition: the relation and its blocks, round by round."""

from __future__ import annotations

from math import erf, log, pi, sqrt

import numpy as np
import pytest

import bothworlds
from bothworlds.arena.loop import advance
from bothworlds.core import Decision, copy_state
from bothworlds.policies import policy
from bothworlds.worlds import stochastic
from tests.reference.blocks import add_duels, as_lists, is_acyclic, levels

CONSTANT = 4.0 * sqrt(2.0 / pi) / erf(sqrt(2.0))
SHAPES = [(5, 3), (4, 4), (6, 1), (2, 1), (10, 5)]


class Twin:
    """The published algorithm in plain NumPy."""

    def __init__(self, n, delta):
        self.S, self.N, self.worse, self.delta = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n), bool), delta
        self.partition = levels(self.worse)

    def learn(self, ranking, clicks):
        add_duels(self.S, self.N, self.partition, ranking, clicks)
        with np.errstate(divide="ignore", invalid="ignore"):
            bound = np.sqrt(2.0 * self.N * np.log(CONSTANT / self.delta * np.sqrt(self.N)))
        self.worse |= (self.N > 0) & (bound <= self.S)
        self.partition = levels(self.worse)


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_every_round_agrees_with_the_reference_implementation(n, m, generator):
    rng = generator(n, m)
    learner, twin = policy("toprank", confidence=0.1), Twin(n, 0.1)
    state = learner.init(n, m)
    attraction = np.linspace(0.9, 0.1, n)
    for _ in range(800):
        decision = learner.decide(state, rng)
        clicks = rng.random(m) < attraction[decision.ranking] / np.arange(1, m + 1)
        learner.learn(state, decision, clicks)
        twin.learn(decision.ranking, clicks)
        assert as_lists(state.blocks) == twin.partition
    wins = state.duels.wins
    assert (wins - wins.T == twin.S).all()
    assert (wins + wins.T == twin.N).all()
    assert len(twin.partition) > 1


@pytest.mark.parametrize("horizon", [10, 1000, 10**6])
def test_two_items_are_separated_after_the_predicted_number_of_duels(horizon, rng):
    learner = policy("toprank", horizon=horizon)
    state = learner.init(2, 1)
    expected = next(N for N in range(1, 1000) if 2.0 * log(CONSTANT * horizon * sqrt(N)) <= N)
    duels = 0
    while state.blocks.n_blocks[0] == 1:
        decision = learner.decide(state, rng)
        learner.learn(state, decision, decision.ranking == 0)
        duels += int(decision.ranking[0] == 0)
    assert duels == expected
    assert all(learner.decide(state, rng).ranking[0] == 0 for _ in range(20))


def test_items_of_the_last_block_that_are_not_shown_collect_comparisons():
    learner = policy("toprank", horizon=100)
    state = learner.init(4, 2)
    learner.learn(state, Decision(np.array([2, 0]), np.full(2, 0.25)), [1, 0])
    assert state.duels.wins[2].tolist() == [1, 1, 0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.999, 0.5])
def test_the_relation_never_has_a_cycle_for_arbitrary_users(confidence, rng):
    n, m = 6, 3
    learner = policy("toprank", confidence=confidence, restart=150)
    state = learner.init(n, m)
    waiting, rebuilt = [], 0
    for t in range(6000):
        waiting.append(learner.decide(state, rng))
        decision = waiting.pop(int(rng.integers(len(waiting)))) if len(waiting) > t % 7 else waiting.pop()
        taste = (decision.ranking + t // 40) % n < 2  # favours others again and again
        before = state.blocks.n_blocks[0]
        learner.learn(state, decision, taste ^ (rng.random(m) < 0.1))
        if state.blocks.n_blocks[0] != before:
            rebuilt += 1
            assert is_acyclic(state.worse)
            assert as_lists(state.blocks) == levels(state.worse)
    assert rebuilt > 50


@pytest.mark.slow
def test_the_relation_has_no_cycle_over_a_million_rounds_with_users_who_change_their_minds(rng):
    n, m = 8, 4
    state = policy("toprank", confidence=0.9, restart=3000).init(n, m)
    rest = np.empty(m, np.int64), np.empty((2, m)), np.empty(m), np.empty(0, np.int64), np.zeros(2)
    for _ in range(4000):
        taste = rng.permutation(np.linspace(0.0, 1.0, n))
        advance(state, 250, np.tile(taste[:, None], m), rng, rng, *rest)
        assert is_acyclic(state.worse)
        assert as_lists(state.blocks) == levels(state.worse)


def test_the_default_confidence_is_one_over_the_horizon(rng):
    for given, same in (({"horizon": 50}, {"confidence": 1 / 50}), ({"restart": 70}, {"confidence": 1 / 70})):
        first, second = policy("toprank", **given), policy("toprank", restart=given.get("restart"), **same)
        a, b = first.init(3, 2), second.init(3, 2)
        for _ in range(69):
            decision = first.decide(a, rng)
            first.learn(a, decision, decision.ranking == 1)
            second.learn(b, decision, decision.ranking == 1)
            assert as_lists(a.blocks) == as_lists(b.blocks)


@pytest.mark.slow
def test_without_a_horizon_it_doubles_one(rng):
    learner = policy("toprank")
    state = learner.init(3, 1)
    for t in range(1, 4000):
        decision = learner.decide(state, rng)
        learner.learn(state, decision, decision.ranking == 0)
        assert (state.blocks.n_blocks[0] == 1) or t not in (1024, 1024 + 2048)
    assert state.epochs.clock.tolist() == [3999 - 3072, 4096, 4096]


def test_it_has_the_state_for_a_thousand_items(rng):
    learner = policy("toprank", horizon=1000)
    state = learner.init(1000, 10)
    for _ in range(50):
        decision = learner.decide(state, rng)
        learner.learn(state, decision, decision.ranking < 500)
    assert sum(a.nbytes for a in (state.duels.wins, state.worse)) <= 5_000_000
    assert (decision.propensity == 1e-3).all()


def test_deciding_does_not_even_touch_the_order(rng):
    learner = policy("toprank", horizon=1000)
    state = learner.init(5, 3)
    before = copy_state(state)
    learner.decide(state, rng)
    assert (state.blocks.order == before.blocks.order).all()


def test_it_keeps_the_order_of_the_first_season_unless_it_restarts():
    world = bothworlds.world("paper/periodic-items", phase=4000, gap=0.1)
    frozen, restarting = (
        bothworlds.play(policy("toprank", restart=restart), world, 8000, seeds=6, checkpoints=2).reward
        for restart in (None, 2000)
    )
    second = [(r[:, 1] - r[:, 0]).mean() / 4000 for r in (frozen, restarting)]
    assert second[1] > second[0] + 0.1


def test_with_steady_users_regret_stops_growing():
    world = stochastic([0.9, 0.6, 0.3, 0.1], [1.0, 0.5])
    result = bothworlds.play("toprank", world, 8000, seeds=8, checkpoints=2)
    regret = result.regret().mean(axis=0)
    assert regret[1] - regret[0] < 0.1 * regret[0]
