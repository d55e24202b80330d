"""FTRL-PBM: the paper's algorithm, computed exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..geometry.dual import Workspace, make_workspace
from ..geometry.feasible import repair
from ..geometry.newton import solve
from ..geometry.regularizers import Tsallis
from ..geometry.sampling import Urn, draw, make_urn, prepare
from ..kernels import Floats, Ints
from .base import CompiledPolicy

__all__ = ["FtrlPbm"]


class State(NamedTuple):
    shape: Shape
    rate: float
    tolerance: float
    loss: Floats  # (n_items, n_positions) cumulative loss estimates
    rounds: Ints  # (1,) rounds learned from
    lam: Floats  # (n_positions,) multipliers, where the next solve starts
    mu: Floats  # (n_items,)
    marginals: Floats  # (n_items, n_positions) of the next decision
    effort: Ints  # (3,) Newton steps in all, most in one round, block-coordinate sweeps in all
    urn: Urn
    work: Workspace


@dataclass(frozen=True)
class FtrlPbm(CompiledPolicy):
    r"""Follow the regularised leader with Tsallis entropy: one algorithm for steady and for hostile users.

    Every round shows a list drawn with the marginals that minimise the estimated past loss plus a regulariser, and
    every missing click adds its importance-weighted loss. Small marginals keep being explored just enough: the regret
    grows like :math:`\log T` when users are steady and like :math:`\sqrt T` when they are not, without knowing which.

    .. math::

        x_t &= \arg\min_x \; \langle x, \hat L_{t-1} \rangle - \frac{1}{\eta_t} \sum_{ij} \sqrt{x_{ij}},
            \qquad \eta_t = \frac{1}{2 \sqrt t} \\
        \hat L_{t,ij} &= \hat L_{t-1,ij}
            + \frac{1 - \text{click}_j}{x_{t,ij}} \, [\text{item } i \text{ is shown at position } j]

    over the ranking polytope. The minimiser is found to ``tolerance`` by projected dual Newton steps from the last
    round's multipliers and made exactly feasible; list and importance weights use that same feasible point, so the
    estimates are unbiased at any tolerance.

    Needs to be told: nothing, neither horizon nor examination nor the order of positions.
    Guarantee: :math:`O(\frac{mn}{\Delta_\beta \Delta} \log T)` with steady users, :math:`O(m \sqrt{nT})` with any.
    Known failure: it does not forget, so it follows the best fixed list, not the best list of the season.

    Parameters
    ----------
    rate
        :math:`\eta_t = \text{rate} / \sqrt t`; the paper's is 1/2.
    tolerance
        The largest violation of the optimality conditions before the point is made feasible.

    Examples
    --------
    >>> import bothworlds
    >>> result = bothworlds.play("ftrl-pbm", "paper/stochastic", rounds=10_000, seeds=4)
    >>> uniform = bothworlds.play("uniform", "paper/stochastic", rounds=10_000, seeds=4)
    >>> bool(result.regret()[:, -1].mean() < 0.5 * uniform.regret()[:, -1].mean())
    True

    References
    ----------
    Chen, Zhao, Li: Simultaneously learning stochastic and adversarial bandits under the position-based model,
    AAAI 2022, Algorithm 1.
    """

    rate: float = 0.5
    tolerance: float = 1e-6

    name = "ftrl-pbm"
    needs_propensity: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for setting in ("rate", "tolerance"):
            value = getattr(self, setting)
            number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
            if not number or not 0.0 < value < math.inf:
                raise ValueError(f"{setting} must be positive and finite; got {value!r}")

    def start(self, shape: Shape) -> State:
        n, m = shape
        state = State(
            shape=shape,
            rate=float(self.rate),
            tolerance=max(float(self.tolerance), 1e-13),  # below that there is only rounding
            loss=np.zeros((n, m)),
            rounds=np.zeros(1, np.int64),
            lam=np.full(m, 0.5 * math.sqrt(n) / self.rate),
            mu=np.zeros(n),
            marginals=np.full((n, m), 1.0 / n),
            effort=np.zeros(3, np.int64),
            urn=make_urn(n, m),
            work=make_workspace(n, m),
        )
        prepare(state.marginals, state.urn)
        return state


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    draw(state.marginals, rng, state.urn, ranking)
    for j in range(ranking.size):
        propensity[j] = state.marginals[ranking[j], j]


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    for j in range(ranking.size):
        state.loss[ranking[j], j] += (1.0 - clicks[j]) / propensity[j]
    state.rounds[0] += 1
    # The leader for the next round, t = rounds + 1, from the multipliers of this one.
    eta = state.rate / math.sqrt(state.rounds[0] + 1.0)
    w = state.work
    effort = solve(Tsallis(), state.loss, eta, state.lam, state.mu, state.tolerance, w)
    repair(w.x, w.row, state.marginals, w.rhs, w.trial_mu)
    prepare(state.marginals, state.urn)
    state.effort[0] += effort.steps
    state.effort[1] = max(state.effort[1], effort.steps)
    state.effort[2] += effort.sweeps
