"""Settings: an impossible one raises when a policy is made, and a policy plays with the ends of what is accepted."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import pytest

from bothworlds import play, policy, world
from bothworlds.policies import CompiledPolicy, configured_for, describe, names
from bothworlds.policies.parts.settings import (
    Bounds,
    Forgetting,
    Planning,
    Restarting,
    choice,
    number,
    probabilities,
    truth,
    whole,
)


class Counter(Forgetting):
    start = None


class Restarter(Restarting):
    start = None


class Planner(Planning):
    start = None


Counter, Restarter, Planner = (
    type(c.__name__, (c,), {"__abstractmethods__": frozenset()}) for c in (Counter, Restarter, Planner)
)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Counter, {"window": 0}, "window must be a whole number from 1 to 10,000,000, or None"),
        (Counter, {"window": 2.5}, "window must be a whole number"),
        (Counter, {"window": 10**400}, "window must be a whole number .* got 1000"),
        (Counter, {"discount": 10**400}, "discount must be a number .* got 1000"),
        (Counter, {"window": True}, "window must be a whole number"),
        (Counter, {"discount": 0.0}, "discount must be a number from 1e-06 to 1"),
        (Counter, {"discount": 1.5}, "discount must be"),
        (Counter, {"discount": "slow"}, "discount must be"),
        (Counter, {"window": 5, "discount": 0.9}, "window and discount exclude each other; give one of them"),
        (Restarter, {"restart": 0}, "restart must be a whole number from 1 to .*, or None"),
        (Planner, {"horizon": 0}, "horizon must be a whole number from 1 to .*, or None"),
        (Planner, {"horizon": 10, "restart": -1}, "restart must be"),
    ],
)
def test_impossible_settings_are_refused(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        kind(**settings)


@dataclass(frozen=True, kw_only=True)
class Example(CompiledPolicy):
    rate: float = number(0.5, 1e-3, 10.0)
    steps: int = whole(1, 1, 1_000)
    limit: float | None = number(None, 0.0, 1.0)
    fast: bool = truth(False)
    credit: str = choice("first-click", "all-clicks")
    examination: tuple[float, ...] | None = probabilities()

    def start(self, shape):
        return None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(({"rate": v}, "rate must be a number from 0.001 to 10; got") for v in [None, "x", np.nan, np.inf, True, 0.0]),
        *(({"steps": v}, "steps must be a whole number from 1 to 1,000; got") for v in [None, "x", 0, 1.0, True, 1001]),
        ({"steps": np.int64(0)}, "steps must be"),
        ({"rate": 10**400}, "rate must be .*; got 1000"),
        ({"limit": 1.5}, "limit must be a number from 0 to 1, or None; got 1.5"),
        ({"fast": 1}, "fast must be True or False; got 1"),
        ({"credit": "none"}, "credit must be one of first-click, all-clicks; got 'none'"),
        *(
            ({"examination": v}, "examination must be a list of probabilities from 1e-09 to 1; got")
            for v in [[], [0.0, 1.0], [5e-324, 1.0], [1.2], [[0.5]], "abc", [None], [np.nan]]
        ),
    ],
)
def test_a_setting_is_checked_as_it_is_declared(settings, message):
    with pytest.raises(ValueError, match=message):
        Example(**settings)


def test_the_ends_of_bounds_and_numbers_of_numpy_are_accepted():
    Example()
    for rate in (1e-3, 10, np.float32(2.0), np.int64(3)):
        assert Example(rate=rate).rate is rate
    assert Example(steps=np.int64(1_000), limit=0, fast=np.True_, credit="all-clicks").steps == 1_000
    assert Example(examination=np.array([1.0, 0.5])).examination == (1.0, 0.5)


# Every policy


def bounds_of(kind) -> dict[str, Bounds]:
    """The bounds of the numeric settings of a policy; a number without bounds is an error."""
    numeric = [field for field in fields(kind) if set(field.type.split(" | ")) & {"int", "float"}]
    without = [field.name for field in numeric if not isinstance(field.metadata.get("check"), Bounds)]
    assert not without, f"{kind.__name__} has numbers without bounds: {without}"
    return {field.name: field.metadata["check"] for field in numeric}


def test_a_number_without_bounds_is_caught():
    @dataclass(frozen=True, kw_only=True)
    class Loose(Example):
        width: float | None = None

    with pytest.raises(AssertionError, match=r"Loose has numbers without bounds: \['width'\]"):
        bounds_of(Loose)


def test_every_number_of_every_policy_is_bounded():
    for name in names():
        for setting, bounds in bounds_of(type(policy(name))).items():
            below, above = np.nextafter(bounds.least, -np.inf), np.nextafter(bounds.most, np.inf)
            none = () if bounds.optional else (None,)
            for value in (np.nan, np.inf, -np.inf, 1e308, -1e308, 10**400, below, above, True, "many", [0.5], *none):
                with pytest.raises(ValueError, match=f"{setting} must be a .*number from .* to .*; got"):
                    policy(name, **{setting: value})


def test_every_other_setting_of_every_policy_is_checked():
    for name in names():
        for field in fields(type(policy(name))):
            if "check" in field.metadata and not isinstance(field.metadata["check"], Bounds):
                for value in (3, "no such value", [object()]):
                    with pytest.raises(ValueError, match=f"{field.name} must be"):
                        policy(name, **{field.name: value})


@pytest.mark.parametrize("name", names())
def test_a_policy_plays_with_the_least_and_the_most_of_every_number(name):
    for setting, bounds in bounds_of(type(policy(name))).items():
        for value in (bounds.least, bounds.most):
            extreme = configured_for(policy(name, **{setting: value}), 20, world("paper/stochastic"))
            assert np.isfinite(play(extreme, "paper/stochastic", rounds=20, replications=1, jobs=1).reward).all()


def test_every_policy_says_in_a_sentence_what_it_does_and_what_it_needs():
    for name in names():
        what = describe(name)
        assert what.sentence.endswith("."), name
        assert set(what.needs) <= {"horizon", "examination", "order", "world"}, name
        assert ("horizon" in what.needs) <= ("horizon" in what.settings), name
