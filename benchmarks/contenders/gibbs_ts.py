"""Gibbs-TS in NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bothworlds import Decision
from bothworlds.policies import Policy

from .counts import Counts, ranking_by

EARLY, EARLY_SWEEPS = 1000, 3  # the first rounds have several sweeps


class State(Counts):
    """Counts, and the state of the Markov chain."""

    def __init__(self, n: int, m: int) -> None:
        super().__init__(n, m)
        self.attraction = np.full(n, 0.5)
        self.examination = np.full(m, 0.5)


@dataclass(frozen=True)
class GibbsTs(Policy):
    """Shows the best list for an attraction and an examination drawn from their joint posterior."""

    name = "gibbs-ts"

    def init(self, n_items, n_positions):
        return State(n_items, n_positions)

    def decide(self, state, rng):
        for _ in range(EARLY_SWEEPS if state.t <= EARLY else 1):
            sweep(state, rng)
        return Decision(ranking_by(state.attraction, state.examination, rng), np.full(state.m, np.nan))

    def learn(self, state, decision, clicks):
        state.add(decision.ranking, clicks)
        return state


def sweep(state: State, rng: np.random.Generator) -> None:
    """Draw the cause of every missing click, then attraction and examination."""
    alpha, beta = state.attraction[:, None], state.examination
    clicked, missed = state.clicked, (state.shown - state.clicked).astype(np.int64)
    attracted = rng.binomial(missed, alpha * (1.0 - beta) / (1.0 - alpha * beta))
    looked = rng.binomial(missed - attracted, beta)
    state.attraction = rng.beta(1.0 + (clicked + attracted).sum(axis=1), 1.0 + (missed - attracted).sum(axis=1))
    state.examination = rng.beta(1.0 + (clicked + looked).sum(axis=0), 1.0 + (missed - looked).sum(axis=0))
