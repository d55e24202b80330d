"""Gaps, the best list and the largest regret, compared with their definitions."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothworlds.geometry import best_ranking
from bothworlds.theory import delta, delta_beta, gaps, largest_regret, optimal_ranking
from tests.theory.instances import ALPHA, BETA, definition, instances


def test_gaps_are_those_of_the_definition():
    np.testing.assert_allclose(gaps(ALPHA, BETA), definition(ALPHA, BETA), rtol=1e-14)


def test_the_paper_instance_has_these_gaps():
    found = gaps(ALPHA, BETA)
    assert found[1, 0] == pytest.approx(0.5 * 0.03)  # an exchange of the first two
    assert found[0, 1] == pytest.approx(0.5 * 0.03)
    assert found[9, 4] == pytest.approx(0.2 * 0.15)  # the last item in the last position: below it nobody looks
    assert found[0, 4] == pytest.approx(0.05 * 0.12)


@pytest.mark.slow
@given(instances(), st.randoms(use_true_random=False))
def test_the_order_of_items_and_positions_is_mapped_back(instance, random):
    alpha, beta = (np.sort(part)[::-1] for part in instance)
    beta = np.array(sorted(set(beta.tolist()), reverse=True))  # which of two equal positions comes first is arbitrary
    items, positions = list(range(alpha.size)), list(range(beta.size))
    random.shuffle(items)
    random.shuffle(positions)
    found = gaps(alpha[items], beta[positions])
    np.testing.assert_allclose(found, definition(alpha, beta)[np.ix_(items, positions)], rtol=0, atol=1e-15)


@pytest.mark.slow
@given(instances())
def test_gaps_are_never_negative(instance):
    assert gaps(*instance).min() >= 0.0


@pytest.mark.slow
@given(instances())
def test_the_best_list_is_the_best_of_all_lists(instance):
    alpha, beta = instance
    best = optimal_ranking(alpha, beta)
    assert len(set(best.tolist())) == beta.size
    values = [alpha[list(ranking)] @ beta for ranking in permutations(range(alpha.size), beta.size)]
    assert alpha[best] @ beta == pytest.approx(max(values), abs=1e-12)
    assert largest_regret(alpha, beta, 7) == pytest.approx(7 * (max(values) - min(values)), abs=1e-12)


def test_the_best_list_is_what_assignment_finds(rng):
    for _ in range(20):
        alpha, beta = rng.random(8), rng.random(4)
        assert optimal_ranking(alpha, beta).tolist() == best_ranking(np.outer(alpha, beta)).tolist()


def test_the_smallest_gaps_are_those_of_the_paper():
    assert delta(ALPHA) == pytest.approx(0.03)
    assert delta_beta(BETA) == pytest.approx(1 / 4 - 1 / 5)
    assert delta_beta([0.9, 0.5, 0.1]) == pytest.approx(0.1)  # the last position against none


def test_only_items_that_can_be_shown_matter_for_the_gap():
    alpha = [0.9, 0.6, 0.5, 0.5]
    assert delta(alpha) == 0.0
    assert delta(alpha, 2) == pytest.approx(0.1)
    assert delta(alpha, 1) == pytest.approx(0.3)
    assert delta(alpha[::-1], 2) == delta(alpha, 2)
    assert delta([0.9, 0.6], 2) == pytest.approx(0.3)  # as many positions as items


def test_the_largest_regret_of_the_papers_experiment():
    assert largest_regret(ALPHA, BETA, 10**6) == pytest.approx(453_500)


@pytest.mark.parametrize("function", [gaps, optimal_ranking, lambda a, e: largest_regret(a, e, 10)])
@pytest.mark.parametrize(
    ("attraction", "examination", "named"),
    [
        ([0.5, 1.2], [1.0], "attraction"),
        ([], [1.0], "attraction"),
        ("high", [1.0], "attraction"),
        ([0.5, 0.4], [-1.0], "examination"),
        ([0.5, 0.4], [], "examination"),
        ([0.5, 0.4], [1.0, 0.9, 0.8], "examination"),
    ],
)
def test_invalid_instances_are_refused_with_the_argument_name(function, attraction, examination, named):
    with pytest.raises(ValueError, match=f"^{named} must "):
        function(attraction, examination)


@pytest.mark.parametrize("given", [[], None, "x", [0.5, 2.0], [[0.5, 0.4]], [0.5, [0.4, 0.3]], 0.5])
def test_invalid_examination_is_refused_with_its_name(given):
    with pytest.raises(ValueError, match=r"^examination must be"):
        delta_beta(given)


@pytest.mark.parametrize("given", [[], None, "x", [0.5, 2.0], [[0.5, 0.4]], [0.5], 0.5])
def test_invalid_attraction_is_refused_with_its_name(given):
    with pytest.raises(ValueError, match=r"^attraction must be"):
        delta(given)


@pytest.mark.parametrize("positions", [0, -1, 3, 1.5, "two", True])
def test_impossible_positions_are_refused_by_name(positions):
    with pytest.raises(ValueError, match=r"^n_positions must be"):
        delta([0.5, 0.4], positions)
