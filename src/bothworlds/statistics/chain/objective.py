r"""The log-likelihood of a chain model as a function of its parameters, with a prior, for Newton's method.

Variables are the parameters of items, (p, R) row by row, and then the shared ones. The prior of a parameter
:math:`\theta` adds :math:`a \log \theta + b \log(1 - \theta)`: a successes and b failures.
"""

from __future__ import annotations

import numpy as np

from ...kernels import Floats, Ints
from ..box_newton import Arrow
from .families import ChainFamily, Core, KappaSlopes
from .likelihood import CoreHessian, PageStatistics, core_gradient, core_hessian, core_value


class ChainObjective:
    """The objective of a chain model; rows ``firsts[q]`` to ``firsts[q + 1]`` are the items of query q."""

    def __init__(
        self, family: ChainFamily, statistics: PageStatistics, firsts: Ints, ranks: int, prior: tuple[Floats, Floats]
    ) -> None:
        self.family, self.statistics, self.firsts = family, statistics, firsts
        self.rows, self.n_shared = statistics.clicks.size, len(family.shared(ranks))
        self.successes, self.failures = prior

    def split(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the parameters of items (p, R) and the shared ones (s,)."""
        cut = x.size - self.n_shared
        return x[:cut].reshape(-1, self.rows), x[cut:]

    def core(self, x: Floats) -> Core:
        """Return the probabilities of the chain."""
        return self.family.core(*self.split(x))

    def value(self, x: Floats) -> float:
        """Return the log-likelihood plus the prior."""
        return core_value(self.statistics, *self.core(x)) + self._prior(x)

    def likelihood(self, x: Floats) -> float:
        """Return the log-likelihood without the prior."""
        return core_value(self.statistics, *self.core(x))

    def gradient(self, x: Floats) -> tuple[float, Floats]:
        """Return the value and its derivatives."""
        value, d_alpha, d_kappa, d_g = core_gradient(self.statistics, *self.core(x))
        if self.family.by_rank:
            slope = np.concatenate([d_alpha, d_kappa])
        else:
            s = self.family.slopes(*self.split(x))
            items = s.items * d_kappa
            items[0] += d_alpha
            slope = np.concatenate([items.ravel(), d_kappa @ s.shared + d_g * s.g])
        for count, at, sign in ((self.successes, x, 1.0), (self.failures, 1.0 - x, -1.0)):
            slope += sign * np.divide(count, at, out=np.zeros_like(x), where=count > 0.0)
        return value + self._prior(x), slope

    def curvature(self, x: Floats) -> Arrow:
        """Return minus the second derivatives."""
        core = self.core(x)
        h = core_hessian(self.statistics, *core, self.firsts)
        extra = np.divide(self.successes, x**2, out=np.zeros_like(x), where=self.successes > 0.0)
        extra += np.divide(self.failures, (1.0 - x) ** 2, out=np.zeros_like(x), where=self.failures > 0.0)
        n = x.size - self.n_shared
        if self.family.by_rank:
            index, blocks, border = [], [], []
            for q in range(len(self.firsts) - 1):
                own = np.arange(self.firsts[q], self.firsts[q + 1])
                block = h.blocks[h.offset[q] : h.offset[q + 1]].reshape(own.size, own.size)
                index.append(own)
                blocks.append(np.diag(extra[own]) - block)
                border.append(-h.alpha_border[own, :-1])
            return Arrow(index, blocks, border, np.diag(extra[n:]) - h.corner[:-1, :-1])
        s = self.family.slopes(*self.split(x))
        _, _, d_kappa, _ = core_gradient(self.statistics, *core)
        corner = np.diag(extra[n:]) - h.corner[0, 0] * np.outer(s.g, s.g)
        index, blocks, border = [], [], []
        for q in range(len(self.firsts) - 1):
            rows = np.arange(self.firsts[q], self.firsts[q + 1])
            own = np.concatenate([rows + k * self.rows for k in range(len(s.items))])
            block, side, corner_part = _pulled(h, q, rows, s, d_kappa)
            index.append(own)
            blocks.append(np.diag(extra[own]) - block)
            border.append(-side)
            corner -= corner_part
        return Arrow(index, blocks, border, corner)

    def _prior(self, x: Floats) -> float:
        used, lost = self.successes > 0.0, self.failures > 0.0
        with np.errstate(divide="ignore"):
            return float(self.successes[used] @ np.log(x[used]) + self.failures[lost] @ np.log1p(-x[lost]))


def _pulled(h: CoreHessian, q: int, rows: Ints, s: KappaSlopes, d_kappa: Floats) -> tuple[Floats, Floats, Floats]:
    """The part of query q in the second derivatives with respect to the parameters: block, border and corner.

    They follow from those with respect to alpha, kappa and g by the chain rule. Alpha is the first parameter.
    """
    size, p = rows.size, len(s.items)
    core = h.blocks[h.offset[q] : h.offset[q + 1]].reshape(2, size, 2, size)
    slope, across = s.items[:, rows], s.shared[rows]
    # (2, p, size): derivatives of alpha and of kappa of every row with respect to its parameters.
    own = np.zeros((2, p, size))
    own[0, 0], own[1] = 1.0, slope
    block = np.zeros((p, size, p, size))
    for i in range(p):
        for j in range(p):
            for a in range(2):
                for b in range(2):
                    if own[a, i].any() and own[b, j].any():
                        block[i, :, j] += own[a, i][:, None] * core[a, :, b] * own[b, j]
    to_g = np.array([h.alpha_border[rows, 0], h.kappa_border[rows, 0]])
    of_core = core[:, :, 1] @ across + to_g[:, :, None] * s.g  # (2, size, s)
    side = np.einsum("aik,aks->iks", own, of_core) + s.mixed[:, rows] * d_kappa[rows][:, None]
    cross = np.outer(across.T @ to_g[1], s.g)
    corner = across.T @ core[1, :, 1] @ across + cross + cross.T
    return block.reshape(p * size, p * size), side.reshape(p * size, -1), corner
