r"""Epochs: the doubling trick, and periodic restarts.

A policy that needs a horizon and does not have one plans for a short one and starts again with twice the horizon
whenever it is over: the doubling trick. A policy that forgets by restarting starts again every ``restart`` rounds. In
both cases the state carries how many rounds of the present epoch are over, how long it lasts, and the horizon that it
plans for.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...kernels import Floats, inner_kernel

FIRST_HORIZON = 1024  # the first horizon of the doubling trick


class Epochs(NamedTuple):
    """Progress in the present epoch; at the end of an epoch ``length`` and ``horizon`` are multiplied by ``growth``."""

    rounds: Floats  # (1,) rounds of this epoch that are over
    length: Floats  # (1,) rounds in this epoch
    horizon: Floats  # (1,) rounds that the policy plans for
    growth: float


LEAVES = {"epochs.rounds": "", "epochs.length": "", "epochs.horizon": ""}


def make_epochs(horizon: int | None = None, restart: int | None = None, anytime: bool = False) -> Epochs:
    """The first epoch of a policy with a known horizon, with the doubling trick, or with restarts.

    ``anytime`` is for policies that need no horizon: without ``restart`` their one epoch has no end.

    >>> known, doubling = make_epochs(horizon=500), make_epochs()
    >>> known.length.tolist(), known.horizon.tolist()
    ([inf], [500.0])
    >>> doubling.length.tolist(), doubling.horizon.tolist()
    ([1024.0], [1024.0])
    >>> make_epochs(horizon=500, restart=100).horizon.tolist()
    [100.0]
    """
    if restart is not None:
        return _epochs(restart, restart if horizon is None else min(restart, horizon), 1.0)
    if horizon is not None or anytime:
        return _epochs(math.inf, math.inf if horizon is None else horizon, 1.0)
    return _epochs(FIRST_HORIZON, FIRST_HORIZON, 2.0)


def _epochs(length: float, horizon: float, growth: float) -> Epochs:
    return Epochs(np.zeros(1), np.array([float(length)]), np.array([float(horizon)]), growth)


@inner_kernel
def new_epoch(epochs: Epochs) -> bool:
    """Count one round; returns True if a new epoch begins after it, for which the policy must start again."""
    epochs.rounds[0] += 1.0
    if epochs.rounds[0] < epochs.length[0]:
        return False
    epochs.rounds[0] = 0.0
    epochs.length[0] *= epochs.growth
    epochs.horizon[0] *= epochs.growth
    return True
