"""The compiled sampler: counts fit the marginals, items are distinct, a seed fixes everything."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothworlds.geometry import best_ranking, leader, sample_ranking
from tests.geometry.counts import DRAWS, check_counts, count_draws, count_with
from tests.reference.samplers import column_after_column, plackett_luce


def mixture(n, m, lists, seed, concentration=1.0):
    """The marginals of a random mixture of rankings."""
    rng = np.random.default_rng(seed)
    x = np.zeros((n, m))
    for weight in rng.dirichlet(np.full(lists, concentration)):
        x[rng.permutation(n)[:m], np.arange(m)] += weight
    return x / x.sum(axis=0)


def learned(n, m, size, rate=1.0, regularizer="tsallis", seed=0):
    """What a learner would sample from: losses up to ``size``, all entries positive, some rows full."""
    loss = size * np.random.default_rng(seed).random((n, m))
    return leader(loss, rate, regularizer=regularizer).marginals


def tight(n, m, seed):
    """Items 0 to m - 2 are always shown somewhere; the others share what is left."""
    rng = np.random.default_rng(seed)
    x = np.zeros((n, m))
    for weight in rng.dirichlet(np.ones(3 * m)):
        shown = np.append(np.arange(m - 1), rng.integers(m - 1, n))
        x[rng.permutation(shown), np.arange(m)] += weight
    return x


def rare(n, m):
    """One usual ranking, and a thousandth, a ten-thousandth, a millionth for each of the others."""
    x = np.zeros((n, m))
    x[np.arange(m), np.arange(m)] = 1.0
    for k, chance in enumerate((1e-3, 1e-4, 1e-6)):
        other = np.roll(np.arange(n), k + 1)[:m]
        x *= 1.0 - chance
        x[other, np.arange(m)] += chance
    return x


def nearly_integral(n, m):
    x = np.full((n, m), 1e-13 / n)
    x[np.arange(m), np.arange(m)] += 1.0 - 1e-13
    return x


RINGS = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]])

# Made when asked for: the leader's compilation should not wait on the collection of tests.
MARGINALS = {
    "one item": lambda: np.ones((1, 1)),
    "one position": lambda: np.array([[0.7], [0.2], [0.1 - 1e-5], [1e-5]]),
    "two by two": lambda: np.array([[0.3, 0.7], [0.7, 0.3]]),
    "uniform 10 x 5": lambda: np.full((10, 5), 0.1),
    "uniform 12 x 12": lambda: np.full((12, 12), 1 / 12),
    "uniform 300 x 4": lambda: np.full((300, 4), 1 / 300),
    "a ring": lambda: RINGS,
    "two rings": lambda: np.block([[RINGS, np.zeros((3, 3))], [np.zeros((3, 3)), RINGS]]),
    "a few lists, square": lambda: mixture(6, 6, 4, seed=1),
    "a few lists": lambda: mixture(9, 4, 4, seed=2),
    "many lists": lambda: mixture(9, 4, 40, seed=3),
    "many lists, square": lambda: mixture(8, 8, 60, seed=4),
    "one heavy list": lambda: mixture(8, 5, 10, seed=5, concentration=0.1),
    "tight rows": lambda: tight(8, 4, seed=6),
    "tight rows, many items": lambda: tight(60, 5, seed=7),
    "rare events": lambda: rare(8, 4),
    "rare events, square": lambda: rare(5, 5),
    "learned a little": lambda: learned(10, 5, 2.0),
    "learned, square": lambda: learned(10, 10, 4.0),
    "learned, one more item": lambda: learned(9, 8, 4.0),
    "learned, many items": lambda: learned(200, 10, 20.0),
    "learned by entropy": lambda: learned(10, 5, 12.0, regularizer="shannon"),
    "learned for long": lambda: learned(10, 5, 1e4),
    "nearly integral": lambda: nearly_integral(7, 4),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MARGINALS)
def test_counts_fit_the_marginals(name, generator):
    x = MARGINALS[name]()
    check_counts(count_draws(x, generator(len(name), 1)), x)


@pytest.mark.slow
def test_the_public_function_has_the_same_distribution(generator):
    x = learned(6, 3, 3.0)
    draws = DRAWS // 4
    check_counts(count_with(sample_ranking, x, generator(2), draws), x, draws)


@pytest.mark.slow
@pytest.mark.parametrize("broken", [column_after_column, plackett_luce])
@pytest.mark.parametrize("name", ["a ring", "a few lists, square", "learned a little"])
def test_a_wrong_sampler_is_caught(broken, name, generator):
    x, draws = MARGINALS[name](), 20_000
    counts = count_with(broken, x, generator(3), draws)
    with pytest.raises(AssertionError):
        check_counts(counts, x, draws)


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="needs many draws")
def test_a_small_error_in_the_marginals_is_caught(generator):
    x = learned(6, 3, 3.0)
    off = x.copy()
    off[:2, 0] += [0.01, -0.01]
    with pytest.raises(AssertionError, match="has probability"):
        check_counts(count_draws(x, generator(4)), off)


def test_an_impossible_pair_is_caught():
    x = np.array([[1.0], [0.0]])
    with pytest.raises(AssertionError, match="probability 0"):
        check_counts(np.array([[DRAWS - 1], [1]]), x)


@st.composite
def polytope_points(draw):
    """Mixtures of few or many rankings: vertices, faces and the inside."""
    n = draw(st.integers(1, 9))
    m = draw(st.one_of(st.integers(1, n), st.just(n)))
    lists = draw(st.integers(1, 12))
    return mixture(n, m, lists, seed=draw(st.integers(0, 2**32 - 1)), concentration=draw(st.sampled_from([0.1, 1.0])))


@pytest.mark.slow
@given(polytope_points(), st.integers(0, 2**32 - 1))
def test_a_draw_is_a_ranking_that_can_happen(x, seed):
    m = x.shape[1]
    ranking = sample_ranking(x, np.random.default_rng(seed))
    assert ranking.shape == (m,)
    assert ranking.dtype == np.int64
    assert len(set(ranking.tolist())) == m
    assert (x[ranking, np.arange(m)] > 0.0).all()


@pytest.mark.slow
@given(polytope_points(), st.integers(0, 2**32 - 1))
def test_a_seed_fixes_the_draws(x, seed):
    one, two = np.random.default_rng(seed), np.random.default_rng(seed)
    for _ in range(3):
        assert (sample_ranking(x, one) == sample_ranking(x, two)).all()
    assert one.bit_generator.state == two.bit_generator.state


@pytest.mark.slow
@given(st.integers(1, 12), st.data())
def test_an_integral_point_is_its_own_ranking(n, data):
    m = data.draw(st.integers(1, n))
    items = np.array(data.draw(st.permutations(range(n))))[:m]
    x = np.zeros((n, m))
    x[items, np.arange(m)] = 1.0
    assert (sample_ranking(x, np.random.default_rng(1)) == items).all()


def test_the_marginals_are_not_changed(rng):
    x = MARGINALS["learned, square"]()
    before = x.copy()
    sample_ranking(x, rng)
    assert (x == before).all()


def test_marginals_that_are_feasible_up_to_rounding_are_accepted(rng):
    x = MARGINALS["learned, square"]() * (1.0 + 4e-10)
    x[0, 0] -= 1e-10
    assert len(set(sample_ranking(x, rng).tolist())) == 10


@pytest.mark.parametrize("layout", [np.asfortranarray, lambda x: x.tolist(), lambda x: np.repeat(x, 2, axis=1)[:, ::2]])
def test_any_layout_of_the_same_marginals_gives_the_same_draw(layout, generator):
    x = MARGINALS["many lists"]()
    assert (sample_ranking(layout(x), generator(5)) == sample_ranking(x, generator(5))).all()


def test_a_converged_learner_shows_its_best_list(generator):
    """Losses of a million: the leader is nearly a vertex, and almost every draw is that vertex."""
    loss = 1e6 * np.random.default_rng(8).random((10, 5))
    x = leader(loss, 1.0).marginals
    best = best_ranking(-loss)
    counts = count_draws(x, generator(6), draws=1000)
    assert (counts[best, np.arange(5)] >= 999).all()
