"""PBM-TS by rejection, with the published proposal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from bothworlds import Decision
from bothworlds.policies import Policy

from .counts import Counts, ranking_by

BATCH = 32  # proposals that are drawn at a time
EDGE = 1e-12


@dataclass(frozen=True)
class PbmTs(Policy):
    """Ranks items by attractions drawn from their posterior, with known examination."""

    examination: tuple[float, ...] | None = None

    name = "pbm-ts"

    def init(self, n_items, n_positions):
        return Counts(n_items, n_positions)

    def decide(self, state, rng):
        beta = np.array(self.examination)
        missed = state.shown - state.clicked
        drawn = np.array([draw(state.clicked[i], missed[i], beta, rng) for i in range(state.n)])
        return Decision(ranking_by(drawn, beta, rng), np.full(state.m, np.nan))

    def learn(self, state, decision, clicks):
        state.add(decision.ranking, clicks)
        return state


def draw(clicked: np.ndarray, missed: np.ndarray, beta: np.ndarray, rng: np.random.Generator) -> float:
    """Draw from the density proportional to theta^S prod_j (1 - beta_j theta)^F_j on [0, 1].

    The proposal is the posterior of the position with the most impressions alone. A proposal is accepted with
    probability proportional to what the other positions say, divided by its maximum.
    """
    most = np.argmax(clicked + missed)
    others = np.arange(beta.size) != most
    clicks, misses, beta_others = clicked[others].sum(), missed[others], beta[others]
    peak = log_ratio(maximum(clicks, misses, beta_others), clicks, misses, beta_others)
    while True:
        theta = rng.beta(1.0 + clicked[most], 1.0 + missed[most], BATCH) / beta[most]
        theta = theta[(theta > 0.0) & (theta < 1.0)]
        accepted = np.log(rng.random(theta.size)) <= log_ratio(theta, clicks, misses, beta_others) - peak
        if accepted.any():
            return theta[np.argmax(accepted)]


def log_ratio(theta, clicks: float, misses: np.ndarray, beta: np.ndarray):
    """Return the logarithm of the density divided by the proposal, up to a constant."""
    return clicks * np.log(theta) + np.log1p(-np.multiply.outer(theta, beta)) @ misses


def maximum(clicks: float, misses: np.ndarray, beta: np.ndarray) -> float:
    """Return where the ratio is largest; its logarithm is concave."""

    def slope(theta: float) -> float:
        return clicks / theta - (misses * beta / (1.0 - beta * theta)).sum()

    if slope(EDGE) <= 0.0:
        return EDGE
    if slope(1.0 - EDGE) >= 0.0:
        return 1.0 - EDGE
    return brentq(slope, EDGE, 1.0 - EDGE)
