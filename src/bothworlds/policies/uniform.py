"""Uniformly random lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints
from .base import CompiledPolicy
from .parts.samplers import draw_items


class State(NamedTuple):
    shape: Shape
    items: Ints  # (n_items,) 0, 1, 2, ... between draws


@dataclass(frozen=True)
class Uniform(CompiledPolicy):
    """Shows a uniformly random list in every round and learns nothing.

    The lower end of every comparison: a policy that does worse has learned something false. Every item is at every
    position with probability :math:`1/n`.

    Requires: nothing. Guarantee: none; its regret grows linearly.

    >>> import numpy as np
    >>> import bothworlds
    >>> policy = bothworlds.policy("uniform")
    >>> policy.decide(policy.init(4, 2), np.random.default_rng(0)).propensity
    array([0.25, 0.25])
    """

    name = "uniform"
    learned_leaves: ClassVar[Mapping[str, str] | None] = {}
    adaptive = False

    def start(self, shape: Shape) -> State:
        return State(shape, np.arange(shape.n_items))

    def marginals(self, state: State) -> Floats:
        """Return uniform marginals."""
        return np.full(state.shape, 1.0 / state.shape.n_items)


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    draw_items(state.items, rng, ranking)
    propensity[:] = 1.0 / state.shape.n_items


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    pass
