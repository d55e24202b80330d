"""What a compiled policy accepts as a shape, a generator, a decision and clicks.

No policy of this package overrides the methods that check it, so one policy stands for all; ``check_policy`` tests the
same in short for each of them.
"""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.core import Decision, leaves
from bothworlds.policies import names, policy
from bothworlds.policies.base import CompiledPolicy
from tests.policies.plain import EpsilonGreedy

GOOD = Decision(np.array([3, 1, 4]), np.full(3, 0.2))


@pytest.fixture
def learner():
    return policy("ftrl-pbm")


@pytest.fixture
def state(learner):
    return learner.init(5, 3)


def overridden(made):
    """The methods that check their arguments and are not those of ``CompiledPolicy``."""
    return [
        name for name in ("init", "decide", "learn") if getattr(type(made), name) is not getattr(CompiledPolicy, name)
    ]


def test_no_policy_overrides_the_methods_that_check_their_arguments():
    assert {name: overridden(policy(name)) for name in names() if overridden(policy(name))} == {}
    assert overridden(EpsilonGreedy()) == ["init", "decide", "learn"]


def snapshot(state):
    return {name: np.array(value) for name, value in leaves(state)}


def same(before, state):
    after = snapshot(state)
    return all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    "clicks", [[0, 1, 0], (True, False, True), np.ones(3, np.int8), np.zeros(3, np.float32), [0.5, 0, 1]]
)
def test_clicks_may_be_any_array_of_numbers_from_0_to_1(learner, state, clicks):
    assert learner.learn(state, GOOD, clicks) is state


@pytest.mark.parametrize(
    "clicks", [[0, 1], [0, 1, 0, 1], 1, [[0, 1, 0]], [2, 0, 0], [-1, 0, 0], [np.nan, 0, 0], "010", None]
)
def test_impossible_clicks_are_refused_and_change_nothing(learner, state, clicks):
    before = snapshot(state)
    with pytest.raises(ValueError, match="clicks"):
        learner.learn(state, GOOD, clicks)
    assert same(before, state)


@pytest.mark.parametrize(
    "ranking", [[3, 1], [3, 1, 3], [3, 1, 5], [-1, 0, 1], [0.0, 1.0, 2.0], [[0, 1, 2]], ["a", "b", "c"], None, 2]
)
def test_an_impossible_ranking_is_refused_and_changes_nothing(learner, state, ranking):
    before = snapshot(state)
    with pytest.raises(ValueError, match="ranking"):
        learner.learn(state, Decision(ranking, GOOD.propensity), [0, 0, 0])
    assert same(before, state)


@pytest.mark.parametrize(
    "propensity", [[0.2, 0.2], [0.2, 0.2, 0.0], [0.2, -0.1, 0.2], [1.1, 0.2, 0.2], [np.inf, 0.2, 0.2]]
)
def test_an_impossible_propensity_is_refused_and_changes_nothing(learner, state, propensity):
    before = snapshot(state)
    with pytest.raises(ValueError, match="propensity"):
        learner.learn(state, Decision(GOOD.ranking, np.array(propensity)), [0, 0, 0])
    assert same(before, state)


def test_an_unknown_propensity_is_refused_by_policies_that_need_it():
    unknown = Decision(GOOD.ranking, np.array([0.2, np.nan, 0.2]))
    with pytest.raises(ValueError, match="propensity"):
        policy("ftrl-pbm").learn(policy("ftrl-pbm").init(5, 3), unknown, [0, 0, 0])
    policy("uniform").learn(policy("uniform").init(5, 3), unknown, [0, 0, 0])


def test_a_decision_may_be_made_of_lists(learner, state):
    assert learner.learn(state, Decision([3, 1, 4], [0.2, 0.2, 0.2]), [0, 1, 0]) is state


@pytest.mark.parametrize("decision", [None, (np.arange(3), np.full(3, 0.2)), [3, 1, 4]])
def test_an_invalid_decision_is_refused(learner, state, decision):
    with pytest.raises(ValueError, match="decision"):
        learner.learn(state, decision, [0, 0, 0])


@pytest.mark.parametrize("rng", [None, 3, np.random.SeedSequence(3), "dice"])
def test_only_a_generator_decides(learner, state, rng):
    with pytest.raises(ValueError, match=r"rng must be a numpy.random.Generator"):
        learner.decide(state, rng)


@pytest.mark.parametrize(("n", "m"), [(3, 5), (1, 1), (4, 0), (4, -1), (4.5, 2), (4, "2"), (None, 1)])
def test_an_impossible_shape_is_refused(learner, n, m):
    with pytest.raises(ValueError, match=r"n_items|n_positions"):
        learner.init(n, m)
