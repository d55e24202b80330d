"""Algorithms of other packages, measured where the package is installed: the extra ``peers``.

Each is a policy that calls the package and adds as little as possible. None of these packages has an algorithm for the
position-based model, so each is compared with the policy of this package that is most like it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from bothworlds import Decision
from bothworlds.policies import Policy


class Peer(NamedTuple):
    """A package, what of it is played, the policy of ours that it is compared with, and for how many rounds."""

    package: str
    algorithm: str
    name: str
    make: Callable[[], Policy]
    rounds: int = 1_000


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


@dataclass(frozen=True)
class MabwiserThompson(Policy):
    """One Thompson sampler of mabwiser for every position; each shows the item with its largest draw that is unused.

    As in ``comb-ts``, every pair of item and position has its own Beta distribution; the list is chosen from the top
    down instead of as a whole. Mabwiser must be fitted before it can draw, so the first list is random.
    """

    name = "comb-ts"

    def init(self, n_items: int, n_positions: int) -> Any:
        mab = import_module("mabwiser.mab")
        thompson = mab.LearningPolicy.ThompsonSampling()
        return n_items, [mab.MAB(list(range(n_items)), thompson, seed=j) for j in range(n_positions)], []

    def decide(self, state: Any, rng: np.random.Generator) -> Decision:
        n, learners, fitted = state
        if not fitted:
            return Decision(rng.permutation(n)[: len(learners)], np.full(len(learners), np.nan))
        ranking: list[int] = []
        for learner in learners:
            drawn = learner.predict_expectations()
            ranking.append(max((i for i in drawn if i not in ranking), key=drawn.__getitem__))
        return Decision(np.array(ranking), np.full(len(ranking), np.nan))

    def learn(self, state: Any, decision: Decision, clicks: Any) -> Any:
        _, learners, fitted = state
        for learner, item, click in zip(learners, decision.ranking, clicks):
            learner.partial_fit([int(item)], [int(click)])
        fitted[:] = [True]
        return state


@dataclass(frozen=True)
class VowpalWabbitCcb(Policy):
    """The conditional contextual bandit of Vowpal Wabbit, which fills the slots of a page one after another.

    Items and positions are features, with their interactions, so that it can learn every pair. It shows its best item
    with probability 1 - ``epsilon`` in every slot.
    """

    epsilon: float = 0.1

    name = "all-weather"

    def init(self, n_items: int, n_positions: int) -> Any:
        options = f"--ccb_explore_adf --epsilon {self.epsilon} --interactions ip --quiet --random_seed 1"
        workspace = import_module("vowpalwabbit").Workspace(options)
        actions = ["ccb shared |", *(f"ccb action |i item{i}" for i in range(n_items))]
        return workspace, actions, [f"|p position{j}" for j in range(n_positions)]

    def decide(self, state: Any, rng: np.random.Generator) -> Decision:
        workspace, actions, slots = state
        chosen = [slot[0] for slot in workspace.predict([*actions, *(f"ccb slot {slot}" for slot in slots)])]
        return Decision(np.array([item for item, _ in chosen]), np.array([chance for _, chance in chosen]))

    def learn(self, state: Any, decision: Decision, clicks: Any) -> Any:
        workspace, actions, slots = state
        outcomes = zip(decision.ranking, clicks, decision.propensity, slots)
        labelled = [f"ccb slot {item}:{-click}:{chance} {slot}" for item, click, chance, slot in outcomes]
        workspace.learn([*actions, *labelled])
        return state


PEERS = (
    Peer("river", "Exp3 at every position", "ranked-exp3", RiverExp3),
    Peer("mabwiser", "Thompson sampling at every position", "comb-ts", MabwiserThompson),
    Peer("vowpalwabbit", "conditional contextual bandit", "all-weather", VowpalWabbitCcb),
)
