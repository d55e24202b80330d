"""The public checks: correct policies and worlds pass, and each broken one fails the check meant for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import bothworlds
from bothworlds import policy
from bothworlds.testing import CheckFailed, check_policy, check_world, checks, policy_checks
from tests.policies.compiled import Popular
from tests.policies.plain import Divisible, EpsilonGreedy, FixedList, NotesTheList, Patient, Stranger, called
from tests.testing.broken import (
    BROKEN_LIST_WORLDS,
    BROKEN_POLICIES,
    BROKEN_WORLDS,
    AcceptsAnyShape,
    CountsQuestions,
    DecidesOutsideItsWork,
    DrawsFromItsOwnGenerator,
    ForgetsToRegisterDecide,
    ForgetsToRegisterLearn,
    LearnsAtRandom,
    LearnsOnItself,
    NeverLearns,
    RaisesInDecide,
    RanksWithAList,
    ReturnsAList,
    ReturnsNothing,
    RollsItsOwnDice,
    Sound,
    SoundLists,
)

CHECKS = {check.__name__: check for check in policy_checks(strict=True)}
THIRD_PARTY = [EpsilonGreedy(), Divisible(), NotesTheList(), Patient(), Popular(), Stranger()]
TWINS = [(check, policy) for check, policies in BROKEN_POLICIES.items() for policy in policies]


def test_every_check_has_a_broken_twin():
    assert BROKEN_POLICIES.keys() == CHECKS.keys()
    assert all(BROKEN_POLICIES.values())


def test_every_check_is_a_sentence():
    for name, check in CHECKS.items():
        assert name.startswith("check_")
        assert check.__doc__


@pytest.mark.slow
@pytest.mark.parametrize(("check", "broken"), TWINS, ids=[f"{policy.__name__}" for _, policy in TWINS])
def test_a_broken_policy_is_caught_by_the_check_meant_for_it(check, broken):
    with pytest.raises(CheckFailed, match=r": [a-z].* ") as failure:
        CHECKS[check](broken())
    assert isinstance(failure.value, AssertionError)


@pytest.mark.slow
def test_check_policy_runs_every_check_and_those_of_bad_input_on_request():
    with pytest.raises(CheckFailed, match="must beat uniform"):  # the last check
        check_policy(NeverLearns())
    with pytest.raises(CheckFailed, match="must raise ValueError"):
        check_policy(AcceptsAnyShape(), strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", bothworlds.policies.names())
def test_every_registered_policy_passes(name):
    check_policy(name, strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("player", THIRD_PARTY, ids=called)
def test_a_correct_third_party_policy_passes(player):
    check_policy(player)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in bothworlds.policies.names() if hasattr(policy(name), "restart")])
def test_in_every_policy_a_restart_that_is_forgotten_would_be_noticed(name, monkeypatch):
    monkeypatch.setattr(checks, "replace", lambda policy, restart: replace(policy, restart=2 * restart))
    with pytest.raises(CheckFailed, match="must leave nothing that was learned"):
        CHECKS["check_a_restart_forgets_everything"](policy(name))


def test_a_policy_that_declares_it_does_not_learn_need_not_beat_uniform():
    CHECKS["check_it_beats_uniform_in_an_easy_world"](FixedList())


def test_a_failure_names_the_policy():
    class Named(BROKEN_POLICIES["check_rankings_are_valid"][0]):
        name = "twice"

    with pytest.raises(CheckFailed, match=r"twice.*: ranking must be different items"):
        check_policy(Named())


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (RollsItsOwnDice, "decide must draw from the rng that is passed, not from its own"),
        (DrawsFromItsOwnGenerator, "decide must draw from the rng that is passed, not from its own"),
        (LearnsAtRandom, "learn draws random numbers, or something is stored outside the state"),
        (LearnsOnItself, "learn draws random numbers, or something is stored outside the state"),
        (CountsQuestions, "decide must not change the state; it changed shown, which is not in a field work"),
        (DecidesOutsideItsWork, "decide must not change the state; it changed last, which is not in a field work"),
        (ReturnsAList, r"decide must return a Decision of two arrays, ranking and propensity; got \["),
        (ReturnsNothing, r"decide must return a Decision of two arrays, ranking and propensity; got None"),
        (RanksWithAList, r"decide must return a Decision of two arrays, .* got Decision\(ranking=\["),
        (RaisesInDecide, "decide must not raise; IndexError: no such item"),
        (ForgetsToRegisterDecide, r"decide must not raise; .* no function is registered with @decides\(Undecided\)"),
        (ForgetsToRegisterLearn, r"learn must not raise; .* no function is registered with @learns\(Ignorant\)"),
    ],
)
def test_a_failure_names_its_cause(broken, sentence):
    with pytest.raises(CheckFailed, match=sentence):
        check_policy(broken())


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (ForgetsToRegisterDecide, r"@decides\(Undecided\) .*; decorate one"),
        (ForgetsToRegisterLearn, r"@learns\(Ignorant\) .*; decorate one"),
    ],
)
def test_play_names_the_missing_registration(broken, sentence):
    with pytest.raises(TypeError, match=sentence):
        bothworlds.play(broken(), "paper/stochastic", 10, replications=1)


def test_objects_that_are_not_policies_are_refused():
    with pytest.raises(ValueError, match="no policy named 'nobody'"):
        check_policy("nobody")
    with pytest.raises(ValueError, match="policy must be a name or an object"):
        check_policy(object())


@pytest.mark.slow
def test_a_check_gives_the_same_verdict_again():
    unlucky = BROKEN_POLICIES["check_labels_do_not_matter"][0]
    sentences = set()
    for _ in range(2):
        with pytest.raises(CheckFailed) as failure:
            CHECKS["check_labels_do_not_matter"](unlucky())
        sentences.add(str(failure.value))
    assert len(sentences) == 1


@pytest.mark.parametrize("name", bothworlds.worlds.names())
def test_every_named_world_passes(name):
    check_world(name)
    if "phase" in bothworlds.worlds.describe(name)[1]:
        check_world(bothworlds.world(name, phase=7))


def test_a_correct_third_party_world_passes():
    check_world(Sound())

    class Stranger:
        n_items, n_positions = 2, 1

        def click_probabilities(self, t):
            return [[0.5], [0.1 + 0.5 * (t % 2)]]

    check_world(Stranger())


@pytest.mark.parametrize("broken", BROKEN_WORLDS)
def test_a_broken_world_is_caught(broken):
    with pytest.raises(CheckFailed):
        check_world(broken())


def test_a_correct_world_that_answers_lists_passes():
    check_world(SoundLists())


@pytest.mark.parametrize("broken", BROKEN_LIST_WORLDS)
def test_a_broken_world_that_answers_lists_is_caught(broken):
    with pytest.raises(CheckFailed, match=BROKEN_LIST_WORLDS[broken]):
        check_world(broken())


@pytest.mark.parametrize("probabilities", [np.full((3, 2), 1.5), np.full((2, 3), 0.5), np.full((3, 2), np.nan)])
def test_a_broken_third_party_world_is_caught(probabilities):
    class Stranger:
        n_items, n_positions = 3, 2

        def click_probabilities(self, t):
            return probabilities

    with pytest.raises(CheckFailed):
        check_world(Stranger())


def test_objects_that_are_not_worlds_are_refused():
    with pytest.raises(ValueError, match="no world named 'nowhere'"):
        check_world("nowhere")
    with pytest.raises(ValueError, match="world must be a name or an object"):
        check_world(object())
