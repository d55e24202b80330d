"""The World base class, and worlds built from numbers or from other worlds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import item_indices, probabilities, whole
from .best_list import BestList

if TYPE_CHECKING:
    from .attack_kernels import AttackState
    from .attacks import PlainAttack


class World(ABC):
    """Simulated users. Rounds count from t = 0; clicks at different positions are independent.

    Click probabilities depend on the round only, not on the lists shown before: a world may change, but it does not
    react. All methods may be called from several threads.

    A game asks three questions: ``spans``, the ranges of rounds in which nothing changes; ``first_round_like``, whether
    the users were there before; and ``users``, who click in compiled code. A subclass needs ``n_items``,
    ``n_positions`` and ``click_probabilities``, and for speed ``spans`` and ``first_round_like``. Users whose clicks
    depend on each other are a :class:`ListWorld`.

    ``n_items`` is the number of items to choose from, and ``n_positions`` that of positions to fill: attributes or
    properties. ``name`` is shown in tables and figures and may be set freely. ``recipe`` holds the registered name and
    the settings of a world that was made by name, and is None for any other world. ``has_table`` is False for a world
    that answers whole lists, and has no table of click probabilities.
    """

    n_items: int
    n_positions: int
    name: str = ""
    recipe: tuple[str, dict[str, Any]] | None = None
    has_table: bool = True

    @property
    def honest(self) -> World:
        """The users without an adversary who changes what is reported of their clicks: usually the world itself."""
        return self

    @abstractmethod
    def click_probabilities(self, t: int) -> NDArray[np.float64]:
        """(n_items, n_positions) probabilities of a click in round t."""

    def click(self, t: int, ranking: NDArray[np.int64], rng: np.random.Generator) -> ArrayLike:
        """Draw the clicks (n_positions,), 0 or 1, on a list in round t. All randomness comes from ``rng``."""
        p = self.click_probabilities(t)[ranking, np.arange(self.n_positions)]
        return (rng.random(p.size) < p).astype(np.float64)

    def expected_reward(self, t: int, ranking: NDArray[np.int64]) -> float:
        """Return the expected number of clicks on a list in round t."""
        items = item_indices(ranking, self.n_items)
        return float(self.click_probabilities(t)[items, np.arange(self.n_positions)].sum())

    def expected_rewards(self, t: int, rankings: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the expected number of clicks on each of several lists (count, n_positions) in round t."""
        return np.array([self.expected_reward(t, ranking) for ranking in rankings])

    def best_list(self, t: int) -> BestList:
        """Return the list with the largest expected number of clicks in round t, and how far it is certain."""
        from ..geometry import best_ranking  # imports the compiler

        ranking = best_ranking(self.click_probabilities(t))
        value = self.expected_reward(t, ranking)
        return BestList(ranking, value, value, "assignment")

    def users(self, t: int, labels: NDArray[np.int64] | None = None) -> Any:
        """Return the users of round t for compiled loops, with item ``labels[i]`` as item i; None in plain Python.

        The users are a NamedTuple with kernels registered by :func:`bothworlds.core.clicks` and
        :func:`bothworlds.core.expects`. Each call returns its own work arrays.
        """
        from .users import TableUsers  # imports the compiler

        table, shape = self.click_probabilities(t), (self.n_items, self.n_positions)
        if table.shape != shape:
            raise ValueError(
                f"click_probabilities must have the shape (n_items, n_positions) = {shape}; got {table.shape}"
            )
        order = np.arange(self.n_items) if labels is None else labels
        return TableUsers(np.ascontiguousarray(table[order], dtype=np.float64))

    def adversary(self, labels: NDArray[np.int64]) -> AttackState | PlainAttack | None:
        """Return the adversary before the first round, with item ``labels[i]`` as item i; None if there is none."""
        return None

    def spans(self, start: int, stop: int) -> Iterator[int]:
        """Split the rounds from ``start`` up to ``stop`` where users change: yield the end of each part.

        This default yields every round. Override it in a world that changes rarely: fewer parts are faster.
        """
        yield from range(start + 1, stop + 1)

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Yield the parts of ``spans`` with their click probabilities: (end, probabilities)."""
        for end in self.spans(start, stop):
            yield end, self.click_probabilities(start)
            start = end

    def first_round_like(self, t: int) -> int:
        """Return the first round whose users are those of round t, or t itself if this is not known."""
        return t

    def first_change(self) -> int | None:
        """The first round whose users differ from those of round 0, or None if no such round is known.

        In a game of at most that many rounds the users never change. Override it in a world that changes.
        """
        return None

    def description(self) -> dict[str, Any]:
        """What the world is, as a dictionary that JSON can hold: its name and settings, or its numbers.

        Two worlds with the same description have the same users, whatever they are called.
        :func:`bothworlds.worlds.from_description` builds the world again. It cannot do so for a world of an unknown
        class that was not made by name: that one is described by its class only.

        >>> stochastic([0.9, 0.5], [1.0]).description()
        {'kind': 'stochastic', 'attraction': [0.9, 0.5], 'examination': [1.0]}
        """
        if self.recipe is None:
            return self.numbers()
        name, settings = self.recipe
        return {"name": name, "settings": dict(settings)}

    def relabelled(self, labels: NDArray[np.int64]) -> World:
        """Return this world with its items in another order: item ``labels[i]`` becomes item i."""
        return Relabelled(self, labels)

    def numbers(self) -> dict[str, Any]:
        """The description of a world that was not made by name. Override it together with the class."""
        return {"class": f"{type(self).__module__}.{type(self).__qualname__}"}

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<{type(self).__name__}{name}: {self.n_items} items, {self.n_positions} positions>"


class Matrix(World):
    """A world with the same click probabilities in every round, in any form."""

    def __init__(self, click_probabilities: ArrayLike) -> None:
        self._probabilities = _as_probabilities(click_probabilities)
        self.n_items, self.n_positions = self._probabilities.shape

    def click_probabilities(self, t: int) -> NDArray[np.float64]:
        check_round(t)
        return self._probabilities

    def spans(self, start: int, stop: int) -> Iterator[int]:
        if start < stop:
            yield stop

    def first_round_like(self, t: int) -> int:
        return 0

    def numbers(self) -> dict[str, Any]:
        return {"kind": "matrix", "click_probabilities": self._probabilities.tolist()}


class Stochastic(Matrix):
    """The position-based model: item i at position j is clicked with probability attraction[i] * examination[j]."""

    def __init__(self, attraction: ArrayLike, examination: ArrayLike) -> None:
        self.attraction = probabilities(attraction, "attraction")
        self.examination = probabilities(examination, "examination")
        if self.examination.size > self.attraction.size:
            raise ValueError(
                f"examination must not have more positions than there are items; got {self.examination.size} "
                f"positions and {self.attraction.size} items"
            )
        super().__init__(np.outer(self.attraction, self.examination))

    def numbers(self) -> dict[str, Any]:
        return {
            "kind": "stochastic",
            "attraction": self.attraction.tolist(),
            "examination": self.examination.tolist(),
        }


class Composed(World):
    """A world whose users are those of other worlds."""

    @abstractmethod
    def at(self, t: int) -> World:
        """Return the world of round t."""

    def click_probabilities(self, t: int) -> NDArray[np.float64]:
        return self.at(t).click_probabilities(t)

    def click(self, t: int, ranking: NDArray[np.int64], rng: np.random.Generator) -> ArrayLike:
        return self.at(t).click(t, ranking, rng)

    def expected_reward(self, t: int, ranking: NDArray[np.int64]) -> float:
        return self.at(t).expected_reward(t, ranking)

    def expected_rewards(self, t: int, rankings: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.at(t).expected_rewards(t, rankings)

    def best_list(self, t: int) -> BestList:
        return self.at(t).best_list(t)


class Periodic(Composed):
    """Several worlds that alternate: each lasts ``phase`` rounds, and after the last comes the first again.

    Either all of them answer whole lists, or none.
    """

    def __init__(self, worlds: Sequence[World], phase: int) -> None:
        self.worlds = tuple(worlds) if isinstance(worlds, Sequence) else ()
        if not self.worlds or not all(isinstance(world, World) for world in self.worlds):
            raise ValueError(f"worlds must be at least one world; got {worlds!r}")
        shapes = {(world.n_items, world.n_positions) for world in self.worlds}
        if len(shapes) > 1:
            raise ValueError(f"worlds must have one shape; got {sorted(shapes)}")
        if len({world.has_table for world in self.worlds}) > 1:
            raise ValueError("worlds whose clicks depend on the list cannot alternate with others")
        self.phase, self.has_table = whole(phase, "phase", 1), self.worlds[0].has_table
        self.n_items, self.n_positions = self.worlds[0].n_items, self.worlds[0].n_positions

    def at(self, t: int) -> World:
        """Return the world of round t; raises ValueError for a negative round."""
        check_round(t)
        return self.worlds[t // self.phase % len(self.worlds)]

    def users(self, t: int, labels: NDArray[np.int64] | None = None) -> Any:
        """Return the users of round t; None if one of the worlds is in plain Python."""
        if self.has_table:
            return self.at(t).users(t, labels)
        everywhere = [world.users(t, labels) for world in self.worlds]
        return None if any(users is None for users in everywhere) else everywhere[self.worlds.index(self.at(t))]

    def spans(self, start: int, stop: int) -> Iterator[int]:
        while start < stop:
            end = min(stop, (start // self.phase + 1) * self.phase)
            yield from self.at(start).spans(start, end)
            start = end

    def first_round_like(self, t: int) -> int:
        """Return the first round of the world of round t if its users are those of round t, and otherwise t."""
        world = self.at(t)
        first = self.worlds.index(world) * self.phase
        return first if world.first_round_like(first) == world.first_round_like(t) else t

    def first_change(self) -> int | None:
        """The first round whose users differ from those of round 0; None if there is none in a period.

        Worlds that answer whole lists are compared as objects.
        """
        if self.has_table:
            return first_difference(self, self.phase * len(self.worlds))
        ends = self.spans(0, self.phase * len(self.worlds))
        return next((t for t in (0, *ends) if self.first_round_like(t) != self.first_round_like(0)), None)

    def numbers(self) -> dict[str, Any]:
        return {"kind": "periodic", "phase": self.phase, "worlds": [world.description() for world in self.worlds]}


class Wrapped(Composed):
    """A world around another one, ``world``, whose users it has where a subclass does not say otherwise."""

    def __init__(self, world: World) -> None:
        self.world, self.name, self.has_table = world, world.name, world.has_table
        self.n_items, self.n_positions = world.n_items, world.n_positions

    def at(self, t: int) -> World:
        return self.world

    def users(self, t: int, labels: NDArray[np.int64] | None = None) -> Any:
        return self.world.users(t, labels)

    def spans(self, start: int, stop: int) -> Iterator[int]:
        return self.world.spans(start, stop)

    def first_round_like(self, t: int) -> int:
        return self.world.first_round_like(t)

    def first_change(self) -> int | None:
        return self.world.first_change()


class Relabelled(Wrapped):
    """A world with its items in another order: item ``labels[i]`` of the given world is item i here."""

    def __init__(self, world: World, labels: NDArray[np.int64]) -> None:
        super().__init__(world)
        self._labels = np.array(labels)

    def click_probabilities(self, t: int) -> NDArray[np.float64]:
        return self.world.click_probabilities(t)[self._labels]

    def click(self, t: int, ranking: NDArray[np.int64], rng: np.random.Generator) -> ArrayLike:
        return self.world.click(t, self._labels[ranking], rng)

    def expected_reward(self, t: int, ranking: NDArray[np.int64]) -> float:
        return self.world.expected_reward(t, self._labels[ranking])

    def expected_rewards(self, t: int, rankings: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.world.expected_rewards(t, self._labels[rankings])

    def best_list(self, t: int) -> BestList:
        best = self.world.best_list(t)
        return best._replace(ranking=np.argsort(self._labels)[best.ranking])

    def users(self, t: int, labels: NDArray[np.int64] | None = None) -> Any:
        return self.world.users(t, self._labels if labels is None else self._labels[labels])

    def numbers(self) -> dict[str, Any]:
        return {"kind": "relabelled", "labels": self._labels.tolist(), "world": self.world.description()}


def stochastic(attraction: ArrayLike, examination: ArrayLike) -> Stochastic:
    """Build a world that never changes and follows the position-based model.

    >>> stochastic([0.9, 0.5, 0.1], [1.0, 0.5]).click_probabilities(0)
    array([[0.9 , 0.45],
           [0.5 , 0.25],
           [0.1 , 0.05]])
    """
    return Stochastic(attraction, examination)


def matrix(click_probabilities: ArrayLike) -> Matrix:
    """Build a world that never changes, with click probabilities (n_items, n_positions) in any form."""
    return Matrix(click_probabilities)


def periodic(worlds: Sequence[World], phase: int) -> Periodic:
    """Build a world in which the given worlds alternate, ``phase`` rounds each.

    Either all of them or none answer a whole list; otherwise raises ValueError.

    >>> summer, winter = stochastic([0.9, 0.1], [1.0]), stochastic([0.1, 0.9], [1.0])
    >>> year = periodic([summer, winter], phase=10)
    >>> [float(year.click_probabilities(t)[0, 0]) for t in (0, 9, 10, 19, 20)]
    [0.9, 0.9, 0.1, 0.1, 0.9]
    """
    return Periodic(worlds, phase)


def first_difference(world: World, stop: int) -> int | None:
    """Return the first round before ``stop`` whose click probabilities differ from those of round 0, or None."""
    first, begin = np.array(world.click_probabilities(0)), 0  # a copy: a world may reuse its array
    for end, table in world.pieces(0, stop):
        if not np.array_equal(first, table):
            return begin
        begin = end
    return None


def examination_of(world: World) -> tuple[float, ...] | None:
    """Return the examination of every position in round 0; None for a world without attraction and examination.

    >>> examination_of(stochastic([0.9, 0.5, 0.1], [1.0, 0.5]))
    (1.0, 0.5)
    """
    first = world.worlds[0] if isinstance(world, Periodic) else world.honest
    examination = getattr(first, "examination", None)
    return None if examination is None else tuple(float(probability) for probability in examination)


def check_round(t: int) -> None:
    """Raise ValueError for a negative round."""
    if t < 0:
        raise ValueError(f"t must not be negative; got {t}")


def _as_probabilities(value: ArrayLike) -> NDArray[np.float64]:
    table = probabilities(value, "click_probabilities", 2)
    if not 1 <= table.shape[1] <= table.shape[0]:
        raise ValueError(
            "click_probabilities must be items by positions, with at least one position and as many items; "
            f"got shape {table.shape}"
        )
    return table
