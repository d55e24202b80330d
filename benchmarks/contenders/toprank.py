"""TopRank with a loop over all pairs of items in every round."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bothworlds import Decision
from bothworlds.policies import Policy

CONSTANT = 4.0 * math.sqrt(2.0 / math.pi) / math.erf(math.sqrt(2.0))


class State:
    """Sums of click differences for every pair, the relation "j is worse than i", and the blocks."""

    def __init__(self, n: int, m: int) -> None:
        self.n, self.m = n, m
        self.difference = np.zeros((n, n))
        self.fought = np.zeros((n, n))
        self.worse = np.zeros((n, n), bool)
        self.blocks = [list(range(n))]


@dataclass(frozen=True)
class TopRank(Policy):
    """Sorts items into blocks by statistically certain comparisons, and shuffles inside the blocks."""

    horizon: int | None = None

    name = "toprank"

    def init(self, n_items, n_positions):
        return State(n_items, n_positions)

    def decide(self, state, rng):
        items = [item for block in state.blocks for item in rng.permutation(block)]
        return Decision(np.array(items[: state.m]), np.full(state.m, np.nan))

    def learn(self, state, decision, clicks):
        clicked = np.zeros(state.n)
        clicked[decision.ranking] = clicks
        grown = False
        for block in state.blocks:
            for i in block:
                for j in block:
                    u = clicked[i] - clicked[j]
                    if u == 0.0:
                        continue
                    state.difference[i, j] += u
                    state.fought[i, j] += abs(u)
                    s, n = state.difference[i, j], state.fought[i, j]
                    if s >= math.sqrt(2.0 * n * math.log(CONSTANT * self.horizon * math.sqrt(n))):
                        state.worse[i, j] = grown = True
        if grown:
            state.blocks = arranged(state.worse)
        return state


def arranged(worse: np.ndarray) -> list[list[int]]:
    """Return the blocks: items worse than none, then those worse than none of the others, and so on."""
    left, blocks = list(range(len(worse))), []
    while left:
        blocks.append([j for j in left if not any(worse[i, j] for i in left)])
        left = [j for j in left if j not in blocks[-1]]
    return blocks
