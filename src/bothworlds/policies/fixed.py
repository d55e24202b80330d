"""A fixed list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints
from .base import CompiledPolicy
from .parts.settings import indices


class State(NamedTuple):
    shape: Shape
    ranking: Ints  # (n_positions,)


@dataclass(frozen=True)
class Fixed(CompiledPolicy):
    r"""Shows one given list in every round and learns nothing.

    This is the order of a page without learning, such as an editor's: the baseline that a learning policy must beat. In
    a world that lists its items from best to worst, the default list earns the most until the world changes.

    .. math:: X_{ij} = 1 \quad\text{where item } i \text{ is the } j\text{-th of the list}

    Requires: nothing; without a list it shows the items in the order of their indices.
    Guarantee: none; its regret grows linearly unless the list is the best one.
    Known failure: it does not learn.

    Parameters
    ----------
    ranking
        Item indices, best position first; at least as many as there are positions.

    Examples
    --------
    >>> import bothworlds
    >>> best = bothworlds.policy("fixed", ranking=[0, 1, 2, 3, 4])
    >>> result = bothworlds.play(best, "paper/stochastic", 100, replications=2)
    >>> bool(abs(result.regret()).max() < 1e-9)    # the best list there is
    True
    """

    ranking: tuple[int, ...] | None = indices()

    name = "fixed"
    learned_leaves: ClassVar[Mapping[str, str] | None] = {}
    adaptive = False

    def start(self, shape: Shape) -> State:
        ranking = tuple(range(shape.n_items)) if self.ranking is None else self.ranking
        if len(ranking) < shape.n_positions or max(ranking) >= shape.n_items:
            n, m = shape
            raise ValueError(f"ranking must be at least {m} item indices below {n}; got {ranking}")
        return State(shape, np.array(ranking[: shape.n_positions], np.int64))

    def part(self, items: NDArray[np.int64], positions: NDArray[np.int64]) -> Fixed:
        """Return the policy for a subset; items that are not on the list follow in their order."""
        row = {int(item): i for i, item in enumerate(items)}
        listed = [row[item] for item in self.ranking or () if item in row]
        return replace(self, ranking=(*listed, *(i for i in range(len(items)) if i not in set(listed))))

    def relabelled(self, labels: NDArray[np.int64]) -> Fixed:
        """Return the policy with the same list, for items in another order."""
        new = np.argsort(labels)
        return replace(self, ranking=tuple(new if self.ranking is None else new[list(self.ranking)]))


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    for j in range(ranking.size):
        ranking[j] = state.ranking[j]
        propensity[j] = 1.0


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    pass
