"""CombUCB1 with the assignment of SciPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from bothworlds import Decision
from bothworlds.policies import Policy

from .counts import Counts


@dataclass(frozen=True)
class CombUcb(Policy):
    """Shows the list with the largest sum of upper bounds; the first n lists show every pair once."""

    name = "comb-ucb"

    def init(self, n_items, n_positions):
        return Counts(n_items, n_positions)

    def decide(self, state, rng):
        if state.t <= state.n:
            ranking = (state.t + np.arange(state.m)) % state.n
        else:
            bounds = state.clicked / state.shown + np.sqrt(1.5 * np.log(state.t - 1) / state.shown)
            _, ranking = linear_sum_assignment(bounds.T, maximize=True)
        return Decision(ranking, np.full(state.m, np.nan))

    def learn(self, state, decision, clicks):
        state.add(decision.ranking, clicks)
        return state
