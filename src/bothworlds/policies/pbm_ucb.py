"""PBM-UCB: upper confidence bounds on attraction, with examination that is known or fitted on the way."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import Shape, decides, learns
from ..geometry.item_rows import Rows, add_row, fill_rows, make_rows, worth_sharing
from ..kernels import Floats, Ints, inner_kernel
from .parts.change_detector import ChangeDetector, detect_change
from .parts.counts import Counts, lacking_list, record
from .parts.placement import RankWork, make_rank_work
from .parts.position_based import (
    Examination,
    FittedExamination,
    ItemTotals,
    KnownExamination,
    add_up_all,
    add_up_shown,
    fit_examination,
    make_item_totals,
    place,
    refit,
)
from .parts.settings import Forgetting, number, truth


class State(NamedTuple):
    shape: Shape
    epsilon: float
    counts: Counts
    detector: ChangeDetector
    examined: Examination
    totals: ItemTotals
    complete: Rows  # the cyclic lists that are complete, if there are many items and no count falls; otherwise empty
    work: RankWork


@dataclass(frozen=True, kw_only=True)
class UpperBounds(Forgetting):
    """The settings and the state that PBM-UCB and PBM-UCB-MLE share.

    Parameters
    ----------
    epsilon
        Widens the bounds. The proof requires more than 0; the default 0 does best in practice.
    """

    epsilon: float = number(0.0, 0.0, 1e6)

    @abstractmethod
    def examined(self, shape: Shape) -> Examination:
        """Return the examination of the first round."""

    def start(self, shape: Shape, sharing: bool | None = None) -> State:
        """Return the initial state; ``sharing`` is whether the cyclic lists that are complete are remembered."""
        n, examined = shape.n_items, self.examined(shape)
        if sharing is None:
            sharing = worth_sharing(n) and not (examined.known or self.detect) and self.memory() == math.inf
        return State(
            shape=shape,
            epsilon=float(self.epsilon),
            counts=self.counts(shape),
            detector=self.detector(shape),
            examined=examined,
            totals=make_item_totals(n),
            complete=make_rows(n if sharing else 0, sharing=True),
            work=make_rank_work(n),
        )

    def refreshed(self, state: State) -> State:
        """Return the state with examination fitted to its counts, and their sums."""
        if state.counts.learned[0] and not state.examined.known:
            fit_examination(state.counts, state.examined)
        add_up_all(state.totals, state.counts, state.examined.positions.examination)
        if state.complete.item.size:
            fill_rows(state.complete, is_complete(state.counts.shown))
        return state


@dataclass(frozen=True)
class PbmUcb(KnownExamination, UpperBounds):
    r"""Ranks items by an upper confidence bound on their attraction, with known examination.

    Clicks are divided by the total examination of an item's impressions, which gives an unbiased estimate of its
    attraction from any mixture of positions. The bound is wide for an item with few impressions, or with impressions at
    rarely examined positions only. The k-th largest bound goes to the k-th most examined position.

    .. math::

        \hat\theta_i = \frac{\sum_j S_{ij}}{\sum_j \beta_j N_{ij}}, \qquad
        U_i = \hat\theta_i + \sqrt{\frac{\sum_j N_{ij}}{\sum_j \beta_j N_{ij}}}
            \sqrt{\frac{(1 + \epsilon) \log t}{2 \sum_j \beta_j N_{ij}}}

    with N impressions and S clicks; t counts the rounds that are remembered. Bounds are not clipped at 1, which would
    cause ties.

    Requires: examination. If it is not known, ``pbm-ucb-mle`` fits it.
    Guarantee: :math:`O(\log T)` with steady users, for :math:`\epsilon > 0`.
    Known failure: examination that differs from the given one, above all if the order of positions is reversed.

    Parameters
    ----------
    examination
        Probability with which each position is examined, up to a common factor.

    Examples
    --------
    >>> import bothworlds
    >>> world = bothworlds.world("paper/stochastic")
    >>> policy = bothworlds.policy("pbm-ucb", examination=world.examination)
    >>> result = bothworlds.play(policy, world, rounds=10_000, replications=4)
    >>> other = bothworlds.play("ftrl-pbm", world, rounds=10_000, replications=4)
    >>> bool(result.regret()[:, -1].mean() < 0.5 * other.regret()[:, -1].mean())
    True

    References
    ----------
    Lagree, Vernade, Cappe: Multiple-play bandits in the position-based model, NeurIPS 2016, section 4.
    """

    name = "pbm-ucb"
    twin = "pbm-ucb-mle"


@dataclass(frozen=True)
class PbmUcbMle(FittedExamination, UpperBounds):
    r"""Ranks items by an upper confidence bound on their attraction, and fits examination to its own clicks.

    It is PBM-UCB with the maximum-likelihood examination in place of the true one, fitted together with attraction
    whenever the number of rounds has grown by 2%. The upper bounds move items from position to position, which makes
    attraction and examination identifiable. Both the bounds and the order of positions follow the fit.

    .. math::

        (\hat a, \hat b) &= \arg\max_{a, b} \; \sum_{ij} S_{ij} (a_i + b_j)
            + (N_{ij} - S_{ij}) \log\left(1 - e^{a_i + b_j}\right), \qquad \hat\beta_j = e^{\hat b_j} \\
        U_i &= \frac{\sum_j S_{ij}}{\sum_j \hat\beta_j N_{ij}} + \sqrt{\frac{\sum_j N_{ij}}{\sum_j \hat\beta_j N_{ij}}}
            \sqrt{\frac{(1 + \epsilon) \log t}{2 \sum_j \hat\beta_j N_{ij}}}

    It starts with the n cyclic lists, which show every item once at every position: without them, the scales of
    attraction and examination are not determined. With 500 items or more, and if nothing is forgotten, the first fit
    follows these lists, since none of them depends on a fit.

    Requires: nothing.
    Guarantee: none is known for the fit; with steady users it earns what PBM-UCB earns.
    Known failure: examination that changes; the old counts outweigh the new ones.

    References
    ----------
    Lagree, Vernade, Cappe: Multiple-play bandits in the position-based model, NeurIPS 2016 (the bounds).
    """

    detect: bool = truth(False)

    name = "pbm-ucb-mle"


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    due = 0 if state.examined.known else due_or_lacking(state, rng, ranking)
    for j in range(ranking.size):
        propensity[j] = 1.0 / due if due > 0 else math.nan
    if due == 0:
        rank_by_upper_bounds(state, rng, ranking)


@inner_kernel
def due_or_lacking(state: State, rng: np.random.Generator, ranking: Ints) -> int:
    """Fill in a cyclic list with a pair that was never shown; return the number of these, or 0 and no list."""
    if state.complete.item.size > 0:
        return due_list(state.complete, rng, ranking)
    return lacking_list(state.counts, 0.0, rng, ranking)


@inner_kernel
def rank_by_upper_bounds(state: State, rng: np.random.Generator, ranking: Ints) -> None:
    totals, score = state.totals, state.work.score
    level = (1.0 + state.epsilon) * math.log(state.counts.rounds[0] + 1.0)
    for i in range(score.size):
        score[i] = math.inf
        if totals.exposure[i] > 0.0:
            score[i] = (totals.clicks[i] + math.sqrt(0.5 * totals.impressions[i] * level)) / totals.exposure[i]
    place(state.work, state.examined.positions.order, rng, ranking)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    counts, examined = state.counts, state.examined
    record(counts, ranking, clicks)
    changed = detect_change(state.detector, counts, ranking, clicks)
    add_up_shown(state.totals, counts, examined.positions.examination, ranking)
    complete_lists(state.complete, counts.shown, ranking)
    fitted = all_complete(state.complete) and refit(counts, examined)
    if changed or fitted:
        add_up_all(state.totals, counts, examined.positions.examination)


# Which cyclic lists (s, s+1, ..., s+m-1) are complete: every pair of item and position in them was shown. To show every
# pair once takes n rounds, and ``lacking_list`` reads all pairs in each of them; complete lists are remembered instead,
# if there are many items and no count falls: their first items have rows of their own in ``Rows``.


def is_complete(shown: Floats) -> NDArray[np.bool_]:
    """Return, for every first item, whether the list is complete (n,), given the impressions of all pairs (n, m).

    >>> is_complete(np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 0.0]]))
    array([ True, False, False])
    """
    return np.logical_and.reduce([np.roll(shown[:, j] > 0.0, -j) for j in range(shown.shape[1])])


@inner_kernel
def all_complete(complete: Rows) -> bool:
    """Return whether no list is due."""
    return complete.own[0] == complete.item.size


@inner_kernel
def due_list(complete: Rows, rng: np.random.Generator, ranking: Ints) -> int:
    """Fill in a random one of the lists that are not complete; returns the number of these, or 0 and no list."""
    n, own = complete.item.size, complete.own[0]
    if own < n:
        first = complete.item[own + int(rng.random() * (n - own))]
        for j in range(ranking.size):
            ranking[j] = (first + j) % n
    return n - own


@inner_kernel
def complete_lists(complete: Rows, shown: Floats, ranking: Ints) -> None:
    """Remember the lists that the last round, which is already in ``shown``, has completed."""
    n, m = shown.shape
    if all_complete(complete):
        return
    for j in range(m):
        if ranking[j] < 0:
            continue
        first, missing = (ranking[j] - j) % n, 0
        for k in range(m):
            missing += shown[(first + k) % n, k] <= 0.0
        if missing == 0:
            add_row(complete, first)
