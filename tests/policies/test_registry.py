"""Policies by name, and what every policy can say about itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import bothworlds
from bothworlds.policies import CompiledPolicy, Policy, names, policy, resolve, told
from tests.policies.informed import informed
from tests.policies.plain import EpsilonGreedy, FixedList, Patient, Stranger


def test_the_policies_of_this_package_are_known():
    assert {"ftrl-pbm", "uniform"} <= set(names())
    assert names() == sorted(names())


@pytest.mark.parametrize("name", names())
def test_a_policy_by_name_is_a_policy_with_three_verbs(name):
    made = bothworlds.policy(name)
    assert isinstance(made, Policy)
    assert made.name == name
    made = informed(name, 4, 2)
    state = made.init(4, 2)
    decision = made.decide(state, np.random.default_rng(0))
    assert decision.ranking.shape == decision.propensity.shape == (2,)
    assert made.learn(state, decision, [0, 1]) is state


@pytest.mark.parametrize("name", names())
def test_a_policy_is_its_settings(name):
    made = policy(name)
    assert policy(name, **made.settings()) == made
    assert hash(made) == hash(policy(name))
    assert made.label == name


@pytest.mark.parametrize("name", names())
def test_a_policy_says_what_it_is_in_a_sentence(name):
    assert policy(name).__doc__.partition("\n")[0].endswith(".")


def test_settings_reach_the_policy_and_its_label():
    made = policy("ftrl-pbm", rate=0.25)
    assert made.rate == 0.25
    assert made.label == "ftrl-pbm(rate=0.25)"
    assert made.settings() == {"rate": 0.25, "tolerance": 1e-6}


def test_settings_cannot_be_changed_later():
    with pytest.raises(AttributeError):
        policy("ftrl-pbm").rate = 0.25


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no policy named 'ftrl'; there are .*ftrl-pbm.*uniform"):
        policy("ftrl")


def test_an_unknown_setting_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="policy 'ftrl-pbm' has no setting 'eta'; it has rate, tolerance"):
        policy("ftrl-pbm", eta=0.5)
    with pytest.raises(ValueError, match="policy 'uniform' has no setting 'rate'; it has none"):
        policy("uniform", rate=0.5)


def test_a_policy_is_found_by_name_or_passed_as_it_is():
    assert resolve("uniform") == policy("uniform")
    mine = EpsilonGreedy()
    assert resolve(mine) is mine
    stranger = Stranger()
    assert resolve(stranger) is stranger


@pytest.mark.parametrize("given", [None, 3, object(), EpsilonGreedy, Policy, len])
def test_what_is_no_policy_is_refused(given):
    with pytest.raises(ValueError, match="policy must be a name or an object with init, decide and learn"):
        resolve(given)


def test_a_policy_without_a_name_is_labelled_by_its_class():
    assert EpsilonGreedy().label == "EpsilonGreedy"
    assert EpsilonGreedy(0.5).label == "EpsilonGreedy(epsilon=0.5)"


def test_a_horizon_is_filled_in_only_where_it_is_missing():
    assert told(Patient(), 500) == Patient(horizon=500)
    assert told(Patient(horizon=7), 500) == Patient(horizon=7)
    assert told(FixedList(), 500) == FixedList()


def test_a_horizon_is_filled_in_without_dataclasses_too():
    class Impatient(FixedList):
        def __init__(self, horizon=None):
            object.__setattr__(self, "horizon", horizon)
            object.__setattr__(self, "items", ())

    class Simple(Policy):
        def __init__(self):
            self.horizon = None

        init = decide = learn = None

    given = Simple()
    assert told(given, 9).horizon == 9
    assert given.horizon is None
    assert told(Impatient(3), 9).horizon == 3


def test_a_compiled_policy_can_have_a_horizon():
    @dataclass(frozen=True)
    class Timed(CompiledPolicy):
        horizon: int | None = None

        def start(self, shape):
            return shape

    assert told(Timed(), 12).horizon == 12
