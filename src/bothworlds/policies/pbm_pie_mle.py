"""PBM-PIE-MLE: PBM-PIE with fitted examination."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints
from .parts.counts import Counts, lacking_list, record
from .parts.epochs import Epochs
from .parts.placement import RankWork, make_rank_work
from .parts.position_based import ExaminationFit, FittedExamination, fit_examination, refit
from .pbm_pie import PieSettings, explore_last, forget_at_restart


class State(NamedTuple):
    shape: Shape
    epsilon: float
    memory: float
    counts: Counts
    epochs: Epochs
    fitted: ExaminationFit
    work: RankWork


@dataclass(frozen=True)
class PbmPieMle(FittedExamination, PieSettings):
    r"""Explores at the least examined position only, and fits examination to its own clicks.

    It is PBM-PIE with the maximum-likelihood examination in place of the true one, fitted together with attraction
    whenever the number of rounds has grown by 2%. Exploration at one position would leave examination nearly unknown,
    and would not correct a wrong order of positions. So it shows one of the n cyclic lists as long as some pair in it

    .. math::

        \text{was shown less than } \sqrt{\log t} \text{ times},

    which together show every item at every position, and cost little.

    Requires: the horizon.
    Guarantee: none is known for the fit.
    Known failure: it may keep a wrong order of positions for long, since cyclic lists become rare; ``pbm-ucb-mle`` is
    safer.

    Parameters
    ----------
    epsilon
        Widens the bounds, as in ``pbm-pie``.
    refit
        Share by which the number of rounds must have grown before the next fit.
    prior
        Pseudo-clicks, in twice as many pseudo-impressions, in every pair that was shown, for the fit only.
    horizon
        The number of rounds to plan for; ``play`` fills it in.
    restart
        Number of rounds after which everything is forgotten; None for never.
    window, discount
        Number of most recent rounds to remember, or a factor by which older rounds are discounted in every round. T is
        then limited to the rounds that are remembered.

    Examples
    --------
    >>> import bothworlds
    >>> result = bothworlds.play("pbm-pie-mle", "yandex/stochastic", rounds=10_000, replications=4)
    >>> bool(result.final()[0] > 0.8)    # the best list earns 0.865, a random one 0.194
    True

    References
    ----------
    Lagree, Vernade, Cappe: Multiple-play bandits in the position-based model, NeurIPS 2016 (the exploration);
    Komiyama, Honda, Takeda: Position-based multiple-play bandit problem with unknown position bias, NeurIPS 2017
    (the forced lists).
    """

    name = "pbm-pie-mle"
    needs = ("horizon",)

    def start(self, shape: Shape) -> State:
        return State(
            shape=shape,
            epsilon=float(self.epsilon),
            memory=self.memory(),
            counts=self.counts(shape),
            epochs=self.epochs(),
            fitted=self.fitted(shape),
            work=make_rank_work(shape.n_items),
        )

    def refreshed(self, state: State) -> State:
        """Return the state with examination fitted to its counts."""
        if state.counts.learned[0]:
            fit_examination(state.counts, state.fitted)
        return state


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    least = math.sqrt(math.log(state.counts.rounds[0] + 1.0))
    lacking = lacking_list(state.counts, least, rng, ranking)
    if lacking > 0:
        for j in range(ranking.size):
            propensity[j] = 1.0 / lacking
        return
    level = (1.0 + state.epsilon) * math.log(min(state.epochs.horizon[0], state.memory))
    explore_last(state.counts, state.fitted.positions, level, state.work, rng, ranking, propensity)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    record(state.counts, ranking, clicks)
    forget_at_restart(state.counts, state.epochs)
    refit(state.counts, state.fitted)
