"""Policies that know what they need to know."""

from __future__ import annotations

import numpy as np

from bothworlds.policies import Policy, policy, told
from bothworlds.worlds import stochastic


def informed(name: str, n: int, m: int, rounds: int = 500) -> Policy:
    """The policy of that name, told of a world of n items and m positions."""
    return told(policy(name), rounds, stochastic(np.linspace(0.9, 0.1, n), np.linspace(0.9, 0.3, m)))
