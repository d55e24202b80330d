"""FTRL-PBM as a service runs it: late feedback, a stale leader, a floor under probabilities, losses in fixed point."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import Shape, decides, learns
from ..geometry.leader_state import Leading, lead, lead_afresh, make_leading, reset, show
from ..geometry.regularizers import Tsallis
from ..geometry.sampling import Urn, make_urn, prepare
from ..kernels import Floats, Ints, inner_kernel, kernel
from ..policies import CompiledPolicy
from ..policies.parts.settings import choice, number, whole

__all__ = ["ServedFtrl"]

RATE, TOLERANCE, ONE = 0.5, 1e-6, 2.0**20


class State(NamedTuple):
    shape: Shape
    refresh: int
    floor: float
    fixed_point: bool
    median_start: bool
    clock: Ints  # (4,) rounds decided, rounds settled, settled when the leader was found, round in which an item comes
    newcomer: int  # that item, or -1
    pages: Ints  # (delay + 1, m) that wait for their clicks
    chances: Floats  # (delay + 1, m)
    clicks: Floats  # (delay + 1, m)
    loss: Floats  # (n, m), in units of 2^-20 if in fixed point
    estimate: Floats  # (n, m) losses as the leader sees them
    leading: Leading
    early_loss: Floats  # (n - 1, m) without the newcomer
    early: Leading
    marginals: Floats  # (n, m) that lists are drawn with
    urn: Urn
    column: Floats  # (n,) room to sort in


@dataclass(frozen=True)
class ServedFtrl(CompiledPolicy):
    """FTRL-PBM as a service runs it; with the first values of all settings it is FTRL-PBM itself.

    Feedback on a page comes ``delay`` rounds later. The leader is found anew after every ``refresh`` settled rounds. A
    share ``floor`` of uniform lists is mixed in. Item ``newcomer``, if any, is not there before round ``arrives``, and
    then starts with losses of zero or with the ``"median"`` of the others.
    """

    refresh: int = 1
    delay: int = 0
    floor: float = 0.0
    fixed_point: bool = False
    newcomer: int | None = None
    arrives: int = 0
    start_at: str = "median"

    needs_propensity: ClassVar[bool] = True

    def __post_init__(self) -> None:
        whole(self, "refresh", 1)
        whole(self, "delay", 0)
        number(self, "floor", above=0.0, below=1.0, closed="[]")
        whole(self, "newcomer", 0, optional=True)
        whole(self, "arrives", 0)
        choice(self, "start_at", ("zero", "median"))

    @property
    def label(self) -> str:
        said = super().label
        return said.replace("ServedFtrl", "served ftrl-pbm")

    def relabelled(self, labels: NDArray[np.int64]) -> ServedFtrl:
        """The same newcomer, under its other name."""
        return self if self.newcomer is None else replace(self, newcomer=int(np.argsort(labels)[self.newcomer]))

    def start(self, shape: Shape) -> State:
        n, m = shape
        alone = self.newcomer is not None and self.arrives > 0
        state = State(
            shape=shape,
            refresh=int(self.refresh),
            floor=float(self.floor),
            fixed_point=bool(self.fixed_point),
            median_start=self.start_at == "median",
            clock=np.array([0, 0, 0, self.arrives if alone else 0]),
            newcomer=self.newcomer if alone and self.newcomer is not None else -1,
            pages=np.zeros((self.delay + 1, m), np.int64),
            chances=np.ones((self.delay + 1, m)),
            clicks=np.zeros((self.delay + 1, m)),
            loss=np.zeros(shape),
            estimate=np.zeros(shape),
            leading=make_leading(n, m, TOLERANCE),
            early_loss=np.zeros((n - 1, m)),
            early=make_leading(n - 1, min(m, n - 1), TOLERANCE),
            marginals=np.zeros(shape),
            urn=make_urn(n, m),
            column=np.zeros(n),
        )
        reset(Tsallis(), RATE, state.leading)
        reset(Tsallis(), RATE, state.early)
        mix(state)
        return state


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    show(state, rng, ranking, propensity)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    clock, room = state.clock, state.pages.shape[0]
    at = clock[0] % room
    for j in range(ranking.size):
        state.pages[at, j], state.chances[at, j], state.clicks[at, j] = ranking[j], propensity[j], clicks[j]
    clock[0] += 1
    if clock[0] >= room:
        settle(state, clock[0] % room)
    arrived = state.newcomer >= 0 and clock[0] == clock[3]
    if arrived and state.median_start:
        start_at_median(state)
    if arrived or clock[1] - clock[2] >= state.refresh:
        clock[2] = clock[1]
        rescale(state)
        eta = RATE / math.sqrt(clock[1] + 1.0)
        if arrived:
            lead_afresh(Tsallis(), state.estimate, eta, state.leading)
        elif absent(state):
            leave_out(state)
            lead(Tsallis(), state.early_loss, eta, state.early)
        else:
            lead(Tsallis(), state.estimate, eta, state.leading)
        mix(state)


@inner_kernel
def settle(state: State, at: int) -> None:
    """Learn from the page that has waited the longest."""
    for j in range(state.pages.shape[1]):
        missing = (1.0 - state.clicks[at, j]) / state.chances[at, j]
        state.loss[state.pages[at, j], j] += round(ONE * missing) if state.fixed_point else missing
    state.clock[1] += 1


@inner_kernel
def absent(state: State) -> bool:
    return state.newcomer >= 0 and state.clock[0] < state.clock[3]


@inner_kernel
def rescale(state: State) -> None:
    unit = 1.0 / ONE if state.fixed_point else 1.0
    for i in range(state.loss.shape[0]):
        for j in range(state.loss.shape[1]):
            state.estimate[i, j] = state.loss[i, j] * unit


@inner_kernel
def leave_out(state: State) -> None:
    """The losses of all but the newcomer."""
    for i in range(state.early_loss.shape[0]):
        row = i if i < state.newcomer else i + 1
        for j in range(state.early_loss.shape[1]):
            state.early_loss[i, j] = state.estimate[row, j]


@inner_kernel
def start_at_median(state: State) -> None:
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
def mix(state: State) -> None:
    """Mix uniform lists in, and get ready to draw."""
    n, m = state.marginals.shape
    alone = absent(state)
    x = state.early.marginals if alone else state.leading.marginals
    there = n - 1 if alone else n
    for i in range(n):
        row = i - 1 if alone and i > state.newcomer else i
        for j in range(m):
            if alone and i == state.newcomer:
                state.marginals[i, j] = 0.0
            else:
                state.marginals[i, j] = (1.0 - state.floor) * x[row, j] + state.floor / there
    prepare(state.marginals, state.urn)
