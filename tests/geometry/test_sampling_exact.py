"""The source of the sampler, interpreted in rational arithmetic over all outcomes: E[X] = x exactly."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from bothworlds.geometry import feasible, sampling
from tests.reference.rational import all_outcomes, exact_array, with_exact

SHAPES = [(1, 1), (5, 1), (3, 2), (3, 3), (4, 2), (6, 2), (4, 3), (5, 3), (4, 4)]


@pytest.fixture
def interpreted(monkeypatch):
    """Replace every kernel of the sampler by its source, and leave nothing to be called rounding."""
    for module in (sampling, feasible):
        for name, value in list(vars(module).items()):
            if hasattr(value, "py_func"):
                monkeypatch.setattr(module, name, value.py_func)
    monkeypatch.setattr(sampling, "TINY", 0)
    return monkeypatch


def mixture(seed, n, m, lists):
    """Rational marginals of a random mixture of a few rankings: rows are then within their limit by construction."""
    rng = np.random.default_rng(seed)
    weights = [Fraction(int(w)) for w in rng.integers(1, 12, lists)]
    x = np.full((n, m), Fraction(0), dtype=object)
    for weight in weights:
        x[rng.permutation(n)[:m], np.arange(m)] += weight / sum(weights)
    return x


def fractions(rows):
    """Whole numbers over a common denominator, the first column's sum."""
    total = sum(row[0] for row in rows)
    return np.array([[Fraction(v, total) for v in row] for row in rows], dtype=object)


def prepared(x, n):
    m = x.shape[1]
    urn = with_exact(sampling.make_urn(n, m), "packed", "weight", "work.mass")
    sampling.prepare(x, urn)
    return urn


def law_of_draws(x, n=None):
    """Every ranking that can be drawn from x, with its exact probability; n items, of which all others share a row."""
    x = exact_array(x)
    urn = prepared(x, len(x) if n is None else n)

    def experiment(chooser):
        ranking = np.full(x.shape[1], -1)
        sampling.draw(x, chooser, urn, ranking)
        return tuple(int(i) for i in ranking)

    law = {}
    for probability, ranking in all_outcomes(experiment):
        law[ranking] = law.get(ranking, Fraction(0)) + probability
    return law


def check_law(law, x):
    """Probabilities sum to 1, items differ, and the expectation is x: as rational numbers."""
    assert sum(law.values()) == 1
    mean = np.full(x.shape, Fraction(0), dtype=object)
    for ranking, probability in law.items():
        assert len(set(ranking)) == x.shape[1], f"an item twice in {ranking}"
        mean[list(ranking), np.arange(x.shape[1])] += probability
    assert (mean == x).all(), f"the marginals are off by up to {float(abs(mean - x).max())}"


@pytest.mark.parametrize("lists", [1, 2, 3, 6])
@pytest.mark.parametrize("shape", SHAPES)
def test_marginals_are_exact(interpreted, shape, lists):
    for seed in range(4):
        x = mixture(seed, *shape, lists)
        check_law(law_of_draws(x), x)


@pytest.mark.parametrize("shape", SHAPES)
def test_uniform_marginals_are_exact(interpreted, shape):
    n, m = shape
    x = np.full((n, m), Fraction(1, n), dtype=object)
    check_law(law_of_draws(x), x)


@pytest.mark.parametrize("lists", [2, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_marginals_are_exact_if_everything_is_rounded(interpreted, shape, lists):
    """Without a seating to peel, every column is settled by dependent rounding."""
    interpreted.setattr(sampling, "improve_seating", lambda k, mass, seat: 0.0)
    for seed in range(3):
        x = mixture(seed, *shape, lists)
        check_law(law_of_draws(x), x)


@pytest.mark.slow
@pytest.mark.parametrize("peels", [0, 1])
@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (5, 3), (4, 4)])
def test_marginals_are_exact_if_peeling_is_cut_short(interpreted, shape, peels):
    """What has been peeled is gone from what is played out, also when it is the number of peels that runs out."""
    interpreted.setattr(sampling, "PEELS", peels)
    for seed in range(6):
        x = mixture(seed, *shape, 8)
        check_law(law_of_draws(x), x)


CYCLES = {
    "three rows in a ring": fractions([[1, 1, 0], [0, 1, 1], [1, 0, 1]]),
    "three rows in an uneven ring": fractions([[2, 3, 0], [0, 2, 3], [3, 0, 2]]),
    "four rows in a ring": fractions([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]]),
    "a ring beside a list": fractions([[1, 0, 1, 0], [0, 2, 0, 0], [1, 0, 0, 1], [0, 0, 1, 1]]),
    "a ring through the slack": fractions([[2, 2, 0], [0, 2, 2], [2, 0, 1], [0, 0, 1]]),
}


@pytest.mark.parametrize("name", CYCLES)
def test_marginals_are_exact_where_only_a_walk_finds_the_cycle(interpreted, name):
    walks = []
    shift_around_cycle = sampling.shift_around_cycle
    interpreted.setattr(sampling, "improve_seating", lambda k, mass, seat: 0.0)
    interpreted.setattr(sampling, "shift_around_cycle", lambda *args: walks.append(1) or shift_around_cycle(*args))
    x = CYCLES[name]
    check_law(law_of_draws(x), x)
    assert walks, "no walk was needed: this case tests something else"


