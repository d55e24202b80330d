"""dcmKL-UCB: optimism about attraction, if users may go on after a click."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints
from .base import CompiledPolicy
from .parts.examined_counts import LEAVES, ExaminedCounts, kl_bounds, make_examined_counts, record_to_last_click
from .parts.placement import RankWork, make_rank_work, place_largest


class State(NamedTuple):
    shape: Shape
    counts: ExaminedCounts
    work: RankWork


@dataclass(frozen=True, kw_only=True)
class DcmUcb(CompiledPolicy):
    r"""Shows the items with the largest Kullback-Leibler bounds on attraction, learned down to the last click.

    In the dependent click model the user reads from the top, clicks what attracts, and may leave after each click. The
    items down to the last click were examined; what happened below it is not known. A page without a click was read to
    the end.

    .. math::

        U_i = \max\{q : N_i \, kl(\hat\alpha_i, q) \le \log t + 3 \log \log t\}

    where :math:`\hat\alpha_i` is the share of clicks among the :math:`N_i` pages on which item i was shown at or above
    the last click. The k-th largest bound goes to position k.

    Requires: the order of positions: users leave more often after a click at the top than further down.
    Guarantee: :math:`O(\log T)` lost probability that users leave satisfied, in the dependent click model.
    Known failure: its estimate of attraction is too high, because the last click counts and the items that were
    skipped below it do not. It maximises satisfied users, and not clicks: where users leave more often at the top, the
    list with the most clicks has the most attractive items further down.

    Examples
    --------
    Nothing is learned below the last click:

    >>> import numpy as np
    >>> import bothworlds
    >>> policy = bothworlds.policy("dcm-ucb")
    >>> state = policy.init(4, 3)
    >>> shown = bothworlds.Decision(np.array([2, 0, 1]), np.full(3, np.nan))
    >>> policy.learn(state, shown, [1, 1, 0]).counts.examined
    array([1., 0., 1., 0.])

    References
    ----------
    Katariya, Kveton, Szepesvari, Wen: DCM bandits: learning to rank with multiple clicks, ICML 2016.
    """

    name = "dcm-ucb"
    learned_leaves = LEAVES
    needs = ("order",)

    def start(self, shape: Shape) -> State:
        n = shape.n_items
        return State(shape, make_examined_counts(n), make_rank_work(n))


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    kl_bounds(state.counts, state.work.score)
    place_largest(state.work, rng, ranking, propensity)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    record_to_last_click(state.counts, ranking, clicks)
