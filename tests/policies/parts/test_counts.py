"""Counts of all rounds, of a window, or discounted, against counting from the history."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.kernels import kernel
from bothworlds.policies.parts.counts import lacking_list, make_counts, record

N, M = 4, 2


@kernel
def take(counts, ranking, clicks):
    record(counts, ranking, clicks)


@kernel
def lacking(counts, least, rng, ranking):
    return lacking_list(counts, least, rng, ranking)


def history(rng, rounds):
    return [(rng.permutation(N)[:M], (rng.random(M) < 0.4).astype(float)) for _ in range(rounds)]


def counted_anew(rounds, weights):
    shown, clicked = np.zeros((N, M)), np.zeros((N, M))
    for (ranking, clicks), weight in zip(rounds, weights):
        shown[ranking, np.arange(M)] += weight
        clicked[ranking, np.arange(M)] += weight * clicks
    return shown, clicked


@pytest.mark.parametrize(
    ("window", "discount", "weight"),
    [
        (None, 1.0, lambda age: 1.0),
        (5, 1.0, lambda age: float(age < 5)),
        (1, 1.0, lambda age: float(age < 1)),
        (None, 0.9, lambda age: 0.9**age),
    ],
)
def test_counts_are_those_of_the_rounds_remembered(rng, window, discount, weight):
    rounds, counts = history(rng, 23), make_counts(N, M, window, discount)
    for t, (ranking, clicks) in enumerate(rounds):
        take(counts, ranking, clicks)
        weights = [weight(t - s) for s in range(t + 1)]
        shown, clicked = counted_anew(rounds[: t + 1], weights)
        np.testing.assert_allclose(counts.shown, shown, atol=1e-12)
        np.testing.assert_allclose(counts.clicked, clicked, atol=1e-12)
        assert counts.rounds[0] == pytest.approx(sum(weights))
        assert counts.learned[0] == t + 1


def test_a_window_forgets_without_a_trace(rng):
    counts = make_counts(N, M, window=7)
    for ranking, clicks in history(rng, 10_000):
        take(counts, ranking, clicks)
    assert counts.shown.sum() == 7 * M
    assert counts.shown.min() >= 0.0
    assert (counts.clicked <= counts.shown).all()


def test_cyclic_lists_show_every_pair_once_and_in_any_order(rng):
    firsts = set()
    for _ in range(40):
        counts, ranking = make_counts(N, M), np.empty(M, np.int64)
        rounds = 0
        while left := lacking(counts, 0.0, rng, ranking):
            assert left == N - rounds
            if not rounds:
                firsts.add(tuple(ranking.tolist()))
            take(counts, ranking.copy(), np.zeros(M))
            rounds += 1
        assert rounds == N
        assert (counts.shown == 1.0).all()
    assert len(firsts) == N


def test_lists_are_lacking_until_every_pair_was_shown_often_enough(rng):
    counts, ranking, rounds = make_counts(N, M), np.empty(M, np.int64), 0
    while lacking(counts, 2.5, rng, ranking):
        take(counts, ranking.copy(), np.zeros(M))
        rounds += 1
    assert rounds == 3 * N
    assert (counts.shown == 3.0).all()
