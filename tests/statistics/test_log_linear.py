"""The log-linear fit: optimality, the rank-one fit, determination by the rank of the design, influence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothworlds.statistics import log_linear
from bothworlds.statistics.rank_one import fit_newton


def cells(seed, rows=6, levels=(4, 3), share=0.7, least=20, most=400):
    """Cells of a random log with clicks and misses in each: row, columns, shown, clicked."""
    rng = np.random.default_rng(seed)
    every = np.array(list(np.ndindex(rows, *levels)))
    kept = every[rng.random(len(every)) < share]
    effects = [rng.uniform(-2.5, -0.3, rows), *(rng.uniform(-1.5, 0.0, size) for size in levels)]
    p = np.exp(sum(effect[code] for effect, code in zip(effects, kept.T)))
    shown = rng.integers(least, most, len(kept))
    return kept[:, 0], kept[:, 1:], shown, np.clip(rng.binomial(shown, p), 1, shown - 1)


def fit(data, **given):
    return log_linear.fit(*data, rows=6, levels=(4, 3)[: data[1].shape[1]], **given)


def design(row, columns, rows=6, levels=(4, 3)):
    """One column for every row and level, as a dense matrix."""
    parts = [np.eye(rows)[row], *(np.eye(size)[columns[:, f]] for f, size in enumerate(levels))]
    return np.hstack(parts)


def everything():
    grid = np.array(list(np.ndindex(6, 4, 3)))
    return grid[:, 0], grid[:, 1:]


@pytest.mark.slow
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.5]))
def test_the_gradient_vanishes_and_no_probability_exceeds_1(seed, prior):
    row, columns, shown, clicked = data = cells(seed)
    found = fit(data, prior=prior)
    assert found.converged
    n, c = shown + prior, clicked + prior * clicked.sum() / shown.sum()
    p = found.predict(row, columns)
    score = design(row, columns).T @ (c - (n - c) * p / (1.0 - p))
    # Pairs of a row and a context that were not shown push with at most 1e-6 of a click's odds.
    contexts = np.unique(columns, axis=0)
    rows = np.unique(row)
    each = np.repeat(rows, len(contexts)), np.tile(contexts, (rows.size, 1))
    wall = found.predict(*each)
    unseen = ~(np.isin(each[0] * 12 + each[1] @ [3, 1], row * 12 + columns @ [3, 1]))
    score -= design(*each).T @ np.where(unseen, 1e-6 * wall / (1.0 - wall), 0.0)
    assert np.abs(score).max() < 1e-6 * np.sqrt(shown.sum())
    assert wall.max() < 1.0


@pytest.mark.slow
@given(st.integers(0, 10**6))
def test_one_factor_is_the_rank_one_fit(seed):
    row, columns, shown, clicked = data = cells(seed, levels=(4,), share=0.9)
    tables = np.zeros((2, 6, 4))
    tables[:, row, columns[:, 0]] = shown, clicked
    found = fit(data)
    if not found.identified or np.unique(row).size < 6:
        return
    other = fit_newton(*tables)
    p = np.outer(other.attraction, other.examination)
    i, j = np.nonzero(~np.isnan(p))
    np.testing.assert_allclose(found.predict(i, j[:, None]), p[i, j], rtol=0, atol=1e-8)
    assert found.log_likelihood == pytest.approx(other.log_likelihood, abs=1e-8)


def test_items_at_their_limit_do_not_exceed_it_where_they_were_not_shown():
    """Row 1 was clicked every time at the weaker position: its probability at the stronger one is 1 and not 1.7."""
    data = np.array([0, 0, 1]), np.array([[0], [1], [1]]), np.array([900, 900, 30]), np.array([500, 300, 29])
    found = fit(data)
    other = fit_newton([[900, 900], [0, 30]], [[500, 300], [0, 29]])
    np.testing.assert_allclose(
        found.predict([0, 0, 1, 1], [[0], [1], [0], [1]]),
        np.outer(other.attraction, other.examination).ravel(),
        atol=1e-6,
    )
    assert found.predict([1], [[0]])[0] <= 1.0


def where_some_are_always_clicked(seed):
    """Counts of items half of which are always clicked at the two first positions, at some of the pairs."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(4, 12)), int(rng.integers(3, 6))
    attraction = rng.uniform(0.3, 1.0, n)
    attraction[: n // 2] = 1.0
    examination = np.concatenate([[1.0, 1.0], rng.uniform(0.2, 1.0, m - 2)])
    shown = rng.integers(1, 2000, (n, m)) * (rng.random((n, m)) < 0.7)
    return shown.astype(float), rng.binomial(shown, np.outer(attraction, examination)).astype(float)


def test_a_kink_of_the_likelihood_is_reached(monkeypatch):
    """Items that were always clicked at two positions bound the better one: Newton's steps alone end far below."""
    for seed in (80, 118, 139, 153, 202):
        shown, clicked = where_some_are_always_clicked(seed)
        i, j = np.nonzero(shown)
        data = i, j[:, None], shown[i, j], clicked[i, j]
        found, best = log_linear.fit(*data), fit_newton(shown, clicked).log_likelihood
        assert found.converged, seed
        assert found.log_likelihood == pytest.approx(best, abs=1e-8), seed
        with monkeypatch.context() as patch:
            patch.setattr(log_linear, "_fitted", log_linear._newton)
            assert not log_linear.fit(*data).converged, seed
            assert log_linear.fit(*data).log_likelihood < best - 1.0, seed


@pytest.mark.slow
@given(st.integers(0, 10**6), st.floats(0.05, 0.5), st.sampled_from([(4,), (4, 3)]))
def test_what_is_determined_is_what_adds_no_rank_to_the_design(seed, share, levels):
    data = cells(seed, levels=levels, share=share)
    if not data[0].size:
        return
    found = fit(data)
    shown = design(data[0], data[1], levels=levels)
    grid = np.array(list(np.ndindex(6, *levels)))
    more = design(grid[:, 0], grid[:, 1:], levels=levels)
    rank = np.linalg.matrix_rank(shown)
    expected = [np.linalg.matrix_rank(np.vstack([shown, one])) == rank for one in more]
    assert found.determined(grid[:, 0], grid[:, 1:]).tolist() == expected
    known = np.isfinite(found.column_effect).all() and np.isin(np.arange(6), data[0]).all()
    assert found.identified == (bool(all(expected)) if known else found.identified)


def test_components_that_look_connected_are_not_enough_for_two_factors():
    """Item 0 moved down as the window changed: the fall of its clicks is due to the position or to the window."""
    row, columns = np.array([0, 0, 1]), np.array([[0, 0], [1, 1], [0, 0]])
    found = log_linear.fit(row, columns, np.full(3, 100), np.array([50, 20, 40]))
    assert found.determined([1, 1, 0], [[1, 1], [1, 0], [0, 1]]).tolist() == [True, False, False]
    one = log_linear.fit(row, columns[:, :1], np.full(3, 100), np.array([50, 20, 40]))
    assert one.identified
    assert not found.identified


def test_what_was_never_clicked_has_probability_0_where_something_else_says_so():
    row, columns = np.array([0, 0, 1, 2]), np.array([[0], [1], [0], [2]])
    found = log_linear.fit(row, columns, np.full(4, 50), np.array([20, 0, 0, 0]))
    assert found.predict([0, 1, 1, 0], [[0], [1], [2], [1]]).tolist() == pytest.approx([0.4, 0.0, 0.0, 0.0])
    assert found.determined([0, 1, 1, 2, 2, 0], [[1], [0], [2], [2], [1], [2]]).tolist() == [True] * 5 + [False]
    assert not found.identified


@pytest.mark.slow
@given(st.integers(0, 10**6))
def test_variances_are_those_of_the_dense_information(seed):
    row, columns, shown, clicked = data = cells(seed, most=4000, least=400)
    found, grid = fit(data), everything()
    D, p = design(row, columns), found.predict(row, columns)
    if found.predict(*grid)[~np.isnan(found.predict(*grid))].max() > 0.99:
        return
    misses = shown - clicked
    information = D.T @ (D * (misses * p / (1.0 - p) ** 2)[:, None])
    E = design(*grid)
    expected = np.einsum("ts,su,tu->t", E, np.linalg.pinv(information, rcond=1e-11, hermitian=True), E)
    known = found.determined(*grid)
    np.testing.assert_allclose(found.variance(*grid)[known], expected[known], rtol=1e-4)
    assert np.isnan(found.variance(*grid)[~known]).all()


@pytest.mark.slow
@given(st.integers(0, 10**4))
def test_influence_is_the_derivative_with_respect_to_impressions(seed):
    data = cells(seed, share=0.8, least=400, most=4000)
    found, (row, columns) = fit(data), everything()
    target = np.flatnonzero(found.determined(row, columns))[::5]
    r = found.predict(row[target], columns[target])
    if found.predict(row, columns)[~np.isnan(found.predict(row, columns))].max() > 0.99:
        return
    psi = found.influence(row[target], columns[target], r)
    total = psi[0] @ (data[2] - data[3]) + psi[1] @ data[3]
    assert abs(total) < 1e-6 * np.abs(psi[1]) @ data[3]
    for click, k in enumerate((0, len(data[0]) // 2)):
        change = np.zeros(len(data[0]))
        change[k] = 0.5
        ends = [
            fit((*data[:2], data[2] + sign * change, data[3] + sign * click * change)).predict(row, columns)[target]
            for sign in (1.0, -1.0)
        ]
        assert (ends[0] - ends[1]).sum() == pytest.approx(psi[click, k], rel=1e-3, abs=1e-7)


def test_effects_do_not_depend_on_the_order_of_cells():
    data = cells(3)
    order = np.random.default_rng(0).permutation(len(data[0]))
    there, back = fit(data), fit([part[order] for part in data])
    np.testing.assert_allclose(there.predict(*everything()), back.predict(*everything()), rtol=1e-9)
