"""FTRL-PBM: the paper's algorithm, computed exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..core import Ledger, Shape, decides, learns
from ..geometry.item_rows import worth_sharing
from ..geometry.leader_state import (
    Leading,
    is_due,
    lead,
    make_leading,
    ready,
    reset,
    resume_leader,
    separate,
    share_rows,
    show,
)
from ..geometry.regularizers import Tsallis
from ..kernels import Floats, Ints, kernel
from .parts.epochs import Epochs, new_epoch
from .parts.ledgers import never_shown_alike
from .parts.settings import Restarting, number, whole

__all__ = ["FtrlPbm", "State", "learning_rate"]


class State(NamedTuple):
    shape: Shape
    rate: float
    loss: Floats  # (n_items, n_positions) cumulative loss estimates
    epochs: Epochs
    leading: Leading


@dataclass(frozen=True)
class FtrlPbm(Restarting):
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
    tolerance
        The largest violation of the optimality conditions before the point is made feasible.
    every
        Number of rounds from one leader to the next. In between, lists are drawn from the last leader and estimates are
        divided by its probabilities, so they stay unbiased. Its cost in regret: docs/research/performance.md.
    restart
        Number of rounds after which everything is forgotten; None for never.

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

    rate: float = number(0.5, 1e-6, 1e3)
    tolerance: float = number(1e-6, 1e-12, 0.1)
    every: int = whole(1, 1, 10**9)

    name = "ftrl-pbm"
    needs_propensity: ClassVar[bool] = True

    def start(self, shape: Shape, sharing: bool | None = None) -> State:
        """Return the initial state; ``sharing`` is whether items share a row until they have losses."""
        if sharing is None:
            sharing = worth_sharing(shape.n_items)
        state = State(
            shape=shape,
            rate=float(self.rate),
            loss=np.zeros(shape),
            epochs=self.epochs(),
            leading=make_leading(*shape, self.tolerance, every=self.every, sharing=sharing),
        )
        reset(Tsallis(), state.rate, state.leading)
        return state

    def resumed(self, ledger: Ledger) -> State:
        """Return the state after the events that the ledger sums up."""
        state: State = self.init(*ledger.loss.shape)
        self.advance_epochs(state.epochs, ledger.rounds)
        state.loss[:] = ledger.loss
        if state.leading.sharing:
            share_rows(state.leading, never_shown_alike(ledger))
        if ledger.rounds:
            resume_leader(Tsallis(), state.loss, learning_rate(state.rate, float(ledger.rounds)), state.leading)
        return state


@kernel
def learning_rate(rate: float, rounds: float) -> float:
    """The learning rate of the round that follows so many rounds."""
    return rate / math.sqrt(rounds + 1.0)


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    show(state.leading, rng, ranking, propensity)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    for j in range(ranking.size):
        if clicks[j] < 1.0:
            separate(state.leading, ranking[j])
            state.loss[ranking[j], j] += (1.0 - clicks[j]) / propensity[j]
    if new_epoch(state.epochs):
        state.loss[:] = 0.0
        reset(Tsallis(), state.rate, state.leading)
    elif is_due(state.leading, state.epochs.rounds[0]):
        # The leader for the next round, t = rounds + 1, from the multipliers of this one.
        eta = learning_rate(state.rate, state.epochs.rounds[0])
        lead(Tsallis(), state.loss, eta, state.leading)
    else:
        return
    ready(state.leading)
