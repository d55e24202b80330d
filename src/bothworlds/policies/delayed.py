"""Any compiled policy with feedback that is late."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from .. import core
from ..core import Labels, Shape, decides, learns, notes
from ..kernels import Floats, Ints
from .base import CompiledPolicy, Policy
from .parts.settings import whole


class State(NamedTuple):
    shape: Shape
    inner: Any  # the state of the policy
    rankings: Ints  # (delay + 1, n_positions) the decisions that wait for their clicks
    propensities: Floats  # (delay + 1, n_positions)
    clicks: Floats  # (delay + 1, n_positions)
    notes: Floats  # (delay + 1, size of a note)
    contexts: Ints  # (delay + 1, visitor labels)
    decided: Ints  # (1,) rounds


@dataclass(frozen=True)
class Delayed(CompiledPolicy):
    """A policy that learns from the clicks of a round some rounds later, with the propensities of their own decision.

    It measures in a simulation what late feedback costs. Works for every compiled policy; with a delay of 0 it is the
    policy itself.

    Parameters
    ----------
    policy
        The policy, as an object.
    delay
        The clicks of a round arrive this many rounds later.

    Examples
    --------
    >>> import bothworlds
    >>> late = bothworlds.policies.Delayed(bothworlds.policy("ftrl-pbm"), delay=100)
    >>> bothworlds.play(late, "paper/stochastic", 1_000, replications=2).policy
    "Delayed(policy='ftrl-pbm')"
    """

    policy: Policy
    delay: int = whole(100, 0, 10**7)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.policy, CompiledPolicy):
            raise ValueError(f"policy must be a compiled policy, as an object; got {self.policy!r}")
        for name in ("adaptive", "learns_labels", "needs_propensity", "patience"):
            object.__setattr__(self, name, getattr(self.policy, name))

    def settings(self) -> dict[str, Any]:
        """The name of the policy with its settings, and the delay."""
        return {"policy": self.policy.label, "delay": self.delay}

    def start(self, shape: Shape) -> State:
        return self._start(shape, self.policy.init(*shape), 0)

    def start_with(self, shape: Shape, labels: Labels) -> State:
        return self._start(shape, cast(CompiledPolicy, self.policy).init(*shape, labels), labels.visitor.size)

    def _start(self, shape: Shape, inner: Any, n_labels: int) -> State:
        rows = self.delay + 1, shape.n_positions
        if not self.policy.runs_compiled(inner):
            raise ValueError(f"{self.policy.label} cannot be delayed: it overrides decide or learn, or has no kernels")
        notes, contexts = (
            np.zeros((self.delay + 1, self.note_size(shape))),
            np.zeros((self.delay + 1, n_labels), np.int64),
        )
        waiting = np.zeros(rows, np.int64), np.ones(rows), np.zeros(rows), notes, contexts
        return State(shape, inner, *waiting, np.zeros(1, np.int64))

    def note_size(self, shape: Shape) -> int:
        """Return how many numbers the policy remembers of a draw."""
        return self.policy.note_size(shape)

    def relabelled(self, labels: NDArray[np.int64]) -> Delayed:
        return replace(self, policy=self.policy.relabelled(labels))

    def marginals(self, state: State) -> NDArray[np.float64] | None:
        return self.policy.marginals(state.inner)


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats, context: Ints) -> None:
    core.decide(state.inner, rng, ranking, propensity, context)


@notes(State)
def note(state: State, ranking: Ints, note: Floats) -> None:
    core.note(state.inner, ranking, note)


@learns(State)
def learn(
    state: State, ranking: Ints, propensity: Floats, clicks: Floats, note: Floats, absent: Ints, context: Ints
) -> None:
    size = state.rankings.shape[0]
    new = state.decided[0] % size
    for j in range(ranking.size):
        state.rankings[new, j], state.propensities[new, j], state.clicks[new, j] = ranking[j], propensity[j], clicks[j]
    for k in range(note.size):
        state.notes[new, k] = note[k]
    for k in range(state.contexts.shape[1]):
        state.contexts[new, k] = context[k]
    state.decided[0] += 1
    if state.decided[0] >= size:
        old = state.decided[0] % size
        noted = state.notes[old, : note.size]
        shown, p, clicked = state.rankings[old], state.propensities[old], state.clicks[old]
        core.learn(state.inner, shown, p, clicked, noted, absent, state.contexts[old])
