"""FTRL-PBM as the service runs it: delayed feedback, a stale leader, a probability floor, fixed-point losses.

The service sums up feedback in counters and computes the leader from the sums at intervals. This policy does the same
in a simulation. The algorithm itself is that of ``policies.ftrl_pbm``: its state, its learning rate and its leader.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import Shape, decides, learns
from ..geometry.baseline_mixture import baseline_share
from ..geometry.leader_state import lead, lead_afresh, show_marginals
from ..geometry.regularizers import Tsallis
from ..geometry.sampling import Urn, make_urn, prepare
from ..kernels import Floats, Ints, inner_kernel, kernel
from ..policies import CompiledPolicy
from ..policies.ftrl_pbm import FtrlPbm, learning_rate
from ..policies.parts.leader import State as FtrlState
from ..policies.parts.settings import ROUNDS, choice, number, whole

__all__ = ["DelayedFtrl"]

UNITS = 2.0**20  # fixed-point losses are whole multiples of 1/UNITS


class State(NamedTuple):
    shape: Shape
    refresh: int
    floor: float
    fixed_point: bool
    median_start: bool
    newcomer: int  # the item that is added later, or -1
    arrival: int  # the round in which it is added
    baseline: Ints  # (m,) the page's own order; empty without one
    baseline_rounds: int  # the number of rounds in which it is left
    decided: Ints  # (1,) rounds decided
    settled: Ints  # (1,) rounds whose clicks have arrived
    settled_at_refresh: Ints  # (1,) rounds whose clicks the leader is based on
    rankings: Ints  # (delay + 1, m) ring buffer of lists that wait for their clicks
    propensities: Floats  # (delay + 1, m)
    clicks: Floats  # (delay + 1, m)
    loss: Floats  # (n, m) sums over settled rounds; whole numbers of 1/UNITS in fixed point
    learner: FtrlState  # FTRL-PBM for all n items
    learner_before_arrival: FtrlState  # FTRL-PBM for the n - 1 items without the newcomer
    marginals: Floats  # (n, m) of the lists that are drawn, floor included
    urn: Urn
    column: Floats  # (n,) scratch space for sorting


@dataclass(frozen=True)
class DelayedFtrl(CompiledPolicy):
    """FTRL-PBM with the delays and roundings of the service; with the default settings it is FTRL-PBM itself.

    Parameters
    ----------
    refresh
        The number of settled rounds after which a new leader is computed.
    delay
        The clicks of a round arrive this many rounds later.
    floor
        The share of uniform lists that is mixed in.
    fixed_point
        Whether losses are rounded to multiples of 2^-20.
    newcomer, arrives, start_at
        An item, or None, that cannot be shown before round ``arrives``; it then starts with losses of zero or with the
        ``"median"`` of the others.
    baseline, baseline_rounds
        The page's own order, and the number of rounds in which it is left; without a newcomer.
    """

    refresh: int = whole(1, 1, ROUNDS)
    delay: int = whole(0, 0, 10**7)
    floor: float = number(0.0, 0.0, 1.0)
    fixed_point: bool = False
    newcomer: int | None = whole(None, 0, ROUNDS)
    arrives: int = whole(0, 0, ROUNDS)
    start_at: str = choice("median", "zero")
    baseline: tuple[int, ...] = ()
    baseline_rounds: int = whole(0, 0, ROUNDS)

    name = "served ftrl-pbm"
    needs_propensity: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.baseline_rounds and self.newcomer is not None:
            raise ValueError("a policy that starts from a baseline cannot have a newcomer")

    def relabelled(self, labels: NDArray[np.int64]) -> DelayedFtrl:
        """Return the policy for the same items in another order; newcomer and baseline stay the same items."""
        places = np.argsort(labels)
        newcomer = None if self.newcomer is None else int(places[self.newcomer])
        return replace(self, newcomer=newcomer, baseline=tuple(places[list(self.baseline)].tolist()))

    def start(self, shape: Shape) -> State:
        """Allocate the state for a shape that has been checked."""
        n, m = shape
        newcomer = self.newcomer if self.newcomer is not None and self.arrives > 0 else -1
        ftrl = FtrlPbm()
        state = State(
            shape=shape,
            refresh=int(self.refresh),
            floor=float(self.floor),
            fixed_point=bool(self.fixed_point),
            median_start=self.start_at == "median",
            newcomer=newcomer,
            arrival=self.arrives if newcomer >= 0 else 0,
            baseline=np.array(self.baseline[:m] if self.baseline_rounds else (), np.int64),
            baseline_rounds=int(self.baseline_rounds),
            decided=np.zeros(1, np.int64),
            settled=np.zeros(1, np.int64),
            settled_at_refresh=np.zeros(1, np.int64),
            rankings=np.zeros((self.delay + 1, m), np.int64),
            propensities=np.ones((self.delay + 1, m)),
            clicks=np.zeros((self.delay + 1, m)),
            loss=np.zeros(shape),
            learner=ftrl.start(shape, sharing=False),
            learner_before_arrival=ftrl.start(Shape(n - 1, min(m, n - 1)), sharing=False),
            marginals=np.zeros(shape),
            urn=make_urn(n, m),
            column=np.zeros(n),
        )
        mix_floor(state)
        return state


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    show_marginals(state.marginals, state.urn, rng, ranking, propensity)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    size = state.rankings.shape[0]
    at = state.decided[0] % size
    for j in range(ranking.size):
        state.rankings[at, j], state.propensities[at, j], state.clicks[at, j] = ranking[j], propensity[j], clicks[j]
    state.decided[0] += 1
    if state.decided[0] >= size:
        settle(state, state.decided[0] % size)
    arrived = state.newcomer >= 0 and state.decided[0] == state.arrival
    if arrived and state.median_start:
        start_at_median(state)
    if arrived or state.settled[0] - state.settled_at_refresh[0] >= state.refresh:
        state.settled_at_refresh[0] = state.settled[0]
        if absent(state):
            early = state.learner_before_arrival
            copy_losses(state, early.loss)
            lead(Tsallis(), early.loss, learning_rate(early.rule.rate, state.settled[0]), early.leading)
        else:
            learner = state.learner
            copy_losses(state, learner.loss)
            eta = learning_rate(learner.rule.rate, state.settled[0])
            if arrived:
                lead_afresh(Tsallis(), learner.loss, eta, learner.leading)
            else:
                lead(Tsallis(), learner.loss, eta, learner.leading)
        mix_floor(state)


@inner_kernel
def settle(state: State, at: int) -> None:
    """Add the losses of the list that has waited the longest."""
    for j in range(state.rankings.shape[1]):
        loss = (1.0 - state.clicks[at, j]) / state.propensities[at, j]
        state.loss[state.rankings[at, j], j] += round(UNITS * loss) if state.fixed_point else loss
    state.settled[0] += 1


@inner_kernel
def absent(state: State) -> bool:
    """Whether there is a newcomer that has not arrived yet."""
    return state.newcomer >= 0 and state.decided[0] < state.arrival


@inner_kernel
def copy_losses(state: State, into: Floats) -> None:
    """Copy the losses of all items that can be shown, out of fixed point."""
    unit = 1.0 / UNITS if state.fixed_point else 1.0
    without = state.newcomer if absent(state) else -1
    for i in range(into.shape[0]):
        row = i + 1 if 0 <= without <= i else i
        for j in range(into.shape[1]):
            into[i, j] = state.loss[row, j] * unit


@inner_kernel
def start_at_median(state: State) -> None:
    """Set the losses of the newcomer to the median of the others at each position."""
    n, m = state.loss.shape
    column = state.column
    for j in range(m):
        count = 0
        for i in range(n):
            if i != state.newcomer:
                k = count
                while k > 0 and column[k - 1] > state.loss[i, j]:
                    column[k] = column[k - 1]
                    k -= 1
                column[k] = state.loss[i, j]
                count += 1
        state.loss[state.newcomer, j] = column[(count - 1) // 2]


@kernel
def mix_floor(state: State) -> None:
    """Mix uniform lists and the page's own order into the leader's marginals, and prepare to draw from the mixture."""
    n, m = state.marginals.shape
    alone = absent(state)
    x = state.learner_before_arrival.leading.marginals if alone else state.learner.leading.marginals
    there = n - 1 if alone else n
    for i in range(n):
        row = i - 1 if alone and i > state.newcomer else i
        for j in range(m):
            if alone and i == state.newcomer:
                state.marginals[i, j] = 0.0
            else:
                state.marginals[i, j] = (1.0 - state.floor) * x[row, j] + state.floor / there
    share = (1.0 - state.floor) * baseline_share(state.settled[0], state.baseline_rounds)
    for j in range(state.baseline.size):
        for i in range(n):
            state.marginals[i, j] -= share * x[i, j]
        state.marginals[state.baseline[j], j] += share
    prepare(state.marginals, state.urn)
