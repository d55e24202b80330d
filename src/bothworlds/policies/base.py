"""The interface of policies, and the validation of feedback."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import (
    NO_CONTEXT,
    NO_NOTE,
    Decision,
    Labels,
    Shape,
    check_shape,
    copy_state,
    decide,
    is_compiled,
    learn,
    note,
)
from ..worlds import examination_of

P = TypeVar("P")


class Policy(ABC):
    """Decides which item goes to which position, and learns from the clicks.

    A policy is immutable: it consists of its settings and is usually a frozen dataclass. What it has learned is a
    *state*, owned by the caller; a NamedTuple of arrays can also be saved. ``learn`` updates the state in place and
    returns it.

    A policy that requires the number of rounds has a setting ``horizon``; ``play`` fills it in when it is None. Other
    facts about the world or the page that a policy requires are listed in ``needs``.
    """

    name: ClassVar[str] = ""
    adaptive: ClassVar[bool] = True  # False for a policy that does not learn
    patience: ClassVar[int] = 400  # rounds after which it beats random lists in a world with clearly different items
    learns_labels: ClassVar[bool] = False  # whether ``init`` takes declared labels, and ``decide`` a context
    needs: ClassVar[tuple[str, ...]] = ()  # what it requires: horizon, examination, order of positions, world
    exclusive: ClassVar[tuple[str, ...]] = ()  # settings of which one at most may differ from its default
    learned_leaves: ClassVar[Mapping[str, str] | None] = None  # what ``pages.resized`` copies; None: it has no parts

    def __post_init__(self) -> None:
        """Check the settings of a dataclass that are declared with ``parts.settings``; raises ValueError."""
        for field in self._fields():
            if "check" in field.metadata:
                object.__setattr__(self, field.name, field.metadata["check"](field.name, getattr(self, field.name)))
        given = [f.name for f in self._fields() if f.name in self.exclusive and getattr(self, f.name) != f.default]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other; give one of them")

    @abstractmethod
    def init(self, n_items: int, n_positions: int) -> Any:
        """Return the initial state; raises ValueError for an impossible shape."""

    @abstractmethod
    def decide(self, state: Any, rng: np.random.Generator) -> Decision:
        """Return a ranking with its propensities. The state is not changed."""

    @abstractmethod
    def learn(self, state: Any, decision: Decision, clicks: ArrayLike) -> Any:
        """Learn from the clicks (n_positions,) on a decision; updates the state in place and returns it.

        Clicks are 0 or 1, or rewards in between. Raises ValueError for feedback that does not fit the state, which is
        then not changed.
        """

    def note_size(self, shape: Shape) -> int:
        """Return how many numbers the policy remembers of a draw; most policies remember none."""
        return 0

    def note_of_part(
        self, state: Any, ranking: Any, positions: Any, n_positions: int, context: ArrayLike = NO_CONTEXT
    ) -> NDArray[np.float64]:
        """Return the note of a list that was drawn from the state of a part with these positions of the page."""
        return NO_NOTE

    def refreshed(self, state: Any) -> Any:
        """Return the state after its learned leaves were set: what follows from them is computed again."""
        return state

    def runs_compiled(self, state: Any) -> bool:
        """Whether compiled loops may decide and learn with this state instead of calling the policy's methods."""
        return False

    def relabelled(self, labels: NDArray[np.int64]) -> Policy:
        """Return the policy for the same items in another order: item ``labels[i]`` becomes item i.

        Returns the policy itself unless its settings refer to items.
        """
        return self

    def marginals(self, state: Any) -> NDArray[np.float64] | None:
        """Return the probability of each item at each position in the next decision, or None if it is not known.

        The result has the shape (n_items, n_positions). Policies that follow a leader draw from it, so they know it.
        """
        leading = getattr(state, "leading", None)
        by_item = getattr(leading, "by_item", None)
        return getattr(leading, "marginals", None) if by_item is None else by_item()

    def sample_rankings(self, state: Any, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return several rankings (count, n_positions) to choose from at random: so many decisions from one state.

        The service draws from such a mixture, because it knows the marginals of it. A policy whose decisions from one
        state are much alike, because they continue the same Markov chain, may return rankings that differ more.
        """
        return np.array([self.decide(state, rng).ranking for _ in range(count)])

    def part(self, items: NDArray[np.int64], positions: NDArray[np.int64]) -> Policy:
        """Return the policy for a subset: item ``items[i]`` becomes item i, position ``positions[j]`` position j.

        Returns the policy itself unless its settings refer to items or positions.
        """
        return self

    @property
    def label(self) -> str:
        """The name, with the settings that differ from their defaults.

        >>> import bothworlds
        >>> bothworlds.policy("ftrl-pbm", rate=0.25).label
        'ftrl-pbm(rate=0.25)'
        """
        defaults = {field.name: field.default for field in self._fields()}
        changed = [f"{key}={value!r}" for key, value in self.settings().items() if value != defaults.get(key)]
        name = self.name or type(self).__name__
        return f"{name}({', '.join(changed)})" if changed else name

    def settings(self) -> dict[str, Any]:
        """The settings by name."""
        return {field.name: getattr(self, field.name) for field in self._fields()}

    def _fields(self) -> list[dataclasses.Field[Any]]:
        policy: Any = self  # a policy need not be a dataclass
        return [field for field in dataclasses.fields(policy) if field.init] if dataclasses.is_dataclass(policy) else []


class CompiledPolicy(Policy):
    """A policy whose state is a NamedTuple with two kernels registered for its class.

    The first field of the state is ``shape``, a :class:`~bothworlds.core.Shape`. Arrays whose contents carry nothing
    from one call to the next are in a field ``work``, of the state or of a part of it; ``decide`` writes to no others,
    and they are not saved. The same kernels run in the compiled loop of ``play`` and in ``decide`` and ``learn`` of
    this class.
    """

    needs_propensity: ClassVar[bool] = False

    def init(self, n_items: int, n_positions: int, labels: Labels | None = None) -> Any:
        """Return the initial state; raises ValueError for an impossible shape, or labels that it does not learn."""
        check_needs(self)
        shape = check_shape(n_items, n_positions)
        return copy_state(self.start(shape) if labels is None else self.start_with(shape, labels))

    @abstractmethod
    def start(self, shape: Shape) -> Any:
        """Return the initial state for a valid shape."""

    def start_with(self, shape: Shape, labels: Labels) -> Any:
        """Return the initial state for declared labels; raises ValueError if the policy does not learn them."""
        raise ValueError(f"{self.label} does not learn labels; context-ts and all-weather do")

    def decide(self, state: Any, rng: np.random.Generator, context: ArrayLike = NO_CONTEXT) -> Decision:
        """Return a ranking with its propensities, for a visitor with this context. The state is not changed.

        A context is a row of values of the labels of the state; without one, all of them are 0.
        """
        if not isinstance(rng, np.random.Generator):
            raise ValueError(f"rng must be a numpy.random.Generator; got {rng!r}")
        m, size = state.shape.n_positions, self.note_size(state.shape)
        row = checked_context(state, context)
        decision = Decision(np.empty(m, np.int64), np.empty(m), np.empty(size) if size else NO_NOTE, context=row)
        decide(state, rng, decision.ranking, decision.propensity, row)
        if size:
            note(state, decision.ranking, decision.note)
        return decision

    def learn(self, state: Any, decision: Decision, clicks: ArrayLike) -> Any:
        ranking, propensity, rewards = checked_feedback(state.shape, decision, clicks, self.needs_propensity)
        noted, absent, learned = np.ascontiguousarray(decision.note, np.float64), decision.absent, decision.learned
        if absent.size or learned is not None:
            if self.learned_leaves is None:
                raise ValueError(f"{self.label} cannot learn from a list with items that are absent or pinned")
            absent = np.ascontiguousarray(absent, np.int64)
            if absent.size and not 0 <= absent.min() <= absent.max() < state.shape.n_items:
                raise ValueError(f"decision.absent must be items from 0 to {state.shape.n_items - 1}; got {absent}")
            if learned is not None:
                if not np.any(learned):
                    return state
                ranking = np.where(learned, ranking, -1)
            if not set(ranking.tolist()).isdisjoint(absent.tolist()):
                raise ValueError(f"decision.absent has items that were shown; got {absent} for {decision.ranking}")
        elif noted.size not in (0, self.note_size(state.shape)):
            raise ValueError(f"decision.note must have {self.note_size(state.shape)} entries; got {noted.size}")
        learn(state, ranking, propensity, rewards, noted, absent, checked_context(state, decision.context))
        return state

    def runs_compiled(self, state: Any) -> bool:
        """Whether compiled loops may decide and learn with this state: not if a subclass overrides these methods."""
        inherited = type(self).decide is CompiledPolicy.decide and type(self).learn is CompiledPolicy.learn
        return inherited and is_compiled(state)


def configured_for(policy: P, rounds: int, world: Any = None) -> P:
    """Return the policy with its settings ``horizon``, ``examination`` and ``world`` filled in where they are None.

    ``examination`` and ``world`` are filled in only if a world is given, which only a simulation can do. The policy
    itself is not changed. A policy in its setting ``policy`` is configured as well.
    """
    facts: dict[str, Callable[[], Any]] = {"horizon": lambda: rounds}
    if world is not None:
        facts |= {"examination": lambda: examination_of(world), "world": lambda: world}
    missing = {name: fact() for name, fact in facts.items() if getattr(policy, name, fact) is None}
    inner = getattr(policy, "policy", None)
    if isinstance(inner, Policy) and (configured_inner := configured_for(inner, rounds, world)) is not inner:
        missing["policy"] = configured_inner
    if not missing:
        return policy
    if dataclasses.is_dataclass(policy) and not isinstance(policy, type):
        return cast(P, dataclasses.replace(policy, **missing))
    configured = copy.copy(policy)
    for name, value in missing.items():
        setattr(configured, name, value)
    return configured


def check_needs(policy: Any) -> None:
    """Raise ValueError if a policy needs to know something that its settings leave open; a horizon may be open."""
    for need in getattr(policy, "needs", ()):
        if need != "horizon" and getattr(policy, need, ()) is None:
            instead = f"; if it is not known, use {policy.twin}" if getattr(policy, "twin", "") else ""
            name = getattr(policy, "name", "") or type(policy).__name__
            raise ValueError(f"{name} needs {need}=...{instead}")


def checked_context(state: Any, context: ArrayLike) -> NDArray[np.int64]:
    """Return a context as an array, all 0 if none is given; raises ValueError if it does not fit the state."""
    labels = getattr(getattr(state, "inner", state), "labels", None)
    values = np.zeros(0, np.int64) if labels is None else labels.visitor
    row = np.asarray(context)
    if row.size == 0:
        return np.zeros(values.size, np.int64)
    if row.shape != values.shape or row.dtype.kind not in "iu" or not ((row >= 0) & (row < values)).all():
        raise ValueError(f"context must be a value below each of {values.tolist()}; got {row.tolist()}")
    return np.ascontiguousarray(row, np.int64)


def checked_feedback(
    shape: Shape, decision: Decision, clicks: ArrayLike, needs_propensity: bool
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return ranking, propensity and clicks as arrays; raises ValueError if they do not fit the shape."""
    n, m = shape
    try:
        ranking = np.asarray(decision.ranking)
        propensity = np.ascontiguousarray(decision.propensity, dtype=np.float64)
        clicked = np.asarray(clicks, dtype=np.float64)
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"decision and clicks must be a Decision and an array of numbers from 0 to 1: {error}"
        ) from error
    if ranking.shape != (m,) or ranking.dtype.kind not in "iu":
        raise ValueError(f"decision.ranking must be {m} item indices; got {decision.ranking!r}")
    if ranking.min() < 0 or ranking.max() >= n or len(set(ranking.tolist())) < m:
        raise ValueError(f"decision.ranking must be different items from 0 to {n - 1}; got {ranking.tolist()}")
    if propensity.shape != (m,):
        raise ValueError(f"decision.propensity must have {m} entries; got shape {propensity.shape}")
    valid = (propensity > 1e-300) & (propensity <= 1.0 + 1e-9)  # smaller ones have no finite inverse
    if not (valid | (np.isnan(propensity) & (not needs_propensity))).all():
        raise ValueError(f"decision.propensity must be probabilities above 0; got {propensity.tolist()}")
    if clicked.shape != (m,):
        raise ValueError(f"clicks must have one entry for each of {m} positions; got shape {clicked.shape}")
    if not ((clicked >= 0.0) & (clicked <= 1.0)).all():
        raise ValueError(f"clicks must be 0 or 1, or rewards in between; got {clicked.tolist()}")
    return np.ascontiguousarray(ranking, dtype=np.int64), propensity, np.ascontiguousarray(clicked)
