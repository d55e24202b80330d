"""The click models that can be fitted: their names, and what they need of a log."""

from __future__ import annotations

from typing import NamedTuple


class ModelName(NamedTuple):
    """A click model: its name, its long name, and whether it needs whole pages, clicks being dependent."""

    name: str
    title: str
    dependent: bool
    shortcut: bool = False  # whether it has a published estimator from counts that is not the maximum


MODELS = {
    model.name: model
    for model in (
        ModelName("pbm", "position-based model", False),
        ModelName("ubm", "user browsing model", True),
        ModelName("cascade", "cascade model", True),
        ModelName("dcm", "dependent click model", True, True),
        ModelName("sdbn", "simplified dynamic Bayesian network", True, True),
        ModelName("dbn", "dynamic Bayesian network", True),
        ModelName("ccm", "click chain model", True),
        ModelName("trust", "affine position-based model", False),
        ModelName("rank-ctr", "click rate of positions", False),
        ModelName("item-ctr", "click rate of items", False),
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
