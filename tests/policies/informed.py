"""Policies that are configured for a world."""

from __future__ import annotations

import numpy as np

from bothworlds.policies import Policy, configured_for, policy
from bothworlds.worlds import stochastic


def informed(name: str, n: int, m: int, rounds: int = 500) -> Policy:
    """Return the policy of that name, configured for a world of n items and m positions."""
    return configured_for(policy(name), rounds, stochastic(np.linspace(0.9, 0.1, n), np.linspace(0.9, 0.3, m)))
