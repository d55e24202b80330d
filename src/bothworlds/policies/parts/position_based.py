"""What the policies of the position-based model share: examination told or fitted, and how items are placed.

Every pair of twins, one told the examination and one that fits it, has one rule here and differs in nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...core import Shape
from ...kernels import Floats, Ints, inner_kernel, kernel
from ...statistics.rank_one.newton import Workspace, make_workspace, newton
from .counts import Counts
from .placement import sort_largest
from .settings import Forgetting, number, probabilities

__all__ = [
    "Examined",
    "Fitted",
    "Fitting",
    "Positions",
    "Rank",
    "make_rank",
    "place",
    "refit",
    "sort_positions",
]


class Positions(NamedTuple):
    """Examination of every position, and the positions from the most to the least examined."""

    examination: Floats  # (m,)
    order: Ints  # (m,)


class Rank(NamedTuple):
    """Room to rank: the score of every item, and the items."""

    score: Floats  # (n,)
    items: Ints  # (n,)


class Fitted(NamedTuple):
    """Examination as fitted, and when to fit again."""

    positions: Positions
    due: Floats  # (1,) rounds until then
    growth: float
    prior: float
    work: Workspace


@dataclass(frozen=True, kw_only=True)
class Examined(Forgetting):
    """A policy that is told how likely every position is to be examined."""

    examination: tuple[float, ...] | None = None

    needs: ClassVar[tuple[str, ...]] = ("examination",)
    twin: ClassVar[str] = ""  # the policy to use where examination is not known

    def __post_init__(self) -> None:
        super().__post_init__()
        probabilities(self, "examination")

    def part(self, items: NDArray[np.int64], positions: NDArray[np.int64]) -> Self:
        """The policy for some of the positions: with the examination of those."""
        if self.examination is None or max(positions, default=-1) >= len(self.examination):
            return self
        return replace(self, examination=tuple(self.examination[j] for j in positions))

    def positions(self, shape: Shape) -> Positions:
        """What it was told, or ValueError."""
        if self.examination is None:
            instead = f"; where it is not known use {self.twin}" if self.twin else ""
            raise ValueError(f"{self.name} needs examination=...{instead}")
        if len(self.examination) != shape.n_positions:
            raise ValueError(
                f"examination must have one entry for each of {shape.n_positions} positions; got {self.examination}"
            )
        told = Positions(np.array(self.examination), np.zeros(shape.n_positions, np.int64))
        sort_positions(told.examination, told.order)
        return told


@dataclass(frozen=True, kw_only=True)
class Fitting(Forgetting):
    """A policy that fits examination to its own counts, again and again."""

    refit: float = 0.02
    prior: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        number(self, "refit", above=0.0)
        number(self, "prior", above=0.0)

    def fitted(self, shape: Shape) -> Fitted:
        """No position examined more than another, to begin with."""
        n, m = shape
        equal = Positions(np.ones(m), np.arange(m))
        return Fitted(equal, np.ones(1), float(self.refit), float(self.prior), make_workspace(n, m))


def make_rank(n: int) -> Rank:
    """Room to rank n items."""
    return Rank(np.zeros(n), np.zeros(n, np.int64))


@inner_kernel
def refit(counts: Counts, fitted: Fitted) -> None:
    """Fit attraction and examination anew, if as much has been learned since the last time as asked for."""
    interval = fitted.growth * counts.rounds[0]
    fitted.due[0] = min(fitted.due[0] - 1.0, interval)  # after a restart there is no reason to wait
    if fitted.due[0] > 0.0:
        return
    fitted.due[0] = interval
    newton(counts.shown, counts.clicked, fitted.prior, False, True, 1e-10, fitted.work)
    for j in range(fitted.work.b.size):
        fitted.positions.examination[j] = math.exp(fitted.work.b[j])
    sort_positions(fitted.positions.examination, fitted.positions.order)


@kernel
def sort_positions(examination: Floats, order: Ints) -> None:
    """Order positions from the most to the least examined."""
    for j in range(order.size):
        k = j
        while k > 0 and examination[order[k - 1]] < examination[j]:
            order[k] = order[k - 1]
            k -= 1
        order[k] = j


@inner_kernel
def place(rank: Rank, order: Ints, rng: np.random.Generator, ranking: Ints) -> None:
    """Put the item with the k-th largest score at the k-th most examined position; ties at random.

    Afterwards ``rank.items`` begins with these items, in order.
    """
    sort_largest(rank.score, rank.items, order.size, rng)
    for k in range(order.size):
        ranking[order[k]] = rank.items[k]
