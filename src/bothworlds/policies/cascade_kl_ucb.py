"""CascadeKL-UCB: optimism about attraction with Kullback-Leibler bounds, if users leave with their first click."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints
from .base import CompiledPolicy
from .parts.examined_counts import LEAVES, ExaminedCounts, kl_bounds, make_examined_counts, record_to_first_click
from .parts.placement import RankWork, make_rank_work, place_largest


class State(NamedTuple):
    shape: Shape
    counts: ExaminedCounts
    work: RankWork


@dataclass(frozen=True, kw_only=True)
class CascadeKlUcb(CompiledPolicy):
    r"""Shows the items with the largest Kullback-Leibler bounds on attraction, learned down to the first click.

    As CascadeUCB1, it learns from the items down to the first click of a page, and from all of them if there is none.
    The bound is that of Bernoulli variables, which is much tighter for items that rarely attract.

    .. math::

        U_i = \max\{q : N_i \, kl(\hat\alpha_i, q) \le \log t + 3 \log \log t\}

    The items with the m largest bounds are shown in falling order. Items that were never examined have the bound 1.

    Requires: the order of positions.
    Guarantee: :math:`O\left(\sum_i \frac{\Delta_i}{kl(\alpha_i, \alpha^*)} \log\frac{1}{\Delta_i} \log T\right)` in the
    cascade model, with steady users; and :math:`\tilde O(\sqrt{n T})` whatever the gaps, as for CascadeUCB-V (Vial et
    al.).
    Known failure: as CascadeUCB1.

    Examples
    --------
    >>> import bothworlds
    >>> tight, wide = (
    ...     bothworlds.play(p, "cascade/yandex", 5_000, replications=2) for p in ("cascade-kl-ucb", "cascade-ucb")
    ... )
    >>> bool(tight.final()[0] > wide.final()[0])
    True

    References
    ----------
    Kveton, Szepesvari, Wen, Ashkan: Cascading bandits: learning to rank in the cascade model, ICML 2015.
    Vial, Sanghavi, Shakkottai, Srikant: Minimax regret for cascading bandits, NeurIPS 2022.
    """

    name = "cascade-kl-ucb"
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
    record_to_first_click(state.counts, ranking, clicks)
