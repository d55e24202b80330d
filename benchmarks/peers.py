"""Algorithms of other packages, measured where the package is installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from bothworlds import Decision
from bothworlds.policies import Policy

__all__ = ["PEERS", "Peer", "is_installed"]


class Peer(NamedTuple):
    """A package, the policy of ours that it is compared with, and how to make a policy of it."""

    package: str
    name: str
    make: Callable[[], Policy]


def is_installed(peer: Peer) -> bool:
    """Return whether the package can be imported."""
    return find_spec(peer.package) is not None


@dataclass(frozen=True)
class RiverExp3(Policy):
    """RankedExp3 with the Exp3 learners of river, one for every position."""

    horizon: int | None = None

    name = "ranked-exp3"

    def init(self, n_items: int, n_positions: int) -> Any:
        exp3 = import_module("river.bandit").Exp3
        gamma = min(1.0, float(np.sqrt(n_items * np.log(n_items) / ((np.e - 1.0) * (self.horizon or 1)))))
        return list(range(n_items)), [exp3(gamma=gamma, seed=j) for j in range(n_positions)], [0] * n_positions

    def decide(self, state: Any, rng: np.random.Generator) -> Decision:
        items, learners, intended = state
        ranking: list[int] = []
        for j, learner in enumerate(learners):
            intended[j] = item = learner.pull(items)
            if item in ranking:
                item = rng.choice([i for i in items if i not in ranking])
            ranking.append(item)
        return Decision(np.array(ranking), np.full(len(ranking), np.nan))

    def learn(self, state: Any, decision: Decision, clicks: Any) -> Any:
        _, learners, intended = state
        first = int(np.argmax(clicks)) if np.any(clicks) else -1
        for j, learner in enumerate(learners):
            learner.update(intended[j], float(j == first and decision.ranking[j] == intended[j]))
        return state


PEERS = (Peer("river", "ranked-exp3", RiverExp3),)
