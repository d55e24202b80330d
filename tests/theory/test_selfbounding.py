"""The paper's Lemmas 1 and 2 by brute force, and that wrong gaps would be detected."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given

from bothworlds.geometry import leader
from bothworlds.theory import gaps, optimal_ranking, self_bounding, self_bounding_constant, selfbounding
from tests.theory.instances import instances


def matrix_of(ranking, n):
    x = np.zeros((n, len(ranking)))
    x[list(ranking), range(len(ranking))] = 1.0
    return x


@pytest.mark.slow
@given(instances())
def test_the_inequality_holds_for_all_lists(instance):
    alpha, beta = instance
    for ranking in permutations(range(alpha.size), beta.size):
        sides = self_bounding(alpha, beta, matrix_of(ranking, alpha.size))
        assert sides.slack >= -1e-12
        assert sides.regret == pytest.approx(
            alpha[optimal_ranking(alpha, beta)] @ beta - alpha[list(ranking)] @ beta, abs=1e-12
        )


def test_the_constant_is_one_half_by_brute_force(rng):
    for _ in range(100):
        n = int(rng.integers(3, 7))
        m = int(rng.integers(2, min(n, 4) + 1))
        assert self_bounding_constant(rng.random(n), rng.random(m)) == pytest.approx(0.5, abs=1e-9)


def test_the_constant_is_one_with_a_single_position(rng):
    assert self_bounding_constant(rng.random(5), rng.random(1)) == pytest.approx(1.0)


def test_the_inequality_holds_for_distributions_over_lists(rng):
    alpha, beta = rng.random(6), rng.random(3)
    for _ in range(20):
        lottery = leader(5.0 * rng.random((6, 3)), rate=1.0).marginals
        assert self_bounding(alpha, beta, lottery).slack >= -1e-12


def wrong_side(attraction, examination):
    """Definition 1 with the gap on the wrong side for items that come too late."""
    alpha, beta = np.array(attraction), np.append(examination, 0.0)
    below = beta[:-1] - beta[1:]
    return below * np.abs(alpha[: below.size] - alpha[:, None])


def plain(attraction, examination):
    """The plain difference, without its sign."""
    alpha, beta = np.array(attraction), np.array(examination)
    return beta * np.abs(alpha[: beta.size] - alpha[:, None])


@pytest.mark.parametrize("broken", [wrong_side, plain, lambda a, e: 1.01 * gaps(a, e)])
def test_a_wrong_gap_is_noticed(broken, monkeypatch):
    alpha, beta = [0.9, 0.8, 0.5, 0.2], [1.0, 0.9, 0.3]
    assert self_bounding_constant(alpha, beta) == pytest.approx(0.5)
    monkeypatch.setattr(selfbounding, "gaps", broken)
    assert self_bounding_constant(alpha, beta) < 0.499
    slack = [self_bounding(alpha, beta, matrix_of(r, 4)).slack for r in permutations(range(4), 3)]
    assert min(slack) < -1e-4


def test_equal_items_have_no_gap():
    assert self_bounding_constant([0.5, 0.5, 0.5], [1.0, 0.5]) == np.inf


def test_too_many_lists_are_refused():
    with pytest.raises(ValueError, match=r"20 items at 10 positions make .* more than the limit"):
        self_bounding_constant(np.linspace(0.1, 0.9, 20), np.linspace(0.1, 0.9, 10))


@pytest.mark.parametrize(
    "marginals",
    [
        np.full((2, 3), 0.5),
        np.full((3, 2), 0.5),
        [[1, 1], [0, 0], [0, 0]],
        [[2, 0], [-1, 1], [0, 0]],
        np.full((3, 2), np.nan),
        "x",
        None,
    ],
)
def test_invalid_marginals_are_refused_with_their_name(marginals):
    with pytest.raises(ValueError, match=r"^marginals must"):
        self_bounding([0.9, 0.5, 0.1], [1.0, 0.5], marginals)
