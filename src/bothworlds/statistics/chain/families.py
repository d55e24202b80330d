r"""The chain models: how going on after a skip, g, and after a click, :math:`\kappa`, follow from their parameters.

======  ==============  =============================================  =============================================
model   g after a skip  kappa after a click                            parameters
======  ==============  =============================================  =============================================
DCM     1               :math:`\lambda_k`                              attraction; continuation of ranks
SDBN    1               :math:`1 - \sigma_d`                           attraction, satisfaction
DBN     gamma           :math:`\gamma (1 - \sigma_d)`                  attraction, satisfaction; gamma
CCM     tau 1           :math:`\tau_2 (1 - \alpha_d) + \tau_3          attraction; tau 1, tau 2, tau 3
                        \alpha_d`
======  ==============  =============================================  =============================================

The cascade model, g = 1 and kappa = 0, has a closed form and needs no iteration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from ...kernels import Floats


class Core(NamedTuple):
    """The probabilities of the chain."""

    alpha: Floats  # (R,)
    kappa: Floats  # (R,), or (m,) if it belongs to ranks
    g: float


class KappaSlopes(NamedTuple):
    """Derivatives of kappa, if it belongs to items, and of g."""

    items: Floats  # (p, R) of kappa, with respect to the item's own parameters
    shared: Floats  # (R, s) of kappa, with respect to the shared parameters
    mixed: Floats  # (p, R, s) second derivatives; all others are 0
    g: Floats  # (s,)


class ChainFamily(ABC):
    """A chain model with p parameters of every item, (p, R), the first of them attraction, and s shared ones."""

    name: str
    items: tuple[str, ...]
    by_rank = False  # whether kappa belongs to ranks instead of items

    @abstractmethod
    def shared(self, ranks: int) -> tuple[str, ...]:
        """Return the names of the shared parameters."""

    @abstractmethod
    def core(self, items: Floats, shared: Floats) -> Core:
        """Return the probabilities of the chain."""

    @abstractmethod
    def slopes(self, items: Floats, shared: Floats) -> KappaSlopes:
        """Return the derivatives of kappa and g."""


class _Dcm(ChainFamily):
    name, items, by_rank = "dcm", ("attraction",), True

    def shared(self, ranks: int) -> tuple[str, ...]:
        return tuple(f"continuation {k}" for k in range(1, ranks + 1))

    def core(self, items: Floats, shared: Floats) -> Core:
        return Core(items[0], shared, 1.0)

    def slopes(self, items: Floats, shared: Floats) -> KappaSlopes:
        raise NotImplementedError  # kappa is a parameter itself


class _Sdbn(ChainFamily):
    name, items = "sdbn", ("attraction", "satisfaction")

    def shared(self, ranks: int) -> tuple[str, ...]:
        return ()

    def core(self, items: Floats, shared: Floats) -> Core:
        return Core(items[0], 1.0 - items[1], 1.0)

    def slopes(self, items: Floats, shared: Floats) -> KappaSlopes:
        size = items.shape[1]
        own = np.array([np.zeros(size), -np.ones(size)])
        return KappaSlopes(own, np.zeros((size, 0)), np.zeros((2, size, 0)), np.zeros(0))


class _Dbn(ChainFamily):
    name, items = "dbn", ("attraction", "satisfaction")

    def shared(self, ranks: int) -> tuple[str, ...]:
        return ("gamma",)

    def core(self, items: Floats, shared: Floats) -> Core:
        gamma = float(shared[0])
        return Core(items[0], gamma * (1.0 - items[1]), gamma)

    def slopes(self, items: Floats, shared: Floats) -> KappaSlopes:
        size = items.shape[1]
        own = np.array([np.zeros(size), np.full(size, -shared[0])])
        mixed = np.array([np.zeros(size), -np.ones(size)])[:, :, None]
        return KappaSlopes(own, (1.0 - items[1])[:, None], mixed, np.ones(1))


class _Ccm(ChainFamily):
    name, items = "ccm", ("attraction",)

    def shared(self, ranks: int) -> tuple[str, ...]:
        return ("tau 1", "tau 2", "tau 3")

    def core(self, items: Floats, shared: Floats) -> Core:
        alpha = items[0]
        return Core(alpha, shared[1] * (1.0 - alpha) + shared[2] * alpha, float(shared[0]))

    def slopes(self, items: Floats, shared: Floats) -> KappaSlopes:
        alpha = items[0]
        own = np.full((1, alpha.size), shared[2] - shared[1])
        across = np.column_stack([np.zeros(alpha.size), 1.0 - alpha, alpha])
        mixed = np.broadcast_to(np.array([0.0, -1.0, 1.0]), (1, alpha.size, 3))
        return KappaSlopes(own, across, mixed, np.array([1.0, 0.0, 0.0]))


DCM, SDBN, DBN, CCM = _Dcm(), _Sdbn(), _Dbn(), _Ccm()
