"""The paper's table of regret bounds, with the numbers of an instance where the constants are known."""

from __future__ import annotations

import math
from typing import NamedTuple

from numpy.typing import ArrayLike

from ..checks import whole
from .bounds import adversarial_bound, lower_bound, stochastic_bound
from .instance import instance
from .mixture import all_weather_bound, ftrl_va_bound


class Row(NamedTuple):
    """One bound: its source, the users, upper or lower, its order, and its value if the constants are known."""

    source: str
    users: str
    side: str
    order: str
    bound: float | None


def table(attraction: ArrayLike, examination: ArrayLike, rounds: int) -> list[Row]:
    r"""Return the bounds of the paper's Table 1 and of our own policies, for an instance and a number of rounds.

    ``bound`` is None if only the order is known, or if a lower bound does not hold for this shape and this number
    of rounds; it is infinite if a gap is 0. The constants of other papers are :math:`4m \sqrt{nT \log n}` for
    multiplicative weights and :math:`2 \sqrt2 \, m \sqrt{nT}` for mirror descent, each tuned to the number of rounds.

    >>> rows = table([0.9, 0.8, 0.5, 0.2], [1.0], rounds=10_000)
    >>> for row in rows:
    ...     if row.bound is not None:
    ...         print(f"{row.source:27} {row.users:11} {row.side}  {row.bound:7,.0f}")
    Kale et al. 2010 (MW)       adversarial upper      942
    Bubeck et al. 2012 (OSMD)   adversarial upper      566
    the paper (FTRL-PBM)        stochastic  upper    2,352
    the paper (FTRL-PBM)        adversarial upper    1,223
    ours (ftrl-va)              adversarial upper    7,801
    ours (all-weather)          adversarial upper   55,063
    the paper                   adversarial lower       12
    """
    T = whole(rounds, "rounds", 1)
    sorted_instance = instance(attraction, examination)
    n, m = sorted_instance.alpha.size, sorted_instance.beta.size
    return [
        _upper("Kale et al. 2010 (MW)", "adversarial", "m sqrt(n T log n)", 4.0 * m * math.sqrt(n * T * math.log(n))),
        _upper("Bubeck et al. 2012 (OSMD)", "adversarial", "m sqrt(n T)", 2.0 * math.sqrt(2.0 * n * T) * m),
        _upper("Lagree et al. 2016", "stochastic", "n log T / (beta_m delta)"),
        _upper("Zoghi et al. 2017", "stochastic", "m^3 n log T / delta"),
        _upper("Lattimore et al. 2018", "stochastic", "m n log T / delta"),
        _upper("Lattimore et al. 2018", "stochastic", "sqrt(m^3 n T log T)"),
        _lower("Lattimore et al. 2018", "stochastic", "sqrt(m n T)"),
        _lower("Lattimore et al. 2018", "adversarial", "sqrt(m n T)"),
        _upper("Li et al. 2019", "stochastic", "m sqrt(n T log(n T))"),
        _upper("Zimmert et al. 2019", "stochastic", "m^2 n log T / (delta_beta delta)"),
        _upper("Zimmert et al. 2019", "adversarial", "m sqrt(n T)"),
        _upper(
            "the paper (FTRL-PBM)",
            "stochastic",
            "m n log T / (delta_beta delta)",
            stochastic_bound(attraction, examination, T),
        ),
        _upper("the paper (FTRL-PBM)", "adversarial", "m sqrt(n T)", adversarial_bound(n, m, T)),
        _upper("ours (ftrl-va)", "adversarial", "m sqrt(n T)", ftrl_va_bound(n, m, T)),
        _upper("ours (all-weather)", "adversarial", "m sqrt(n T) + m sqrt(m T log T)", all_weather_bound(n, m, T)),
        _lower("the paper", "adversarial", "m sqrt(n T)", _lower_bound_or_none(n, m, T)),
    ]


def _upper(source: str, users: str, order: str, bound: float | None = None) -> Row:
    return Row(source, users, "upper", order, bound)


def _lower(source: str, users: str, order: str, bound: float | None = None) -> Row:
    return Row(source, users, "lower", order, bound)


def _lower_bound_or_none(n: int, m: int, T: int) -> float | None:
    try:
        return lower_bound(n, m, T)
    except ValueError:
        return None
