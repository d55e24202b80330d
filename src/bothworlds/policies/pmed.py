"""PMED: the exploration that the lower bound on regret asks for, and no more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..geometry.detours import Detours, make_detours, take_apart
from ..geometry.exploration import Planner, make_planner, plan
from ..kernels import Floats, Ints, inner_kernel
from ..statistics.chance import Stream, absorb, make_stream, uniform
from ..statistics.counts import Counts, record
from ..statistics.rank_one_newton import Workspace, make_workspace, newton
from .settings import Forgetting, number, whole

__all__ = ["Pmed"]

APART = 1e-3  # items whose attraction differs by less, in logarithms, are planned for as if it were this much
LEAST = -12.0  # logarithms of attraction and examination are planned for as if they were no less


class State(NamedTuple):
    shape: Shape
    alpha: float
    prior: float
    refit: float
    tolerance: float
    max_cuts: int
    counts: Counts
    stream: Stream
    queue: Ints  # (n m + n + 1, n_positions) lists still to be shown
    length: Ints  # (1,) how many
    queued: Ints  # (n_items, n_positions) in how many of them an item is at a position
    fit: Workspace
    order: Ints  # (n_items,) by attraction, best first
    planned: Floats  # (n_items + n_positions,) the fit that the plan was made for
    list: Ints  # (n_positions,) the list that was the best then
    plan: Detours  # the lists of the plan
    planner: Planner
    tie: Floats  # (n_items,) room to work in
    budget: Floats  # (n_items, n_positions)


@dataclass(frozen=True)
class Pmed(Forgetting):
    alpha: float = 1.0
    prior: float = 0.1
    refit: float = 0.01
    tolerance: float = 1e-5
    max_cuts: int = 100

    name = "pmed"
    needs = ("order",)

    def __post_init__(self) -> None:
        super().__post_init__()

    def start(self, shape: Shape) -> State:
        n, m = shape
        state = State(
            shape=shape,
            alpha=float(self.alpha),
            prior=float(self.prior),
            refit=float(self.refit),
            tolerance=float(self.tolerance),
            max_cuts=int(self.max_cuts),
            counts=self.counts(shape),
            stream=make_stream(n, m),
            queue=np.zeros((n * m + n + 1, m), np.int64),
            length=np.zeros(1, np.int64),
            queued=np.zeros((n, m), np.int64),
            fit=make_workspace(n, m),
            order=np.arange(n),
            planned=np.zeros(n + m),
            list=np.full(m, -1),
            plan=make_detours(n, m),
            planner=make_planner(n, m, self.max_cuts),
            tie=np.zeros(n),
            budget=np.zeros((n, m)),
        )
        for s in range(n):
            state.queue[s] = (s + np.arange(m)) % n
        state.length[0] = n
        state.queued[:] = 1
        return state


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    k = int(rng.random() * state.length[0])
    for j in range(ranking.size):
        ranking[j] = state.queue[k, j]
        propensity[j] = state.queued[ranking[j], j] / state.length[0]


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    record(state.counts, ranking, clicks)
    absorb(state.stream, ranking)
    strike_off(state, ranking)
    if state.length[0] == 0:
        t = max(state.counts.rounds[0], 1.0)
        newton(state.counts.shown, state.counts.clicked, state.prior, True, True, 1e-16, state.fit)
        rank_items(state)
        if state.list[0] < 0 or has_moved(state):
            make_plan(state)
        enqueue(state, state.order)
        if is_other(state.list, state.order):
            enqueue(state, state.list)
        explore_by_force(state, state.alpha * math.sqrt(math.log(t)))
        explore_by_plan(state, math.log(t))


@inner_kernel
def strike_off(state: State, ranking: Ints) -> None:
    """Take the list off the queue, if it is there."""
    m, last = ranking.size, state.length[0] - 1
    for k in range(last + 1):
        same = True
        for j in range(m):
            if state.queue[k, j] != ranking[j]:
                same = False
                break
        if same:
            for j in range(m):
                state.queued[ranking[j], j] -= 1
                state.queue[k, j] = state.queue[last, j]
            state.length[0] = last
            return


@inner_kernel
def enqueue(state: State, items: Ints) -> None:
    k = state.length[0]
    for j in range(state.shape.n_positions):
        state.queue[k, j] = items[j]
        state.queued[items[j], j] += 1
    state.length[0] = k + 1


@inner_kernel
def rank_items(state: State) -> None:
    """Sort the items by attraction, ties at random; they are nearly sorted, so by insertion."""
    a, order, tie = state.fit.a, state.order, state.tie
    for i in range(order.size):
        tie[i] = uniform(state.stream)
    for k in range(1, order.size):
        item, at = order[k], k
        while at > 0 and (
            a[order[at - 1]] < a[item] or (a[order[at - 1]] == a[item] and tie[order[at - 1]] < tie[item])
        ):
            order[at] = order[at - 1]
            at -= 1
        order[at] = item


@inner_kernel
def has_moved(state: State) -> bool:
    """Whether a click probability has moved by more than ``refit``, relatively, since the plan was made."""
    n, m = state.shape
    up, down = 0.0, 0.0
    for i in range(n):
        change = max(state.fit.a[i], LEAST) - state.planned[i]
        up, down = max(up, change), min(down, change)
    most = max(up, -down)
    for j in range(m):
        change = max(state.fit.b[j], LEAST) - state.planned[n + j]
        most = max(most, max(up + change, -down - change))
    return most > state.refit


@inner_kernel
def is_other(items: Ints, order: Ints) -> bool:
    for j in range(items.size):
        if items[j] != order[j]:
            return True
    return False


@inner_kernel
def make_plan(state: State) -> None:
    n, m = state.shape
    theta, kappa = state.planner.rival.log_theta, state.planner.rival.log_kappa
    for i in range(n):
        state.planned[i] = max(state.fit.a[i], LEAST)
    for j in range(m):
        state.planned[n + j] = max(state.fit.b[j], LEAST)
        state.list[j] = state.order[j]
        kappa[j] = state.planned[n + j]
    above = 0.0
    for k in range(n):
        theta[k] = min(state.planned[state.order[k]], above - APART)
        above = theta[k]
    plan(state.planner, state.tolerance, state.max_cuts)
    take_apart(state.planner.q, state.plan)
    for k in range(state.plan.count[0]):
        for j in range(m):
            state.plan.lists[k, j] = state.order[state.plan.lists[k, j]]


@inner_kernel
def explore_by_force(state: State, least: float) -> None:
    """Queue the cyclic lists with a pair that has been shown too seldom."""
    n, m = state.shape
    for s in range(n):
        short = False
        for j in range(m):
            short = short or state.counts.shown[(s + j) % n, j] < least
        if short:
            k = state.length[0]
            for j in range(m):
                state.queue[k, j] = (s + j) % n
                state.queued[(s + j) % n, j] += 1
            state.length[0] = k + 1


@inner_kernel
def explore_by_plan(state: State, log_t: float) -> None:
    """Queue the lists of the plan that are overdue and have a pair that is not in the queue."""
    n, m = state.shape
    budget, lists = state.budget, state.plan.lists
    for i in range(n):
        for j in range(m):
            budget[i, j] = state.counts.shown[i, j]
    for j in range(m):
        budget[state.list[j], j] = math.inf  # says nothing new, and is shown anyway
    for k in range(state.plan.count[0]):
        need, have, fresh = state.plan.weights[k] * log_t, math.inf, False
        for j in range(m):
            have = min(have, budget[lists[k, j], j])
            fresh = fresh or state.queued[lists[k, j], j] == 0
        if need > have and fresh:
            enqueue(state, lists[k])
        for j in range(m):
            budget[lists[k, j], j] -= min(need, have)
