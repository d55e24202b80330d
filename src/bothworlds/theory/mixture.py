r"""Regret bounds of ``ftrl-va`` and ``all-weather``, with constants; the proofs are in docs/research/theory.md.

``all-weather`` plays a mixture of two learners: a leader with share :math:`w_t`, and a pool of lists with the rest. The
regret of the mixture is at most the regret of the leader plus what the pool earns less than the leader.
"""

from __future__ import annotations

import math

from ..checks import whole

LEAST_SURPRISE, MOST_SURPRISE = 0.1, 4.0  # of the squared surprise that a round adds to R, times its share w
SHARE, PAIRS = 0.02, 50  # q: the least share of each of the two learners while both play, for up to 50 pairs
WIDTH = 2.0  # c: the comparison ends when the leader is ahead by this many standard deviations
SAMPLER_WIDTH = 1.5  # c': the share of the leader changes by at most 1/(2c') per standard deviation
GRACE = 5000.0  # V_0: the variance with which a comparison begins
WAKE_FACTOR, RESTART_FACTOR = 1.5, 8.0 / 7.0  # by which t grows from one comparison to the next


def ftrl_va_bound(n_items: int, n_positions: int, rounds: int) -> float:
    r"""Return an upper bound on the expected regret of ``ftrl-va`` with any users that do not react to it.

    It is :func:`mixture_leader_bound` with :math:`w_t = 1`, of order :math:`m \sqrt{nT}` like that of FTRL-PBM but with
    a larger constant: the learning rate may be larger than that of FTRL-PBM by a factor of :math:`\sqrt{40}`.

    >>> from bothworlds.theory import adversarial_bound
    >>> round(ftrl_va_bound(10, 5, 10**8) / adversarial_bound(10, 5, 10**8), 1)
    5.8
    """
    return mixture_leader_bound(n_items, n_positions, rounds, share=1.0)


def least_share(n_items: int, n_positions: int) -> float:
    """Return q, the least share of the leader of ``all-weather`` for a shape."""
    return SHARE * min(1.0, (PAIRS / (n_items * n_positions)) ** 0.75)


def mixture_leader_bound(n_items: int, n_positions: int, rounds: int, share: float | None = None) -> float:
    r"""Return an upper bound on the expected regret of the leader, if it is played with at least a share :math:`q`.

    .. math::

        R_A(T) \le m (\sqrt n - 1) \sqrt{1 + 4A} + 4m \sqrt n \left(\frac{1}{q} + 20 \sqrt{1 + A/10}\right)
            + 80m \sqrt{1 + T/10}, \qquad A = \frac{T}{q} \ge \sum_t \frac{1}{w_t}

    This is the regret that the leader would have if its lists were always shown; it learns from the lists that the
    mixture shows. ``share`` is :math:`q`, by default that of ``all-weather``.
    """
    n, m, T = _shape(n_items, n_positions, rounds)
    share = least_share(n, m) if share is None else share
    if not 0.0 < share <= 1.0:
        raise ValueError(f"share must be above 0 and at most 1; got {share}")
    A = T / share
    penalty = m * (math.sqrt(n) - 1.0) * math.sqrt(1.0 + MOST_SURPRISE * A)
    weighted = 1.0 / share + 2.0 / LEAST_SURPRISE * math.sqrt(1.0 + LEAST_SURPRISE * A)
    unweighted = 2.0 / LEAST_SURPRISE * math.sqrt(1.0 + LEAST_SURPRISE * T)
    return penalty + 4.0 * m * math.sqrt(n) * weighted + 4.0 * m * unweighted


def comparison_bound(n_items: int, n_positions: int, rounds: int) -> float:
    r"""Return an upper bound on what the mixture is expected to earn less than its leader.

    With :math:`K = 2 + \frac{\log T}{\log 1.5} + \frac{\log T}{\log (8/7)}` comparisons, each of which begins with the
    variance :math:`V_0` and ends when the leader is ahead by :math:`c` standard deviations,

    .. math::

        \left(\frac{c}{4} + c q^2 + \frac{m + 1}{2c'}\right) \sqrt{K \left(K V_0 + (m^2 + 2m/q) \, T\right)}
            + K \left(\frac{(m + 1)(m^2 + m/q^2)}{4 c' \sqrt{V_0}} + m (1 + q)\right)
    """
    n, m, T = _shape(n_items, n_positions, rounds)
    q = least_share(n, m)
    K = 2.0 + math.log(T) / math.log(WAKE_FACTOR) + math.log(T) / math.log(RESTART_FACTOR)
    variance, largest = (m**2 + 2.0 * m / q) * T, m**2 + m / q**2
    slope = WIDTH / 4.0 + WIDTH * q**2 + (m + 1) / (2.0 * SAMPLER_WIDTH)
    each = (m + 1) * largest / (4.0 * SAMPLER_WIDTH * math.sqrt(GRACE)) + m * (1.0 + q)
    return slope * math.sqrt(K * (K * GRACE + variance)) + K * each


def all_weather_bound(n_items: int, n_positions: int, rounds: int) -> float:
    r"""Return an upper bound on the expected regret of ``all-weather`` with any users that do not react to it.

    It is :func:`mixture_leader_bound` plus :func:`comparison_bound`, of order
    :math:`m \sqrt{nT/q} + m \sqrt{m T \log T / q}` with a large constant: 40 times the bound of FTRL-PBM for ten items
    and five positions. It says that no such users can make the policy lose a constant number of clicks in every round.

    >>> round(all_weather_bound(10, 5, 4 * 10**12) / all_weather_bound(10, 5, 10**12), 1)
    2.0
    """
    return mixture_leader_bound(n_items, n_positions, rounds) + comparison_bound(n_items, n_positions, rounds)


def _shape(n_items: int, n_positions: int, rounds: int) -> tuple[int, int, int]:
    n, m, T = whole(n_items, "n_items", 1), whole(n_positions, "n_positions", 1), whole(rounds, "rounds", 1)
    if m > n:
        raise ValueError(f"n_positions must be at most n_items = {n}; got {m}")
    return n, m, T
