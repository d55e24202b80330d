"""PBM-UCB-MLE: PBM-UCB with examination fitted on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..geometry.item_rows import Rows, fill_rows, make_rows
from ..kernels import Floats, Ints
from .parts.change_detector import ChangeDetector, detect_change
from .parts.counts import Counts, lacking_list, record
from .parts.cyclic_lists import all_complete, complete_lists, due_list, is_complete
from .parts.item_totals import ItemTotals, add_up_all, add_up_shown, make_item_totals, weigh_again
from .parts.placement import RankWork, make_rank_work
from .parts.position_based import ExaminationFit, FittedExamination, fit_examination, refit
from .parts.settings import Detecting, number
from .pbm_ucb import rank_by_upper_bounds


class State(NamedTuple):
    shape: Shape
    epsilon: float
    counts: Counts
    detector: ChangeDetector
    fitted: ExaminationFit
    totals: ItemTotals
    complete: Rows  # the cyclic lists that are complete, if totals are kept; otherwise empty
    work: RankWork


@dataclass(frozen=True)
class PbmUcbMle(FittedExamination, Detecting):
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

    Parameters
    ----------
    epsilon
        Widens the bounds, as in ``pbm-ucb``.
    refit
        Share by which the number of rounds must have grown before the next fit.
    prior
        Pseudo-clicks, in twice as many pseudo-impressions, in every pair that was shown, for the fit only.
    window, discount
        Number of most recent rounds to remember, or a factor by which older rounds are discounted in every round.
    detect
        Whether to forget everything before a detected change; see ``parts/change_detector.py``.

    Examples
    --------
    >>> import bothworlds
    >>> world = bothworlds.world("yandex/stochastic")
    >>> informed = bothworlds.policy("pbm-ucb", examination=world.examination)
    >>> known, fitted = (bothworlds.play(p, world, 10_000, replications=4) for p in (informed, "pbm-ucb-mle"))
    >>> bool(abs(known.final()[0] - fitted.final()[0]) < 0.02)
    True

    References
    ----------
    Lagree, Vernade, Cappe: Multiple-play bandits in the position-based model, NeurIPS 2016 (the bounds).
    """

    epsilon: float = number(0.0, 0.0, 1e6)

    name = "pbm-ucb-mle"

    def start(self, shape: Shape, kept: bool | None = None) -> State:
        """Return the initial state; ``kept`` is whether sums over counts are kept from round to round."""
        n, kept = shape.n_items, self.keeps_totals(shape) if kept is None else kept
        return State(
            shape=shape,
            epsilon=float(self.epsilon),
            counts=self.counts(shape),
            detector=self.detector(shape),
            fitted=self.fitted(shape),
            totals=make_item_totals(n, kept=kept),
            complete=make_rows(n if kept else 0, sharing=True),
            work=make_rank_work(n),
        )

    def refreshed(self, state: State) -> State:
        """Return the state with examination fitted to its counts, and their sums."""
        if state.counts.learned[0]:
            fit_examination(state.counts, state.fitted)
        if state.totals.kept:
            add_up_all(state.totals, state.counts, state.fitted.positions.examination)
            fill_rows(state.complete, is_complete(state.counts.shown))
        return state


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    for j in range(ranking.size):
        propensity[j] = math.nan
    if state.totals.kept:
        due = due_list(state.complete, rng, ranking)
    else:
        due = lacking_list(state.counts, 0.0, rng, ranking)
    if due > 0:
        for j in range(ranking.size):
            propensity[j] = 1.0 / due
    else:
        positions = state.fitted.positions
        rank_by_upper_bounds(state.counts, positions, state.epsilon, state.totals, state.work, rng, ranking)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    record(state.counts, ranking, clicks)
    detect_change(state.detector, state.counts, ranking, clicks)
    if not state.totals.kept:
        refit(state.counts, state.fitted)
        return
    add_up_shown(state.totals, state.counts, state.fitted.positions.examination, ranking)
    complete_lists(state.complete, state.counts.shown, ranking)
    if all_complete(state.complete) and refit(state.counts, state.fitted):
        weigh_again(state.totals, state.counts, state.fitted.positions.examination)
