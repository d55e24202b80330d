"""Late feedback: without delay it is the policy itself, and late clicks have the propensities of their own decision."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

import bothworlds
from bothworlds import core, policies
from bothworlds.core import Decision
from bothworlds.policies import CompiledPolicy, Delayed, delayed
from bothworlds.testing import check_policy

DELAY = 7
WORLD = (0.1, 0.2, 0.9, 0.3, 0.4), (0.9, 0.6, 0.3)  # attraction, examination


def rewards(policy, rounds=300, inform=True):
    played = bothworlds.play(policy, "paper/stochastic", rounds, replications=2, jobs=1, inform=inform, progress=False)
    return played.reward


@pytest.mark.parametrize("name", ["ftrl-pbm", pytest.param("all-weather", marks=pytest.mark.nightly)])
def test_without_delay_it_is_the_policy_itself_in_a_compiled_loop(name):
    policy = policies.policy(name)
    assert np.array_equal(rewards(Delayed(policy, 0)), rewards(policy))
    assert not np.array_equal(rewards(Delayed(policy, DELAY)), rewards(policy))


def lists_of(policy, decide, note, learn, rounds=300):
    """Return the lists that are shown, with users who look for item 2."""
    state, noted = policy.init(5, 3), np.zeros(policy.note_size(core.Shape(5, 3)))
    rng, ranking, propensity, shown = np.random.default_rng(4), np.zeros(3, np.int64), np.zeros(3), []
    for _ in range(rounds):
        decide(state, rng, ranking, propensity, core.NO_CONTEXT)
        note(state, ranking, noted)
        clicks = (rng.random(3) < 0.1 + 0.8 * (ranking == 2)).astype(float)
        learn(state, ranking, propensity, clicks, noted, core.NONE_ABSENT, core.NO_CONTEXT)
        shown.append(ranking.copy())
    return np.array(shown)


@pytest.mark.parametrize("name", policies.names())
def test_without_delay_every_policy_is_itself(name):
    """The kernels of Delayed are interpreted here, so that they are not compiled for every policy."""
    policy = policies.configured_for(policies.policy(name), 300, bothworlds.worlds.stochastic(*WORLD))
    own = lists_of(policy, core.decide, core.note, core.learn)
    interpreted = delayed.decide.py_func, delayed.note.py_func, delayed.learn.py_func
    now, late = (lists_of(Delayed(policy, k), *interpreted) for k in (0, DELAY))
    assert np.array_equal(now, own)
    assert np.array_equal(late, own) == (not policy.adaptive)


def recorded(policy, state, decision):
    return decision


def present(policy, state, decision):
    """A broken twin: clicks that arrive late have the probabilities of today."""
    return Decision(decision.ranking, policy.marginals(state)[decision.ranking, np.arange(decision.ranking.size)])


def learns_as_if(weighed, delay, rounds=60):
    """Whether Delayed learns what the policy learns from decisions that wait in a queue, with these propensities."""
    policy, rng = policies.policy("ftrl-pbm"), np.random.default_rng(1)
    late = Delayed(policy, delay)
    state, expected, waiting = late.init(5, 3), policy.init(5, 3), deque()
    for _ in range(rounds):
        decision = late.decide(state, rng)
        clicks = (rng.random(3) < 0.1 + 0.8 * (decision.ranking == 2)).astype(float)
        state = late.learn(state, decision, clicks)
        waiting.append((decision, clicks))
        if len(waiting) > delay:
            old, own_clicks = waiting.popleft()
            expected = policy.learn(expected, weighed(policy, expected, old), own_clicks)
    return np.array_equal(late.marginals(state), policy.marginals(expected))


def test_a_late_click_has_the_propensity_of_its_own_decision():
    assert learns_as_if(recorded, DELAY)
    assert not learns_as_if(present, DELAY)
    assert learns_as_if(present, 0)


def test_nothing_is_learned_before_the_first_clicks_arrive(rng):
    late = Delayed(policies.policy("ftrl-pbm"), DELAY)
    state = late.init(4, 2)
    for k in range(DELAY + 1):
        assert (late.marginals(state) == 0.25).all(), k
        state = late.learn(state, late.decide(state, rng), [1.0, 0.0])
    assert not (late.marginals(state) == 0.25).all()


@pytest.mark.slow
def test_the_public_checks_accept_it():
    check_policy(Delayed(policies.policy("ftrl-pbm"), 3))


def test_the_policy_is_told_what_it_needs_and_keeps_its_items():
    late = Delayed(policies.policy("pbm-pie"), 0)
    assert np.array_equal(rewards(late), rewards("pbm-pie"))
    with pytest.raises(ValueError, match="pbm-pie needs examination"):
        rewards(late, inform=False)
    best = Delayed(policies.policy("fixed", ranking=[0, 1, 2, 3, 4]), 5)
    assert np.array_equal(rewards(best), rewards(best.policy))


def test_it_is_named_after_the_policy():
    assert Delayed(policies.policy("ftrl-pbm", rate=0.25), 7).label == "Delayed(policy='ftrl-pbm(rate=0.25)', delay=7)"
    assert "delayed" not in policies.names()
    assert policies.Delayed is Delayed


class Overriding(policies.FtrlPbm):
    def learn(self, state, decision, clicks):
        return state


@pytest.mark.parametrize(
    ("given", "delay", "message"),
    [
        ("ftrl-pbm", 1, "policy must be a compiled policy, as an object; got 'ftrl-pbm'"),
        (CompiledPolicy, 1, "policy must be a compiled policy"),
        (policies.FtrlPbm(), -1, "delay must be a whole number from 0 to 10,000,000; got -1"),
        (Overriding(), 1, "cannot be delayed: it overrides decide or learn"),
    ],
)
def test_what_cannot_be_delayed_is_refused(given, delay, message):
    with pytest.raises(ValueError, match=message):
        Delayed(given, delay).init(4, 2)
