"""Simulated users: named worlds and the builders they are made with.

A world from another package registers through the entry point group ``bothworlds.worlds``, or is simply passed as an
object wherever a name is accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import entry_points
from typing import Any

from ..registry import defaults_of, make, sentence_of
from . import adversarial, drift, paper
from .base import Matrix, Periodic, Relabelled, Stochastic, World, examination_of, matrix, periodic, stochastic
from .fitted import from_file
from .schedule import Changing

__all__ = [
    "Changing",
    "Matrix",
    "Periodic",
    "Relabelled",
    "Stochastic",
    "World",
    "describe",
    "examination_of",
    "matrix",
    "names",
    "periodic",
    "resolve",
    "stochastic",
    "world",
]


def names() -> list[str]:
    """The names of all worlds known here, those of other packages included.

    >>> [name for name in names() if name.startswith("paper/")]
    ['paper/periodic-both', 'paper/periodic-items', 'paper/stochastic']
    """
    return sorted(_known())


def world(name: str, **settings: Any) -> World:
    """The world of that name, with these settings; a name that ends in .json is the file of a fitted model.

    >>> world("paper/stochastic", gap=0.01)
    <Stochastic 'paper/stochastic(gap=0.01)': 10 items, 5 positions>
    """
    known = {name: partial(from_file, name)} if name.endswith(".json") else _known()
    made = make("world", known, name, settings)
    if name.endswith(".json"):
        return made
    said = ", ".join(f"{setting}={value!r}" for setting, value in settings.items())
    made.name = f"{name}({said})" if said else name
    return made


def describe(name: str) -> tuple[str, dict[str, Any]]:
    """What a named world is, in a sentence, and its settings with their defaults."""
    maker = _known()[name]
    return sentence_of(maker), defaults_of(maker)


def resolve(given: str | World) -> World:
    """A world, whether given by name or as an object."""
    if isinstance(given, str):
        return world(given)
    other: Any = given  # may be any object with the three attributes
    if isinstance(other, World):
        return other
    missing = [part for part in ("n_items", "n_positions", "click_probabilities") if not hasattr(other, part)]
    if missing or isinstance(other, type):
        raise ValueError(
            f"world must be a name or an object with n_items, n_positions and click_probabilities; got {given!r}"
        )
    return _Foreign(given)


class _Foreign(World):
    """Somebody else's world, with the three parts every world has."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self.name = str(getattr(given, "name", "") or type(given).__name__)

    @property
    def n_items(self) -> int:
        return int(self._given.n_items)

    @property
    def n_positions(self) -> int:
        return int(self._given.n_positions)

    def click_probabilities(self, t: int) -> Any:
        made = Matrix(self._given.click_probabilities(t))
        if (made.n_items, made.n_positions) != (self.n_items, self.n_positions):
            said = f"{self.n_items} items and {self.n_positions} positions"
            raise ValueError(f"click_probabilities must be for {said}; got {made.n_items} and {made.n_positions}")
        return made.click_probabilities(t)

    def first_change(self) -> int | None:
        stated = getattr(self._given, "first_change", None)
        return stated() if callable(stated) else None


@cache
def _known() -> dict[str, Callable[..., World]]:
    found: dict[str, Callable[..., World]] = {**adversarial.WORLDS, **drift.WORLDS, **paper.WORLDS}
    for entry in entry_points(group="bothworlds.worlds"):
        found[entry.name] = entry.load()
    return found
