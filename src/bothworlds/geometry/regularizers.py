r"""Regularisers: convex functions :math:`\phi` of one marginal, summed over all (item, position) pairs.

The solver needs two facts about each, and nothing else:

* ``primal(reg, rate, z)``: the :math:`x` at which :math:`\phi'(x) = -\eta z`, and its slope :math:`h = -dx/dz > 0`;
* ``slope(reg, x)``: :math:`\phi'(x)`.

A regulariser is a NamedTuple class, so compiled code is specialised to it.

==============  ============================================  =============================  ===============
name            :math:`\phi(x)`                               :math:`x(z)`                   domain of z
==============  ============================================  =============================  ===============
tsallis         :math:`-\sqrt x`                              :math:`1/(2\eta z)^2`          :math:`z > 0`
shannon         :math:`x \log x - x`                          :math:`e^{-\eta z}`            all
log-barrier     :math:`-\log x`                               :math:`1/(\eta z)`             :math:`z > 0`
hybrid          :math:`-\sqrt x + \gamma (1-x) \log(1-x)`     root of a scalar equation      all
==============  ============================================  =============================  ===============
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ..kernels import kernel, register_kernels

__all__ = ["Hybrid", "LogBarrier", "Shannon", "Tsallis", "named", "primal", "slope"]


class Tsallis(NamedTuple):
    r"""The paper's regulariser, :math:`-\sqrt x`: 1/2-Tsallis entropy up to scale."""


class Shannon(NamedTuple):
    r"""Negative entropy, :math:`x \log x - x`; the regulariser of multiplicative weights."""


class LogBarrier(NamedTuple):
    r"""The logarithmic barrier, :math:`-\log x`."""


class Hybrid(NamedTuple):
    r"""Tsallis near 0 and entropy of the complement near 1: :math:`-\sqrt x + \gamma (1-x) \log(1-x)`."""

    gamma: float = 1.0


def named(name: str) -> Any:
    """The regulariser of that name.

    >>> named("hybrid")
    Hybrid(gamma=1.0)
    """
    known = {"tsallis": Tsallis(), "shannon": Shannon(), "log-barrier": LogBarrier(), "hybrid": Hybrid()}
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"regularizer must be one of {', '.join(known)}; got {name!r}")
    return known[name]


def primal(reg: Any, rate: float, z: float) -> tuple[float, float]:
    """The marginal at which the regulariser's slope is ``-rate * z``, and how fast it falls with ``z``.

    >>> primal(Tsallis(), 0.5, 2.0)     # x = 1 / (2 eta z)^2 = 1/4,  h = 2 x / z
    (0.25, 0.25)
    """
    return _PRIMAL[type(reg)](reg, rate, z)


def slope(reg: Any, x: float) -> float:
    """The derivative of the regulariser at one marginal.

    >>> slope(LogBarrier(), 0.5)
    -2.0
    """
    return _SLOPE[type(reg)](reg, x)


@kernel
def _tsallis_primal(reg: Tsallis, rate: float, z: float) -> tuple[float, float]:
    if z <= 0.0:
        return math.inf, math.inf
    r = 1.0 / z
    x = r * r * (0.25 / (rate * rate))
    return x, 2.0 * x * r


@kernel
def _tsallis_slope(reg: Tsallis, x: float) -> float:
    return -0.5 / math.sqrt(x)


@kernel
def _shannon_primal(reg: Shannon, rate: float, z: float) -> tuple[float, float]:
    x = math.exp(-rate * z)
    return x, rate * x


@kernel
def _shannon_slope(reg: Shannon, x: float) -> float:
    return math.log(x)


@kernel
def _log_barrier_primal(reg: LogBarrier, rate: float, z: float) -> tuple[float, float]:
    if z <= 0.0:
        return math.inf, math.inf
    x = 1.0 / (rate * z)
    return x, x / z


@kernel
def _log_barrier_slope(reg: LogBarrier, x: float) -> float:
    return -1.0 / x


@kernel
def _hybrid_primal(reg: Hybrid, rate: float, z: float) -> tuple[float, float]:
    """Solve -1/(2 sqrt x) - gamma (1 + log(1-x)) = y in u = logit(x), where both tails are gentle.

    The left side increases from -inf to +inf, so the root is unique. With x = s^2 for small x the equation is nearly
    linear in 1/s; with 1-x for large x it is nearly linear in log(1-x); Newton inside a bracket does the rest.
    """
    y = -rate * z
    gamma = reg.gamma
    # The root of one term alone bounds x from the side on which the other term has its sign known.
    if y + gamma < 0.0:
        x = 0.25 / ((y + gamma) * (y + gamma) + 0.25)
    else:
        x = 0.5
    low, high = 0.0, 1.0
    q = 1.0 - x
    for _ in range(200):
        residual = -0.5 / math.sqrt(x) - gamma * (1.0 + math.log(q)) - y
        if residual > 0.0:
            high = x
        else:
            low = x
        curvature = 0.25 / (x * math.sqrt(x)) + gamma / q
        # Newton in 1/sqrt(x) below one half, in log(1-x) above: the coordinate in which the dominant term is linear.
        if x < 0.5:
            s = 1.0 / math.sqrt(x)
            t = s + residual / curvature * 0.5 * s * s * s
            new = 1.0 / (t * t) if t > 1.0 else 2.0
            fresh_q = 1.0 - new
        else:
            fresh_q = q * math.exp(min(residual / (curvature * q), 600.0))
            new = 1.0 - fresh_q
        if not (low <= new <= high) or fresh_q <= 0.0:
            new = 0.5 * (low + high) if high > 2.0 * low or low > 0.25 else math.sqrt(low * high)
            fresh_q = 1.0 - new
        moved = abs(new - x)
        moved_q = abs(fresh_q - q)
        x, q = new, fresh_q
        if moved <= 4e-16 * x and moved_q <= 1e-14 * q:
            break
    curvature = 0.25 / (x * math.sqrt(x)) + gamma / q
    return x, rate / curvature


@kernel
def _hybrid_slope(reg: Hybrid, x: float) -> float:
    return -0.5 / math.sqrt(x) - reg.gamma * (1.0 + math.log(max(1.0 - x, 1e-17)))


_PRIMAL: dict[type, Callable[..., tuple[float, float]]] = {
    Tsallis: _tsallis_primal,
    Shannon: _shannon_primal,
    LogBarrier: _log_barrier_primal,
    Hybrid: _hybrid_primal,
}
_SLOPE: dict[type, Callable[..., float]] = {
    Tsallis: _tsallis_slope,
    Shannon: _shannon_slope,
    LogBarrier: _log_barrier_slope,
    Hybrid: _hybrid_slope,
}
register_kernels(primal, _PRIMAL)
register_kernels(slope, _SLOPE)
