"""Tools for the tests of policies on pairs of item and position: rounds one by one, and counts in plain NumPy."""

from __future__ import annotations

import numpy as np

from tests.reference.assignment import best_value_by_brute_force, value_of

ATTRACTION = np.array([0.9, 0.7, 0.4, 0.2, 0.1])
EXAMINATION = np.array([0.6, 0.9, 0.3])


def rounds_of(learner, rounds, n=5, m=3, seed=0):
    """Play by hand; yield the state before a decision, the decision, the clicks, and the past of (list, clicks)."""
    state, rng, past = learner.init(n, m), np.random.default_rng(seed), []
    p = np.resize(ATTRACTION, n)[:, None] * np.resize(EXAMINATION, m)
    for _ in range(rounds):
        decision = learner.decide(state, rng)
        clicks = (rng.random(m) < p[decision.ranking, np.arange(m)]).astype(float)
        yield state, decision, clicks, past
        past.append((decision.ranking, clicks))
        learner.learn(state, decision, clicks)


def remembered(past, shape, window=None, discount=1.0):
    """Shown, clicked and rounds, from the whole past."""
    shown, clicked, rounds = np.zeros(shape), np.zeros(shape), 0.0
    for age, (ranking, clicks) in enumerate(reversed(past)):
        weight = discount**age if window is None or age < window else 0.0
        shown[ranking, np.arange(shape[1])] += weight
        clicked[ranking, np.arange(shape[1])] += weight * clicks
        rounds += weight
    return shown, clicked, rounds


def is_best(ranking, scores):
    best = best_value_by_brute_force(scores)
    return abs(value_of(ranking, scores) - best) < 1e-9 * max(1.0, abs(best))


def last_state(learner, rounds, n=5, m=3, seed=0):
    """The state after so many rounds."""
    played = list(rounds_of(learner, rounds, n, m, seed))
    return played[-1][0]
