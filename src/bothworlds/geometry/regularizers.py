r"""Regularisers: convex functions :math:`\phi` of one marginal, summed over all (item, position) pairs.

The solver needs two functions of each:

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
hybrid-barrier  :math:`-\log x + \gamma (1-x) \log(1-x)`      root of a scalar equation      all
==============  ============================================  =============================  ===============
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ..checks import choice
from ..kernels import inner_kernel, kernel, register_kernels

LOG_2 = math.log(2.0)
LAST_STEP = 3e-6  # relative step of Halley's method, with cubic convergence, after which only rounding is left
MAX_STEPS = 100
LEAST = 1e-17  # value of 1 - x where x is rounded to 1


class Tsallis(NamedTuple):
    r"""The paper's regulariser, :math:`-\sqrt x`: 1/2-Tsallis entropy up to scale."""


class Shannon(NamedTuple):
    r"""Negative entropy, :math:`x \log x - x`; the regulariser of multiplicative weights."""


class LogBarrier(NamedTuple):
    r"""The logarithmic barrier, :math:`-\log x`."""


class Hybrid(NamedTuple):
    r"""Tsallis near 0 and entropy of the complement near 1: :math:`-\sqrt x + \gamma (1-x) \log(1-x)`."""

    gamma: float = 1.0


class HybridBarrier(NamedTuple):
    r"""A barrier near 0 and entropy of the complement near 1: :math:`-\log x + \gamma (1-x) \log(1-x) + \tau x`.

    The tilt :math:`\tau` changes nothing while all pairs have one rate, since marginals at a position sum to 1.
    """

    gamma: float = 1.0
    tilt: float = 0.0


def named(name: str) -> Any:
    """Return the regulariser of that name; raises ValueError for an unknown name."""
    known = {
        "tsallis": Tsallis(),
        "shannon": Shannon(),
        "log-barrier": LogBarrier(),
        "hybrid": Hybrid(),
        "hybrid-barrier": HybridBarrier(),
    }
    return known[choice(name, "regularizer", known)]


def primal(reg: Any, rate: float, z: float) -> tuple[float, float]:
    """Return the marginal at which the regulariser's slope is ``-rate * z``, and minus its derivative in ``z``.

    >>> primal(Tsallis(), 0.5, 2.0)     # x = 1 / (2 eta z)^2 = 1/4,  h = 2 x / z
    (0.25, 0.25)
    """
    return _PRIMAL[type(reg)](reg, rate, z)


def slope(reg: Any, x: float) -> float:
    """Return the derivative of the regulariser at one marginal.

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


@inner_kernel
def _balance(squared: bool, gamma: float, y: float) -> tuple[float, float]:
    """Solve B(x) - gamma log(1-x) = y; returns x and the slope there, B'(x) + gamma / (1-x).

    B(x) is -1/(2 sqrt x) if ``squared``, else -1/x: linear in s, where x = 1/s^2 or 1/s. The left side increases from
    -inf to +inf. As a function of s it is convex and falls, and as a function of t = log(1-x) it is concave and falls.
    Below x = 1/2 the first is nearly linear, above 1/2 the second. Tangents at 1/2 and at the far end bound the root
    from one side; Halley's method starts from that bound.
    """
    e = 2.0 if squared else 1.0
    s = math.sqrt(2.0) if squared else 2.0
    above = gamma * LOG_2 - s / e - y
    if above > 0.0:
        return _balance_low(e, gamma, y, s, max(s + above / (1.0 / e + gamma * e / s), -e * y))
    return _balance_high(e, gamma, y, min(above / (gamma + s / (e * e)) - LOG_2, -(y + 1.0 / e) / gamma))


@inner_kernel
def _balance_low(e: float, gamma: float, y: float, least: float, s: float) -> tuple[float, float]:
    """Return the root below 1/2, computed in s from a start below it."""
    x, q = 0.5, 0.5
    for _ in range(MAX_STEPS):
        x = 1.0 / s if e == 1.0 else 1.0 / (s * s)
        q = 1.0 - x
        above = -gamma * math.log(q) - s / e - y
        fall = q * s / e + gamma * e * x  # without a factor 1 / (q s), as is ``bend``
        bend = 0.5 * above * gamma * e * x * (q + e)
        # Newton's step where the curvature is too large for Halley's.
        step = above * q * s * (fall / (fall * fall - bend) if bend < 0.5 * fall * fall else 1.0 / fall)
        s = max(s + step, least)
        if not abs(step) > LAST_STEP * s:
            break
    x = 1.0 / s if e == 1.0 else 1.0 / (s * s)
    return x, s / (e * e * x) + gamma / (1.0 - x)


@inner_kernel
def _balance_high(e: float, gamma: float, y: float, t: float) -> tuple[float, float]:
    """Return the root above 1/2, computed in t = log(1-x) from a start above it."""
    for _ in range(MAX_STEPS):
        q = math.exp(t)
        inverse = 1.0 / (1.0 - q)
        s = inverse if e == 1.0 else math.sqrt(inverse)
        steep = q * s * inverse / (e * e)
        below = s / e + gamma * t + y
        fall = gamma + steep
        bend = 0.5 * below * steep * (1.0 + q * inverse * (1.0 + 1.0 / e))
        step = below * (fall / (fall * fall - bend) if bend < 0.5 * fall * fall else 1.0 / fall)
        t = min(t - step, -LOG_2)
        if not abs(step) > LAST_STEP:
            break
    q = math.exp(t)
    x = 1.0 - q
    s = 1.0 / x if e == 1.0 else 1.0 / math.sqrt(x)
    return x, s / (e * e * x) + gamma / q


@kernel
def _hybrid_primal(reg: Hybrid, rate: float, z: float) -> tuple[float, float]:
    x, curvature = _balance(True, reg.gamma, reg.gamma - rate * z)
    return x, rate / curvature


@kernel
def _hybrid_slope(reg: Hybrid, x: float) -> float:
    return -0.5 / math.sqrt(x) - reg.gamma * (1.0 + math.log(max(1.0 - x, LEAST)))


@kernel
def _hybrid_barrier_primal(reg: HybridBarrier, rate: float, z: float) -> tuple[float, float]:
    x, curvature = _balance(False, reg.gamma, reg.gamma - reg.tilt - rate * z)
    return x, rate / curvature


@kernel
def _hybrid_barrier_slope(reg: HybridBarrier, x: float) -> float:
    return reg.tilt - 1.0 / x - reg.gamma * (1.0 + math.log(max(1.0 - x, LEAST)))


_PRIMAL: dict[type, Callable[..., tuple[float, float]]] = {
    Tsallis: _tsallis_primal,
    Shannon: _shannon_primal,
    LogBarrier: _log_barrier_primal,
    Hybrid: _hybrid_primal,
    HybridBarrier: _hybrid_barrier_primal,
}
_SLOPE: dict[type, Callable[..., float]] = {
    Tsallis: _tsallis_slope,
    Shannon: _shannon_slope,
    LogBarrier: _log_barrier_slope,
    Hybrid: _hybrid_slope,
    HybridBarrier: _hybrid_barrier_slope,
}
register_kernels(primal, _PRIMAL)
register_kernels(slope, _SLOPE)
