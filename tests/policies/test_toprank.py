"""TopRank against its definition: the relation and its blocks, round by round."""

from __future__ import annotations

from math import erf, log, pi, sqrt

import numpy as np
import pytest

import bothworlds
from bothworlds.arena.loop import play_compiled
from bothworlds.core import Decision, Shape, copy_state, streams
from bothworlds.policies import policy
from bothworlds.policies.pages import Page, Part, rank_page, resized
from bothworlds.worlds import stochastic
from bothworlds.worlds.users import TableUsers, new_answer
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


def learned_late_by_both(rng, *, noted):
    """The part of a state that has learned pages of this part, and the smaller problem, after each of many pages."""
    learner, shape, attraction = policy("toprank", confidence=0.5), Shape(8, 4), np.linspace(0.1, 0.9, 8)
    items, positions = np.array([0, 2, 3, 5, 6, 7]), np.array([0, 2, 3])
    page, waiting, whole, small = Page(items, {1: 4}), [], learner.init(*shape), learner.init(6, 3)
    for _ in range(1200):
        decision = rank_page(Part(learner, small, items, positions), page, shape, rng)
        waiting.append((decision, Decision(np.searchsorted(items, decision.ranking[positions]), np.ones(3))))
        if len(waiting) > 40:
            decision, own = waiting.pop(int(rng.integers(len(waiting))))
            clicks = rng.random(4) < attraction[decision.ranking]
            learner.learn(whole, decision if noted else decision._replace(note=np.zeros(0)), clicks)
            learner.learn(small, own._replace(note=decision.note[positions]), clicks[positions])
            yield resized(learner, whole, items, positions).state, small


@pytest.mark.slow
def test_a_part_with_late_feedback_has_the_state_of_the_smaller_problem(rng):
    partitions = set()
    for part, small in learned_late_by_both(rng, noted=True):
        assert (part.duels.wins == small.duels.wins).all()
        assert (part.worse == small.worse).all()
        assert as_lists(part.blocks) == as_lists(small.blocks)
        partitions.add(str(as_lists(part.blocks)))
    assert len(partitions) > 5


@pytest.mark.slow
def test_without_its_note_late_feedback_on_a_part_would_be_another(rng):
    *_, (part, small) = learned_late_by_both(rng, noted=False)
    assert (part.duels.wins != small.duels.wins).any()


def test_items_that_only_an_absent_one_separates_are_compared_without_it():
    learner = policy("toprank", horizon=100)
    state = learner.init(3, 2)
    state.worse[[0, 1], [1, 2]] = True
    state = learner.refreshed(state)
    assert as_lists(state.blocks) == [[0], [1], [2]]
    learner.learn(state, Decision(np.array([0, 2]), np.full(2, 0.5), absent=np.array([1])), [0, 1])
    learner.learn(state, Decision(np.array([0, 1]), np.ones(2)), [0, 1])
    assert state.duels.wins.tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0]]


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
    chosen = policy("toprank", confidence=0.9, restart=3000)
    state, source = chosen.init(n, m), streams(0, 0)._replace(policy=rng, users=rng)
    for _ in range(4000):
        taste = rng.permutation(np.linspace(0.0, 1.0, n))
        play_compiled(chosen, state, 250, TableUsers(np.tile(taste[:, None], m)), source, new_answer(m))
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
    assert [state.epochs.rounds[0], state.epochs.horizon[0]] == [3999 - 3072, 4096]


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
        bothworlds.play(policy("toprank", restart=restart), world, 8000, replications=6, checkpoints=2).reward
        for restart in (None, 2000)
    )
    second = [(r[:, 1] - r[:, 0]).mean() / 4000 for r in (frozen, restarting)]
    assert second[1] > second[0] + 0.1


def test_with_steady_users_regret_stops_growing():
    world = stochastic([0.9, 0.6, 0.3, 0.1], [1.0, 0.5])
    result = bothworlds.play("toprank", world, 8000, replications=8, checkpoints=2)
    regret = result.regret().mean(axis=0)
    assert regret[1] - regret[0] < 0.1 * regret[0]
