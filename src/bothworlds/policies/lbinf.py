"""LBINF: the predecessor of LBINFV."""

from __future__ import annotations

from dataclasses import dataclass

from ..core import Shape
from .lbinfv import LEAVES, Rule, make_rule
from .parts.leader import Leader
from .parts.settings import Planning, number


@dataclass(frozen=True)
class Lbinf(Leader, Planning):
    r"""Optimistic leader with a log-barrier, whose predictions follow the most recent losses.

    The predecessor of LBINFV, with the same estimates and the same adaptive rate for every pair. Its predictions move a
    quarter of the way towards each observed loss, its regulariser is not level at 0, and its first rates are smaller.

    .. math::

        x_t &= \arg\min_x \; \langle x, \hat L_{t-1} + p_t \rangle
            + \sum_{ij} b_{t,ij} \left( -\log x_{ij} + \gamma (1 - x_{ij}) \log(1 - x_{ij}) \right) \\
        \gamma &= \log T, \qquad p_1 = \frac14, \qquad b_1^2 = 2 \\
        p_{t+1,ij} &= p_{t,ij} + \frac14 (1 - \text{click}_j - p_{t,ij})
            \, [\text{item } i \text{ is shown at position } j] \\
        b_{t+1,ij}^2 &= b_{t,ij}^2 + \frac{1}{\gamma} (1 - \text{click}_j - p_{t,ij})^2
            \min\left( 1, \frac{2 (1 - x_{t,ij})}{\gamma x_{t,ij}^2} \right)
            [\text{item } i \text{ is shown at position } j]

    and :math:`\hat L` as in LBINFV. Rates use the prediction from before the loss was observed; a published program
    uses the one from after it. The first prediction is that of the program; in print it may be 1/2.

    Requires: the horizon; without it, the doubling trick is used.
    Guarantee: :math:`O(\log T)` with steady users, :math:`O(m \sqrt{nT \log T})` with any, and less where losses are
    small or move little; for semi-bandits in general.
    Known failure: without restarts it does not forget; predictions that do not converge make its rates fall forever.

    Parameters
    ----------
    step
        Share of the way by which a prediction moves towards an observed loss, below 1.
    guess
        The first prediction.
    gamma
        :math:`\gamma`; the logarithm of the horizon (at least 1) if None.

    Examples
    --------
    >>> import bothworlds
    >>> result = bothworlds.play("lbinf", "paper/stochastic", rounds=5_000, replications=4)
    >>> uniform = bothworlds.play("uniform", "paper/stochastic", rounds=5_000, replications=4)
    >>> bool(result.regret()[:, -1].mean() < 0.6 * uniform.regret()[:, -1].mean())
    True

    References
    ----------
    Ito: Hybrid regret bounds for combinatorial semi-bandits and adversarial linear bandits, NeurIPS 2021.
    """

    step: float = number(0.25, 1e-6, 0.999999)
    guess: float = number(0.25, 0.0, 1.0)
    gamma: float | None = number(None, 1e-9, 1e6)

    name = "lbinf"
    learned_leaves = LEAVES
    needs = ("horizon",)

    def rule(self, shape: Shape) -> Rule:
        return make_rule(shape, level=0.0, gamma=self.gamma, first=2.0, guess=self.guess, step=self.step)