def test_a_walk_without_rounding_always_closes(interpreted):
    """Crumbs are a matter of floating point only."""

    def drop_rounding_error(*_):
        raise AssertionError("a walk ended nowhere although nothing was rounded")

    interpreted.setattr(sampling, "improve_seating", lambda k, mass, seat: 0.0)
    interpreted.setattr(sampling, "drop_rounding_error", drop_rounding_error)
    for seed in range(20):
        x = mixture(seed, 4, 4, 3)
        check_law(law_of_draws(x), x)


def test_repair_leaves_a_feasible_point_alone(interpreted):
    for seed, (n, m) in enumerate(SHAPES):
        x = exact_array(mixture(seed, n, m, 3))
        row = exact_array([sum(v.value for v in r) - 1 for r in x])
        repaired = exact_array(np.zeros((n, m), int))
        feasible.repair(x, exact_array([1] * n), row, repaired, exact_array([0] * m), exact_array([0] * n))
        assert (repaired == x).all()


def test_many_items_share_few_bins(interpreted):
    """Packing keeps at most 2m + 1 bins, each within its limit, and hands out every item with its own probability."""
    x = np.full((12, 2), Fraction(0), dtype=object)
    for i in range(12):
        x[i, 0] = Fraction(1 + i % 4, 30)
        x[i, 1] = Fraction((5 * i) % 12 + 1, 78)
    assert x.sum(axis=0).tolist() == [1, 1]
    urn = prepared(exact_array(x), 12)
    assert urn.bins[0] <= 5
    check_law(law_of_draws(x), x)


def shared(rows, denominators, n):
    """Rows of their own, and n - len(rows) items that share what is left of every column; also item by item."""
    own = np.array([[Fraction(v, d) for v, d in zip(row, denominators)] for row in rows], dtype=object)
    rest = (1 - own.sum(axis=0)) / (n - len(rows))
    distinct = np.vstack([own, rest[None]])
    return distinct, distinct[np.minimum(np.arange(n), len(rows))]


SHARED = {
    "one full row": shared([[2, 0]], (3, 3), 5),
    "a row that leaves room in its bin": shared([[1, 1], [1, 3]], (8, 8), 7),
    "most of the mass is shared": shared([[1, 1, 0]], (9, 9, 9), 6),
    "little is shared": shared([[5, 1, 0], [1, 5, 0], [0, 0, 5]], (7, 7, 7), 6),
    "one item has the last row": shared([[1, 1], [1, 1]], (3, 3), 3),
    "nothing is left to share": shared([[1, 1], [1, 1]], (2, 2), 4),
    "more than half each": shared([[1, 0, 0]], (4, 4, 4), 4),
}


@pytest.mark.parametrize("name", SHARED)
def test_marginals_are_exact_if_items_share_a_row(interpreted, name):
    distinct, x = SHARED[name]
    urn = prepared(exact_array(distinct), len(x))
    assert urn.bins[0] <= 2 * x.shape[1] + 1
    check_law(law_of_draws(distinct, len(x)), x)


@pytest.mark.parametrize("shape", SHAPES)
def test_uniform_marginals_are_exact_if_all_items_share_one_row(interpreted, shape):
    n, m = shape
    x = np.full((n, m), Fraction(1, n), dtype=object)
    check_law(law_of_draws(x[:1], n), x)


def first_that_shares(x, b, j, rng, urn):
    """The first item of the interval, instead of any of them."""
    return urn.shared_from[b] if urn.head[b] < 0 else urn.head[b]


def any_that_shares(x, b, j, rng, urn):
    """An item of the interval, although the bin has members with rows of their own."""
    size = urn.shared[b]
    return urn.shared_from[b] + min(int(rng.random() * size), size - 1) if size else urn.head[b]


@pytest.mark.parametrize("broken", [first_that_shares, any_that_shares])
def test_a_wrong_member_of_a_shared_row_is_caught(interpreted, broken):
    interpreted.setattr(sampling, "member", broken)
    distinct, x = SHARED["a row that leaves room in its bin"]
    with pytest.raises(AssertionError, match="the marginals are off"):
        check_law(law_of_draws(distinct, len(x)), x)


def biased_coin(rng, a, b):
    return rng.random() * 2.0 < 1.0


def swapped_coin(rng, a, b):
    return rng.random() * (a + b) < b


def first_member(x, b, j, rng, urn):
    return urn.head[b]


def even_member(x, b, j, rng, urn):
    """A random member of the bin, without regard to the entries."""
    i = urn.head[b]
    while urn.following[i] >= 0 and rng.random() * 2.0 < 1.0:
        i = urn.following[i]
    return i


@pytest.mark.parametrize(
    ("name", "broken"),
    [("bernoulli", biased_coin), ("bernoulli", swapped_coin), ("member", first_member), ("member", even_member)],
)
def test_a_broken_step_is_caught(interpreted, name, broken):
    interpreted.setattr(sampling, name, broken)
    x = mixture(1, 6, 2, 6)
    with pytest.raises(AssertionError, match="the marginals are off"):
        check_law(law_of_draws(x), x)


def test_a_repeated_item_is_caught():
    x = fractions([[1, 1], [1, 1]])
    with pytest.raises(AssertionError, match="an item twice"):
        check_law({(0, 0): Fraction(1, 2), (1, 1): Fraction(1, 2)}, x)


def test_a_lost_outcome_is_caught():
    x = fractions([[1, 1], [1, 1]])
    with pytest.raises(AssertionError):
        check_law({(0, 1): Fraction(1, 2)}, x)
