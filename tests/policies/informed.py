"""Policies that are configured for a world."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from bothworlds.policies import Policy, configured_for, policy
from bothworlds.worlds import stochastic


def informed(name: str, n: int, m: int, rounds: int = 500) -> Policy:
    """Return the policy of that name, configured for a world of n items and m positions."""
    return configured_for(policy(name), rounds, stochastic(np.linspace(0.9, 0.1, n), np.linspace(0.9, 0.3, m)))


# A leader, both that learn labels, a sampler, two with notes and without parts, and counts.
ONE_OF_EACH_KIND = ("ftrl-pbm", "all-weather", "context-ts", "gibbs-ts", "toprank", "ranked-exp3", "comb-ucb")


def others_nightly(names: Iterable[str]) -> list[Any]:
    """Return parameters of a test of code that is the same for all policies but compiled for each: most are nightly."""
    return [name if name in ONE_OF_EACH_KIND else pytest.param(name, marks=pytest.mark.nightly) for name in names]
