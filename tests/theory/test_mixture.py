"""The bounds of ftrl-va and all-weather: every inequality of docs/research/theory.md, checked numerically."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from bothworlds import play
from bothworlds.policies import policy
from bothworlds.theory import (
    adversarial_bound,
    all_weather_bound,
    comparison_bound,
    ftrl_va_bound,
    largest_regret,
    mixture_leader_bound,
)
from bothworlds.theory.mixture import GRACE, SAMPLER_WIDTH, SHARE, WIDTH, least_share

# The leader


def stability(R, z, g):
    """max over y > 0 of (x - y) g - D(y, x) for the coordinate with gradient -z of -sqrt(R y), by fine search."""
    x = R / (4 * z**2)
    y = np.geomspace(1e-9, 1e4, 400_001) * x
    divergence = -math.sqrt(R) * (np.sqrt(y) - math.sqrt(x)) + z * (y - x)
    return ((x - y) * g - divergence).max()


@pytest.mark.parametrize("R", [1.0, 50.0])
@pytest.mark.parametrize("x", [0.001, 0.2, 1.0])
@pytest.mark.parametrize("g", [-0.49, -0.1, 0.3, 5.0])
def test_the_stability_of_a_coordinate_has_a_closed_form(R, x, g):
    z = math.sqrt(R) / (2 * math.sqrt(x))
    loss = g * z
    exact = R / 4 * loss**2 / (z**2 * (z + loss))
    assert stability(R, z, loss) == pytest.approx(exact, rel=1e-6)
    assert exact <= 4 * x**1.5 * loss**2 / math.sqrt(R) * (1 + 1e-12)


def test_without_the_cap_the_bound_on_stability_fails():
    R, x = 9.0, 0.3
    z = math.sqrt(R) / (2 * math.sqrt(x))
    loss = -0.6 * z  # the cap allows -0.5
    assert R / 4 * loss**2 / (z**2 * (z + loss)) > 4 * x**1.5 * loss**2 / math.sqrt(R)


def test_the_second_moment_of_an_estimate():
    third = Fraction(1, 3)
    for p, loss, b in itertools.product([third, Fraction(1, 7)], [Fraction(0), Fraction(1)], [Fraction(0), third]):
        shown, hidden = b + (loss - b) / p, b
        assert p * shown + (1 - p) * hidden == loss
        assert p * shown**2 + (1 - p) * hidden**2 == loss**2 + (loss - b) ** 2 * (1 / p - 1)


def test_the_sums_over_rounds(rng):
    for q in (1.0, 0.3, SHARE):
        weights = 1 / rng.uniform(q, 1.0, 20_000)  # 1 / w
        weights[:200] = 1 / q
        R = 1 + 0.1 * np.concatenate([[0.0], np.cumsum(weights)])[:-1]
        A, T = weights.sum(), weights.size
        assert (weights / np.sqrt(R)).sum() <= 1 / q + 20 * math.sqrt(1 + A / 10)
        assert (1 / np.sqrt(R)).sum() <= 20 * math.sqrt(1 + T / 10)


# The comparison


M = 5  # positions


def pool_share(r):
    return np.clip(0.5 - r / (2 * np.where(r > 0, WIDTH, SAMPLER_WIDTH)), SHARE, 1 - SHARE)


def primitive(r):
    """The integral of ``pool_share`` from 0 to r."""
    width = np.where(r > 0, WIDTH, SAMPLER_WIDTH)
    linear = width * (1 - 2 * SHARE)  # the share is linear up to there
    inside = np.clip(r, -linear, linear)
    beyond = r - inside
    return inside / 2 - inside**2 / (4 * width) + np.where(beyond > 0, SHARE, 1 - SHARE) * beyond


def potential(D, V):
    return np.sqrt(V) * primitive(D / np.sqrt(V))


def gain(D, V, steps, width=SAMPLER_WIDTH):
    """By how much the potential grows more than the proof says; ``steps`` are the m + 1 parts of an increment."""
    step, square = steps.sum(axis=0), (steps**2).sum(axis=0)
    least = pool_share(D / np.sqrt(V)) * step - (M + 1) * square / (4 * width * np.sqrt(V))
    return potential(D + step, V + square) - potential(D, V) - least


def test_the_potential_grows_by_at_least_what_the_pool_loses(rng):
    V = rng.uniform(1.0, 1e5, 100_000)
    D = rng.uniform(-4, 4, V.size) * np.sqrt(V)
    steps = rng.standard_t(2, V.size) * np.ones((M + 1, 1))  # equal parts are the worst case
    assert gain(D, V, steps).min() > -1e-9
    assert gain(D, V, rng.standard_t(2, (M + 1, V.size)) * 5).min() > -1e-9
    assert gain(D, V, steps, width=4 * SAMPLER_WIDTH).min() < -1e-6  # a smaller allowance is not enough


def test_the_potential_at_the_end_of_a_comparison():
    assert primitive(WIDTH) <= WIDTH / 4 + WIDTH * SHARE**2 + 1e-12


def test_the_second_moment_of_an_increment(rng):
    n, m = 6, 3
    for _ in range(200):
        x, s = (np.mean([np.eye(n)[rng.permutation(n)[:m]].T for _ in range(k)], axis=0) for k in (20, 2))
        w = rng.choice([SHARE, 0.5, 1 - SHARE])
        p = w * x + (1 - w) * s
        shown = p > 0
        assert ((s - x)[shown] ** 2 / p[shown]).sum() <= 2 * m / SHARE


def test_a_comparison_costs_less_than_its_bound(rng):
    """Users who make the pool worse and better in turn: the loss stays below the potential argument's bound."""
    T, runs = 5_000, 200
    D, V, lost = np.zeros(runs), np.full(runs, GRACE), np.zeros(runs)
    awake = np.ones(runs, bool)
    for t in range(T):
        d = 1.0 if (t // 100) % 2 == 0 else -1.0
        share = np.where(awake, pool_share(D / np.sqrt(V)), 0.0)
        lost += share * d
        step = np.where(awake, d + rng.standard_normal(runs) * 3, 0.0)
        D, V = D + step, V + step**2
        awake &= D / np.sqrt(V) < WIDTH
    assert lost.mean() <= (WIDTH / 4 + WIDTH * SHARE**2 + 1 / (2 * SAMPLER_WIDTH)) * np.sqrt(V).mean() + 10


# The functions


def test_the_bounds_of_the_papers_experiment():
    assert ftrl_va_bound(10, 5, 10**6) == pytest.approx(5.48e5, rel=1e-3)
    assert all_weather_bound(10, 5, 10**6) == pytest.approx(3.814e6, rel=1e-3)
    assert mixture_leader_bound(10, 5, 10**6, share=1.0) == ftrl_va_bound(10, 5, 10**6)


def test_the_bounds_grow_with_the_square_root_of_rounds_and_with_the_shape():
    for bound in (ftrl_va_bound, all_weather_bound):
        assert bound(10, 5, 4 * 10**10) / bound(10, 5, 10**10) == pytest.approx(2.0, rel=0.04)
        assert bound(20, 5, 10**6) > bound(10, 5, 10**6) > bound(10, 4, 10**6) > adversarial_bound(10, 4, 10**6)
    assert comparison_bound(10, 5, 10**10) < 0.01 * largest_regret([1.0] * 5 + [0.0], [1.0] * 5, 10**10)


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, math.nan])
def test_an_impossible_share_is_refused(share):
    with pytest.raises(ValueError, match="share must be above 0 and at most 1"):
        mixture_leader_bound(10, 5, 100, share)
    with pytest.raises(ValueError, match="n_positions must be at most n_items = 4; got 5"):
        all_weather_bound(4, 5, 100)


def test_the_constants_are_those_of_the_policy():
    aw = policy("all-weather")
    assert (aw.share, aw.width, aw.sampler_width, aw.grace) == (SHARE, WIDTH, SAMPLER_WIDTH, GRACE)
    for shape in ((10, 5), (50, 10), (3, 2)):
        assert aw.init(*shape).settings.share == pytest.approx(least_share(*shape))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ftrl-va", "all-weather"])
def test_simulated_regret_is_far_below_the_bound(name):
    bound = {"ftrl-va": ftrl_va_bound, "all-weather": all_weather_bound}[name]
    for world in ("adversarial/fraud", "adversarial/growing-phases"):
        lost = play(name, world, 20_000, replications=2, progress=False).regret()[:, -1].mean()
        assert lost < 0.1 * bound(10, 5, 20_000)
