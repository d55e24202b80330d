"""Uniformly random lists."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import chisquare

from bothworlds.policies import policy

UNIFORM = policy("uniform")


@pytest.mark.parametrize(("n", "m"), [(4, 2), (3, 3), (5, 1), (2, 2)])
def test_every_list_is_equally_likely(n, m):
    state, rng = UNIFORM.init(n, m), np.random.default_rng(100 * n + m)
    seen = Counter(tuple(UNIFORM.decide(state, rng).ranking.tolist()) for _ in range(6000))
    lists = list(permutations(range(n), m))
    assert set(seen) <= set(lists)
    assert chisquare([seen[one] for one in lists]).pvalue > 1e-4


@pytest.mark.parametrize(("n", "m"), [(10, 5), (2, 1), (7, 7)])
def test_every_item_is_at_every_position_with_probability_one_in_n(n, m):
    decision = UNIFORM.decide(UNIFORM.init(n, m), np.random.default_rng(0))
    assert (decision.propensity == 1.0 / n).all()


def test_a_draw_depends_on_the_generator_alone():
    fresh, used = UNIFORM.init(6, 4), UNIFORM.init(6, 4)
    other = np.random.default_rng(9)
    for _ in range(20):
        UNIFORM.learn(used, UNIFORM.decide(used, other), [1, 0, 1, 0])
    ours, theirs = np.random.default_rng(1), np.random.default_rng(1)
    for _ in range(20):
        assert (UNIFORM.decide(fresh, ours).ranking == UNIFORM.decide(used, theirs).ranking).all()


def test_it_declares_that_it_does_not_learn():
    assert UNIFORM.adaptive is False
