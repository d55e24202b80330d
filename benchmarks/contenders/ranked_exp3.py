"""RankedExp3 in NumPy: one Exp3 learner for every position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bothworlds import Decision
from bothworlds.policies import Policy


class State:
    """The logarithms of the weights of every learner, and what the learners intended to show in this round."""

    def __init__(self, n: int, m: int) -> None:
        self.n, self.m = n, m
        self.weights = np.zeros((m, n))
        self.intended = np.zeros(m, np.int64)
        self.chances = np.zeros((m, n))


@dataclass(frozen=True)
class RankedExp3(Policy):
    """Chooses the item of each position with an Exp3 learner; the topmost click is the reward of its learner."""

    horizon: int | None = None

    name = "ranked-exp3"

    def init(self, n_items, n_positions):
        return State(n_items, n_positions)

    def gamma(self, n: int) -> float:
        """Return the share of uniform draws."""
        return min(1.0, np.sqrt(n * np.log(n) / ((np.e - 1.0) * self.horizon)))

    def decide(self, state, rng):
        n, m, gamma = state.n, state.m, self.gamma(state.n)
        weights = np.exp(state.weights - state.weights.max(axis=1, keepdims=True))
        state.chances = (1.0 - gamma) * weights / weights.sum(axis=1, keepdims=True) + gamma / n
        ranking: list[int] = []
        for j in range(m):
            state.intended[j] = item = rng.choice(n, p=state.chances[j])
            if item in ranking:
                item = rng.choice([i for i in range(n) if i not in ranking])
            ranking.append(item)
        return Decision(np.array(ranking), np.full(m, np.nan))

    def learn(self, state, decision, clicks):
        if np.any(clicks):
            j = np.argmax(clicks)
            item = state.intended[j]
            if decision.ranking[j] == item:
                state.weights[j, item] += self.gamma(state.n) / state.n / state.chances[j, item]
        return state
