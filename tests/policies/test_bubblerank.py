"""BubbleRank against its definition: pairs, certain orders and exchanges, round by round."""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import pytest

import bothworlds
from bothworlds.core import Decision
from bothworlds.policies import policy
from bothworlds.worlds import stochastic


class Twin:
    """The published algorithm for as many items as positions, in plain NumPy."""

    def __init__(self, base, delta):
        n = len(base)
        self.R, self.s, self.nn, self.log = list(base), np.zeros((n, n)), np.zeros((n, n)), log(1.0 / delta)
        self.t = 0

    def better(self, i, j):
        return self.s[i, j] > 2.0 * sqrt(self.nn[i, j] * self.log)

    def pairs(self):
        return [(k, k + 1) for k in range(self.t % 2, len(self.R) - 1, 2)]

    def learn(self, ranking, clicks):
        C = dict(zip(ranking, clicks))
        for k, h in self.pairs():
            i, j = self.R[k], self.R[h]
            for x, y in ((i, j), (j, i)):
                self.s[x, y] += C[x] - C[y]
                self.nn[x, y] += abs(C[x] - C[y])
        for k in range(len(self.R) - 1):
            if self.better(self.R[k + 1], self.R[k]):
                self.R[k : k + 2] = self.R[k + 1], self.R[k]
        self.t += 1


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_every_round_agrees_with_the_reference_implementation(n, generator):
    rng = generator(n)
    worst = list(range(n))
    learner, twin = policy("bubblerank", initial=worst, confidence=0.3, horizon=10_000), Twin(worst, 0.3)
    state, attraction = learner.init(n, n), np.linspace(0.1, 0.9, n)
    for t in range(1500):
        if t == 1000:
            attraction = attraction[::-1]
        decision = learner.decide(state, rng)
        expected, chance = list(twin.R), np.ones(n)
        for k, h in twin.pairs():
            if not twin.better(twin.R[k], twin.R[h]):
                chance[[k, h]] = 0.5
                if decision.ranking[k] == twin.R[h]:
                    expected[k], expected[h] = twin.R[h], twin.R[k]
        assert decision.ranking.tolist() == expected  # disjoint exchanges of neighbours only, none beyond doubt
        assert (decision.propensity == chance).all()
        clicks = (rng.random(n) < attraction[decision.ranking] * 0.9 ** np.arange(n)).astype(float)
        learner.learn(state, decision, clicks)
        twin.learn(decision.ranking.tolist(), clicks)
        assert state.base.tolist() == twin.R
        if t == 999:
            assert worst != twin.R
    assert (state.wins - state.wins.T == twin.s).all()
    assert (state.wins + state.wins.T == twin.nn).all()


def test_the_default_confidence_takes_more_than_sixteen_log_horizon_duels(rng):
    horizon = 100
    learner = policy("bubblerank", initial=[0, 1], horizon=horizon)
    state, duels = learner.init(2, 2), 0
    while state.base[0] == 0:
        decision = learner.decide(state, rng)
        duels += int(state.epochs.rounds[0] % 2 == 0)
        learner.learn(state, decision, decision.ranking == 1)
    assert duels == int(16 * log(horizon)) + 1


@pytest.mark.slow
def test_a_random_start_is_uniform_and_what_was_shown_first_comes_from_it():
    learner, bases, first = policy("bubblerank", horizon=100), {}, np.zeros((3, 2))
    for seed in range(3000):
        rng = np.random.default_rng(seed)
        state = learner.init(3, 2)
        decision = learner.decide(state, rng)
        assert (decision.propensity == 1 / 3).all()
        first[decision.ranking, [0, 1]] += 1
        learner.learn(state, decision, [0, 0])
        base = tuple(state.base)
        assert sorted(base[:2]) == sorted(decision.ranking)
        # Which of the two it was, the stream has decided, not the label.
        bases[base] = bases.get(base, 0) + 1
    assert len(bases) == 6
    assert np.abs(first / 3000 - 1 / 3).max() < 0.05


def test_the_last_position_is_compared_with_every_item_off_the_page_that_is_not_certainly_worse(rng):
    learner = policy("bubblerank", initial=[0, 1, 2], horizon=50)
    state = learner.init(6, 3)
    state.wins[2, 4] = 1000  # certainly worse
    seen = {}
    for _ in range(4000):
        decision = learner.decide(state, rng)
        seen[int(decision.ranking[2])] = seen.get(int(decision.ranking[2]), 0) + 1
        assert decision.propensity[2] == (0.5 if decision.ranking[2] == 2 else 0.25)
    assert seen.keys() == {2, 3, 5}
    assert seen[2] / 4000 == pytest.approx(0.5, abs=0.05)
    assert seen[3] / 4000 == pytest.approx(0.25, abs=0.05)
    learner.learn(state, decision, [0, 0, 0])
    assert all(learner.decide(state, rng).ranking[0] == 0 for _ in range(20))  # the other pairs: 2-3


