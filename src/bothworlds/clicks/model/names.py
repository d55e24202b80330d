"""The click models that can be fitted: their names, what they say, and what they need of a log."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MODELS", "ModelName", "model_named"]


class ModelName(NamedTuple):
    """A click model: its name, its long name, and whether it needs whole pages, clicks being dependent."""

    name: str
    title: str
    says: str
    dependent: bool
    shortcut: bool = False  # whether it has a published estimator from counts that is not the maximum


MODELS = {
    model.name: model
    for model in (
        ModelName("pbm", "position-based model", "a click needs an examined position and an attractive item", False),
        ModelName("ubm", "user browsing model", "examination depends on the rank of the last click above", True),
        ModelName("cascade", "cascade model", "the user reads from the top and leaves with the first click", True),
        ModelName("dcm", "dependent click model", "a cascade that may go on after a click, by rank", True, True),
        ModelName(
            "sdbn", "simplified dynamic Bayesian network", "the user goes on until an item satisfies", True, True
        ),
        ModelName("dbn", "dynamic Bayesian network", "as sdbn, and the user may tire", True),
        ModelName("ccm", "click chain model", "going on after a click depends on the attraction of the item", True),
        ModelName("trust", "affine position-based model", "users also click what does not attract, by position", False),
        ModelName("rank-ctr", "click rate of positions", "every position has a click rate", False),
        ModelName("item-ctr", "click rate of items", "every item has a click rate", False),
    )
}


def model_named(name: str) -> ModelName:
    """Return the click model with a name; raise ValueError if there is none.

    >>> model_named("ubm").title
    'user browsing model'
    """
    if name not in MODELS:
        raise ValueError(f"there is no click model {name!r}; there are {', '.join(MODELS)}")
    return MODELS[name]
