"""Policies that know no labels in worlds that have them: one learner for all visitors, or one for each context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import NO_CONTEXT, Decision, Labels
from .base import Policy
from .pages import renewed


@dataclass(frozen=True)
class _Around(Policy):
    """A policy around another one."""

    policy: Policy

    def __post_init__(self) -> None:
        for name in ("adaptive", "patience"):
            object.__setattr__(self, name, getattr(self.policy, name))

    def settings(self) -> dict[str, Any]:
        """The name of the policy with its settings."""
        return {"policy": self.policy.label}

    def relabelled(self, labels: NDArray[np.int64]) -> Policy:
        return type(self)(self.policy.relabelled(labels))


class OneForAll(_Around):
    """One learner for all visitors, which sees no labels; made by :func:`one_for_all`."""

    @property
    def label(self) -> str:
        return f"one for all: {self.policy.label}"

    def init(self, n_items: int, n_positions: int) -> Any:
        return self.policy.init(n_items, n_positions)

    def decide(self, state: Any, rng: np.random.Generator) -> Decision:
        return self.policy.decide(state, rng)

    def learn(self, state: Any, decision: Decision, clicks: ArrayLike) -> Any:
        return self.policy.learn(state, decision, clicks)

    def note_size(self, shape: Any) -> int:
        return self.policy.note_size(shape)

    def runs_compiled(self, state: Any) -> bool:
        return self.policy.runs_compiled(state)

    def marginals(self, state: Any) -> NDArray[np.float64] | None:
        return self.policy.marginals(state)

    def renewed(self, state: Any, items: ArrayLike, labels: Labels) -> Any:
        return renewed(self.policy, state, items, labels)


class OnePerContext(_Around):
    """One learner for each context, which learns nothing from the others; made by :func:`one_per_context`.

    A state has the shape, and the state of every context that has come.
    """

    learns_labels: ClassVar[bool] = True

    @property
    def label(self) -> str:
        return f"one per context: {self.policy.label}"

    def init(self, n_items: int, n_positions: int, labels: Labels | None = None) -> Any:
        return {"fresh": self.policy.init(n_items, n_positions), "shape": (n_items, n_positions), "by_context": {}}

    def decide(self, state: Any, rng: np.random.Generator, context: ArrayLike = NO_CONTEXT) -> Decision:
        row = np.array(context, np.int64)
        own = state["by_context"].get(tuple(row.tolist()), state["fresh"])
        return self.policy.decide(own, rng)._replace(context=row)

    def learn(self, state: Any, decision: Decision, clicks: ArrayLike) -> Any:
        key = tuple(decision.context.tolist())
        if key not in state["by_context"]:
            state["by_context"][key] = self.policy.init(*state["shape"])
        own = self.policy.learn(state["by_context"][key], decision._replace(context=NO_CONTEXT), clicks)
        state["by_context"][key] = own
        return state

    def renewed(self, state: Any, items: ArrayLike, labels: Labels) -> Any:
        own = {key: renewed(self.policy, state_of, items, labels) for key, state_of in state["by_context"].items()}
        return {**state, "by_context": own}


def one_for_all(policy: str | Policy) -> OneForAll:
    """Return the policy as one learner for all visitors: it sees no labels.

    >>> one_for_all("all-weather").label
    'one for all: all-weather'
    """
    return OneForAll(_resolved(policy))


def one_per_context(policy: str | Policy) -> OnePerContext:
    """Return the policy as one learner for each context.

    >>> import bothworlds
    >>> bothworlds.play(one_per_context("gibbs-ts"), "context/segments", 200, replications=1).policy
    'one per context: gibbs-ts'
    """
    return OnePerContext(_resolved(policy))


def _resolved(policy: str | Policy) -> Policy:
    from . import resolve

    return resolve(policy)
