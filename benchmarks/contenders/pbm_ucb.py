"""PBM-UCB in NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bothworlds import Decision
from bothworlds.policies import Policy

from .counts import Counts, ranking_by


@dataclass(frozen=True)
class PbmUcb(Policy):
    """Ranks items by an upper confidence bound on their attraction, with known examination."""

    examination: tuple[float, ...] | None = None

    name = "pbm-ucb"

    def init(self, n_items, n_positions):
        return Counts(n_items, n_positions)

    def decide(self, state, rng):
        beta = np.array(self.examination)
        exposure = state.shown @ beta
        bound = np.full(state.n, np.inf)
        seen = exposure > 0.0
        impressions, exposure = state.shown[seen].sum(axis=1), exposure[seen]
        rate = state.clicked[seen].sum(axis=1) / exposure
        bound[seen] = rate + np.sqrt(impressions / exposure) * np.sqrt(np.log(state.t) / (2.0 * exposure))
        return Decision(ranking_by(bound, beta, rng), np.full(state.m, np.nan))

    def learn(self, state, decision, clicks):
        state.add(decision.ranking, clicks)
        return state
