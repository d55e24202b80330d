"""What a policy is, and the checks on what it is given."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import Decision, Ledger, Shape, check_shape, decide, is_compiled, learn
from ..worlds import examination_of

__all__ = ["CompiledPolicy", "Policy", "checked_feedback", "told"]

P = TypeVar("P")


class Policy(ABC):
    """Decides which item goes to which position, and learns from the clicks.

    A policy itself never changes: it is its settings, best written as a frozen dataclass. What it has learned is a
    *state*, owned by whoever calls it; a NamedTuple of arrays can also be saved. ``learn`` updates the state in place
    and returns it.

    A policy that must know how many rounds there will be has a setting ``horizon``; ``play`` fills it in when it is
    None. What else it must be told, of the world or of the page, is listed in ``needs``.
    """

    name: ClassVar[str] = ""
    adaptive: ClassVar[bool] = True  # False for a policy that is not meant to learn
    patience: ClassVar[int] = 400  # rounds after which it is ahead of random lists where items differ plainly
    needs: ClassVar[tuple[str, ...]] = ()  # what it must be told: horizon, examination, order of positions, world

    @abstractmethod
    def init(self, n_items: int, n_positions: int) -> Any:
        """The state before anything is known."""

    @abstractmethod
    def decide(self, state: Any, rng: np.random.Generator) -> Decision:
        """Choose a ranking. The state is left as it was."""

    @abstractmethod
    def learn(self, state: Any, decision: Decision, clicks: ArrayLike) -> Any:
        """Learn from the clicks (n_positions,) on a decision; the state is updated in place and returned."""

    def runs_compiled(self, state: Any) -> bool:
        """Whether compiled loops may decide and learn with this state in place of the policy's own methods."""
        return False

    def relabelled(self, labels: NDArray[np.int64]) -> Policy:
        """The policy for the same items listed in another order: what was item ``labels[i]`` is now item i.

        Itself, unless its settings speak of items.
        """
        return self

    def marginals(self, state: Any) -> NDArray[np.float64] | None:
        """How likely each item is at each position in the next decision, (n_items, n_positions), where that is known.

        Policies that follow a leader know it: the leader is what they draw from.
        """
        leading = getattr(state, "leading", None)
        return None if leading is None else leading.marginals

    def part(self, items: NDArray[np.int64], positions: NDArray[np.int64]) -> Policy:
        """The policy for some of the items and positions: what was item ``items[i]`` is now item i, likewise positions.

        Itself, unless its settings speak of items or positions.
        """
        return self

    def resumed(self, ledger: Ledger) -> Any:
        """The state after events of which only the sums are known; ValueError if sums do not say enough.

        A policy has this if its state does not depend on the order of events. Then feedback may be added up anywhere,
        by anybody, and the state be made anew from the sums.
        """
        raise ValueError(f"what {self.label} has learned depends on the order of events, and cannot be had from sums")

    @property
    def label(self) -> str:
        """The name, with the settings that are not the published ones.

        >>> import bothworlds
        >>> bothworlds.policy("ftrl-pbm", rate=0.25).label
        'ftrl-pbm(rate=0.25)'
        """
        defaults = {field.name: field.default for field in self._fields()}
        said = [f"{key}={value!r}" for key, value in self.settings().items() if value != defaults.get(key)]
        name = self.name or type(self).__name__
        return f"{name}({', '.join(said)})" if said else name

    def settings(self) -> dict[str, Any]:
        """The settings by name.

        >>> import bothworlds
        >>> bothworlds.policy("ftrl-pbm").settings()
        {'restart': None, 'rate': 0.5, 'tolerance': 1e-06}
        """
        return {field.name: getattr(self, field.name) for field in self._fields()}

    def _fields(self) -> list[dataclasses.Field[Any]]:
        if not dataclasses.is_dataclass(self):
            return []
        return [field for field in dataclasses.fields(self) if field.init]


