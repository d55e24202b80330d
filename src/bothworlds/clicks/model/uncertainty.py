"""Standard errors and intervals of the parameters of a model."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...kernels import Floats

Z = 1.959964  # 95% of a normal distribution, two sides
NOISE = 0.25  # if the typical standard error of log examination is larger, a curve is called noise


class Spread(NamedTuple):
    """Standard errors and limits of 95% intervals; NaN where the counts do not determine them."""

    error: Floats
    low: Floats
    high: Floats


def typical_errors(error: Floats, examination: Floats) -> Floats:
    """(...) the median standard error of log examination on each curve (..., m); 0 where none is known."""
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = error / examination
    known = np.isfinite(errors) & (errors > 0.0)
    middle = np.ma.median(np.ma.masked_where(~known, errors), axis=-1)  # type: ignore[no-untyped-call]
    return np.asarray(np.ma.filled(middle, 0.0))
