"""Chain click models: recursions, likelihood and derivatives against enumeration, and the maximum of the likelihood."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from bothworlds.statistics.box_newton import maximise
from bothworlds.statistics.chain import likelihood, recursions
from bothworlds.statistics.chain.families import CCM, DBN, DCM, SDBN
from bothworlds.statistics.chain.likelihood import core_gradient, core_value, page_statistics
from bothworlds.statistics.chain.objective import ChainObjective
from tests.reference.click_chains import expected_counts, patterns

FAMILIES = (DCM, SDBN, DBN, CCM)
M = 4


def parameters(family, rows, seed, low=0.1, high=0.9):
    rng = np.random.default_rng(seed)
    return rng.uniform(low, high, (len(family.items), rows)), rng.uniform(low, high, len(family.shared(M)))


def page_of(core, by_rank, rows):
    """The page as the reference has it."""
    return [(core.alpha[r], core.kappa[k if by_rank else r]) for k, r in enumerate(rows)]


def all_patterns(rows):
    """One page for every click pattern of a list, as arrays."""
    clicks = np.array(list(product((0, 1), repeat=len(rows))), np.uint8)
    size = len(clicks)
    starts = np.arange(size + 1) * len(rows)
    return starts, np.tile(rows, size), np.tile(np.arange(len(rows)), size), clicks.ravel(), np.ones(size, np.int64)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_pattern_has_the_probability_of_the_enumeration(family):
    core = family.core(*parameters(family, 6, seed=1))
    rows = np.array([4, 0, 5, 2])
    law = patterns(page_of(core, family.by_rank, rows), core.g)
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-14)
    for clicks, p in law.items():
        starts, shown, rank, click, count = np.array([0, M]), rows, np.arange(M), np.array(clicks, np.uint8), [1]
        s = page_statistics(starts, shown, rank, click, np.array(count), 6, M, family.by_rank)
        assert np.exp(core_value(s, *core)) == pytest.approx(p, rel=1e-12)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_conditionals_multiply_to_the_pattern_and_marginals_are_sums_over_patterns(family):
    core = family.core(*parameters(family, 6, seed=2))
    rows = np.array([1, 3, 0, 5])
    law = patterns(page_of(core, family.by_rank, rows), core.g)
    starts, shown, rank, click, count = all_patterns(rows)
    conditional, marginal = np.empty(click.size), np.empty(click.size)
    recursions.conditional_probabilities(starts, shown, rank, click, *core, family.by_rank, conditional)
    recursions.marginal_probabilities(starts, shown, rank, *core, family.by_rank, marginal)
    observed = np.where(click == 1, conditional, 1.0 - conditional).reshape(-1, M)
    for clicks, product_ in zip(click.reshape(-1, M).tolist(), observed.prod(axis=1)):
        assert product_ == pytest.approx(law[tuple(clicks)], rel=1e-12)
    sums = [sum(p for clicks, p in law.items() if clicks[k]) for k in range(M)]
    np.testing.assert_allclose(marginal[:M], sums, rtol=1e-12)
    # The twin that takes conditional probabilities for marginal ones is caught.
    assert np.abs(conditional.reshape(-1, M) - sums).max() > 0.01
    assert count.sum() == len(law)


def test_the_enumeration_is_exact_in_fractions():
    page = [(Fraction(1, 3), Fraction(1, 4)), (Fraction(1, 2), Fraction(2, 5)), (Fraction(3, 7), Fraction(1, 9))]
    law = patterns(page, Fraction(4, 5))
    assert sum(law.values()) == 1
    # P(no click) = N_1 by the recursion of the module, in fractions.
    silent = Fraction(1)
    for alpha, _ in reversed(page):
        silent = (1 - alpha) * (1 - Fraction(4, 5) + Fraction(4, 5) * silent)
    assert law[0, 0, 0] == silent
    s = page_statistics(np.array([0, 3]), np.arange(3), np.arange(3), np.zeros(3, np.uint8), np.array([1]), 3, 3, False)
    floats = [np.array([float(pair[k]) for pair in page]) for k in range(2)]
    assert np.exp(core_value(s, *floats, 0.8)) == pytest.approx(float(silent), rel=1e-15)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_fishers_identity(family):
    """The derivative is successes over theta minus failures over its complement, in the expected counts."""
    core = family.core(*parameters(family, 6, seed=3))
    rows = np.array([2, 4, 1, 0])
    page = page_of(core, family.by_rank, rows)
    for clicks in patterns(page, core.g):
        of_alpha, of_kappa, of_g = expected_counts(page, core.g, clicks)
        s = page_statistics(
            np.array([0, M]), rows, np.arange(M), np.array(clicks, np.uint8), np.array([1]), 6, M, family.by_rank
        )
        _, d_alpha, d_kappa, d_g = core_gradient(s, *core)
        for k, r in enumerate(rows):
            index = k if family.by_rank else r
            assert d_alpha[r] == pytest.approx(slope(of_alpha[k], core.alpha[r]), abs=1e-11)
            assert d_kappa[index] == pytest.approx(slope(of_kappa[k], core.kappa[index]), abs=1e-11)
        if core.g < 1.0:
            assert d_g == pytest.approx(slope(of_g, core.g), abs=1e-11)


def slope(counts, theta):
    return counts[0] / theta - counts[1] / (1.0 - theta)


def test_a_wrong_expectation_is_caught():
    """The E-step with unconditional examination below the last click, as in a well-known library, is no derivative."""
    core = DBN.core(*parameters(DBN, 4, seed=3))
    rows, clicks = np.arange(M), (1, 0, 0, 0)
    page = page_of(core, False, rows)
    s = page_statistics(np.array([0, M]), rows, rows, np.array(clicks, np.uint8), np.array([1]), 4, M, False)
    _, d_alpha, _, _ = core_gradient(s, *core)
    right = expected_counts(page, core.g, clicks)[0][2]
    examined, u = [], 1.0
    for alpha, kappa in page:
        examined.append(u)
        u *= core.g * (1.0 - alpha) + kappa * alpha
    wrong = [0.0, examined[2] * (1.0 - core.alpha[2])]
    assert d_alpha[2] == pytest.approx(slope(right, core.alpha[2]), abs=1e-11)
    assert abs(d_alpha[2] - slope(wrong, core.alpha[2])) > 0.01


def random_pages(pages, n, queries, seed, rate=0.3):
    """Random lists of M of n items for every query, with random clicks."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.permutation(n)[:M] + n * (p % queries) for p in range(pages)])
    click = (rng.random(rows.size) < rate).astype(np.uint8)
    return np.arange(pages + 1) * M, rows, np.tile(np.arange(M), pages), click, rng.integers(1, 4, pages)


