"""The options of a fit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...checks import is_number, whole
from ..model.model import model_named


class Options(NamedTuple):
    """What a fit may be told besides its log; :func:`bothworlds.clicks.fit` says what it means."""

    method: str = "newton"
    iterations: int | None = None
    prior: float = 0.0
    ordered: bool = False
    intervals: bool = True
    seed: int = 0
    starts: int | None = None  # of a fit that is not concave; as many as the model needs if it is None


def check(model: str, options: Options) -> None:
    """Raise ValueError if a model does not exist, or for an option that is invalid or not for it."""
    method, iterations, prior, ordered, _, seed, _ = options
    model_named(model)
    methods = ("newton", "em") if model == "pbm" else ("newton",)
    if method not in methods:
        raise ValueError(f"method must be {' or '.join(methods)} for the model {model}; got {method!r}")
    if iterations is not None and method != "em":
        raise ValueError(f"iterations is only for method 'em'; got {iterations!r} for {method!r}")
    if iterations is not None:
        whole(iterations, "iterations", 1)
    if ordered and (model != "pbm" or method != "newton"):
        raise ValueError("ordered examination is only for the model pbm and the method 'newton'")
    if not is_number(prior) or not 0.0 <= prior < np.inf:
        raise ValueError(f"prior must be a number, 0 or more; got {prior!r}")
    whole(seed, "seed", 0)
