"""Policies that see no labels in worlds that have them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from bothworlds import play
from bothworlds.policies import one_for_all, policy
from bothworlds.policies.contexts import OneForAll
from bothworlds.worlds import ContextualWorld


@dataclass(frozen=True)
class Plain(OneForAll):
    """Played in plain Python."""

    def runs_compiled(self, state):
        return False


@pytest.mark.slow
def test_one_learner_for_all_gets_no_context_in_the_compiled_loop_either():
    contexts, rng = np.array([[0, 2, 1], [3, 0, 0], [1, 1, 1]]), np.random.default_rng(0)
    attraction = rng.uniform(0.1, 0.9, (3, 5))
    world = ContextualWorld(contexts, np.zeros((5, 0), int), [0.5, 0.3, 0.2], attraction, [1.0, 0.5])
    compiled = play(one_for_all("context-ts"), world, 400, replications=2, jobs=1)
    plain = play(Plain(policy("context-ts")), world, 400, replications=2, jobs=1)
    assert (compiled.reward == plain.reward).all()
    assert (compiled.clicks == plain.clicks).all()
