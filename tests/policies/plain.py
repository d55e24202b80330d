"""Correct policies in plain Python, as another package would define them, and tools for tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bothworlds.core import Decision, Shape, check_shape
from bothworlds.policies import Policy
from bothworlds.policies.base import checked_feedback


class ItemCounts(NamedTuple):
    """Impressions and clicks of every item."""

    shape: Shape
    shown: np.ndarray
    clicked: np.ndarray


@dataclass(frozen=True)
class EpsilonGreedy(Policy):
    """Mostly the items with the highest click rates so far, now and then a uniformly random list.

    Items with equal rates are put in random order, so an item is at position j of the greedy list with probability
    1/k if j is among the k ranks that it and its equals share, and never otherwise. That makes propensities exact.
    """

    epsilon: float = 0.2

    def init(self, n_items, n_positions):
        shape = check_shape(n_items, n_positions)
        return ItemCounts(shape, np.zeros(shape.n_items), np.zeros(shape.n_items))

    def decide(self, state, rng):
        n, m = state.shape
        rates = (state.clicked + 1.0) / (state.shown + 2.0)
        greedy = np.lexsort((rng.random(n), -rates))
        ranking = rng.permutation(n)[:m] if rng.random() < self.epsilon else greedy[:m]
        equals = (rates[:, None] == rates).sum(axis=0)
        at_home = rates[ranking] == rates[greedy[:m]]
        return Decision(ranking, self.epsilon / n + (1.0 - self.epsilon) * at_home / equals[ranking])

    def learn(self, state, decision, clicks):
        ranking, _, seen = checked_feedback(state.shape, decision, clicks, False)
        state.shown[ranking] += 1.0
        state.clicked[ranking] += seen
        return state


class Skipping(EpsilonGreedy):
    """The same, and it does not learn from positions with a pinned item."""

    def learn(self, state, decision, clicks):
        ranking, _, seen = checked_feedback(state.shape, decision, clicks, False)
        learned = np.ones(len(ranking), bool) if decision.learned is None else decision.learned
        state.shown[ranking[learned]] += 1.0
        state.clicked[ranking[learned]] += seen[learned]
        return state


class Divisible(Skipping):
    """The same, and its items can be changed, excluded and pinned."""

    learned_leaves: ClassVar = {"shown": "i", "clicked": "i"}


class ListInWork(NamedTuple):
    """The same counts, and an array to work in."""

    shape: Shape
    shown: np.ndarray
    clicked: np.ndarray
    work: np.ndarray


class NotesTheList(EpsilonGreedy):
    """The same, and it writes every list into the last array of its state, which is in a field ``work``."""

    state: ClassVar = ListInWork

    def init(self, n_items, n_positions):
        return self.state(*super().init(n_items, n_positions), np.zeros(n_positions, np.int64))

    def decide(self, state, rng):
        decision = super().decide(state, rng)
        state[-1][:] = decision.ranking
        return decision


@dataclass(frozen=True)
class FixedList(Policy):
    """Always the same list: the first items, or the given ones."""

    items: tuple[int, ...] = ()

    adaptive = False

    def init(self, n_items, n_positions):
        return check_shape(n_items, n_positions)

    def decide(self, state, rng):
        ranking = np.array(self.items) if self.items else np.arange(state.n_positions)
        return Decision(ranking, np.ones(state.n_positions))

    def learn(self, state, decision, clicks):
        return state


@dataclass(frozen=True)
class Interpreted(Policy):
    """Another policy behind plain Python methods, so that ``play`` cannot use its kernels."""

    inner: Any

    def init(self, n_items, n_positions):
        return self.inner.init(n_items, n_positions)

    def decide(self, state, rng):
        return self.inner.decide(state, rng)

    def learn(self, state, decision, clicks):
        return self.inner.learn(state, decision, clicks)


@dataclass(frozen=True)
class Diary(Interpreted):
    """Another policy that records every decision and the clicks on it; for one job at a time."""

    rankings: list = field(default_factory=list)
    clicks: list = field(default_factory=list)

    def learn(self, state, decision, clicks):
        self.rankings.append(np.array(decision.ranking))
        self.clicks.append(np.array(clicks))
        return self.inner.learn(state, decision, clicks)


@dataclass(frozen=True)
class Patient(EpsilonGreedy):
    """Explores for the first tenth of the rounds, and so requires the horizon."""

    horizon: int | None = None

    def decide(self, state, rng):
        if state.shown.sum() < 0.1 * self.horizon * state.shape.n_positions:
            n, m = state.shape
            return Decision(rng.permutation(n)[:m], np.full(m, 1.0 / n))
        return super().decide(state, rng)


class Stranger:
    """A policy that is not a subclass of ``Policy``: three methods, and a dictionary as its state."""

    def init(self, n_items, n_positions):
        check_shape(n_items, n_positions)
        return {"n": n_items, "m": n_positions, "shown": [0] * n_items, "clicked": [0.0] * n_items}

    def decide(self, state, rng):
        order = rng.permutation(state["n"]).tolist()
        if rng.random() < 0.8:
            order.sort(key=lambda i: -(state["clicked"][i] + 1) / (state["shown"][i] + 2))
        return Decision(np.array(order[: state["m"]]), np.full(state["m"], np.nan))

    def learn(self, state, decision, clicks):
        ranking, _, seen = checked_feedback(Shape(state["n"], state["m"]), decision, clicks, False)
        for i, click in zip(ranking.tolist(), seen.tolist()):
            state["shown"][i] += 1
            state["clicked"][i] += click
        return state


def called(thing):
    """What to call a policy or a world in the name of a test: the same in every process."""
    if isinstance(thing, str):
        return thing
    return getattr(thing, "label", "") or getattr(thing, "name", "") or type(thing).__name__