class CompiledPolicy(Policy):
    """A policy whose state is a NamedTuple with two kernels registered for its class.

    The first field of the state is ``shape``, a :class:`~bothworlds.core.Shape`. The same kernels run in the compiled
    loop of ``play`` and behind the two methods here.
    """

    needs_propensity: ClassVar[bool] = False

    def init(self, n_items: int, n_positions: int) -> Any:
        """The state before anything is known."""
        return self.start(check_shape(n_items, n_positions))

    @abstractmethod
    def start(self, shape: Shape) -> Any:
        """Allocate the state for a shape that has been checked."""

    def decide(self, state: Any, rng: np.random.Generator) -> Decision:
        """Choose a ranking. The state is left as it was."""
        if not isinstance(rng, np.random.Generator):
            raise ValueError(f"rng must be a numpy.random.Generator; got {rng!r}")
        m = state.shape.n_positions
        decision = Decision(np.empty(m, np.int64), np.empty(m))
        decide(state, rng, decision.ranking, decision.propensity)
        return decision

    def learn(self, state: Any, decision: Decision, clicks: ArrayLike) -> Any:
        """Learn from the clicks (n_positions,) on a decision; the state is updated in place and returned."""
        ranking, propensity, seen = checked_feedback(state.shape, decision, clicks, self.needs_propensity)
        learn(state, ranking, propensity, seen)
        return state

    def runs_compiled(self, state: Any) -> bool:
        """Whether compiled loops may decide and learn with this state: not if a subclass has methods of its own."""
        own = type(self).decide is CompiledPolicy.decide and type(self).learn is CompiledPolicy.learn
        return own and is_compiled(state)


def told(policy: P, rounds: int, world: Any = None) -> P:
    """The policy, with those of its settings filled in that are None: ``horizon``, and what it needs of the world.

    Without a world that is left to whoever knows: examination has to be measured, and only a simulation can be told
    its own world.
    """
    facts: dict[str, Callable[[], Any]] = {"horizon": lambda: rounds}
    if world is not None:
        facts |= {"examination": lambda: examination_of(world), "world": lambda: world}
    missing = {name: fact() for name, fact in facts.items() if getattr(policy, name, fact) is None}
    if not missing:
        return policy
    if dataclasses.is_dataclass(policy) and not isinstance(policy, type):
        return cast(P, dataclasses.replace(policy, **missing))
    informed = copy.copy(policy)
    for name, value in missing.items():
        setattr(informed, name, value)
    return informed


def checked_feedback(
    shape: Shape, decision: Decision, clicks: ArrayLike, needs_propensity: bool
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Ranking, propensity and clicks as arrays, or ValueError saying what is wrong with them."""
    n, m = shape
    try:
        ranking = np.asarray(decision.ranking)
        propensity = np.ascontiguousarray(decision.propensity, dtype=np.float64)
        seen = np.asarray(clicks, dtype=np.float64)
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"decision and clicks must be a Decision and an array of 0 and 1: {error}") from error
    if ranking.shape != (m,) or ranking.dtype.kind not in "iu":
        raise ValueError(f"decision.ranking must be {m} item indices; got {decision.ranking!r}")
    if ranking.min() < 0 or ranking.max() >= n or len(set(ranking.tolist())) < m:
        raise ValueError(f"decision.ranking must be different items from 0 to {n - 1}; got {ranking.tolist()}")
    if propensity.shape != (m,):
        raise ValueError(f"decision.propensity must have {m} entries; got shape {propensity.shape}")
    valid = (propensity > 1e-300) & (propensity <= 1.0 + 1e-9)  # with an inverse
    if not (valid | (np.isnan(propensity) & (not needs_propensity))).all():
        raise ValueError(f"decision.propensity must be probabilities above 0; got {propensity.tolist()}")
    if seen.shape != (m,):
        raise ValueError(f"clicks must have one entry for each of {m} positions; got shape {seen.shape}")
    if not ((seen == 0.0) | (seen == 1.0)).all():
        raise ValueError(f"clicks must be 0 or 1; got {seen.tolist()}")
    return np.ascontiguousarray(ranking, dtype=np.int64), propensity, np.ascontiguousarray(seen)
