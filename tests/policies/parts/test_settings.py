"""Settings that several policies share: an impossible one raises when a policy is built."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from bothworlds.policies import describe, names
from bothworlds.policies.parts.settings import Forgetting, Planning, Restarting, choice, number, probabilities, whole


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
        (Counter, {"window": 0}, "window must be a whole number of at least 1, or None"),
        (Counter, {"window": 2.5}, "window must be a whole number"),
        (Counter, {"window": 10**400}, "window must be a whole number .* got 1000"),
        (Counter, {"discount": 10**400}, "discount must be a number .* got 1000"),
        (Counter, {"window": True}, "window must be a whole number"),
        (Counter, {"discount": 0.0}, "discount must be a number above 0 and at most 1"),
        (Counter, {"discount": 1.5}, "discount must be"),
        (Counter, {"discount": "slow"}, "discount must be"),
        (Counter, {"window": 5, "discount": 0.9}, "two ways to forget"),
        (Restarter, {"restart": 0}, "restart must be a whole number of at least 1, or None"),
        (Planner, {"horizon": 0}, "horizon must be a whole number of at least 1, or None"),
        (Planner, {"horizon": 10, "restart": -1}, "restart must be"),
    ],
)
def test_impossible_settings_are_refused(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        kind(**settings)


@pytest.mark.parametrize("value", [None, "x", np.nan, np.inf, True, 0.0, -1])
def test_a_setting_must_be_a_number(value):
    with pytest.raises(ValueError, match="rate must be a number above 0; got"):
        number(SimpleNamespace(rate=value), "rate", above=0.0)


def test_limits_may_be_included():
    one = SimpleNamespace(share=1.0)
    number(one, "share", above=0.0, below=1.0, closed="]")
    with pytest.raises(ValueError, match="share must be a number at least 0 and below 1"):
        number(one, "share", above=0.0, below=1.0, closed="[")


def test_a_setting_must_be_one_of_the_words():
    choice(SimpleNamespace(credit="all-clicks"), "credit", ["first-click", "all-clicks"])
    with pytest.raises(ValueError, match="credit must be one of first-click, all-clicks; got 'none'"):
        choice(SimpleNamespace(credit="none"), "credit", ["first-click", "all-clicks"])


def test_whole_numbers_may_be_numpys():
    whole(SimpleNamespace(window=np.int64(3)), "window", 1)
    with pytest.raises(ValueError, match="window must be a whole number of at least 4"):
        whole(SimpleNamespace(window=np.int64(3)), "window", 4)


@pytest.mark.parametrize("value", [[], [0.0, 1.0], [1.2], [[0.5]], "abc", [None]])
def test_a_setting_must_be_a_list_of_probabilities(value):
    with pytest.raises(ValueError, match="examination must be a list of probabilities"):
        probabilities(SimpleNamespace(examination=value), "examination")


@pytest.mark.parametrize("name", names())
def test_every_policy_says_in_a_sentence_what_it_does_and_what_it_needs(name):
    what = describe(name)
    assert what.sentence.endswith(".")
    assert set(what.needs) <= {"horizon", "examination", "order", "world"}
    assert ("horizon" in what.needs) <= ("horizon" in what.settings)
