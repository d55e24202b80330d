"""Worlds from the numbers that describe them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .attacks import Attack, Attacked
from .base import Matrix, Stochastic, World, periodic
from .click_world import ClickWorld
from .contextual import ContextualWorld


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
            case "clicks":
                return ClickWorld(**{key: value for key, value in description.items() if key != "kind"})
            case "contextual":
                return ContextualWorld(**{key: value for key, value in description.items() if key != "kind"})
    except (KeyError, TypeError) as error:
        raise ValueError(f"the description of a world of kind {kind!r} is incomplete: {error!r}") from error
    raise ValueError(f"no world can be built from the description {dict(description)!r}")
