"""Items with equal losses share a row of the solver: leader, certificate and draws are those of a row for each."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from bothworlds.geometry import leader
from bothworlds.geometry.item_rows import MANY_ITEMS
from bothworlds.geometry.sampling import make_urn, prepare
from tests.geometry.certificates import check_leader
from tests.geometry.counts import DRAWS, check_counts, tally
from tests.geometry.problems import compiled_only
from tests.reference.regularizers import NAMES

pytestmark = compiled_only
SHAPES = [(MANY_ITEMS, 1), (700, 4), (1200, 6)]
SAME = 1e-9


def with_equal_rows(rng, n, m, distinct, size=5.0):
    """Losses of n items with so many distinct rows, in random order; one row is far better than the others."""
    rows = size * rng.random((distinct, m))
    rows[0] -= 10.0 * size
    return rows[np.concatenate([np.arange(distinct), rng.integers(1, distinct, n - distinct)])][rng.permutation(n)]


def dense(monkeypatch, *arguments, **named):
    """The leader computed with a row for every item."""
    with monkeypatch.context() as patched:
        patched.setattr(sys.modules["bothworlds.geometry.leader"], "MANY_ITEMS", sys.maxsize)
        return leader(*arguments, **named)


def check_same(result, other):
    """Marginals, and multipliers in the units of marginals, are equal up to the solver's tolerance."""
    away = np.abs(result.marginals - other.marginals).max()
    assert away <= SAME, f"the marginals differ by {away}"


@pytest.mark.slow
@pytest.mark.parametrize("regularizer", NAMES)
@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_the_leader_is_that_of_a_row_for_every_item(monkeypatch, n, m, regularizer):
    rng = np.random.default_rng([n, m, NAMES.index(regularizer)])
    for distinct in (2, 40):
        loss = with_equal_rows(rng, n, m, distinct)
        result = leader(loss, 0.3, regularizer=regularizer)
        check_leader(result, loss, 0.3, regularizer)
        check_same(result, dense(monkeypatch, loss, 0.3, regularizer=regularizer))
        later = loss + rng.random(m)  # a constant for every column
        again = leader(later, 0.3, regularizer=regularizer, warm=result)
        check_same(again, result)


def test_rows_with_different_rates_are_different(monkeypatch):
    rng = np.random.default_rng(1)
    loss = with_equal_rows(rng, 600, 3, 5)
    rate = np.where(rng.random((600, 1)) < 0.5, 0.2, 0.7) * np.ones(3)
    result = leader(loss, rate)
    check_leader(result, loss, rate, "tsallis")
    check_same(result, dense(monkeypatch, loss, rate))
    with pytest.raises(AssertionError, match="the marginals differ"):
        check_same(result, leader(loss, float(rate.mean())))


def test_as_many_items_as_positions(monkeypatch):
    """Multipliers of rows may then have any sign, also where one row stands for all items."""
    with monkeypatch.context() as patched:
        patched.setattr(sys.modules["bothworlds.geometry.leader"], "MANY_ITEMS", 1)
        for loss in (np.zeros((4, 4)), np.repeat([[0.0, 1.0, 5.0, 2.0], [3.0, 1.0, 0.0, 0.0]], 2, axis=0)):
            result = leader(loss, 0.5)
            check_leader(result, loss, 0.5, "tsallis")
            check_same(result, dense(monkeypatch, loss, 0.5))


def test_a_row_that_counts_once_instead_of_several_times_is_caught(monkeypatch):
    loss = with_equal_rows(np.random.default_rng(2), 600, 3, 5)
    once = leader(np.unique(loss, axis=0), 0.3).marginals
    _, row = np.unique(loss, axis=0, return_inverse=True)
    twin = leader(loss, 0.3)
    object.__setattr__(twin, "marginals", once[row])
    with pytest.raises(AssertionError, match="the marginals differ"):
        check_same(twin, dense(monkeypatch, loss, 0.3))
    with pytest.raises(AssertionError):
        check_leader(twin, loss, 0.3, "tsallis")


@pytest.mark.parametrize(("n", "m", "own"), [(30, 3, 0), (40, 4, 7), (25, 5, 24), (60, 2, 20)])
def test_draws_have_the_marginals_of_every_item(n, m, own):
    loss = np.zeros((n, m))
    loss[:own] = 6.0 * np.random.default_rng(n).random((own, m)) - 3.0
    x = leader(loss, 0.5).marginals
    distinct = np.ascontiguousarray(x[: own + 1])
    urn, counts = make_urn(n, m), np.zeros((n, m), np.int64)
    prepare(distinct, urn)
    padded = np.vstack([distinct, np.zeros((n - own - 1, m))])  # ``tally`` takes the number of items from it
    assert tally(padded, np.random.default_rng(3), urn, np.empty(m, np.int64), counts, DRAWS) == 0
    check_counts(counts, x)
