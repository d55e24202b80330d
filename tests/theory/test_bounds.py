"""The three theorems: their numbers, and simulations that respect them."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

import bothworlds
from bothworlds.theory import (
    adversarial_bound,
    hard_instance,
    largest_regret,
    lower_bound,
    stochastic_bound,
    table,
)
from bothworlds.worlds import Matrix
from tests.theory.instances import ALPHA, BETA, definition


def theorem_2(alpha, beta, T):
    """The bound written out, for what is sorted."""
    gap, m = definition(alpha, beta), len(beta)
    total = sum(1 / gap[i, j] for j in range(m) for i in range(len(alpha)) if i != j)
    return (18 * total + 4 * m) * math.log(T) + 6 * m


@pytest.mark.parametrize("rounds", [1, 2, 10**4, 10**6])
def test_the_stochastic_bound_is_theorem_2(rounds, rng):
    assert stochastic_bound(ALPHA, BETA, rounds) == pytest.approx(theorem_2(ALPHA, BETA, rounds), rel=1e-12)
    items, positions = rng.permutation(10), rng.permutation(5)
    assert stochastic_bound(ALPHA[items], BETA[positions], rounds) == pytest.approx(theorem_2(ALPHA, BETA, rounds))


def test_the_bounds_of_the_papers_experiment():
    assert stochastic_bound(ALPHA, BETA, 10**6) == pytest.approx(1.56e6, rel=1e-3)
    assert adversarial_bound(10, 5, 10**6) == pytest.approx(9.503e4, rel=1e-3)
    assert largest_regret(ALPHA, BETA, 10**6) < stochastic_bound(ALPHA, BETA, 10**6)


@pytest.mark.parametrize("rounds", [1, 100])
def test_ties_make_the_stochastic_bound_infinite(rounds):
    assert stochastic_bound([0.9, 0.9, 0.1], [1.0, 0.5], rounds) == math.inf
    assert stochastic_bound([0.9, 0.5, 0.5], [1.0, 0.5], rounds) == math.inf  # the last shown and the first not shown
    assert stochastic_bound([0.9, 0.5, 0.1], [0.5, 0.5], rounds) == math.inf
    assert stochastic_bound([0.9, 0.5, 0.1], [0.5, 0.0], rounds) == math.inf


def test_ties_among_items_never_shown_do_not_matter():
    assert stochastic_bound([0.9, 0.5, 0.1, 0.1], [1.0, 0.5], 100) < math.inf


def test_the_adversarial_bound_has_all_its_terms():
    for n, m, T in ((10, 5, 1), (7, 2, 1000), (3, 3, 10**8)):
        expected = 3 * m + 2 * m * (1 + math.log(T)) + 6 * m * math.sqrt(n * T)
        assert adversarial_bound(n, m, T) == pytest.approx(expected, rel=1e-14)


def test_the_lower_bound_is_theorem_3():
    assert lower_bound(10, 5, 600) == pytest.approx(5 / 16 * math.sqrt(6 * 600), rel=1e-14)
    assert lower_bound(4, 1, 4) == pytest.approx(1 / 16 * math.sqrt(4 * 4), rel=1e-14)


@pytest.mark.parametrize("make", [lower_bound, lambda n, m, T: hard_instance(n, m, T, np.random.default_rng(0))])
@pytest.mark.parametrize(
    ("n", "m", "T", "named"),
    [
        (3, 1, 100, "n_items must be at least 4 for 1 positions"),
        (5, 3, 100, "n_items must be at least 6 for 3 positions"),
        (9, 5, 100, "n_items must be at least 10 for 5 positions"),
        (10, 5, 9, "rounds must be at least n_items = 10"),
        (10, 0, 100, "n_positions must be"),
        (10, 5, 0, "rounds must be"),
        (10, 5, 2.5, "rounds must be"),
        ("ten", 5, 100, "n_items must be"),
    ],
)
def test_outside_the_conditions_the_lower_bound_is_refused(make, n, m, T, named):
    with pytest.raises(ValueError, match=f"^{named}"):
        make(n, m, T)


@pytest.mark.parametrize(("n", "m"), [(4, 1), (5, 2), (6, 3), (10, 5)])
def test_the_conditions_are_met_exactly_here(n, m):
    assert lower_bound(n, m, n) > 0.0


@pytest.mark.parametrize(("n", "m", "T"), [(3, 5, 10), (0, 1, 10), (3, 2, 0), (3, 2, "long"), (3, True, 10)])
def test_invalid_shapes_have_no_adversarial_bound(n, m, T):
    with pytest.raises(ValueError, match="must be"):
        adversarial_bound(n, m, T)


@pytest.mark.parametrize("rounds", [0, -1, 1.5, None, "long", float("nan"), float("inf")])
def test_impossible_rounds_are_refused_by_name(rounds):
    for call in (stochastic_bound, largest_regret, table):
        with pytest.raises(ValueError, match=r"^rounds must be a whole number"):
            call([0.9, 0.1], [1.0], rounds)


def test_the_hard_instance_hides_one_list():
    world = hard_instance(10, 5, 600, np.random.default_rng(1))
    assert isinstance(world, Matrix)
    p = world.click_probabilities(0)
    items, positions = np.nonzero(p > 0.5)
    assert sorted(positions) == [0, 1, 2, 3, 4]
    assert len(set(items.tolist())) == 5
    np.testing.assert_allclose(p[items, positions], 0.5 + 0.0125, rtol=1e-12)
    assert ((p == 0.5) | (p > 0.5)).all()
    assert np.linalg.matrix_rank(p) > 1


def test_the_hidden_list_is_uniform():
    rng, seen = np.random.default_rng(2), np.zeros((6, 3))
    for _ in range(3000):
        seen += hard_instance(6, 3, 100, rng).click_probabilities(0) > 0.5
    assert np.abs(seen / 3000 - 1 / 6).max() < 5 * math.sqrt(5 / 36 / 3000)


@pytest.mark.parametrize("rng", [None, 3, np.random.RandomState])
def test_the_hard_instance_requires_a_generator(rng):
    with pytest.raises(ValueError, match=r"^rng must be"):
        hard_instance(10, 5, 600, rng)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["ftrl-pbm", "uniform"])
def test_play_keeps_between_the_bounds_in_the_hard_instance(policy):
    rounds = 5_000
    world = bothworlds.world("adversarial/hard-instance", rounds=rounds)
    regret = bothworlds.play(policy, world, rounds, replications=8).regret()[:, -1].mean()
    least = lower_bound(10, 5, rounds)
    assert least < regret < 2 * least


@pytest.mark.slow
def test_the_regret_of_ftrl_is_below_its_bounds():
    rounds = 10_000
    steady = bothworlds.play("ftrl-pbm", "paper/stochastic", rounds, replications=4).regret()[:, -1].mean()
    assert steady < min(stochastic_bound(ALPHA, BETA, rounds), adversarial_bound(10, 5, rounds))
    for name, settings in (("growing-phases", {}), ("corruption", {}), ("fraud", {"phase": 2_000})):
        world = bothworlds.world(f"adversarial/{name}", **settings)
        lost = bothworlds.play("ftrl-pbm", world, rounds, replications=4).regret()[:, -1].mean()
        assert lost < adversarial_bound(10, 5, rounds)


def test_the_table_has_every_bound_of_the_paper():
    rows = [row for row in table(ALPHA, BETA, 10**6) if not row.source.startswith("ours")]
    assert len(rows) == 14
    assert {row.users for row in rows} == {"stochastic", "adversarial"}
    assert {row.side for row in rows} == {"upper", "lower"}
    assert all(row.order for row in rows)
    known = {(row.source.split()[0], row.users, row.side): row.bound for row in rows if row.bound is not None}
    assert known == {
        ("Kale", "adversarial", "upper"): pytest.approx(4 * 5 * math.sqrt(10**7 * math.log(10))),
        ("Bubeck", "adversarial", "upper"): pytest.approx(2 * math.sqrt(2) * 5 * math.sqrt(10**7)),
        ("the", "stochastic", "upper"): stochastic_bound(ALPHA, BETA, 10**6),
        ("the", "adversarial", "upper"): adversarial_bound(10, 5, 10**6),
        ("the", "adversarial", "lower"): lower_bound(10, 5, 10**6),
    }


def test_where_the_lower_bound_does_not_hold_the_table_has_none():
    assert table([0.9, 0.5, 0.1], [1.0, 0.5], 100)[-1].bound is None


@pytest.mark.slow
def test_the_theory_needs_no_compiler():
    code = "import sys, bothworlds; bothworlds.theory.table([.9, .1], [1.0], 9); print('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