def test_a_better_item_off_the_page_gets_on_it_and_to_the_top(rng):
    learner = policy("bubblerank", initial=[0, 1, 2], confidence=0.1)
    state = learner.init(5, 3)
    for _ in range(1500):
        decision = learner.decide(state, rng)
        learner.learn(state, decision, rng.random(3) < np.where(decision.ranking == 4, 0.9, 0.1))
    assert state.base[0] == 4
    assert sorted(state.base) == list(range(5))
    assert (state.place[state.base] == np.arange(5)).all()


def test_late_feedback_is_of_the_pairs_it_was_decided_with():
    learner = policy("bubblerank", initial=[0, 1, 2, 3], horizon=50)
    state = learner.init(4, 4)
    even = Decision(np.array([1, 0, 2, 3]), np.full(4, 0.5), np.zeros(1))
    odd = Decision(np.array([0, 1, 2, 3]), np.array([1.0, 0.5, 0.5, 1.0]), np.ones(1))
    learner.learn(state, odd, [1, 1, 0, 0])
    assert np.argwhere(state.wins).tolist() == [[1, 2]]
    learner.learn(state, even, [1, 0, 0, 0])
    assert np.argwhere(state.wins).tolist() == [[1, 0], [1, 2]]


@pytest.mark.parametrize("n", [4, 6])
def test_it_is_safe_and_from_the_best_list_it_loses_little(n):
    alpha, beta = np.linspace(0.9, 0.3, n), np.linspace(1.0, 0.4, 4)
    best = bothworlds.play(
        policy("bubblerank", initial=range(n)), stochastic(alpha, beta), 3000, replications=6, checkpoints=[1, 3000]
    )
    other = bothworlds.play("bubblerank", stochastic(alpha, beta), 3000, replications=6, checkpoints=[1, 3000])
    assert best.regret()[:, -1].max() < other.regret()[:, -1].mean()
    assert best.regret()[:, -1].max() < 3000 * 2 * (alpha[0] - alpha[1]) * 0.5


def test_a_restart_goes_back_to_the_list_given(rng):
    for initial in (None, (3, 1, 0)):
        learner = policy("bubblerank", initial=initial, restart=400, confidence=0.5)
        state = learner.init(4, 2)
        for _ in range(400):
            decision = learner.decide(state, rng)
            learner.learn(state, decision, decision.ranking == 2)
        assert not state.wins.any()
        assert state.begun[0] == (initial is not None)
        if initial is not None:
            assert state.base.tolist() == [3, 1, 0, 2]
        assert (state.place[state.base] == np.arange(4)).all()


def test_relabelling_the_items_relabels_the_list():
    labels = np.array([2, 0, 3, 1])
    learner = policy("bubblerank", initial=[2, 0])
    assert learner.relabelled(labels).initial == (0, 1)
    assert policy("bubblerank").relabelled(labels) == policy("bubblerank")


def test_a_list_from_json_is_the_same_setting():
    assert policy("bubblerank", initial=[1, 0]) == policy("bubblerank", initial=(1, 0))
    assert policy("bubblerank", initial=np.array([1, 0])).settings()["initial"] == (1, 0)


@pytest.mark.parametrize("initial", [[], [0, 0], [-1, 2], [0.5], "01", 3, [True, 0], [None]])
def test_an_impossible_list_is_refused_by_name(initial):
    with pytest.raises(ValueError, match="initial must be"):
        policy("bubblerank", initial=initial)


@pytest.mark.parametrize("initial", [[0], [0, 7]])
def test_a_list_that_does_not_fit_the_page_is_refused(initial):
    with pytest.raises(ValueError, match="initial must be at least 2 items from 0 to 3"):
        policy("bubblerank", initial=initial).init(4, 2)


@pytest.mark.parametrize("value", [0, 1, -0.1, np.nan, "no"])
def test_impossible_confidence_is_refused_by_name(value):
    with pytest.raises(ValueError, match="confidence must be"):
        policy("bubblerank", confidence=value)


@pytest.mark.parametrize("noted", [-1e9, 0.5, 3.0, 1e18, np.nan])
def test_a_note_of_a_log_that_is_not_a_parity_is_that_of_the_first_pair(noted):
    states = [policy("bubblerank").init(4, 4) for _ in range(2)]
    for state, given in zip(states, (noted, 0.0)):
        decision = Decision(np.arange(4), np.full(4, 0.5), np.array([given]))
        policy("bubblerank").learn(state, decision, [0.0, 1.0, 0.0, 1.0])
    one, other = (dict(bothworlds.core.leaves(state)) for state in states)
    assert all(np.array_equal(one[path], other[path]) for path in one)
