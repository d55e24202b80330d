"""Worlds from other worlds, and worlds from the numbers that describe them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .attacks import Attack, Attacked
from .base import Matrix, Periodic, Stochastic, World
from .browsing_world import Browsing
from .chain_world import Chain
from .list_world import ListWorld, PeriodicLists

__all__ = ["build_from_numbers", "periodic"]


def periodic(worlds: Sequence[World], phase: int) -> World:
    """Build a world in which the given worlds alternate, ``phase`` rounds each.

    Either all of them or none answer a whole list; otherwise raises ValueError.

    >>> from bothworlds.worlds import stochastic
    >>> summer, winter = stochastic([0.9, 0.1], [1.0]), stochastic([0.1, 0.9], [1.0])
    >>> year = periodic([summer, winter], phase=10)
    >>> [float(year.click_probabilities(t)[0, 0]) for t in (0, 9, 10, 19, 20)]
    [0.9, 0.9, 0.1, 0.1, 0.9]
    """
    lists = [world for world in worlds if isinstance(world, ListWorld)] if isinstance(worlds, Sequence) else []
    if not lists:
        return Periodic(worlds, phase)
    if len(lists) < len(worlds):
        raise ValueError("worlds whose clicks depend on the list cannot alternate with others")
    return PeriodicLists(lists, phase)


def build_from_numbers(description: Mapping[str, Any], build: Callable[[Mapping[str, Any]], World]) -> World:
    """Build the world that ``World.numbers`` describes; ``build`` builds the worlds it contains.

    Raises ValueError for a description that is incomplete or of an unknown kind.
    """
    kind = description.get("kind")
    try:
        match kind:
            case "matrix":
                return Matrix(description["click_probabilities"])
            case "stochastic":
                return Stochastic(description["attraction"], description["examination"])
            case "periodic":
                return periodic([build(world) for world in description["worlds"]], description["phase"])
            case "relabelled":
                return build(description["world"]).relabelled(np.array(description["labels"], np.int64))
            case "attacked":
                attack = {**description["attack"], "companions": tuple(description["attack"]["companions"])}
                return Attacked(build(description["world"]), Attack(**attack))
            case "chain":
                return Chain(**{key: value for key, value in description.items() if key != "kind"})
            case "browsing":
                return Browsing(description["attraction"], description["examination"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"the description of a world of kind {kind!r} is incomplete: {error!r}") from error
    raise ValueError(f"no world can be built from the description {dict(description)!r}")
