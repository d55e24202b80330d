"""Policies by name and by class, and their descriptions."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from bothworlds import Ranker, play, policies
from bothworlds.policies import CompiledPolicy, Policy, configured_for, names, policy, resolve
from tests.policies.plain import EpsilonGreedy, FixedList, Patient, Stranger


def test_the_policies_of_this_package_are_known():
    assert {"ftrl-pbm", "uniform"} <= set(names())
    assert names() == sorted(names())


def test_the_class_of_a_policy_is_exported_under_its_name():
    for made in (type(policy(name)) for name in names()):
        if made.__module__.startswith("bothworlds.policies."):  # not of another package
            assert getattr(policies, made.__name__, None) is made, f"add {made.__name__!r} to bothworlds.policies"
            assert made.__name__ in dir(policies)


def test_type_checkers_see_the_class_of_every_policy():
    """The imports under ``if TYPE_CHECKING`` are all policies, each from its own file, and three wrappers."""
    tree = ast.parse(Path(policies.__file__).read_text())
    block = next(
        node.body for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    listed = {(node.module, alias.name) for node in block for alias in node.names}
    classes = [type(policy(name)) for name in names()]
    ours = [[*made.__module__.split("."), made.__name__] for made in classes]
    named = {(parts[2], parts[-1]) for parts in ours if parts[:2] == ["bothworlds", "policies"]}
    wrappers = {("delayed", "Delayed"), ("contexts", "one_for_all"), ("contexts", "one_per_context")}
    assert listed == named | wrappers


@pytest.mark.slow
def test_importing_one_policy_imports_no_other():
    code = (
        "import json, sys; from bothworlds.policies import GibbsTs; "
        "print(json.dumps([name for name in sys.modules if name.startswith('bothworlds.policies.')]))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    loaded = {name.split(".")[2] for name in json.loads(run.stdout)}
    assert loaded == {"base", "gibbs_ts", "parts"}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = policies.Nonsense


def test_a_policy_is_its_settings():
    for name in names():
        made = policy(name)
        assert isinstance(made, Policy)
        assert policy(name, **made.settings()) == made
        assert hash(made) == hash(policy(name))
        assert made.name == made.label == name


def test_settings_reach_the_policy_and_its_label():
    made = policy("ftrl-pbm", rate=0.25)
    assert made.rate == 0.25
    assert made.label == "ftrl-pbm(rate=0.25)"
    assert made.settings() == {"rate": 0.25, "tolerance": 1e-6, "every": 1, "restart": None}


def test_settings_cannot_be_changed_later():
    with pytest.raises(AttributeError):
        policy("ftrl-pbm").rate = 0.25


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no policy named 'ftrl'; there are .*ftrl-pbm.*uniform"):
        policy("ftrl")


def test_an_unknown_setting_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="policy 'ftrl-pbm' has no setting 'eta'; it has rate, restart, tolerance"):
        policy("ftrl-pbm", eta=0.5)
    with pytest.raises(ValueError, match="policy 'uniform' has no setting 'rate'; it has none"):
        policy("uniform", rate=0.5)


def test_a_policy_is_found_by_name_or_passed_as_it_is():
    assert resolve("uniform") == policy("uniform")
    mine = EpsilonGreedy()
    assert resolve(mine) is mine
    stranger = Stranger()
    assert resolve(stranger) is stranger


@pytest.mark.parametrize("given", [EpsilonGreedy, Policy])
def test_a_class_instead_of_an_object_is_refused_with_advice(given):
    with pytest.raises(ValueError, match=rf"got the class {given.__name__}: call it, {given.__name__}\(\)"):
        resolve(given)


@dataclass(frozen=True)
class Informed(EpsilonGreedy):
    """A policy that needs the examination of positions, and fails without it."""

    examination: np.ndarray | None = None
    needs = ("examination",)

    def init(self, n_items, n_positions):
        assert np.array(self.examination)[n_positions - 1] > 0.0
        return super().init(n_items, n_positions)


@pytest.mark.parametrize(
    "use",
    [
        lambda policy: play(policy, "paper/stochastic", rounds=10),
        lambda policy: play(policy, "cascade/yandex", rounds=10, inform=True),  # such users have no examination
        lambda policy: Ranker(["a", "b", "c"], 2, policy=policy),
    ],
)
def test_what_a_policy_needs_and_nobody_tells_is_named(use):
    with pytest.raises(ValueError, match=r"^Informed needs examination=\.\.\."):
        use(Informed())


def test_what_a_policy_needs_may_be_told():
    assert (
        play(Informed(), "paper/stochastic", rounds=10, replications=1, inform=True).settings["examination"] is not None
    )


@pytest.mark.parametrize("given", [None, 3, object(), len])
def test_an_object_without_the_three_methods_is_refused(given):
    with pytest.raises(ValueError, match="policy must be a name or an object with init, decide and learn"):
        resolve(given)


def test_a_policy_without_a_name_is_labelled_by_its_class():
    assert EpsilonGreedy().label == "EpsilonGreedy"
    assert EpsilonGreedy(0.5).label == "EpsilonGreedy(epsilon=0.5)"


def test_a_horizon_is_filled_in_only_where_it_is_missing():
    assert configured_for(Patient(), 500) == Patient(horizon=500)
    assert configured_for(Patient(horizon=7), 500) == Patient(horizon=7)
    assert configured_for(FixedList(), 500) == FixedList()


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
    assert configured_for(given, 9).horizon == 9
    assert given.horizon is None
    assert configured_for(Impatient(3), 9).horizon == 3


def test_a_compiled_policy_can_have_a_horizon():
    @dataclass(frozen=True)
    class Timed(CompiledPolicy):
        horizon: int | None = None

        def start(self, shape):
            return shape

    assert configured_for(Timed(), 12).horizon == 12
