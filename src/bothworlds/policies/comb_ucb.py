"""Optimism about every pair of item and position: CombUCB1, and KL-CombUCB with Kullback-Leibler bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints, kernel
from ..statistics.kl import kl_upper, round_level
from .parts.change_detector import ChangeDetector, detect_change
from .parts.counts import Counts, lacking_list, record
from .parts.epochs import Epochs, make_epochs, new_epoch
from .parts.placement import PlacementWork, make_placement_work, place_best
from .parts.settings import ROUNDS, Forgetting, choice, number, truth, whole

CEILING = 1000.0  # largest bound: above those of all pairs that were shown, unless they are nearly forgotten
BY_HORIZON, BY_ROUND = "log T", "log t"


class State(NamedTuple):
    shape: Shape
    width: float
    counts: Counts
    detector: ChangeDetector
    work: PlacementWork


@dataclass(frozen=True, kw_only=True)
class CombUcb(Forgetting):
    r"""Shows the list with the largest sum of Hoeffding's upper bounds on the click probabilities of its pairs.

    Every pair is an arm of its own: its average of clicks plus a bonus that shrinks every time it is shown. The list
    with the largest sum is the solution of an assignment problem, solved exactly in every round. The first n lists are
    cyclic and show every item once at every position.

    .. math::

        U_{ij} = \hat p_{ij} + \sqrt{\frac{w \log t}{N_{ij}}}, \qquad
        \text{list} = \arg\max \sum_j U_{i_j j}

    t counts the rounds that are remembered: with a window or a discount, bounds do not grow beyond their memory.

    Requires: nothing, neither horizon nor examination nor the order of positions.
    Guarantee: :math:`O(\frac{m \cdot nm}{\Delta} \log T)` with steady users.
    Known failure: it learns nm numbers where n + m are enough, and explores long; without forgetting it is slow to
    notice that users have changed.

    Parameters
    ----------
    width
        w in the bonus; the published one is 1.5.

    Examples
    --------
    The first n lists show every item once at every position:

    >>> import numpy as np
    >>> import bothworlds
    >>> policy, rng = bothworlds.policy("comb-ucb"), np.random.default_rng(0)
    >>> state = policy.init(5, 3)
    >>> for _ in range(5):
    ...     state = policy.learn(state, policy.decide(state, rng), [0, 0, 0])
    >>> bool((state.counts.shown == 1.0).all())
    True

    References
    ----------
    Kveton, Wen, Ashkan, Szepesvari: Tight regret bounds for stochastic combinatorial semi-bandits, AISTATS 2015.
    """

    width: float = number(1.5, 1e-6, 1e6)
    detect: bool = truth(False)

    name = "comb-ucb"

    def start(self, shape: Shape) -> State:
        return State(
            shape=shape,
            width=float(self.width),
            counts=self.counts(shape),
            detector=self.detector(shape),
            work=make_placement_work(*shape),
        )


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    shown, clicked = state.counts.shown, state.counts.clicked
    lacking = lacking_list(state.counts, 0.0, rng, ranking) if state.counts.learned[0] < shown.shape[0] else 0
    for j in range(ranking.size):
        propensity[j] = 1.0 / lacking if lacking > 0 else math.nan
    if lacking > 0:
        return
    bounds, bonus = state.work.scores, state.width * math.log(max(1.0, state.counts.rounds[0]))
    for i in range(shown.shape[0]):
        for j in range(shown.shape[1]):
            bounds[i, j] = CEILING
            if shown[i, j] > 0.0:
                bounds[i, j] = min(CEILING, clicked[i, j] / shown[i, j] + math.sqrt(bonus / shown[i, j]))
    place_best(bounds, rng, ranking, state.work)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    record(state.counts, ranking, clicks)
    detect_change(state.detector, state.counts, ranking, clicks)


class KlState(NamedTuple):
    shape: Shape
    by_round: bool
    memory: float  # rounds that are remembered, which limit the level
    counts: Counts
    plan: Epochs
    bounds: Floats  # (n_items, n_positions)
    level: Floats  # (1,) at which the bounds were computed
    basis_shown: Floats  # (n_items, n_positions) counts from which the bounds were computed
    basis_clicked: Floats  # (n_items, n_positions)
    work: PlacementWork


@dataclass(frozen=True, kw_only=True)
class KlCombUcb(Forgetting):
    r"""Shows the list with the largest sum of Kullback-Leibler upper bounds on the click probabilities of its pairs.

    As in CombUCB1, every pair is an arm of its own, and the list with the largest sum of bounds is the solution of an
    assignment problem. The bound is that of Bernoulli variables, which is much tighter for pairs that are rarely
    clicked. A pair that was never shown has the bound 1, so no initial lists are required.

    .. math::

        U_{ij} = \max\{q : N_{ij} \, kl(\hat p_{ij}, q) \le f\}, \qquad
        f = \log T \quad \text{or} \quad \log t + 3 \log \log t

    With :math:`\log T` only the bounds of pairs that were shown are recomputed. Without a horizon, T starts at 1024 and
    doubles when it is reached; nothing is forgotten then. With a window or a discount, T and t are limited to the
    rounds that are remembered.

    Requires: the horizon, for the level :math:`\log T`.
    Guarantee: :math:`O(\frac{m \cdot nm}{\Delta} \log T)` with steady users, with smaller constants than CombUCB1.
    Known failure: it learns nm numbers where n + m are enough; without forgetting it is slow to notice a change.

    Parameters
    ----------
    level
        "log T" or "log t", the right-hand side f above.
    horizon
        T; None if it is not known.

    References
    ----------
    Garivier, Cappe: The KL-UCB algorithm for bounded stochastic bandits and beyond, COLT 2011.
    Kveton, Wen, Ashkan, Szepesvari: Tight regret bounds for stochastic combinatorial semi-bandits, AISTATS 2015.
    """

    level: str = choice(BY_HORIZON, BY_ROUND)
    horizon: int | None = whole(None, 1, ROUNDS)

    name = "kl-comb-ucb"
    learned_leaves: ClassVar[Mapping[str, str] | None] = {"plan.rounds": "", "plan.length": "", "plan.horizon": ""}
    needs = ("horizon",)

    def start(self, shape: Shape) -> KlState:
        return KlState(
            shape=shape,
            by_round=self.level == BY_ROUND,
            memory=self.memory(),
            counts=self.counts(shape),
            plan=make_epochs(self.horizon),
            bounds=np.ones(shape),
            level=np.full(1, -1.0),
            basis_shown=np.zeros(shape),
            basis_clicked=np.zeros(shape),
            work=make_placement_work(*shape),
        )

    def refreshed(self, state: KlState) -> KlState:
        """Return the state with the bounds of its counts."""
        if state.counts.learned[0] > 0:
            update_bounds(state)
        return state


@decides(KlState)
def decide_by_kl_bounds(state: KlState, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    place_best(state.bounds, rng, ranking, state.work)
    for j in range(ranking.size):
        propensity[j] = math.nan


@learns(KlState)
def learn_kl_bounds(state: KlState, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    record(state.counts, ranking, clicks)
    new_epoch(state.plan)
    update_bounds(state)


@kernel
def update_bounds(state: KlState) -> None:
    """Compute the bounds whose level or counts have changed."""
    shown, clicked, level = state.counts.shown, state.counts.clicked, round_level(state.counts.rounds[0] + 1.0)
    if not state.by_round:
        level = math.log(min(state.plan.horizon[0], state.memory))
    all_changed = level != state.level[0]
    state.level[0] = level
    for i in range(shown.shape[0]):
        for j in range(shown.shape[1]):
            n, s = shown[i, j], clicked[i, j]
            if all_changed or n != state.basis_shown[i, j] or s != state.basis_clicked[i, j]:
                state.bounds[i, j] = kl_upper(min(s / n, 1.0), n, level) if n > 0.0 else 1.0
                state.basis_shown[i, j] = n
                state.basis_clicked[i, j] = s
