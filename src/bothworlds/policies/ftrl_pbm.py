"""FTRL-PBM: the paper's algorithm, computed exactly; and HYBRID, with a regulariser that is steep at 0 and at 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ..core import Shape
from ..geometry.leader_state import lead, reset
from ..geometry.regularizers import Hybrid as HybridRegularizer
from ..geometry.regularizers import Tsallis
from ..kernels import kernel
from .parts.leader import Leader, State, leader_rule, weigh
from .parts.settings import number


@kernel
def learning_rate(rate: float, rounds: float) -> float:
    """The learning rate of the round that follows so many rounds."""
    return rate / math.sqrt(rounds + 1.0)


def solve(rule: Any, state: State) -> None:
    lead(rule.regularizer, state.loss, learning_rate(rule.rate, state.epochs.rounds[0]), state.leading)


def begin(rule: Any, state: State) -> None:
    state.loss[:] = 0.0
    reset(rule.regularizer, rule.rate, state.leading)


@leader_rule(observe=weigh, solve=solve, begin=begin)
class Rule(NamedTuple):
    rate: float
    regularizer: Any = Tsallis()


@dataclass(frozen=True)
class FtrlPbm(Leader):
    r"""Follow the regularised leader with Tsallis entropy: one algorithm for steady and for hostile users.

    Every round shows a list drawn with the marginals that minimise the estimated past loss plus a regulariser, and
    every missing click adds its importance-weighted loss. The regret grows like :math:`\log T` when users are steady
    and like :math:`\sqrt T` when they are not; the policy does not need to know which is the case.

    .. math::

        x_t &= \arg\min_x \; \langle x, \hat L_{t-1} \rangle - \frac{1}{\eta_t} \sum_{ij} \sqrt{x_{ij}},
            \qquad \eta_t = \frac{1}{2 \sqrt t} \\
        \hat L_{t,ij} &= \hat L_{t-1,ij}
            + \frac{1 - \text{click}_j}{x_{t,ij}} \, [\text{item } i \text{ is shown at position } j]

    over the ranking polytope. The minimiser is computed to ``tolerance`` by projected dual Newton steps from the
    multipliers of the last round, and made exactly feasible. List and importance weights use that same feasible point,
    so the estimates are unbiased for every tolerance.

    Requires: nothing, neither horizon nor examination nor the order of positions.
    Guarantee: :math:`O(\frac{mn}{\Delta_\beta \Delta} \log T)` with steady users, :math:`O(m \sqrt{nT})` with any.
    Known failure: without restarts it does not forget: it follows the best fixed list, not the best list of a season.

    Parameters
    ----------
    rate
        :math:`\eta_t = \text{rate} / \sqrt t`; the paper's is 1/2.

    References
    ----------
    Chen, Zhao, Li: Simultaneously learning stochastic and adversarial bandits under the position-based model,
    AAAI 2022, Algorithm 1.
    """

    rate: float = number(0.5, 1e-6, 1e3)

    name = "ftrl-pbm"
    may_share: ClassVar[bool] = True

    def rule(self, shape: Shape) -> Rule:
        return Rule(float(self.rate))


@dataclass(frozen=True)
class Hybrid(Leader):
    r"""Follow the regularised leader with the hybrid regulariser, which is steep at probabilities 0 and 1.

    FTRL-PBM's regulariser keeps probabilities away from 0. This one adds an entropy of the complement that keeps them
    away from 1, as required by the proof for general semi-bandits in which many items are chosen at once. The inverse
    of its slope has no closed form; a scalar Newton iteration computes it up to rounding.

    .. math::

        x_t &= \arg\min_x \; \langle x, \hat L_{t-1} \rangle
            + \frac{1}{\eta_t} \sum_{ij} \left( -\sqrt{x_{ij}} + \gamma (1 - x_{ij}) \log(1 - x_{ij}) \right),
            \qquad \eta_t = \frac{1}{\sqrt t} \\
        \hat L_{t,ij} &= \hat L_{t-1,ij}
            + \frac{1 - \text{click}_j}{x_{t,ij}} \, [\text{item } i \text{ is shown at position } j]

    The published losses are from -1 to 1; stretching :math:`1 - \text{click}` to them would be the same as twice the
    rate, which does worse.

    Requires: nothing, neither horizon nor examination nor the order of positions.
    Guarantee: :math:`O(\frac{m^2 n}{\Delta_\beta \Delta} \log T)` with steady users, :math:`O(m \sqrt{nT})` with any.
    Known failure: without restarts it does not forget: it follows the best fixed list, not the best list of a season.

    Parameters
    ----------
    gamma
        The weight of the entropy of the complement.
    rate
        :math:`\eta_t = \text{rate} / \sqrt t`.

    References
    ----------
    Zimmert, Luo, Wei: Beating stochastic and adversarial semi-bandits optimally and simultaneously, ICML 2019.
    """

    gamma: float = number(1.0, 1e-9, 1e6)
    rate: float = number(1.0, 1e-6, 1e3)

    name = "hybrid"
    may_share: ClassVar[bool] = True

    def rule(self, shape: Shape) -> Rule:
        return Rule(float(self.rate), HybridRegularizer(float(self.gamma)))
