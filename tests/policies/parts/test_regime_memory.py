"""Regimes that are kept and recalled: which one fits, and what is kept of the one that ended."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.kernels import kernel
from bothworlds.policies.parts.counts import make_counts
from bothworlds.policies.parts.regime_memory import keep_counts, make_regime_memory, misfit, recall_regime
from tests.reference.change_detector import log_likelihood_ratio

N, M = 4, 2
HABITS = np.array([[[0.8, 0.5], [0.6, 0.3], [0.4, 0.2], [0.2, 0.1]]])
HABITS = np.concatenate([HABITS, HABITS[:, ::-1], np.full((1, N, M), 0.9)])


@kernel
def keep(memory, counts):
    keep_counts(memory, counts)


@kernel
def recall(memory, counts):
    recall_regime(memory, counts)


def end(memory, counts, shown, clicked, rounds):
    """End a regime: a change is detected in the last rounds, which are counted already."""
    counts.shown[:] += shown
    counts.clicked[:] += clicked
    counts.rounds[0] += rounds
    keep(memory, counts)
    counts.shown[:], counts.clicked[:], counts.rounds[0] = shown, clicked, rounds
    recall(memory, counts)


def clicks_of(habit, shows, rng):
    shown = np.full((N, M), float(shows))
    return shown, rng.binomial(shows, HABITS[habit]).astype(float)


def after(habits, slots=2, shows=40, rng_seed=1):
    """Return memory and counts after some habits, each seen 10 shows before its change is detected, then ``shows``."""
    rng, memory, counts = np.random.default_rng(rng_seed), make_regime_memory(N, M, slots), make_counts(N, M)
    for k, habit in enumerate(habits):
        shown, clicked = clicks_of(habit, 10, rng)
        if k:
            end(memory, counts, shown, clicked, 10.0 * N)
        else:
            counts.shown[:], counts.clicked[:], counts.rounds[0] = shown, clicked, 10.0 * N
        if k < len(habits) - 1:
            more = clicks_of(habit, shows, rng)
            counts.shown[:] += more[0]
            counts.clicked[:] += more[1]
            counts.rounds[0] += shows * N
    return memory, counts


@pytest.mark.slow
def test_a_habit_that_returns_is_recalled_with_all_of_its_counts():
    memory, counts = after([0, 1, 0, 1, 0])
    assert memory.recalls[0] == 3
    assert counts.rounds[0] == 110 * N  # 50 shows of the first phase, 50 of the third one, 10 since the last change
    assert (counts.shown == 110).all()


def test_a_new_habit_is_not_taken_for_an_old_one():
    memory, counts = after([0, 1, 2])
    assert memory.recalls[0] == 0
    assert counts.rounds[0] == 10 * N
    assert (counts.shown == 10).all()
    assert memory.present[0] == -1


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_the_number_of_regimes_is_limited(slots):
    memory, _ = after([0, 2, 1, 2, 0, 1, 0], slots)
    assert memory.tables.shape == (slots, 2, N, M)
    assert (memory.rounds > 0).all()


def test_a_short_regime_is_not_kept():
    memory, _ = after([0, 1], shows=2)
    assert (memory.rounds == 0).all()


def test_the_statistic_is_the_sum_of_likelihood_ratios():
    rng = np.random.default_rng(3)
    regime = np.array(clicks_of(0, 30, rng))
    shown, clicked = clicks_of(1, 20, rng)
    ratios = [log_likelihood_ratio(*pair) for pair in zip(regime[0].flat, regime[1].flat, shown.flat, clicked.flat)]
    assert np.isclose(misfit(regime, shown, clicked), sum(ratios) / (4.0 + 1.5 * np.sqrt(8.0) + 2.0))


def test_a_regime_that_has_shown_other_pairs_does_not_fit():
    regime, shown = np.zeros((2, N, M)), np.full((N, M), 10.0)
    assert misfit(regime, shown, 0.5 * shown) == np.inf
    regime[0, 0], regime[1, 0] = 20.0, 10.0
    assert misfit(regime, shown, 0.5 * shown) == np.inf
    regime[0, 1], regime[1, 1] = 20.0, 10.0
    assert misfit(regime, shown, 0.5 * shown) == 0.0
