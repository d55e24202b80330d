r"""Starting anew: the doubling trick, and restarts.

A policy that must know the horizon, and is not told, plans for a short one and starts again with twice as long a plan
whenever it is over: the doubling trick. A policy that shall forget starts again every so many rounds. Both are a clock
that says when an epoch is over, and how long a horizon the present one is planned for.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...kernels import Floats, inner_kernel

__all__ = ["FIRST_HORIZON", "Epochs", "go_forward", "make_epochs", "new_epoch"]

FIRST_HORIZON = 1024  # what the doubling trick plans for at first


class Epochs(NamedTuple):
    """``clock``: rounds in this epoch, its length, the horizon it is planned for; ``growth`` from epoch to epoch."""

    clock: Floats  # (3,)
    growth: float


def make_epochs(horizon: int | None = None, restart: int | None = None, anytime: bool = False) -> Epochs:
    """The clock of a policy that is told the horizon, or doubles it, or restarts every ``restart`` rounds.

    ``anytime`` is for policies that need no horizon: without ``restart`` their one epoch has no end.

    >>> make_epochs(horizon=500).clock.tolist(), make_epochs().clock.tolist()
    ([0.0, inf, 500.0], [0.0, 1024.0, 1024.0])
    >>> make_epochs(horizon=500, restart=100).clock.tolist()
    [0.0, 100.0, 100.0]
    """
    if restart is not None:
        return Epochs(np.array([0.0, restart, restart if horizon is None else min(restart, horizon)]), 1.0)
    if horizon is not None or anytime:
        return Epochs(np.array([0.0, math.inf, math.inf if horizon is None else horizon]), 1.0)
    return Epochs(np.array([0.0, FIRST_HORIZON, FIRST_HORIZON]), 2.0)


def go_forward(epochs: Epochs, rounds: int) -> None:
    """Set a clock that has not started to where it is after so many rounds.

    >>> doubling = make_epochs()
    >>> go_forward(doubling, 1030)
    >>> doubling.clock.tolist()
    [6.0, 2048.0, 2048.0]
    """
    clock = epochs.clock
    clock[0] = rounds
    while clock[0] >= clock[1]:
        clock[0] -= clock[1]
        clock[1] *= epochs.growth
        clock[2] *= epochs.growth


@inner_kernel
def new_epoch(epochs: Epochs) -> bool:
    """Count one round; True if the policy is to start anew after it, planning for ``clock[2]`` rounds."""
    clock = epochs.clock
    clock[0] += 1.0
    if clock[0] < clock[1]:
        return False
    clock[0] = 0.0
    clock[1] *= epochs.growth
    clock[2] *= epochs.growth
    return True
