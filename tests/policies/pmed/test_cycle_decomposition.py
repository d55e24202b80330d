"""A plan decomposed into lists: they add up, and every list has one cycle."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.policies.pmed.cycle_decomposition import decompose, make_cycle_decomposition
from bothworlds.policies.pmed.exploration import make_planner, plan
from tests.cases import case

SHAPES = [(5, 3), (4, 4), (6, 1), (2, 2), (10, 5), (3, 2)]


def random_flow(n, m, seed):
    """A positive combination of random lists, without the best list's pairs."""
    rng = np.random.default_rng([n, m, seed])
    q = np.zeros((n, m))
    for _ in range(rng.integers(1, 8)):
        q[rng.permutation(n)[:m], np.arange(m)] += 10.0 ** rng.uniform(-2, 4)
    q[np.arange(m), np.arange(m)] = 0.0
    return q


def lists_of(q):
    cycles = make_cycle_decomposition(*q.shape)
    decompose(q, cycles)
    count = cycles.n_lists[0]
    return cycles.weights[:count], cycles.lists[:count]


def cycles_of(ranking, n):
    """How many cycles the list makes: items on it go home to where they are, the others come from outside."""
    m = len(ranking)
    moved = [j for j in range(m) if ranking[j] != j]
    pushed_off = [j for j in range(m) if j not in ranking]
    links = {j: ranking[j] for j in moved}
    entries = sum(ranking[j] >= m for j in moved)
    seen, count = set(), entries
    assert len(pushed_off) == entries
    for j in moved:
        walk = []
        while j < m and j in links and j not in seen:
            seen.add(j)
            walk.append(j)
            j = links[j]
        count += bool(walk) and j == walk[0]
    return count


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_lists_add_up_to_the_plan_and_each_has_one_cycle(n, m):
    for seed in range(8):
        with case(seed=seed):
            check_decomposition(n, m, seed)


def check_decomposition(n, m, seed):
    q = random_flow(n, m, seed)
    weights, lists = lists_of(q)
    total = np.zeros((n, m))
    for weight, ranking in zip(weights, lists):
        assert len(set(ranking.tolist())) == m
        assert cycles_of(ranking.tolist(), n) == 1
        total[ranking, np.arange(m)] += weight
    total[np.arange(m), np.arange(m)] = 0.0
    np.testing.assert_allclose(total, q, atol=1e-7 * max(q.max(), 1.0))
    assert (np.diff(weights) <= 0.0).all()
    assert len(weights) <= n * m + m


def test_nothing_to_explore_takes_no_list():
    assert len(lists_of(np.zeros((4, 2)))[0]) == 0
    assert len(lists_of(np.eye(4, 2))[0]) == 0


def test_a_swap_is_a_swap_whatever_else_is_explored():
    """Items 1 and 2 rarely change places, 3 and 4 often: these are two lists, not one with both."""
    q = np.zeros((5, 4))
    q[0, 1] = q[1, 0] = 2.0
    q[2, 3] = q[3, 2] = 100.0
    weights, lists = lists_of(q)
    assert weights.tolist() == [100.0, 2.0]
    assert lists.tolist() == [[0, 1, 3, 2], [1, 0, 2, 3]]


def test_a_plan_is_taken_apart_without_a_rest():
    planner = make_planner(10, 5, 100)
    planner.alternative.log_theta[:] = np.log(0.95 - 0.03 * np.arange(10))
    planner.alternative.log_kappa[:] = -np.log(np.arange(1.0, 6.0))
    plan(planner, 1e-5, 100)
    q = np.where(np.eye(10, 5, dtype=bool), 0.0, planner.q)
    weights, lists = lists_of(planner.q)
    total = np.zeros((10, 5))
    for weight, ranking in zip(weights, lists):
        total[ranking, np.arange(5)] += weight
    np.testing.assert_allclose(np.where(np.eye(10, 5, dtype=bool), 0.0, total), q, atol=1e-6)
