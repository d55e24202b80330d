"""Worlds by name, worlds from their descriptions, and worlds of other packages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.metadata import entry_points
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..registry import defaults_of, make, sentence_of
from . import adversarial, attacks, contextual, dependent, drift, paper
from .attacks import Attack, Attacked
from .base import Matrix, Stochastic, World, periodic
from .click_world import ClickWorld
from .contextual import ContextualWorld
from .fitted import from_file
from .list_world import ListWorld

BUILT: dict[str, Callable[..., World]] = {
    "matrix": Matrix,
    "stochastic": Stochastic,
    "clicks": ClickWorld,
    "contextual": ContextualWorld,
}


def names() -> list[str]:
    """Return the names of all registered worlds, those of other packages included.

    >>> [name for name in names() if name.startswith("paper/")]
    ['paper/periodic-both', 'paper/periodic-items', 'paper/stochastic']
    """
    return sorted(_registered())


def world(name: str, **settings: Any) -> World:
    """Build the world of that name with these settings; a name that ends in .json is the file of a fitted model.

    Raises ValueError for a name or a setting that does not exist, or a value out of range.

    >>> world("paper/stochastic", gap=0.01)
    <Stochastic 'paper/stochastic(gap=0.01)': 10 items, 5 positions>
    """
    if name.endswith(".json"):
        return make("world", {name: partial(from_file, name)}, name, settings)
    makers = _registered()
    made = resolve(make("world", makers, name, settings))
    made.name = _label(name, settings)
    made.recipe = _recipe(name, {**defaults_of(makers[name]), **settings})
    return made


def describe(name: str) -> tuple[str, dict[str, Any]]:
    """Return what a registered world is, in one sentence, and its settings with their defaults."""
    maker = _registered()[name]
    return sentence_of(maker), defaults_of(maker)


def from_description(description: Mapping[str, Any]) -> World:
    """Build a world from what :meth:`World.description` returned, or from that after a round trip through JSON.

    Raises ValueError if the description does not determine a world, or names one that is not registered.

    >>> year = world("paper/periodic-items", gap=0.01, phase=500)
    >>> from_description(year.description())
    <Periodic 'paper/periodic-items(gap=0.01, phase=500)': 10 items, 5 positions>
    """
    if "name" not in description:
        return _from_numbers(description)
    name, settings = description["name"], description.get("settings", {})
    made = world(name, **settings)
    defaults = defaults_of(_registered()[name])
    made.name = _label(name, {key: value for key, value in settings.items() if value != defaults.get(key)})
    return made


def _from_numbers(description: Mapping[str, Any]) -> World:
    """Build the world that ``World.numbers`` describes; raises ValueError if it does not."""
    kind = description.get("kind")
    try:
        match kind:
            case "periodic":
                return periodic([from_description(world) for world in description["worlds"]], description["phase"])
            case "relabelled":
                return from_description(description["world"]).relabelled(np.array(description["labels"], np.int64))
            case "attacked":
                attack = {**description["attack"], "companions": tuple(description["attack"]["companions"])}
                return Attacked(from_description(description["world"]), Attack(**attack))
            case "matrix" | "stochastic" | "clicks" | "contextual":
                return BUILT[kind](**{key: value for key, value in description.items() if key != "kind"})
    except (KeyError, TypeError) as error:
        raise ValueError(f"the description of a world of kind {kind!r} is incomplete: {error!r}") from error
    raise ValueError(f"no world can be built from the description {dict(description)!r}")


def resolve(given: str | World) -> World:
    """Return a World for a name, a World, or an object with ``n_items``, ``n_positions`` and ``click_probabilities``.

    Instead of ``click_probabilities``, the object may have ``click`` and ``expected_reward``, as a ListWorld does.
    Raises ValueError for anything else.
    """
    if isinstance(given, str):
        return world(given)
    other: Any = given  # may be any object with the three attributes
    if isinstance(other, World):
        return other
    made = not isinstance(other, type)
    if made and all(hasattr(other, part) for part in ("n_items", "n_positions", "click", "expected_reward")):
        return _ExternalLists(given)
    if not made or not all(hasattr(other, part) for part in ("n_items", "n_positions", "click_probabilities")):
        raise ValueError(
            f"world must be a name or an object with n_items, n_positions and click_probabilities; got {given!r}"
        )
    return _External(given)


class _External(World):
    """A World around an object that has the members every world has, and no others; it checks what they return."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self.name = str(getattr(given, "name", "") or type(given).__name__)
        self.n_items, self.n_positions = int(given.n_items), int(given.n_positions)

    def first_change(self) -> int | None:
        first_change = getattr(self._given, "first_change", None)
        return first_change() if callable(first_change) else None

    def numbers(self) -> dict[str, Any]:
        given = type(self._given)
        return {"class": f"{given.__module__}.{given.__qualname__}"}

    def click_probabilities(self, t: int) -> NDArray[np.float64]:
        checked = Matrix(self._given.click_probabilities(t))
        if (checked.n_items, checked.n_positions) != (self.n_items, self.n_positions):
            raise ValueError(
                f"click_probabilities must be for {self.n_items} items and {self.n_positions} positions; "
                f"got {checked.n_items} and {checked.n_positions}"
            )
        return checked.click_probabilities(t)


class _ExternalLists(_External, ListWorld):
    """The same for an object with ``click`` and ``expected_reward``."""

    click_probabilities = ListWorld.click_probabilities

    def click(self, t: int, ranking: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
        clicks = np.asarray(self._given.click(t, ranking, rng), np.float64)
        if clicks.shape != (self.n_positions,) or not ((clicks == 0.0) | (clicks == 1.0)).all():
            raise ValueError(f"click must return 0 or 1 for each of {self.n_positions} positions; got {clicks!r}")
        return clicks

    def expected_reward(self, t: int, ranking: NDArray[np.int64]) -> float:
        return float(self._given.expected_reward(t, ranking))


@cache
def _registered() -> dict[str, Callable[..., World]]:
    makers: dict[str, Callable[..., World]] = {
        **adversarial.WORLDS,
        **attacks.WORLDS,
        **contextual.WORLDS,
        **dependent.WORLDS,
        **drift.WORLDS,
        **paper.WORLDS,
    }
    for entry in entry_points(group="bothworlds.worlds"):
        makers[entry.name] = entry.load()
    return makers


def _label(name: str, settings: Mapping[str, Any]) -> str:
    """The name of a world in tables and figures: the registered name, with the given settings."""
    shown = ", ".join(f"{setting}={value!r}" for setting, value in settings.items())
    return f"{name}({shown})" if shown else name


def _recipe(name: str, settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Name and settings if JSON can hold the settings; None for a world of another package that takes objects."""
    try:
        return name, json.loads(json.dumps(dict(settings), default=_from_numpy))
    except TypeError:
        return None


def _from_numpy(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"{value!r} is not a number, a text or a list of them")
