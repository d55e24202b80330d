"""A compiled policy from outside the package: a state and two kernels, nothing registered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bothworlds.core import Shape, decides, learns
from bothworlds.policies import CompiledPolicy


class State(NamedTuple):
    shape: Shape
    clicks: np.ndarray  # (n_items,)


@dataclass(frozen=True)
class Popular(CompiledPolicy):
    """Each position in turn takes the item with the most clicks among those left, with a little noise."""

    def start(self, shape):
        return State(shape, np.zeros(shape.n_items))


@decides(State)
def decide(state, rng, ranking, propensity):
    for j in range(ranking.size):
        best = -1.0
        for i in range(state.clicks.size):
            score = state.clicks[i] + rng.random()
            for k in range(j):
                if ranking[k] == i:
                    score = -2.0
            if score > best:
                best = score
                ranking[j] = i
        propensity[j] = np.nan


@learns(State)
def learn(state, ranking, propensity, clicks):
    for j in range(ranking.size):
        state.clicks[ranking[j]] += clicks[j]
