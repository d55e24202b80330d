"""Uniformly random lists: what the loop in Python costs by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bothworlds import Decision
from bothworlds.policies import Policy


@dataclass(frozen=True)
class Uniform(Policy):
    """Shows a uniformly random list."""

    name = "uniform"

    def init(self, n_items, n_positions):
        return n_items, n_positions

    def decide(self, state, rng):
        n, m = state
        return Decision(rng.permutation(n)[:m], np.full(m, 1.0 / n))

    def learn(self, state, decision, clicks):
        return state
