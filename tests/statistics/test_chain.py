"""Chain click models: the likelihood and its derivatives against enumeration and differences."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from bothworlds.statistics import chain
from bothworlds.statistics.chain import FAMILIES, ChainLikelihood
from tests.reference.click_chains import expected_counts, patterns

M = 4
NAMES = [name for name in FAMILIES if name != "cascade"]


def parameters(name, rows, seed, low=0.1, high=0.9):
    rng, family = np.random.default_rng(seed), FAMILIES[name]
    return rng.uniform(low, high, len(family.items) * rows + (M if family.by_rank else len(family.shared)))


def one_page(name, rows, clicks, size=6):
    starts, rank = np.array([0, len(rows)]), np.arange(len(rows))
    return ChainLikelihood(
        FAMILIES[name], starts, np.array(rows), rank, np.array(clicks), np.array([1]), size, len(rows)
    )


def page_of(name, x, rows, size=6):
    """The page as the reference has it, and g."""
    items = len(FAMILIES[name].items) * size
    core = FAMILIES[name].core(x[:items].reshape(-1, size), x[items:])
    return [(core.alpha[r], core.kappa[k if FAMILIES[name].by_rank else r]) for k, r in enumerate(rows)], core.g


@pytest.mark.parametrize("name", NAMES)
def test_every_pattern_has_the_probability_of_the_enumeration(name):
    x, rows = parameters(name, 6, seed=1), [4, 0, 5, 2]
    law = patterns(*page_of(name, x, rows))
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-14)
    for clicks, p in law.items():
        assert np.exp(one_page(name, rows, clicks).expect(x).value) == pytest.approx(p, rel=1e-12)


def test_the_enumeration_is_exact_in_fractions():
    page = [(Fraction(1, 3), Fraction(1, 4)), (Fraction(1, 2), Fraction(2, 5)), (Fraction(3, 7), Fraction(1, 9))]
    law = patterns(page, Fraction(4, 5))
    assert sum(law.values()) == 1
    silent = Fraction(1)
    for alpha, _ in reversed(page):
        silent = (1 - alpha) * (1 - Fraction(4, 5) + Fraction(4, 5) * silent)
    assert law[0, 0, 0] == silent
    # kappa = 0.8 (1 - sigma)
    x = np.array([1 / 3, 1 / 2, 3 / 7, *(1 - np.array([1 / 4, 2 / 5, 1 / 9]) / 0.8), 0.8])
    assert np.exp(one_page("dbn", [0, 1, 2], [0, 0, 0], 3).expect(x).value) == pytest.approx(float(silent), rel=1e-15)


@pytest.mark.parametrize("name", NAMES)
def test_expected_counts_are_those_of_the_enumeration(name):
    x, rows = parameters(name, 6, seed=3), [2, 4, 1, 0]
    page, g = page_of(name, x, rows)
    for clicks in patterns(page, g):
        of_alpha, of_kappa, of_g = expected_counts(page, g, clicks)
        found = np.array(one_page(name, rows, clicks).expect(x)[1:])
        index = 6 + (np.arange(M) if FAMILIES[name].by_rank else np.array(rows))
        np.testing.assert_allclose(found[:, rows].T, of_alpha, atol=1e-12)
        np.testing.assert_allclose(found[:, index].T, of_kappa, atol=1e-12)
        np.testing.assert_allclose(found[:, -1], of_g, atol=1e-12)


def test_a_wrong_expectation_is_caught():
    """The E-step with unconditional examination below the last click, as in a well-known library, is another one."""
    x, rows = parameters("dbn", 4, seed=3), [0, 1, 2, 3]
    page, g = page_of("dbn", x, rows, 4)
    examined, u = [], 1.0
    for alpha, kappa in page:
        examined.append(u)
        u *= g * (1.0 - alpha) + kappa * alpha
    found = one_page("dbn", rows, (1, 0, 0, 0), 4).expect(x)
    assert abs(found.failures[2] - examined[2] * (1.0 - page[2][0])) > 0.01


def random_pages(name, pages, n, queries, seed, rate=0.3):
    """Random lists of M of n items for every query, with random clicks; items may be twice on a page."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.integers(0, n, M) + n * (p % queries) for p in range(pages)])
    click = (rng.random(rows.size) < rate).astype(np.uint8)
    count = rng.integers(1, 4, pages)
    return ChainLikelihood(
        FAMILIES[name], np.arange(pages + 1) * M, rows, np.tile(np.arange(M), pages), click, count, n * queries, M
    )


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_are_limits_of_differences(name):
    found = random_pages(name, 60, 6, 2, seed=4)
    x, step = np.random.default_rng(5).uniform(0.2, 0.8, found.parameters), 1e-6
    value, gradient = found.gradient(x)
    assert value == found.expect(x).value
    ends = [[found.gradient(x + sign * move)[0] for sign in (1.0, -1.0)] for move in step * np.eye(x.size)]
    np.testing.assert_allclose(gradient, [(up - down) / (2.0 * step) for up, down in ends], rtol=1e-6, atol=1e-5)


def check_information(name, information):
    """Its mean over all click patterns of a page is that of the squared derivatives of their log-likelihoods."""
    x, rows = parameters(name, 6, seed=1), [4, 0, 5, 2]
    squared, mean = np.zeros((2, x.size, x.size))
    for clicks, p in patterns(*page_of(name, x, rows)).items():
        page = one_page(name, rows, clicks)
        slope = page.gradient(x)[1]
        squared += p * np.outer(slope, slope)
        mean += p * information(page, x)
    np.testing.assert_allclose(mean, squared, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_information_is_the_mean_of_squared_derivatives(name):
    check_information(name, lambda page, x: page.information(x).toarray())
    with pytest.raises(AssertionError):  # the broken twin: clicks of the page as if they were certain
        check_information(name, lambda page, x: np.diag(page.gradient(x)[1]))


def test_information_adds_up_over_pages(monkeypatch):
    """Also over the chunks in which it is computed."""
    found = random_pages("dbn", 60, 6, 2, seed=4)
    x = np.random.default_rng(5).uniform(0.2, 0.8, found.parameters)
    whole = found.information(x).toarray()
    monkeypatch.setattr(chain, "CHUNK", 7)
    np.testing.assert_allclose(found.information(x).toarray(), whole, rtol=1e-12)


def test_going_on_to_items_that_are_never_clicked_says_nothing():
    """All items below the last click have attraction 0: the likelihood does not change with satisfaction."""
    found = one_page("dbn", [0, 1, 2], [1, 0, 0], 3)
    x = np.array([0.5, 0.0, 0.0, 0.3, 0.3, 0.3, 0.9])
    assert found.informative(x).tolist() == [True, True, True, False, False, False, False]


def test_compiled_and_interpreted_likelihoods_agree(monkeypatch):
    found = random_pages("dbn", 30, 6, 2, seed=10)
    x = parameters("dbn", 12, seed=11)
    compiled = *found.gradient(x), found.information(x).toarray()
    for name in ("expected_counts", "click_slopes", "_last_click"):
        kernel = getattr(chain, name)
        monkeypatch.setattr(chain, name, getattr(kernel, "py_func", kernel))
    for one, other in zip(compiled, (*found.gradient(x), found.information(x).toarray())):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)
