"""The user browsing model: columns, and marginal probabilities against enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from bothworlds.statistics import browsing
from tests.reference.click_chains import browsing_patterns

M = 4
COLUMNS = M * (M + 1) // 2


def test_columns_number_all_pairs_once():
    pairs = [(rank, last) for rank in range(1, 12) for last in range(rank)]
    assert [browsing.column_number(*pair) for pair in pairs] == list(range(len(pairs)))
    assert [browsing.ranks_of_column(column) for column in range(len(pairs))] == pairs


def test_the_column_of_a_result_is_its_rank_and_the_last_click_above():
    clicks = np.array(list(product((0, 1), repeat=M)), np.uint8)
    column = np.empty(clicks.size, np.int64)
    browsing.columns_of(np.arange(len(clicks) + 1) * M, np.tile(np.arange(M), len(clicks)), clicks.ravel(), column)
    for page, found in zip(clicks.tolist(), column.reshape(-1, M).tolist()):
        for k in range(M):
            last = max((j + 1 for j in range(k) if page[j]), default=0)
            assert browsing.ranks_of_column(found[k]) == (k + 1, last)


@pytest.mark.parametrize("seed", range(3))
def test_marginals_are_sums_over_patterns(seed):
    rng = np.random.default_rng(seed)
    alpha, gamma = rng.uniform(0.1, 0.9, M), rng.uniform(0.1, 1.0, COLUMNS)
    table = [[gamma[browsing.column_number(k + 1, last)] for last in range(k + 1)] for k in range(M)]
    law = browsing_patterns(alpha, table)
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-14)
    p = np.empty(M)
    browsing.marginal_probabilities(np.array([0, M]), np.arange(M), np.arange(M), alpha, gamma, np.zeros(M + 1), p)
    sums = [sum(q for clicks, q in law.items() if clicks[k]) for k in range(M)]
    np.testing.assert_allclose(p, sums, rtol=1e-12)
    # The twin that forgets the last click is caught.
    assert np.abs(alpha * [row[0] for row in table] - sums).max() > 1e-3
