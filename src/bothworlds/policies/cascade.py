"""Optimism about attraction, if users read from the top and leave after a click: bounds on items, not on pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints, inner_kernel
from ..statistics.kl import kl_upper, round_level
from .base import CompiledPolicy
from .parts.placement import RankWork, make_rank_work, place_largest
from .parts.settings import number

HOEFFDING, BERNSTEIN, KULLBACK_LEIBLER = range(3)


class Counts(NamedTuple):
    """Impressions and clicks of items, as far down the list as the user is known to have read."""

    examined: Floats  # (n,)
    clicked: Floats  # (n,)
    rounds: Floats  # (1,)


class State(NamedTuple):
    shape: Shape
    bound: int  # one of the three
    factor: float  # of the logarithm of rounds
    to_last_click: bool  # users go on after a click, and have read at least down to the last one
    counts: Counts
    work: RankWork


@dataclass(frozen=True, kw_only=True)
class Cascade(CompiledPolicy):
    """What the four policies share; in two of them the factor of the logarithm is a setting."""

    needs = ("order",)
    learned_leaves: ClassVar = {"counts.examined": "i", "counts.clicked": "i", "counts.rounds": ""}
    bound: ClassVar[int] = KULLBACK_LEIBLER
    to_last_click: ClassVar[bool] = False

    @property
    def factor(self) -> float:
        """The factor of the logarithm of rounds in the bound, where it has one."""
        return 1.0

    def start(self, shape: Shape) -> State:
        n = shape.n_items
        counts = Counts(np.zeros(n), np.zeros(n), np.zeros(1))
        return State(shape, self.bound, float(self.factor), self.to_last_click, counts, make_rank_work(n))


@dataclass(frozen=True, kw_only=True)
class CascadeUcb(Cascade):
    r"""Shows the items with the largest Hoeffding bounds on attraction, learned down to the first click of each page.

    In the cascade model the user reads from the top, clicks the first item that attracts, and leaves. The items above
    the first click were examined and did not attract, and nothing is known about those below it. A page without a click
    was read to the end.

    .. math::

        U_i = \hat\alpha_i + \sqrt{\frac{w \log t}{N_i}}, \qquad
        \hat\alpha_i = \frac{\text{first clicks on } i}{N_i}

    where :math:`N_i` counts the pages on which item i was examined. The items with the m largest bounds are shown in
    falling order. Items that were never examined come first.

    Requires: the order of positions.
    Guarantee: :math:`O(\frac{n - m}{\Delta} \log T)` in the cascade model, with steady users.
    Known failure: further clicks of a page are ignored. If users examine lower positions less often than the model
    says, items shown there look worse than they are, and stay there.

    Parameters
    ----------
    width
        w in the bonus; the published one is 1.5.

    Examples
    --------
    Below the first click nothing is learned:

    >>> import numpy as np
    >>> import bothworlds
    >>> policy = bothworlds.policy("cascade-ucb")
    >>> state = policy.init(4, 3)
    >>> shown = bothworlds.Decision(np.array([2, 0, 1]), np.full(3, np.nan))
    >>> policy.learn(state, shown, [0, 1, 1]).counts.examined
    array([1., 0., 1., 0.])

    References
    ----------
    Kveton, Szepesvari, Wen, Ashkan: Cascading bandits: learning to rank in the cascade model, ICML 2015.
    """

    width: float = number(1.5, 1e-6, 1e6)

    name = "cascade-ucb"
    bound = HOEFFDING

    @property
    def factor(self) -> float:
        return self.width


@dataclass(frozen=True, kw_only=True)
class CascadeKlUcb(Cascade):
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

    References
    ----------
    Kveton, Szepesvari, Wen, Ashkan: Cascading bandits: learning to rank in the cascade model, ICML 2015.
    Vial, Sanghavi, Shakkottai, Srikant: Minimax regret for cascading bandits, NeurIPS 2022.
    """

    name = "cascade-kl-ucb"


@dataclass(frozen=True, kw_only=True)
class CascadeUcbV(Cascade):
    r"""Shows the items with the largest Bernstein bounds on attraction, learned down to the first click of each page.

    As CascadeUCB1, it learns from the items down to the first click of a page, and from all of them if there is none.
    The bonus has the empirical variance in it, so that it is small for items that attract rarely or nearly always.

    .. math::

        U_i = \hat\alpha_i + \sqrt{\frac{2 \zeta \, \hat\alpha_i (1 - \hat\alpha_i) \log t}{N_i}}
            + \frac{3 \zeta \log t}{N_i}

    The items with the m largest bounds are shown in falling order. Items that were never examined come first.

    By the empirical Bernstein inequality (Audibert et al., Theorem 1), with the default of 2 a bound fails with a
    probability of at most :math:`3 / t^2` for each number of times that the item was examined. Bounds are not cut at 1.

    Requires: the order of positions.
    Guarantee: :math:`\tilde O(\sqrt{n T})` in the cascade model, whatever the gaps, which no policy can improve but
    for logarithms. Of CascadeUCB1, whose bounds are those of Hoeffding, it is not true (Vial et al.).
    Known failure: as CascadeUCB1; the last term makes it explore long where there are few pages for each item.

    Parameters
    ----------
    zeta
        The factor of the logarithm. Audibert et al. need more than 1 for logarithmic regret of a single item.

    References
    ----------
    Vial, Sanghavi, Shakkottai, Srikant: Minimax regret for cascading bandits, NeurIPS 2022.
    Audibert, Munos, Szepesvari: Exploration-exploitation tradeoff using variance estimates, 2009.
    """

    zeta: float = number(2.0, 1e-6, 1e6)

    name = "cascade-ucb-v"
    bound = BERNSTEIN

    @property
    def factor(self) -> float:
        return self.zeta


@dataclass(frozen=True, kw_only=True)
class DcmUcb(Cascade):
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
    to_last_click = True


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    if state.bound == KULLBACK_LEIBLER:
        kl_bounds(state.counts, state.work.score)
    else:
        rate_bounds(state, state.work.score)
    place_largest(state.work, rng, ranking, propensity)


@inner_kernel
def kl_bounds(counts: Counts, score: Floats) -> None:
    """Fill in the upper bounds of Bernoulli variables; 1 for items that were never examined."""
    level = round_level(counts.rounds[0] + 1.0)
    for i in range(score.size):
        score[i] = 1.0
        if counts.examined[i] > 0.0:
            score[i] = kl_upper(counts.clicked[i] / counts.examined[i], counts.examined[i], level)


@inner_kernel
def rate_bounds(state: State, score: Floats) -> None:
    """Fill in the rates plus the bonus of Hoeffding or Bernstein; infinity for items that were never examined."""
    examined, clicked = state.counts.examined, state.counts.clicked
    level = state.factor * math.log(max(1.0, state.counts.rounds[0]))
    for i in range(score.size):
        score[i] = math.inf
        if examined[i] > 0.0:
            a = clicked[i] / examined[i]
            if state.bound == HOEFFDING:
                score[i] = a + math.sqrt(level / examined[i])
            else:
                score[i] = a + math.sqrt(2.0 * a * (1.0 - a) * level / examined[i]) + 3.0 * level / examined[i]


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    counts, end = state.counts, 0
    counts.rounds[0] += 1.0
    for k in range(ranking.size):
        if clicks[k] > 0.0 and (end == 0 or state.to_last_click):
            end = k + 1
    for k in range(end if end > 0 else ranking.size):  # a list without a click was read to the end
        if ranking[k] >= 0:
            counts.examined[ranking[k]] += 1.0
            counts.clicked[ranking[k]] += 1.0 if clicks[k] > 0.0 else 0.0
