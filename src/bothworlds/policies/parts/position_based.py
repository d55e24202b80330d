"""What policies of the position-based model share: examination, given or fitted, sums over positions, and placement.

Two policies with the same rule, one with given and one with fitted examination, differ in nothing else: a given
examination is a fit that is never due.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...core import Shape
from ...kernels import Floats, Ints, inner_kernel, kernel
from ...statistics.rank_one.likelihood import Workspace, make_workspace
from ...statistics.rank_one.newton import newton
from .counts import Counts, forgets
from .placement import RankWork, sort_largest
from .settings import Forgetting, number, probabilities


class Positions(NamedTuple):
    """Examination of every position, and the positions from the most to the least examined."""

    examination: Floats  # (m,)
    order: Ints  # (m,)


class Examination(NamedTuple):
    """Examination that is known, or fitted and fitted again."""

    positions: Positions
    known: bool
    due: Floats  # (1,) rounds until the next fit
    growth: float  # share of rounds between two fits
    prior: float
    fit: Workspace  # the next fit starts from this one


@dataclass(frozen=True, kw_only=True)
class KnownExamination(Forgetting):
    """A policy that requires the probability with which every position is examined."""

    examination: tuple[float, ...] | None = probabilities()

    needs: ClassVar[tuple[str, ...]] = ("examination",)
    twin: ClassVar[str] = ""  # name of the policy to use if examination is not known

    def part(self, items: NDArray[np.int64], positions: NDArray[np.int64]) -> Self:
        """Return the policy for a subset of positions, with their examination."""
        if self.examination is None or max(positions, default=-1) >= len(self.examination):
            return self
        if min(positions, default=0) < 0:
            raise ValueError(f"{self.label} cannot have a new position: its examination is not known")
        return replace(self, examination=tuple(self.examination[j] for j in positions))

    def positions(self, shape: Shape) -> Positions:
        """Return the given examination; raises ValueError if it does not fit the shape."""
        assert self.examination is not None  # see ``check_needs``
        if len(self.examination) != shape.n_positions:
            raise ValueError(
                f"examination must have one entry for each of {shape.n_positions} positions; got {self.examination}"
            )
        positions = Positions(np.array(self.examination), np.zeros(shape.n_positions, np.int64))
        sort_positions(positions.examination, positions.order)
        return positions

    def examined(self, shape: Shape) -> Examination:
        """Return the given examination, which is never fitted."""
        return Examination(self.positions(shape), True, np.zeros(1), 0.0, 0.0, make_workspace(1, 1))


@dataclass(frozen=True, kw_only=True)
class FittedExamination(Forgetting):
    """A policy that fits examination to its own counts, repeatedly.

    Parameters
    ----------
    refit
        Share by which the number of rounds must have grown before the next fit.
    prior
        Pseudo-clicks, in twice as many pseudo-impressions, in every pair that was shown, for the fit only.
    """

    refit: float = number(0.02, 1e-9, 1e6)
    prior: float = number(0.1, 1e-6, 1e9)

    def examined(self, shape: Shape) -> Examination:
        """Return equal examination of all positions, before the first fit."""
        n, m = shape
        equal = Positions(np.ones(m), np.arange(m))
        return Examination(equal, False, np.ones(1), float(self.refit), float(self.prior), make_workspace(n, m))


@inner_kernel
def refit(counts: Counts, fitted: Examination) -> bool:
    """Fit attraction and examination again if the number of rounds has grown by the share ``growth``.

    Returns whether they were fitted.
    """
    if fitted.known:
        return False
    interval = fitted.growth * counts.rounds[0]
    fitted.due[0] = min(fitted.due[0] - 1.0, interval)  # after a restart the interval is shorter
    if fitted.due[0] > 0.0:
        return False
    fit_examination(counts, fitted)
    return True


@kernel
def fit_examination(counts: Counts, fitted: Examination) -> None:
    """Fit attraction and examination to the counts."""
    fitted.due[0] = fitted.growth * counts.rounds[0]
    newton(counts.shown, counts.clicked, fitted.prior, False, True, 1e-10, fitted.fit)
    for j in range(fitted.fit.b.size):
        fitted.positions.examination[j] = math.exp(fitted.fit.b[j])
    sort_positions(fitted.positions.examination, fitted.positions.order)


class ItemTotals(NamedTuple):
    """Sums over positions for every item; a round changes those of the items on its page only."""

    clicks: Floats  # (n,)
    impressions: Floats  # (n,)
    exposure: Floats  # (n,) impressions at each position times its examination


def make_item_totals(n: int) -> ItemTotals:
    """Return the sums of n items without impressions."""
    return ItemTotals(*np.zeros((3, n)))


@inner_kernel
def sums_of(counts: Counts, examination: Floats, i: int) -> tuple[float, float, float]:
    """Return the clicks, the impressions and the exposure of item i."""
    clicks, impressions, exposure = 0.0, 0.0, 0.0
    for j in range(examination.size):
        clicks += counts.clicked[i, j]
        impressions += counts.shown[i, j]
        exposure += examination[j] * counts.shown[i, j]
    return clicks, impressions, exposure


@kernel
def add_up_all(totals: ItemTotals, counts: Counts, examination: Floats) -> None:
    """Add up the counts of all items."""
    for i in range(totals.clicks.size):
        totals.clicks[i], totals.impressions[i], totals.exposure[i] = sums_of(counts, examination, i)


@inner_kernel
def add_up_shown(totals: ItemTotals, counts: Counts, examination: Floats, ranking: Ints) -> None:
    """Add up the counts of the items on a page, which is already in ``counts``; of all items where counts fall."""
    if forgets(counts):
        add_up_all(totals, counts, examination)
        return
    for i in ranking:
        if i >= 0:
            totals.clicks[i], totals.impressions[i], totals.exposure[i] = sums_of(counts, examination, i)


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
def place(work: RankWork, order: Ints, rng: np.random.Generator, ranking: Ints) -> None:
    """Put the item with the k-th largest score at the k-th most examined position; ties at random.

    Afterwards ``work.items`` begins with these items, in order.
    """
    sort_largest(work.score, work.items, order.size, rng)
    for k in range(order.size):
        ranking[order[k]] = work.items[k]
