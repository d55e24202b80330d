"""The straightforward implementations of ``benchmarks/contenders`` earn what the policies of this package earn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from benchmarks.contenders import CONTENDERS, play_rounds
from benchmarks.contenders.pbm_ts import draw
from bothworlds.policies import Policy, configured_for, policy
from bothworlds.worlds import stochastic
from tests.reference.posterior import draw_many

WORLD = stochastic([0.9, 0.6, 0.3, 0.1], [1.0, 0.6])
REPLICATIONS = 8
ROUNDS = {"ranked-exp3": 1_000, "ftrl-pbm": 60, "pbm-ts": 120, "gibbs-ts": 300}  # 600 for the others
LEARNERS = sorted(CONTENDERS.keys() - {"uniform"})
LIMIT = 4.0  # standard errors of a difference


def shifted(clicks: np.ndarray) -> np.ndarray:
    """An error of one in an index: each click is credited to the item at the next position."""
    return np.roll(clicks, 1)


def lost(clicks: np.ndarray) -> np.ndarray:
    """No click arrives."""
    return np.zeros_like(clicks)


# Shifted clicks contradict the known examination, and then rejection hardly ever accepts a proposal.
BROKEN = dict.fromkeys(LEARNERS, shifted) | {"pbm-ts": lost}


@dataclass(frozen=True)
class Misread(Policy):
    """Another policy that reads clicks wrongly."""

    inner: Any
    read: Callable[[np.ndarray], np.ndarray]

    def init(self, n_items, n_positions):
        return self.inner.init(n_items, n_positions)

    def decide(self, state, rng):
        return self.inner.decide(state, rng)

    def learn(self, state, decision, clicks):
        return self.inner.learn(state, decision, self.read(clicks))


def earned(played: Policy, name: str, read: Callable[[np.ndarray], np.ndarray] | None = None) -> np.ndarray:
    """The expected reward per round of every replication."""
    rounds = ROUNDS.get(name, 600)
    played = configured_for(played, rounds, WORLD)
    played = Misread(played, read) if read else played
    return np.array([play_rounds(played, WORLD, rounds, k).reward[-1] / rounds for k in range(REPLICATIONS)])


def deviation(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The mean difference in standard errors; both met the same users."""
    difference = theirs - ours
    return difference.mean() / (difference.std(ddof=1) / np.sqrt(difference.size))


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_a_straightforward_implementation_earns_the_same_and_a_broken_one_does_not(name):
    ours, contender = earned(policy(name), name), CONTENDERS[name]()
    assert abs(deviation(ours, earned(contender, name))) < LIMIT
    assert abs(deviation(ours, earned(contender, name, BROKEN[name]))) > LIMIT


@pytest.mark.slow
def test_rejection_draws_from_the_posterior_and_the_proposal_alone_is_caught():
    shown, clicked, beta = np.array([30.0, 40.0, 20.0]), np.array([22.0, 12.0, 3.0]), np.array([1.0, 0.5, 0.3])
    rng, size = np.random.default_rng(0), 2_000
    exact = draw_many(shown, clicked, beta, 20_000, rng)
    drawn = np.array([draw(clicked, shown - clicked, beta, rng) for _ in range(size)])
    proposed = np.clip(rng.beta(1.0 + clicked[1], 1.0 + shown[1] - clicked[1], size) / beta[1], 0.0, 1.0)
    distance = 1.95 / np.sqrt(size)  # of distribution functions, at a level of 0.001
    assert _distance(drawn, exact) < distance
    assert _distance(proposed, exact) > distance


def _distance(sample: np.ndarray, exact: np.ndarray) -> float:
    """The largest difference of the distribution functions of two samples."""
    points = np.sort(exact)
    steps = np.searchsorted(np.sort(sample), points) / sample.size
    return np.abs(steps - np.arange(points.size) / points.size).max()