def objective(family, pages, rows, queries, prior):
    s = page_statistics(*pages, rows, M, family.by_rank)
    size = rows * len(family.items) + len(family.shared(M))
    firsts = np.arange(queries + 1) * (rows // queries)
    return ChainObjective(family, s, firsts, M, (np.full(size, prior), np.full(size, 2.0 * prior))), size


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_derivatives_are_limits_of_differences(family):
    ob, size = objective(family, random_pages(60, 6, 2, seed=4), 12, 2, prior=0.3)
    x, step = np.random.default_rng(5).uniform(0.2, 0.8, size), 1e-6
    value, gradient = ob.gradient(x)
    assert value == pytest.approx(ob.value(x), rel=1e-14)
    moves = step * np.eye(size)
    first = [(ob.value(x + move) - ob.value(x - move)) / (2.0 * step) for move in moves]
    np.testing.assert_allclose(gradient, first, rtol=1e-6, atol=1e-5)
    second = [(ob.gradient(x + move)[1] - ob.gradient(x - move)[1]) / (2.0 * step) for move in moves]
    arrow, n = ob.curvature(x), size - ob.n_shared
    full = np.zeros((size, size))
    full[n:, n:] = arrow.corner
    for own, block, border in zip(arrow.own, arrow.blocks, arrow.border):
        full[np.ix_(own, own)], full[own, n:], full[n:, own] = block, border, border.T
    np.testing.assert_allclose(full, -np.array(second), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_all_starts_reach_one_maximum_and_no_neighbour_is_higher(family):
    ob, size = objective(family, random_pages(400, 6, 2, seed=6), 12, 2, prior=0.5)
    rng = np.random.default_rng(7)
    reached = [maximise(ob, rng.uniform(0.05, 0.95, size), np.zeros(size, bool)) for _ in range(4)]
    assert all(one.converged for one in reached)
    np.testing.assert_allclose([one.value for one in reached], reached[0].value, atol=1e-8)
    best = reached[0].x
    for _ in range(50):
        near = np.clip(best + rng.normal(0.0, 1e-3, size), 0.0, 1.0)
        assert ob.value(near) < reached[0].value


def test_an_item_twice_on_a_page_is_counted_twice():
    """Rows of a tail may repeat, as when a url is shown twice; derivatives stay right."""
    rows = np.array([0, 1, 1, 2])
    s = page_statistics(
        np.array([0, 4]), rows, np.arange(4), np.array([1, 0, 0, 0], np.uint8), np.array([5]), 3, 4, False
    )
    ob = ChainObjective(DBN, s, np.array([0, 3]), 4, (np.zeros(7), np.zeros(7)))
    x, step = np.full(7, 0.4), 1e-6
    second = np.array(
        [(ob.gradient(x + move)[1] - ob.gradient(x - move)[1]) / (2.0 * step) for move in step * np.eye(7)]
    )
    np.testing.assert_allclose(ob.curvature(x).diagonal(), -np.diag(second), rtol=1e-6, atol=1e-6)


def test_simulated_pages_follow_the_patterns():
    core = DBN.core(*parameters(DBN, 4, seed=8))
    pages, rows = 40_000, np.array([2, 0, 3, 1])
    click = np.empty(pages * M, np.uint8)
    layout = np.arange(pages + 1) * M, np.tile(rows, pages), np.tile(np.arange(M), pages)
    recursions.simulate(np.random.default_rng(9), *layout, *core, False, click)
    seen, counts = np.unique(click.reshape(-1, M), axis=0, return_counts=True)
    law = patterns(page_of(core, False, rows), core.g)
    for clicks, count in zip(seen.tolist(), counts.tolist()):
        p = law[tuple(clicks)]
        assert abs(count - pages * p) < 5.0 * np.sqrt(pages * p * (1.0 - p)) + 1.0


def test_compiled_and_interpreted_likelihoods_agree(monkeypatch):
    pages = random_pages(30, 6, 2, seed=10)
    s = page_statistics(*pages, 12, M, False)
    core = DBN.core(*parameters(DBN, 12, seed=11))
    compiled = core_value(s, *core), core_gradient(s, *core), likelihood.core_hessian(s, *core, np.array([0, 6, 12]))
    for name in ("_tails_value", "_tails_gradient", "_tails_hessian"):
        kernel = getattr(likelihood, name)
        monkeypatch.setattr(likelihood, name, getattr(kernel, "py_func", kernel))
    plain = core_value(s, *core), core_gradient(s, *core), likelihood.core_hessian(s, *core, np.array([0, 6, 12]))
    assert compiled[0] == pytest.approx(plain[0], rel=1e-14)
    for one, other in zip((*compiled[1], *compiled[2]), (*plain[1], *plain[2])):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)
