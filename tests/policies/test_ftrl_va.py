"""FTRL-VA against its definition; its estimates are unbiased in rational arithmetic."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import sqrt

import numpy as np
import pytest

import bothworlds
from bothworlds.core import NONE_ABSENT, Decision
from bothworlds.geometry import leader
from bothworlds.policies import policy
from bothworlds.policies.parts import predicted_losses
from bothworlds.policies.parts.counts import make_counts
from tests.policies.by_hand import WORLDS, expected_estimate, rounds_of, trained, weighted
from tests.reference.rational import Exact, exact_array

VA = policy("ftrl-va")


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
def test_every_round_is_played_with_the_leader_of_the_rounds_before(world):
    for t, state, _, _ in rounds_of(VA, world, 400):
        if t < 20 or t % 20 == 0:
            exact = leader(state.loss, 1.0 / sqrt(state.rule.spread[0])).marginals
            np.testing.assert_allclose(state.leading.marginals, exact, rtol=0, atol=1e-5)


def agrees_with_the_definition(rounds=500, cap=4.0, least=0.1, everywhere=True):
    """Whether losses and spread are those of the definition, after every round."""
    loss, spread, shown, clicked = np.zeros((10, 5)), 1.0, np.zeros((10, 5)), np.zeros((10, 5))
    capped = 0
    for _, state, decision, clicks in rounds_of(VA, WORLDS["yandex"], rounds):
        if (
            not np.allclose(state.loss, loss, rtol=1e-10, atol=1e-9)
            or abs(state.rule.spread[0] - spread) > 1e-9 * spread
        ):
            return False
        x, cells = state.leading.marginals, (decision.ranking, np.arange(5))
        b = 1.0 - (clicked + 0.5) / (shown + 1.0)
        limited = np.minimum(b, np.sqrt(spread * x) / cap)
        capped += (limited < b).sum()
        added = limited if everywhere else np.where(weighted(decision, np.ones(5), (10, 5)), limited, 0.0)
        loss += added + weighted(decision, 1.0 - clicks - limited[cells], (10, 5))
        spread += max(least, 4.0 / 5.0 * ((1.0 - clicks - b[cells]) ** 2).sum())
        shown[cells] += 1.0
        clicked[cells] += clicks
    assert 0 < capped < rounds * 50
    return True


def test_losses_and_rate_follow_the_definition():
    assert agrees_with_the_definition()


@pytest.mark.parametrize("wrong", [{"cap": 3.0}, {"least": 0.5}, {"everywhere": False}])
def test_another_definition_is_noticed(wrong):
    assert not agrees_with_the_definition(**wrong)


@pytest.mark.parametrize("rounds", [0, 1, 60, 300])
def test_estimates_are_unbiased(rounds):
    state = trained(VA, 3, 2, rounds)
    p = np.array([[0.9, 0.3], [0.5, 0.6], [0.2, 0.1]])
    np.testing.assert_allclose(expected_estimate(VA, state, p), 1.0 - p, atol=1e-9)


LAW = {(0, 1): Fraction(1, 2), (1, 2): Fraction(1, 3), (2, 0): Fraction(1, 6)}  # of the lists that are shown
CLICKS = np.array([[Fraction(k, 7) for k in row] for row in ((6, 2), (3, 4), (1, 5))], dtype=object)


def law_of_clicks(ranking, probabilities=CLICKS):
    """All clicks on a list, with their probabilities."""
    rates = [probabilities[i, j] for j, i in enumerate(ranking)]
    for clicks in product((0, 1), repeat=len(rates)):
        chance = Fraction(1)
        for click, rate in zip(clicks, rates):
            chance *= rate if click else 1 - rate
        yield chance, clicks


@pytest.fixture
def interpreted(monkeypatch):
    for kernel in (predicted_losses.add_losses, predicted_losses.capped, predicted_losses.predicted_loss):
        monkeypatch.setattr(predicted_losses, kernel.__name__, getattr(kernel, "py_func", kernel))


def expected_loss(add, w=Fraction(1, 4)):
    """The expectation of what a round adds to the losses, as rational numbers, and the least that it adds to R."""
    p = np.full((3, 2), Fraction(0), dtype=object)
    for ranking, chance in LAW.items():
        p[list(ranking), [0, 1]] += chance
    x = np.array([[Fraction(2, 5), Fraction(1, 5)], [Fraction(2, 5)] * 2, [Fraction(1, 5), Fraction(2, 5)]])
    counts = make_counts(3, 2)
    shown, clicks = [[9, 4], [2, 3], [0, 6]], [[8, 1], [1, 3], [0, 2]]
    counts = counts._replace(shown=exact_array(shown), clicked=exact_array(clicks))
    mean, grown = np.full((3, 2), Fraction(0), dtype=object), []
    for ranking, chance in LAW.items():
        for likely, clicks in law_of_clicks(ranking):
            loss, spread = exact_array(np.zeros((3, 2))), exact_array([7])
            propensity = exact_array([p[i, j] for j, i in enumerate(ranking)])
            given = ranking, propensity, exact_array(clicks), NONE_ABSENT
            add(loss, spread, counts, exact_array(x), exact_array((p - w * x) / (1 - w)), Exact(w), Exact(w), *given)
            mean += chance * likely * np.array([[entry.value for entry in row] for row in loss])
            grown.append(spread[0] - 7)
    return mean, min(grown)


def test_the_expected_estimate_is_the_loss_in_rational_arithmetic(interpreted):
    mean, least = expected_loss(predicted_losses.add_losses)
    assert (mean == 1 - CLICKS).all()
    assert least >= Exact(0.1) / Fraction(1, 4)


def test_a_prediction_for_shown_pairs_only_is_biased(interpreted):
    def biased(loss, spread, counts, x, s, w, w_drawn, ranking, propensity, clicks, absent):
        predicted_losses.add_losses(loss, spread, counts, x, s, w, w_drawn, ranking, propensity, clicks, absent)
        for i in range(3):
            for j in range(2):
                if ranking[j] != i:
                    loss[i, j] = Exact(0)

    assert (expected_loss(biased)[0] != 1 - CLICKS).any()


@pytest.mark.parametrize("shape", [(10, 5), (5, 5), (6, 1)])
def test_an_estimate_that_falls_far_leaves_the_leader_right(shape):
    """Late clicks on what was rare: losses fall by far more than the regulariser's domain has room for."""
    state, rng, m = trained(VA, *shape, 300), np.random.default_rng(0), shape[1]
    for k in range(40):
        ranking = rng.permutation(shape[0])[:m]
        before = state.rule.spread[0]
        VA.learn(state, Decision(ranking, np.full(m, 10.0 ** -(k % 5))), np.full(m, float(k % 3 > 0)))
        exact = leader(state.loss, 1.0 / sqrt(state.rule.spread[0])).marginals
        np.testing.assert_allclose(state.leading.marginals, exact, rtol=0, atol=1e-5)
        assert 0.1 - 1e-9 <= state.rule.spread[0] - before <= 4.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("paper/stochastic", {}),
        ("yandex/stochastic", {}),
        ("paper/periodic-items", {"phase": 10_000}),
        ("paper/periodic-both", {"phase": 10_000}),
    ],
)
def test_it_earns_more_than_ftrl_pbm(name, settings):
    world = bothworlds.world(name, **settings)
    ours, theirs = (
        bothworlds.play(rival, world, 40_000, replications=4).final()[0] for rival in ("ftrl-va", "ftrl-pbm")
    )
    assert ours > theirs
