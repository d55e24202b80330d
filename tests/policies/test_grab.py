"""GRAB against its definition: the leader, its neighbours, which list is shown, and why hill climbing is enough."""

from __future__ import annotations

from itertools import pairwise, permutations
from math import log

import numpy as np
import pytest
from scipy import stats

import bothworlds
from bothworlds.core import Decision
from bothworlds.policies import policy
from bothworlds.statistics import kl_upper
from tests.policies.pairs import is_best, last_state, remembered, rounds_of
from tests.reference.assignment import value_of


def neighbours(leader, order, n):
    """Lists one exchange away from the leader, by the order of positions."""
    lists = []
    for a, b in pairwise(order):
        swapped = list(leader)
        swapped[a], swapped[b] = leader[b], leader[a]
        lists.append(tuple(swapped))
    for item in set(range(n)) - set(leader):
        swapped = list(leader)
        swapped[order[-1]] = item
        lists.append(tuple(swapped))
    return lists


def averages(shown, clicked):
    return np.where(shown > 0.0, clicked / np.maximum(shown, 1e-300), 0.0)


def bounds(shown, clicked, level):
    p, upper = averages(shown, clicked), np.ones(shown.shape)
    for i, j in np.argwhere(shown > 0.0):
        upper[i, j] = kl_upper(min(1.0, p[i, j]), shown[i, j], level)
    return upper


def shows_the_best_neighbour(decision, leader, p, upper):
    """Whether the list shown is a neighbour with the largest gain, for some order of positions with ties."""
    n, m = p.shape
    own, shown = value_of(leader, upper), tuple(decision.ranking.tolist())
    values = [p[i, j] for j, i in enumerate(leader)]
    orders = [o for o in permutations(range(m)) if all(values[a] >= values[b] for a, b in pairwise(o))]
    for order in orders:
        lists = neighbours(leader, order, n)
        gain = max(value_of(np.array(one), upper) - own for one in lists)
        if gain <= 1e-12 and shown == tuple(leader):
            return True
        if shown in lists and value_of(decision.ranking, upper) - own >= gain - 1e-9:
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"cycle": 3}, {"level": "log t"}, {"window": 50}, {"discount": 0.95}])
@pytest.mark.parametrize("shape", [(5, 3), (4, 4), (3, 1)])
def test_it_shows_the_leader_once_in_a_cycle_and_the_best_neighbour_otherwise(settings, shape):
    cycle = settings.get("cycle", shape[0])
    forget = {key: value for key, value in settings.items() if key in ("window", "discount")}
    longest = {"window": 50.0, "discount": 20.0}.get(next(iter(forget), ""), 1000.0)
    led = {}
    for t, (state, decision, _, past) in enumerate(rounds_of(policy("grab", horizon=1000, **settings), 250, *shape)):
        leader = tuple((decision.ranking if t == 0 else state.leader).tolist())
        shown, clicked, _ = remembered(past, shape, **forget)
        p, times = averages(shown, clicked), led.get(leader, 0)
        assert is_best(np.array(leader), p)
        assert t == 0 or state.led[0] == times
        level = log(longest)
        if settings.get("level") == "log t":
            level = log(times + 1) + 3.0 * log(max(1.0, log(times + 1)))
        if times % cycle == 0:
            assert tuple(decision.ranking.tolist()) == leader
        else:
            assert shows_the_best_neighbour(decision, leader, p, bounds(shown, clicked, level))
        led[leader] = times + 1


@pytest.mark.parametrize(("n", "m"), [(5, 3), (4, 4), (6, 1), (2, 1), (2, 2)])
def test_a_list_has_n_minus_1_neighbours(n, m):
    state = policy("grab").init(n, m)
    assert state.work.gains.size == n - 1
    lists = neighbours(range(m), range(m), n)
    assert len(set(lists)) == n - 1
    assert all(len(set(one)) == m for one in lists)


def test_every_list_that_is_not_best_has_a_better_neighbour():
    """Expected clicks are unimodal on the graph, which is what makes climbing enough."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        p = np.outer(rng.random(5), rng.random(3))
        values = {one: value_of(np.array(one), p) for one in permutations(range(5), 3)}
        best = max(values, key=values.get)
        for leader, value in values.items():
            order = np.argsort([-p[i, j] for j, i in enumerate(leader)])
            better = any(values[one] > value for one in neighbours(leader, order.tolist(), 5))
            assert better == (leader != best)


def test_the_first_list_is_uniform():
    learner, rng = policy("grab"), np.random.default_rng(1)
    state, seen = learner.init(4, 2), np.zeros((4, 2))
    for _ in range(2000):
        seen[learner.decide(state, rng).ranking, [0, 1]] += 1
    assert all(stats.chisquare(column).pvalue > 1e-4 for column in seen.T)


def test_among_equal_gains_every_neighbour_has_its_chance():
    learner, rng = policy("grab", horizon=1000, cycle=10**6), np.random.default_rng(2)
    state = learner.init(5, 1)
    for item, clicks, rounds in ((0, 10, 20), (1, 1, 5), (2, 1, 5), (3, 1, 5), (4, 1, 5)):
        for k in range(rounds):
            learner.learn(state, Decision(np.array([item]), np.array([np.nan])), [float(k < clicks)])
    assert state.leader.tolist() == [0]
    seen = np.bincount([learner.decide(state, rng).ranking[0] for _ in range(2000)], minlength=5)
    assert seen[0] == 0
    assert stats.chisquare(seen[1:]).pvalue > 1e-4


def test_without_a_horizon_the_plan_doubles():
    state = last_state(policy("grab"), 1030)
    assert state.plan.horizon[0] == 2048.0
    assert state.counts.learned[0] == 1030


@pytest.mark.slow
def test_forgetting_follows_the_season():
    world = bothworlds.world("paper/periodic-both", phase=10_000)
    keep, forget = (bothworlds.play(policy("grab", window=w), world, 40_000, replications=4) for w in (None, 5_000))
    assert forget.final()[0] > keep.final()[0] + 0.01
