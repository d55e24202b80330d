"""Users of click models: their probabilities and clicks against enumeration of all click patterns."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from bothworlds.statistics import click_users
from bothworlds.statistics.chain import FAMILIES
from bothworlds.statistics.click_users import (
    conditional_probabilities,
    expected_clicks,
    make_users,
    marginal_probabilities,
    ranks_of_column,
    simulate,
)
from tests.reference.click_chains import browsing_patterns, patterns

M = 4
COLUMNS = M * (M + 1) // 2
ROWS = np.array([4, 0, 5, 2])


def users_and_law(name, seed=1):
    """Users with random parameters, and the probabilities of all click patterns of the list ``ROWS``."""
    rng = np.random.default_rng(seed)
    if name in FAMILIES:
        family = FAMILIES[name]
        items, shared = rng.uniform(0.1, 0.9, (len(family.items), 6)), rng.uniform(0.1, 0.9, 4)
        core = family.core(items, shared[: M if family.by_rank else len(family.shared)])
        page = [(core.alpha[r], core.kappa[k if family.by_rank else r]) for k, r in enumerate(ROWS)]
        users = make_users(core.alpha, M, continuation=core.kappa, skip=core.g, by_rank=family.by_rank)
        return users, patterns(page, core.g)
    alpha, gamma = rng.uniform(0.1, 0.6, 6), rng.uniform(0.1, 1.0, COLUMNS)
    offset = rng.uniform(0.05, 0.3, M) if name == "offset" else np.zeros(M)
    table = [[gamma[k * (k + 1) // 2 + last] + offset[k] / alpha[ROWS[k]] for last in range(k + 1)] for k in range(M)]
    return make_users(alpha, M, examination=gamma, offset=offset), browsing_patterns(alpha[ROWS], table)


NAMES = [*FAMILIES, "ubm", "offset"]


def all_patterns():
    """One page of the list for every click pattern, as arrays."""
    clicks = np.array(list(product((0, 1), repeat=M)), np.uint8)
    size = len(clicks)
    return np.arange(size + 1) * M, np.tile(ROWS, size), np.tile(np.arange(M), size), clicks.ravel()


@pytest.mark.parametrize("name", NAMES)
def test_conditionals_multiply_to_the_pattern_and_marginals_are_sums_over_patterns(name):
    users, law = users_and_law(name)
    starts, row, rank, click = all_patterns()
    conditional, marginal = np.empty(click.size), np.empty(click.size)
    conditional_probabilities(users, starts, row, rank, click, conditional)
    marginal_probabilities(users, starts, row, rank, marginal)
    observed = np.where(click == 1, conditional, 1.0 - conditional).reshape(-1, M)
    for clicks, found in zip(click.reshape(-1, M).tolist(), observed.prod(axis=1)):
        assert found == pytest.approx(law[tuple(clicks)], rel=1e-12, abs=1e-14)
    sums = [sum(p for clicks, p in law.items() if clicks[k]) for k in range(M)]
    np.testing.assert_allclose(marginal[:M], sums, rtol=1e-12)
    assert expected_clicks(users, ROWS, np.arange(M), 0, M) == pytest.approx(sum(sums), rel=1e-12)
    # The twin that takes conditional probabilities for marginal ones is caught.
    assert np.abs(conditional.reshape(-1, M) - sums).max() > 0.01


@pytest.mark.parametrize("name", NAMES)
def test_clicks_have_the_law_of_the_model(name):
    users, law = users_and_law(name, seed=2)
    pages = 40_000
    click = np.empty(pages * M, np.uint8)
    layout = np.arange(pages + 1) * M, np.tile(ROWS, pages), np.tile(np.arange(M), pages)
    simulate(users, np.random.default_rng(9), *layout, click)
    seen, counts = np.unique(click.reshape(-1, M), axis=0, return_counts=True)
    for clicks, count in zip(seen.tolist(), counts.tolist()):
        p = law[tuple(clicks)]
        assert abs(count - pages * p) < 5.0 * np.sqrt(pages * p * (1.0 - p)) + 1.0


def test_after_an_impossible_skip_the_user_reads_on():
    """A click that was certain did not come: the probabilities below are those of a user who is still there."""
    p = np.empty(2)
    conditional_probabilities(
        make_users(np.array([1.0, 0.25]), 2), np.array([0, 2]), np.arange(2), np.arange(2), np.zeros(2), p
    )
    assert p.tolist() == [1.0, 0.25]


def test_columns_number_all_pairs_once():
    pairs = [(rank, last) for rank in range(1, 12) for last in range(rank)]
    assert [ranks_of_column(column) for column in range(len(pairs))] == pairs


def test_the_column_of_a_result_is_its_rank_and_the_last_click_above():
    starts, _, rank, click = all_patterns()
    found = click_users.columns_of(starts, rank, click).reshape(-1, M).tolist()
    for page, columns in zip(click.reshape(-1, M).tolist(), found):
        for k in range(M):
            last = max((j + 1 for j in range(k) if page[j]), default=0)
            assert ranks_of_column(columns[k]) == (k + 1, last)
