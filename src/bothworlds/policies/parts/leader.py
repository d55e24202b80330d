"""What policies that follow a leader share: their state, and how it decides and learns.

Such a policy is a *rule*: what a round adds to the losses, which leader follows from them, and how an epoch begins. The
rule is a NamedTuple of the policy's settings and of whatever else it learns; its class selects the three functions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from ...core import Shape, decides, learns
from ...geometry.item_rows import fill_rows, worth_sharing
from ...geometry.leader_state import Leading, check_leader, is_due, make_leading, ready, separate, show
from ...kernels import Floats, Ints, inner_kernel, kernel, register_kernels
from .epochs import LEAVES as EPOCHS_LEAVES
from .epochs import Epochs, new_epoch
from .settings import Restarting, number, whole

C = TypeVar("C", bound=type)


class State(NamedTuple):
    shape: Shape
    rule: Any
    loss: Floats  # (n_items, n_positions) cumulative loss estimates
    epochs: Epochs
    leading: Leading


def observe(rule: Any, state: State, ranking: Ints, propensity: Floats, clicks: Floats, absent: Ints) -> None:
    """Add the estimated losses of a round to ``state.loss``.

    Positions with ``ranking[j] < 0`` are not learned from. The items in ``absent`` could not be shown; each is charged
    the loss observed at every position that is learned from: the rule for specialists of Freund, Schapire, Singer and
    Warmuth (1997). Without it, an item would gain by its absence, while others pay, and come to look best.
    """
    _OBSERVE[type(rule)](rule, state, ranking, propensity, clicks, absent)


def solve(rule: Any, state: State) -> None:
    """Compute the leader of the next round."""
    _SOLVE[type(rule)](rule, state)


def begin(rule: Any, state: State) -> None:
    """Forget everything: the leader is uniform."""
    _BEGIN[type(rule)](rule, state)


_OBSERVE: dict[type, Callable[..., Any]] = {}
_SOLVE: dict[type, Callable[..., Any]] = {}
_BEGIN: dict[type, Callable[..., Any]] = {}
register_kernels(observe, _OBSERVE)
register_kernels(solve, _SOLVE)
register_kernels(begin, _BEGIN)


def leader_rule(observe: Callable[..., None], solve: Callable[..., None], begin: Callable[..., None]) -> Any:
    """Return a decorator that registers the three functions of a rule for its class."""

    def register(rule_class: C) -> C:
        _OBSERVE[rule_class], _SOLVE[rule_class], _BEGIN[rule_class] = kernel(observe), kernel(solve), kernel(begin)
        return rule_class

    return register


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    show(state.leading, rng, ranking, propensity)


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats, note: Floats, absent: Ints) -> None:
    observe(state.rule, state, ranking, propensity, clicks, absent)
    if new_epoch(state.epochs):
        begin(state.rule, state)
    elif is_due(state.leading, state.epochs.rounds[0]):
        solve(state.rule, state)
    else:
        return
    ready(state.leading)


def weigh(rule: Any, state: State, ranking: Ints, propensity: Floats, clicks: Floats, absent: Ints) -> None:
    """Add the loss of every position to the item that was shown there, divided by the probability that it was."""
    add_weighted(state, 1.0, ranking, propensity, clicks, absent)


@inner_kernel
def add_weighted(state: State, rate: float, ranking: Ints, propensity: Floats, clicks: Floats, absent: Ints) -> None:
    """Add ``rate`` times the loss of every position as in ``weigh``, for rules that are not about predicted losses."""
    for j in range(ranking.size):
        if ranking[j] >= 0 and clicks[j] < 1.0:
            separate(state.leading, ranking[j])
            state.loss[ranking[j], j] += rate * (1.0 - clicks[j]) / propensity[j]
            for i in absent:
                separate(state.leading, i)
                state.loss[i, j] += rate * (1.0 - clicks[j])


@dataclass(frozen=True, kw_only=True)
class Leader(Restarting):
    """A policy that follows a leader.

    Parameters
    ----------
    tolerance
        The largest violation of the optimality conditions before the point is made feasible.
    every
        Number of rounds from one leader to the next. In between, lists are drawn from the last leader and estimates are
        divided by its probabilities, so they stay unbiased. Its cost in regret: docs/research/performance.md.
    """

    tolerance: float = number(1e-6, 1e-12, 0.1)
    every: int = whole(1, 1, 10**9)

    needs_propensity: ClassVar[bool] = True
    learned_leaves: ClassVar[Mapping[str, str] | None] = {"loss": "ij median", **EPOCHS_LEAVES}
    may_share: ClassVar[bool] = False  # items share a row until they have losses; ``observe`` must ``separate`` them

    @abstractmethod
    def rule(self, shape: Shape) -> Any:
        """Return the rule of the policy, an instance of a class with ``leader_rule``."""

    def start(self, shape: Shape, sharing: bool | None = None) -> State:
        """Return the initial state; ``sharing`` is whether items share a row until they have losses."""
        if sharing is None:
            sharing = self.may_share and worth_sharing(shape.n_items)
        leading = make_leading(*shape, self.tolerance, every=self.every, sharing=sharing)
        state = State(shape, self.rule(shape), np.zeros(shape), self.epochs(), leading)
        begin_from_python(state)
        return state

    def refreshed(self, state: State) -> State:
        """Return the state with the leader of its losses, computed without a starting point.

        Raises ConvergenceError if it is not found.
        """
        if state.leading.sharing:
            fill_rows(state.leading.rows, np.asarray((state.loss != 0.0).any(axis=1)))
        state.leading.cold[0] = 1
        solve_from_python(state)
        check_leader(state.loss, state.leading)
        return state


@kernel
def begin_from_python(state: State) -> None:
    begin(state.rule, state)


@kernel
def solve_from_python(state: State) -> None:
    solve(state.rule, state)
    ready(state.leading)
